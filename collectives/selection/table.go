package selection

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/sim"
)

// Table is a tuning table: which spec serves which call. docs/tuning.md has
// its text form:
//
//	scaffe-table 2
//	host AMD EPYC, 2 cores
//	layout nodes=4 ppn=2 ranks=8
//	model inter.latency=6e-05 inter.bandwidth=1.25e+08
//	collective=reduce nodes=2-8 ppn=1-2 bytes=256K..64M type=f32 spec=direct/chain,chunk=512K
//
// A line begins with what it is for; # begins a comment. The first rule that
// matches a call decides.
type Table struct {
	Name  string // of the file
	Made  Provenance
	Model *sim.Model // nil: it has none
	Rules []Rule
}

// Provenance says where a table comes from.
type Provenance struct {
	Machine    Machine
	Layout     spec.Layout
	Version    string // of the program that measured
	Date       string // RFC 3339
	Iterations int    // most repetitions of one measurement
	Spread     string // of the measurements, such as 3%
}

// Rule is one line of a Table. It matches a call where all that it names fits.
type Rule struct {
	Line       int // in the file, from 1
	Collective schedule.Collective
	Nodes, PPN Range
	Bytes      Range
	Type       mem.Datatype
	AnyType    bool
	Buffers    BufferKind
	AnyBuffers bool
	Spec       spec.Spec
	Note       string // written behind it as a comment; reading drops it
}

// BufferKind says what kind of memory the buffers of a call lie in, on all
// ranks. It is the caller's word: ranks that looked for themselves could
// differ, and then their collectives would not match.
type BufferKind uint8

const (
	// Registered is memory from Comm.Alloc.
	Registered BufferKind = iota
	// Unregistered is any other memory. Between ranks of a node it is copied by the
	// kernel, or through a staging buffer, where registered memory is read in
	// place.
	Unregistered
	// CUDA is memory of a GPU, whose messages are read there or copied through the host's. That buffers lie there the calls
	// see by themselves, and ranks that differ in it learn so by an error.
	CUDA
)

// Valid reports whether k is one of these.
func (k BufferKind) Valid() bool { return k <= CUDA }

// String returns registered, unregistered or cuda.
func (k BufferKind) String() string {
	switch k {
	case Registered:
		return "registered"
	case Unregistered:
		return "unregistered"
	case CUDA:
		return "cuda"
	}
	return fmt.Sprintf("buffers(%d)", uint8(k))
}

// ParseBufferKind is the inverse of String; heap is an older word for unregistered.
func ParseBufferKind(s string) (BufferKind, error) {
	switch s {
	case "registered":
		return Registered, nil
	case "unregistered", "heap":
		return Unregistered, nil
	case "cuda":
		return CUDA, nil
	}
	return 0, fmt.Errorf("unknown kind of buffers %q: want registered, unregistered or cuda", s)
}

// LineError is what is wrong with a line of a table.
type LineError struct {
	Name string
	Line int
	Err  error
}

// Error names file and line.
func (e *LineError) Error() string { return fmt.Sprintf("%s:%d: %v", e.Name, e.Line, e.Err) }

// Unwrap returns what is wrong.
func (e *LineError) Unwrap() error { return e.Err }

// A table's first line. In version 1 the end of FROM-TO was excluded for bytes and
// included for nodes and ppn; version 2 writes the former FROM..TO.
const (
	tableHeader  = "scaffe-table 2"
	tableHeader1 = "scaffe-table 1"
)

// ParseTable reads a table; name is the file's, for messages. The error names
// every line that is wrong (errors.Join of *LineError).
func ParseTable(name, text string) (*Table, error) {
	t := &Table{Name: name}
	var errs []error
	first, number, sizes := true, 0, parseSizes
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		var err error
		if first {
			first = false
			switch line {
			case tableHeader:
			case tableHeader1:
				sizes = parseSizes1
			default:
				return nil, &LineError{name, number, fmt.Errorf("a tuning table begins with the line %q, not with %q", tableHeader, abridged(line))}
			}
			continue
		}
		if err = t.line(line, number, sizes); err != nil {
			errs = append(errs, &LineError{name, number, err})
		}
	}
	if first {
		return nil, &LineError{name, 1, fmt.Errorf("the file is empty: a tuning table begins with the line %q", tableHeader)}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return t, nil
}

func abridged(s string) string {
	if len(s) > 40 {
		return s[:40] + "…"
	}
	return s
}

// line reads a line that is neither empty nor the first.
func (t *Table) line(text string, number int, sizes func(string) (Range, error)) (err error) {
	word, rest, _ := strings.Cut(text, " ")
	rest = strings.TrimSpace(rest)
	switch word {
	case "host":
		t.Made.Machine.Host = rest
	case "mpi":
		t.Made.Machine.MPI = rest
	case "gpu":
		t.Made.Machine.GPU = rest
	case "version":
		t.Made.Version = rest
	case "date":
		t.Made.Date = rest
	case "spread":
		t.Made.Spread = rest
	case "iterations":
		if t.Made.Iterations, err = positive(rest); err != nil {
			err = fmt.Errorf("iterations: %w", err)
		}
	case "layout":
		t.Made.Layout, err = parseLayout(rest)
	case "model":
		m, e := sim.ParseModel(rest)
		t.Model, err = &m, e
	default:
		var r Rule
		if r, err = parseRule(text, sizes); err == nil {
			r.Line = number
			t.Rules = append(t.Rules, r)
		}
	}
	return err
}

