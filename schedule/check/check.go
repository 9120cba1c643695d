package check

import (
	"fmt"

	"github.com/scaffe/scaffe/schedule"
)

// Prove proves that all, one schedule per rank in the order of ranks, are the
// collective c: that they leave the sum of every rank's In in root's Out (Reduce) or
// in every rank's Out (Allreduce, of which root says nothing), or in every rank's Out
// what root's Out held at the start (Bcast).
func Prove(c schedule.Collective, all []*schedule.Schedule, root int) error {
	if !c.Valid() {
		return fmt.Errorf("check: unknown %v", c)
	}
	g := goal{Collective: c, root: root}
	if c == schedule.Allreduce {
		g.root = 0
	}
	return prove(all, g)
}

// goal is what a collective starts from and has to arrive at.
type goal struct {
	schedule.Collective
	root int
}

// sums reports whether the result is the sum of everyone's In; otherwise it is what
// the root's Out holds.
func (g goal) sums() bool { return g.Collective != schedule.Bcast }

// has reports whether rank has a result, hence an Out.
func (g goal) has(rank int) bool { return g.Collective != schedule.Reduce || rank == g.root }

func prove(all []*schedule.Schedule, g goal) error {
	if err := form(all, g); err != nil {
		return err
	}
	j, err := join(all)
	if err != nil {
		return err
	}
	for _, s := range all {
		if err := races(s); err != nil {
			return err
		}
	}
	order, err := j.order()
	if err != nil {
		return err
	}
	for _, inPlace := range []bool{false, true} {
		if inPlace && !g.sums() {
			break // a broadcast has no In
		}
		if err := j.sum(g, order, inPlace); err != nil {
			return err
		}
	}
	return nil
}
