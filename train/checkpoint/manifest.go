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
	Digest Digest
}

// Len is the number of values in the shard's file: the elements' parameters, then their
// first history, then their second.
func (s *Shard) Len(histories int) int {
	n := 0
	for _, r := range s.Ranges {
		n += r.Len
	}
	return n * (1 + histories)
}

// Manifest makes shards a set.
type Manifest struct {
	Iter int // iterations done
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

// head is the first line of a manifest.
const head = "# scaffe checkpoint 1: with the shards beside it, what training goes on from"

// Text returns the manifest as a file: a line for every fact, and a digest of these lines.
func (m *Manifest) Text() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\niter %d\nrule %q %d\nelements %d\n", head, m.Iter, m.Rule, m.Histories, m.Elements)
	for _, p := range m.Params {
		fmt.Fprintf(&b, "param %q %d %s\n", p.Layer, p.Off, dims(p.Shape))
	}
	for i := range m.Shards {
		fmt.Fprintf(&b, "shard %d %x\n", i, m.Shards[i].Digest)
		for _, r := range m.Shards[i].Ranges {
			fmt.Fprintf(&b, "range %d %d\n", r.Off, r.Len)
		}
	}
	fmt.Fprintf(&b, "digest %x\n", sha256.Sum256(b.Bytes()))
	return b.Bytes()
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
	m := &Manifest{}
	lines := strings.Split(strings.TrimSuffix(string(text[:end]), "\n"), "\n")
	if len(lines) < 4 || lines[0] != head || !scans(lines[1], "iter %d", &m.Iter) ||
		!scans(lines[2], "rule %q %d", &m.Rule, &m.Histories) || !scans(lines[3], "elements %d", &m.Elements) {
		return nil, fmt.Errorf("it does not begin as a manifest of this version does")
	}
	for _, line := range lines[4:] {
		if err := m.parseLine(line); err != nil {
			return nil, err
		}
	}
	return m, m.covers()
}

// parseLine reads a line of a parameter, a shard or a range.
func (m *Manifest) parseLine(line string) error {
	var p Param
	var r Range
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
	case scans(line, "range %d %d", &r.Off, &r.Len):
		if last := len(m.Shards) - 1; last >= 0 {
			m.Shards[last].Ranges = append(m.Shards[last].Ranges, r)
			return nil
		}
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