func positive(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > 1<<30 {
		return 0, fmt.Errorf("%q is not a number from 1 on", s)
	}
	return n, nil
}

func parseLayout(s string) (l spec.Layout, err error) {
	at := map[string]*int{"ranks": &l.Ranks, "nodes": &l.Nodes, "ppn": &l.PPN}
	for _, w := range strings.Fields(s) {
		key, value, _ := strings.Cut(w, "=")
		if at[key] == nil {
			return l, fmt.Errorf("layout: unknown key %q: use nodes, ppn and ranks", key)
		}
		if *at[key], err = positive(value); err != nil {
			return l, fmt.Errorf("layout: %s: %w", key, err)
		}
	}
	if l.Nodes == 0 || l.PPN == 0 || l.Ranks == 0 {
		return l, errors.New("layout: want all of nodes=, ppn= and ranks=")
	}
	return l, nil
}

// ruleKeys are the keys of a rule, in the order in which it is written.
var ruleKeys = []string{"collective", "nodes", "ppn", "bytes", "type", "buffer", "spec"}

func parseRule(text string, sizes func(string) (Range, error)) (Rule, error) {
	r := Rule{AnyType: true, AnyBuffers: true, Nodes: Range{1, NoLimit}, PPN: Range{1, NoLimit}, Bytes: Range{0, NoLimit}}
	given := map[string]bool{}
	for _, w := range strings.Fields(text) {
		key, value, has := strings.Cut(w, "=")
		if !has {
			return r, fmt.Errorf("%q is neither key=value nor one of host, mpi, gpu, layout, date, iterations, spread, model at the beginning of a line", w)
		}
		if given[key] {
			return r, fmt.Errorf("%s is given twice", key)
		}
		given[key] = true
		if err := r.set(key, value, sizes); err != nil {
			return r, err
		}
	}
	for _, key := range []string{"collective", "spec"} {
		if !given[key] {
			return r, fmt.Errorf("a rule needs %s=", key)
		}
	}
	return r, r.Spec.Serves(r.Collective)
}

func (r *Rule) set(key, value string, sizes func(string) (Range, error)) (err error) {
	switch key {
	case "collective":
		r.Collective, err = schedule.ParseCollective(value)
	case "nodes":
		r.Nodes, err = parseRange(value, 1, positive)
	case "ppn":
		r.PPN, err = parseRange(value, 1, positive)
	case "bytes":
		r.Bytes, err = sizes(value)
	case "type":
		r.AnyType = false
		r.Type, err = mem.ParseDatatype(value)
	case "buffer":
		r.AnyBuffers = false
		r.Buffers, err = ParseBufferKind(value)
	case "spec":
		r.Spec, err = spec.Parse(value)
	default:
		return fmt.Errorf("unknown key %q: use %s", key, strings.Join(ruleKeys, ", "))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

// matches reports whether the rule is for a call.
func (r *Rule) matches(l spec.Layout, q Query) bool {
	return r.Collective == q.Collective && r.Nodes.Has(l.Nodes) && r.PPN.Has(l.PPN) && r.Bytes.Has(q.Bytes) &&
		(r.AnyType || r.Type == q.Type) && (r.AnyBuffers || r.Buffers == q.Buffers) &&
		(!r.Spec.IsLibrary() || q.libraryServes())
}

// String returns the rule as a line of a table.
func (r Rule) String() string {
	words := []string{"collective=" + r.Collective.String()}
	add := func(key, value string) { words = append(words, key+"="+value) }
	if r.Nodes != (Range{1, NoLimit}) {
		add("nodes", r.Nodes.numbers())
	}
	if r.PPN != (Range{1, NoLimit}) {
		add("ppn", r.PPN.numbers())
	}
	if r.Bytes != (Range{0, NoLimit}) {
		add("bytes", r.Bytes.sizes())
	}
	if !r.AnyType {
		add("type", r.Type.String())
	}
	if !r.AnyBuffers {
		add("buffer", r.Buffers.String())
	}
	add("spec", r.Spec.String())
	return strings.Join(words, " ")
}

// String returns the table's text form, which ParseTable reads back.
func (t *Table) String() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line(tableHeader)
	m := t.Made
	for _, h := range [][2]string{{"host", m.Machine.Host}, {"mpi", m.Machine.MPI}, {"gpu", m.Machine.GPU}, {"version", m.Version}, {"date", m.Date}, {"spread", m.Spread}} {
		if h[1] != "" {
			line("%s %s", h[0], h[1])
		}
	}
	if m.Layout.Ranks > 0 {
		line("layout nodes=%d ppn=%d ranks=%d", m.Layout.Nodes, m.Layout.PPN, m.Layout.Ranks)
	}
	if m.Iterations > 0 {
		line("iterations %d", m.Iterations)
	}
	if t.Model != nil {
		line("model %v", t.Model)
	}
	for _, r := range t.Rules {
		text := r.String()
		if r.Note != "" {
			text += " # " + r.Note
		}
		line("%s", text)
	}
	return b.String()
}
