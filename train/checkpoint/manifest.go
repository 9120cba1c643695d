package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/scaffe/scaffe/schedule"
)

// Range is elements of the packed parameters.
type Range = schedule.Range

// Digest is that of a file.
type Digest = [sha256.Size]byte

// Layout is of what a state is made: a set of one layout is none of another.
type Layout struct {
	Rule      string // the solver's type, such as SGD
	Histories int    // values that the rule remembers of an element
	Elements  int    // of the packed parameters
	Params    []Param
}

// Param is one parameter of a net.
type Param struct {
	Layer string
	Shape []int
	Off   int // in the packed parameters
}

// Shard is what one rank writes.
type Shard struct {
	Ranges []Range // ascending
	// Residuals are matrices of whose gradients this rank, a worker, has left something out
	// so far (scheme onebit); alike on all workers, whose numbers are in the order of ranks.
	Residuals []Range
	// Sums are where it has left something out of the sums over all workers.
	Sums []Stripe
	// Held are parameters of whose gradients this rank, a worker, has held something back so far (scheme dgc); alike
	// on all workers.
	Held   []Range
	Digest Digest
}

// Stripe is columns of a matrix that lies row by row in the packed parameters.
type Stripe struct {
	Off, Rows, Cols int // of the matrix
	Columns         Range
}

// Len is how many elements a stripe has.
func (s *Stripe) Len() int { return s.Rows * s.Columns.Len }

// matrix is all of the stripe's matrix.
func (s *Stripe) matrix() Range { return Range{Off: s.Off, Len: s.Rows * s.Cols} }

// state is the number of values in the shard's file that are of parameters and histories.
func (s *Shard) state(histories int) int {
	n := 0
	for _, r := range s.Ranges {
		n += r.Len
	}
	return n * (1 + histories)
}

// Len is the number of values in the shard's file: the elements' parameters, then their
// first history, then their second; then the residuals of gradients, and those of sums; then of each of
// Held the velocity and what has been accumulated.
func (s *Shard) Len(histories int) int {
	n := s.state(histories)
	for _, r := range s.Residuals {
		n += r.Len
	}
	for i := range s.Sums {
		n += s.Sums[i].Len()
	}
	for _, r := range s.Held {
		n += 2 * r.Len
	}
	return n
}

// Manifest makes shards a set.
type Manifest struct {
	Iter int // iterations done
	// NoResiduals is set where it was written before residuals were kept.
	NoResiduals bool
	Layout
	Shards []Shard // by rank
}

// Bytes is the size of all shards.
func (m *Manifest) Bytes() int64 {
	n := 0
	for i := range m.Shards {
		n += m.Shards[i].Len(m.Histories)
	}
	return int64(n) * valueSize
}

// head is the first line of a manifest, head1 that of one without residuals.
const (
	head  = "# scaffe checkpoint 2: with the shards beside it, what training goes on from"
	head1 = "# scaffe checkpoint 1: with the shards beside it, what training goes on from"
)

// Text returns the manifest as a file: a line for every fact, and a digest of these lines.
func (m *Manifest) Text() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\niter %d\nrule %q %d\nelements %d\n", head, m.Iter, m.Rule, m.Histories, m.Elements)
	for _, p := range m.Params {
		fmt.Fprintf(&b, "param %q %d %s\n", p.Layer, p.Off, dims(p.Shape))
	}
	for i := range m.Shards {
		fmt.Fprintf(&b, "shard %d %x\n", i, m.Shards[i].Digest)
		b.Write(m.Shards[i].Text())
	}
	fmt.Fprintf(&b, "digest %x\n", sha256.Sum256(b.Bytes()))
	return b.Bytes()
}

// Text returns what the shard holds as lines.
func (s *Shard) Text() []byte {
	var b bytes.Buffer
	for _, r := range s.Ranges {
		fmt.Fprintf(&b, "range %d %d\n", r.Off, r.Len)
	}
	for _, r := range s.Residuals {
		fmt.Fprintf(&b, "residual %d %d\n", r.Off, r.Len)
	}
	for _, r := range s.Held {
		fmt.Fprintf(&b, "held %d %d\n", r.Off, r.Len)
	}
	for _, x := range s.Sums {
		fmt.Fprintf(&b, "sum %d %d %d %d %d\n", x.Off, x.Rows, x.Cols, x.Columns.Off, x.Columns.Len)
	}
	return b.Bytes()
}

