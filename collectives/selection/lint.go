package selection

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/scaffe/scaffe/internal/units"
	"github.com/scaffe/scaffe/schedule"
)

// Lint reports everything that is wrong or odd with a table, in the order
// of its lines: what ParseTable refuses; rules that never decide, since one
// above takes all their calls; rules that overlap in part; sizes between rules
// that no rule is for; chains longer than there are ranks; missing provenance.
func Lint(name, text string) []error {
	t, err := ParseTable(name, text)
	if err != nil {
		var joined interface{ Unwrap() []error }
		if errors.As(err, &joined) {
			return joined.Unwrap()
		}
		return []error{err}
	}
	var found []*LineError
	add := func(line int, format string, args ...any) {
		found = append(found, &LineError{name, line, fmt.Errorf(format, args...)})
	}
	t.lintHead(add)
	for i := range t.Rules {
		t.lintOverlap(i, add)
		t.lintGroups(&t.Rules[i], add)
	}
	t.lintGaps(add)
	slices.SortStableFunc(found, func(a, b *LineError) int { return a.Line - b.Line })
	errs := make([]error, len(found))
	for i, f := range found {
		errs[i] = f
	}
	return errs
}

type lintFunc func(line int, format string, args ...any)

func (t *Table) lintHead(add lintFunc) {
	onGPU := func(r Rule) bool { return r.Buffers == CUDA && !r.AnyBuffers }
	var missing []string
	for _, h := range []struct {
		name string
		has  bool
	}{
		{"host", t.Made.Machine.Host != ""},
		{"mpi", t.Made.Machine.MPI != ""},
		{"layout", t.Made.Layout.Ranks > 0},
		{"date", t.Made.Date != ""},
		{"gpu", t.Made.Machine.GPU != "" || !slices.ContainsFunc(t.Rules, onGPU)},
	} {
		if !h.has {
			missing = append(missing, h.name)
		}
	}
	if len(missing) > 0 {
		add(1, "no %s line: provenance is missing: rules cannot be checked against this machine", strings.Join(missing, ", no "))
	}
	if len(t.Rules) == 0 {
		add(1, "no rules: the table decides nothing")
	}
}

// lintOverlap compares rule i with those above it.
func (t *Table) lintOverlap(i int, add lintFunc) {
	r := &t.Rules[i]
	for k := range t.Rules[:i] {
		above := &t.Rules[k]
		if above.Spec.IsLibrary() && !r.Spec.IsLibrary() {
			continue // what the library cannot serve goes on to r
		}
		switch {
		case above.covers(r):
			add(r.Line, "never decides: line %d takes all its calls", above.Line)
			return
		case above.meets(r) && !r.covers(above):
			add(r.Line, "overlaps line %d in part, which decides there", above.Line)
		}
	}
}

// covers reports whether every call that o is for is one of r's.
func (r *Rule) covers(o *Rule) bool {
	return r.Collective == o.Collective && r.Nodes.covers(o.Nodes) && r.PPN.covers(o.PPN) && r.Bytes.covers(o.Bytes) &&
		(r.AnyType || !o.AnyType && r.Type == o.Type) && (r.AnyBuffers || !o.AnyBuffers && r.Buffers == o.Buffers)
}

// meets reports whether some call is one of both.
func (r *Rule) meets(o *Rule) bool {
	return r.Collective == o.Collective && r.Nodes.meets(o.Nodes) && r.PPN.meets(o.PPN) && r.Bytes.meets(o.Bytes) &&
		(r.AnyType || o.AnyType || r.Type == o.Type) && (r.AnyBuffers || o.AnyBuffers || r.Buffers == o.Buffers)
}

// lintGroups looks for groups of more ranks than the rule is for.
func (t *Table) lintGroups(r *Rule, add lintFunc) {
	if r.Nodes.To == NoLimit || r.PPN.To == NoLimit {
		return
	}
	limit, size := r.Nodes.To*r.PPN.To, 1
	if r.Nodes.To > 1<<20 || r.PPN.To > 1<<20 {
		return
	}
	for _, l := range r.Spec.Levels {
		if l.Size > 0 {
			if size *= l.Size; size > limit {
				add(r.Line, "spec %v groups %d ranks, but the rule is for %d at most", r.Spec, size, limit)
				return
			}
		}
	}
}

// lintGaps looks for sizes between the rules of like calls that none is for.
func (t *Table) lintGaps(add lintFunc) {
	type like struct {
		collective          schedule.Collective
		nodes, ppn          Range
		typ, anyType        any
		buffers, anyBuffers any
	}
	of := map[like][]*Rule{}
	var order []like
	for i := range t.Rules {
		r := &t.Rules[i]
		if r.Spec.IsLibrary() {
			continue
		}
		k := like{r.Collective, r.Nodes, r.PPN, r.Type, r.AnyType, r.Buffers, r.AnyBuffers}
		if of[k] == nil {
			order = append(order, k)
		}
		of[k] = append(of[k], r)
	}
	for _, k := range order {
		rules := slices.Clone(of[k])
		slices.SortStableFunc(rules, func(a, b *Rule) int { return a.Bytes.From - b.Bytes.From })
		last := rules[0].Bytes.To
		for _, r := range rules[1:] {
			if last < NoLimit && r.Bytes.From > last+1 && !t.anyFor(k.collective, Range{last + 1, r.Bytes.From - 1}) {
				add(r.Line, "no rule is for %v of %s up to here (%s): the built-in rule decides there", k.collective, units.FormatBytes(last+1), units.FormatBytes(r.Bytes.From))
			}
			last = max(last, r.Bytes.To)
		}
	}
}

// anyFor reports whether one rule takes all calls of a collective and some sizes,
// whatever else it asks for.
func (t *Table) anyFor(c schedule.Collective, bytes Range) bool {
	return slices.ContainsFunc(t.Rules, func(r Rule) bool {
		return r.Collective == c && !r.Spec.IsLibrary() && r.Bytes.covers(bytes)
	})
}
