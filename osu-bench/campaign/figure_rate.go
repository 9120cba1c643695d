package campaign

import (
	"context"
	"fmt"
	"io"
	"slices"
)

// Rates of the lab's links in Mbit/s: a row that the lab's cores strain for is measured again at half the
// rate, in twice the time.
const (
	firstRate = 1000
	lastRate  = 125
	// lateAtMost is how late waits for computation may end on average, over the iteration.
	lateAtMost = 0.01
	// carryingAtMost is for how long the machine's cores may be busy with carrying messages, over the
	// iteration: they also compute sums, and do nothing while all ranks compute.
	carryingAtMost = 0.5
)

// strained reports whether the lab's cores, not its links, may be what is measured: waits ended late, or
// messages kept the cores busy.
func (r *FigureRow) strained() bool {
	return r.measured() && (r.Late > lateAtMost*r.Iteration || r.Carrying > carryingAtMost*r.Iteration)
}

// begin returns the rate at which a cell is measured first: the one that rows of the same net at the same
// bandwidth on the most nodes below its own suggest, since with as many times the messages carrying them takes
// the cores as many times as long.
func (x *figureCell) begin(rows []FigureRow) int {
	below, carrying, compute, rate := 0, 0.0, 0.0, firstRate
	for _, r := range rows {
		n := r.Nodes
		if !r.measured() || r.Profile != x.profile || r.Gbit != x.gbit || r.PerNode != x.layout.PPN || r.Apart != x.apart || n >= x.layout.Nodes || n < below {
			continue
		}
		if n > below {
			below, carrying = n, 0
		}
		carrying, compute, rate = max(carrying, r.Carrying*float64(x.layout.Nodes)/float64(n)), r.Compute, r.Rate
	}
	return bearable(carrying, compute, rate, rate)
}

// bearable returns a rate, at most the given one and halves of it, at which carrying messages does not keep the
// cores busy for too much of a time that grows as the rate falls, if it took them this long at the rate measured.
func bearable(carrying, of float64, measured, rate int) int {
	for rate > lastRate && carrying > carryingAtMost*of*float64(measured)/float64(rate) {
		rate /= 2
	}
	return rate
}

// settle measures a cell at lower and lower rates until the lab's cores do not strain. Rates that are not
// bearable are passed over: an iteration takes twice as long at half the rate, and carrying its messages as long as before.
func (x *figureCell) settle(ctx context.Context, rate int, replay replayer, log io.Writer) ([]FigureRow, error) {
	for {
		rows, err := replay(ctx, *x, rate)
		if err != nil || rate <= lastRate || !slices.ContainsFunc(rows, func(r FigureRow) bool { return r.strained() }) {
			return rows, err
		}
		late, busy, next := 0.0, 0.0, rate/2
		for _, r := range rows {
			if r.measured() {
				late, busy = max(late, r.Late/r.Iteration), max(busy, r.Carrying/r.Iteration)
				next = min(next, bearable(r.Carrying, r.Iteration, rate, rate/2))
			}
		}
		fmt.Fprintf(log, "  waits ended up to %.1f %% of an iteration late, messages kept the cores busy for up to %.0f %%: again at %d Mbit/s\n", 100*late, 100*busy, next)
		rate = next
	}
}