// ParseShard reads what Text returns.
func ParseShard(text []byte) (Shard, error) {
	var s Shard
	for line := range strings.Lines(string(text)) {
		if !s.parseLine(strings.TrimSuffix(line, "\n")) {
			return s, fmt.Errorf("%q is not a line of a shard", line)
		}
	}
	return s, nil
}

// parseLine reads a line of what a shard holds.
func (s *Shard) parseLine(line string) bool {
	var r Range
	var x Stripe
	switch {
	case scans(line, "range %d %d", &r.Off, &r.Len):
		s.Ranges = append(s.Ranges, r)
	case scans(line, "residual %d %d", &r.Off, &r.Len):
		s.Residuals = append(s.Residuals, r)
	case scans(line, "held %d %d", &r.Off, &r.Len):
		s.Held = append(s.Held, r)
	case scans(line, "sum %d %d %d %d %d", &x.Off, &x.Rows, &x.Cols, &x.Columns.Off, &x.Columns.Len):
		s.Sums = append(s.Sums, x)
	default:
		return false
	}
	return true
}

// dims writes extents as 6x3x5x5; those of a scalar as 1.
func dims(shape []int) string {
	if len(shape) == 0 {
		return "1"
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(shape), " ", "x"), "[]")
}

func parseDims(s string) ([]int, error) {
	var shape []int
	for d := range strings.SplitSeq(s, "x") {
		n, err := strconv.Atoi(d)
		if err != nil {
			return nil, fmt.Errorf("%q is no shape", s)
		}
		shape = append(shape, n)
	}
	return shape, nil
}

var errDamaged = errors.New("it is damaged: its last line is not the digest of the others")

// Parse reads what Text returns, and refuses what is not whole.
func Parse(text []byte) (*Manifest, error) {
	end := bytes.LastIndex(text, []byte("\ndigest ")) + 1
	if end == 0 || string(text[end:]) != fmt.Sprintf("digest %x\n", sha256.Sum256(text[:end])) {
		return nil, errDamaged
	}
	lines := strings.Split(strings.TrimSuffix(string(text[:end]), "\n"), "\n")
	m := &Manifest{NoResiduals: lines[0] == head1}
	if len(lines) < 4 || lines[0] != head && lines[0] != head1 || !scans(lines[1], "iter %d", &m.Iter) ||
		!scans(lines[2], "rule %q %d", &m.Rule, &m.Histories) || !scans(lines[3], "elements %d", &m.Elements) {
		return nil, fmt.Errorf("it does not begin as a manifest of this version does")
	}
	for _, line := range lines[4:] {
		if err := m.parseLine(line); err != nil {
			return nil, err
		}
	}
	if err := m.covers(); err != nil {
		return nil, err
	}
	return m, m.fits()
}

// parseLine reads a line of a parameter, a shard or what that holds.
func (m *Manifest) parseLine(line string) error {
	var p Param
	var text string
	n := 0
	switch {
	case scans(line, "param %q %d %s", &p.Layer, &p.Off, &text):
		var err error
		if p.Shape, err = parseDims(text); err != nil {
			return err
		}
		m.Params = append(m.Params, p)
		return nil
	case scans(line, "shard %d %s", &n, &text):
		digest, err := hex.DecodeString(text)
		if err == nil && n == len(m.Shards) && len(digest) == sha256.Size {
			m.Shards = append(m.Shards, Shard{Digest: Digest(digest)})
			return nil
		}
	case len(m.Shards) > 0 && m.Shards[len(m.Shards)-1].parseLine(line):
		return nil
	}
	return fmt.Errorf("%q is not a line of it", line)
}

// scans reports whether a line has such a form, and fills into with what it holds.
func scans(line, form string, into ...any) bool {
	n, err := fmt.Sscanf(line, form, into...)
	return err == nil && n == len(into)
}

// covers makes sure that the shards hold every element once.
func (m *Manifest) covers() error {
	var all []Range
	for i := range m.Shards {
		all = append(all, m.Shards[i].Ranges...)
	}
	slices.SortFunc(all, func(a, b Range) int { return a.Off - b.Off })
	end := 0
	for _, r := range all {
		if r.Off != end || r.Len <= 0 {
			return fmt.Errorf("its shards hold elements %v, where %d comes next", r, end)
		}
		end = r.End()
	}
	if end != m.Elements || m.Histories < 0 {
		return fmt.Errorf("its shards hold %d elements of %d", end, m.Elements)
	}
	return nil
}

