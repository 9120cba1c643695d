package collectives

import (
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/schedule"
)

// Parts cuts the call's buffer at the given elements, ascending and within the
// buffer: it stays one collective, started and waited for as one, but every
// part is done exactly as a collective of its own would be, with the spec of
// its own size. So each element is summed in the same order whether its part
// travels packed with others or alone. The parts are pipelined with each other.
// The MPI library's own collectives (spec mpi) do not know parts: where one of
// them serves any part, it serves the whole buffer.
func Parts(cuts ...int) Option { return Option{set: setParts, cuts: cuts} }

// parts returns the ranges that cuts make of count elements.
func parts(count int, cuts []int) ([]schedule.Range, error) {
	var rs []schedule.Range
	from := 0
	for _, to := range append(cuts[:len(cuts):len(cuts)], count) {
		if to < from || to > count {
			return nil, fmt.Errorf("a buffer of %d elements cannot be cut at %v: cuts ascend and lie within", count, cuts)
		}
		rs = append(rs, schedule.Range{Off: from, Len: to - from})
		from = to
	}
	return rs, nil
}

// packed finds the plan of a call in parts, or nil where the MPI library serves
// it. text says how it is done, equal on all ranks that call alike.
func (c *Comm) packed(k *call, count int) (plan *nbc.Plan, text string, err error) {
	ranges, err := parts(count, k.cuts)
	if err != nil {
		return nil, "", err
	}
	specs := make([]spec.Spec, len(ranges))
	cut := fnv.New64a()
	var texts []string
	for i, r := range ranges {
		choice, err := c.Select(k.query(c, r.Len), k.spec)
		if err != nil {
			return nil, "", err
		}
		if choice.Spec.IsLibrary() {
			k.library = choice.Spec.LibraryBlocks()
			return nil, choice.Text, nil
		}
		specs[i] = choice.Spec
		fmt.Fprintln(cut, r.Len, choice.Text)
		if i == 0 || texts[len(texts)-1] != choice.Text {
			texts = append(texts, choice.Text)
		}
	}
	text = fmt.Sprintf("%s in %d parts (%016x)", strings.Join(texts, ", "), len(ranges), cut.Sum64())
	plan, err = c.plan(k.at(c, count), text, func(at spec.Call) (*schedule.Schedule, error) { return spec.BuildParts(at, ranges, specs) })
	return plan, text, err
}

// query is what the selection of count elements of the call depends on.
func (k *call) query(c *Comm, count int) selection.Query {
	return selection.Query{
		Collective: k.collective, Bytes: k.dt.Bytes(count), Type: k.dt, Buffers: k.buffers,
		Blocking: k.blocking, Library: c.HasLibrary() && k.deadline == 0,
		Wraps: selection.Wraps(k.collective, k.dt, k.op),
	}
}

// at is the call as this rank sees it.
func (k *call) at(c *Comm, count int) spec.Call {
	return spec.Call{
		Collective: k.collective, Rank: c.Rank(), Size: c.Size(), Root: k.root, Count: count, ElemSize: k.dt.Size(), Nodes: c.nodes,
		Scaled: k.op == mem.Avg && scales(k.dt), Counts: k.counts,
		Apart: k.collective.Reduces() && !k.send.Overlaps(k.recv),
	}
}
