package check

import "github.com/scaffe/scaffe/schedule"

// Reduce proves that all, one schedule per rank in the order of ranks, leave
// the sum of every rank's In in root's Out.
func Reduce(all []*schedule.Schedule, root int) error {
	return prove(all, goal{name: "reduce", root: root, sum: true})
}

// Bcast proves that all, one schedule per rank in the order of ranks, leave
// what root's Out held at the start in every rank's Out.
func Bcast(all []*schedule.Schedule, root int) error {
	return prove(all, goal{name: "bcast", root: root, all: true})
}

// Allreduce proves that all, one schedule per rank in the order of ranks,
// leave the sum of every rank's In in every rank's Out.
func Allreduce(all []*schedule.Schedule) error {
	return prove(all, goal{name: "allreduce", sum: true, all: true})
}

// goal is what a collective starts from and has to arrive at.
type goal struct {
	name string
	root int
	sum  bool // from everyone's In; otherwise from the root's Out
	all  bool // at everyone's Out; otherwise at the root's
}

// has reports whether rank has a result, hence an Out.
func (g goal) has(rank int) bool { return g.all || rank == g.root }

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
		if inPlace && !g.sum {
			break // a broadcast has no In
		}
		if err := j.sum(g, order, inPlace); err != nil {
			return err
		}
	}
	return nil
}