// Residual returns the matrices of which there are residuals, and the ranks of the workers
// that have left something out of their gradients.
func (m *Manifest) Residual() (matrices []Range, workers []int) {
	for rank := range m.Shards {
		if s := &m.Shards[rank]; len(s.Residuals) > 0 {
			matrices, workers = s.Residuals, append(workers, rank)
		}
	}
	return matrices, workers
}

// HeldBack returns the parameters of whose gradients something was held back, and the ranks of the workers that did.
func (m *Manifest) HeldBack() (params []Range, workers []int) {
	for rank := range m.Shards {
		if s := &m.Shards[rank]; len(s.Held) > 0 {
			params, workers = s.Held, append(workers, rank)
		}
	}
	return params, workers
}

// heldFits makes sure that what is held is of the same parameters everywhere.
func (m *Manifest) heldFits() error {
	params, workers := m.HeldBack()
	for _, rank := range workers {
		if !slices.Equal(m.Shards[rank].Held, params) {
			return fmt.Errorf("what rank %d holds back is not of the other ranks' parameters", rank)
		}
	}
	end := 0
	for _, r := range params {
		if r.Off < end || r.Len < 1 || r.End() > m.Elements {
			return fmt.Errorf("elements %v are held back, of %d after element %d", r, m.Elements, end)
		}
		end = r.End()
	}
	return nil
}

// fits makes sure that the residuals are of the same matrices everywhere, and that there is one
// of the sum of every column.
func (m *Manifest) fits() error {
	if err := m.heldFits(); err != nil {
		return err
	}
	matrices, _ := m.Residual()
	sums, cols := map[Range][]Range{}, map[Range]int{}
	for rank := range m.Shards {
		s := &m.Shards[rank]
		if len(s.Residuals) > 0 && !slices.Equal(s.Residuals, matrices) {
			return fmt.Errorf("the residuals of rank %d are not those of the other ranks", rank)
		}
		for i := range s.Sums {
			x := &s.Sums[i]
			if of := x.matrix(); x.Rows < 1 || x.Columns.Len < 1 || x.Columns.End() > x.Cols || !slices.Contains(matrices, of) {
				return fmt.Errorf("rank %d has a residual of columns %v of sums %v, %d×%d, which are not of the matrices of its residuals", rank, x.Columns, of, x.Rows, x.Cols)
			}
			sums[x.matrix()], cols[x.matrix()] = append(sums[x.matrix()], x.Columns), x.Cols
		}
	}
	for _, r := range matrices {
		if r.Off < 0 || r.Len < 1 || r.End() > m.Elements {
			return fmt.Errorf("there are residuals of elements %v, of %d", r, m.Elements)
		}
		end := 0
		slices.SortFunc(sums[r], func(a, b Range) int { return a.Off - b.Off })
		for _, c := range sums[r] {
			if c.Off != end {
				return fmt.Errorf("the residuals of sums of elements %v are of columns %v, where %d comes next", r, c, end)
			}
			end = c.End()
		}
		if end != cols[r] || end == 0 {
			return fmt.Errorf("the residuals of sums of elements %v end at column %d of %d", r, end, cols[r])
		}
	}
	return nil
}

// of makes sure that the set is of such a layout.
func (m *Manifest) of(l Layout) error {
	if m.Rule != l.Rule || m.Histories != l.Histories {
		return fmt.Errorf("it is of solver type %s, and this one is %s", m.Rule, l.Rule)
	}
	if len(m.Params) != len(l.Params) {
		return fmt.Errorf("it is of another net: it has %d parameters, and this one %d", len(m.Params), len(l.Params))
	}
	for i, p := range l.Params {
		if had := m.Params[i]; had.Layer != p.Layer || dims(had.Shape) != dims(p.Shape) {
			return fmt.Errorf("it is of another net: layer %q with a parameter of %s, where this one has %q with %s", had.Layer, dims(had.Shape), p.Layer, dims(p.Shape))
		} else if had.Off != p.Off {
			return fmt.Errorf("its parameters lie otherwise: one of layer %q at %d, here at %d", p.Layer, had.Off, p.Off)
		}
	}
	if m.Elements != l.Elements {
		return fmt.Errorf("its parameters are %d elements, here %d", m.Elements, l.Elements)
	}
	return nil
}
