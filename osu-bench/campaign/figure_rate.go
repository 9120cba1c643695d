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
	// busyAtMost is which part of the machine's cores messages may keep busy while ports carry them at full rate:
	// they also compute sums, and a port whose messages wait for a core stands still.
	busyAtMost = 0.6
)

// busy is which part of the machine's cores messages keep busy while ports are, however much of an iteration
// that is: what carrying them takes, over what the wire needs for those of the busiest node. Below the first rate
// ranks wait for the network for longer, which looks like carrying; such a rate was chosen so that it is bearable.
func (r *FigureRow) busy() float64 {
	switch {
	case r.GbitMost == 0:
		return 0
	case r.Rate < firstRate:
		return busyAtMost
	}
	each := r.GbitMost * r.SizeScale / 2 // Gbit sent, and as much received at the same time
	return r.Carrying / (1e6 * each / float64(r.Rate))
}

// strained reports whether the lab's cores, not its links, may be what is measured: waits ended late, or
// messages kept the cores busy.
func (r *FigureRow) strained() bool {
	return r.measured() && (r.Late > lateAtMost*r.Iteration || r.busy() > busyAtMost)
}

// begin returns the rate at which a cell is measured first: the one that rows of the same net at the same
// bandwidth on the most nodes below its own suggest, since as many times the ports keep the cores as many times as busy.
func (x *figureCell) begin(rows []FigureRow) int {
	below, busy, rate := 0, 0.0, firstRate
	for _, r := range rows {
		n := r.Nodes
		if !r.measured() || r.Profile != x.profile || r.Gbit != x.gbit || r.PerNode != x.layout.PPN || n >= x.layout.Nodes || n < below {
			continue
		}
		if n > below {
			below, busy = n, 0
		}
		busy, rate = max(busy, r.busy()*float64(x.layout.Nodes)/float64(n)), r.Rate
	}
	return bearable(busy, rate, rate)
}

// bearable returns a rate, at most the given one and halves of it, at which messages do not keep the cores too
// busy, if at the rate measured they kept this part of them.
func bearable(busy float64, measured, rate int) int {
	for rate > lastRate && busy*(float64(rate)/float64(measured)) > busyAtMost {
		rate /= 2
	}
	return rate
}

// settle measures a cell at lower and lower rates until the lab's cores do not strain. Rates that are not
// bearable are passed over: at half the rate messages keep half as many cores busy.
func (x *figureCell) settle(ctx context.Context, rate int, replay replayer, log io.Writer) ([]FigureRow, error) {
	for {
		rows, err := replay(ctx, *x, rate)
		if err != nil || rate <= lastRate || !slices.ContainsFunc(rows, func(r FigureRow) bool { return r.strained() }) {
			return rows, err
		}
		late, busy, next := 0.0, 0.0, rate/2
		for _, r := range rows {
			if r.measured() {
				late, busy = max(late, r.Late/r.Iteration), max(busy, r.busy())
				next = min(next, bearable(r.busy(), rate, rate/2))
			}
		}
		fmt.Fprintf(log, "  waits ended up to %.1f %% of an iteration late, messages kept up to %.0f %% of the cores busy while ports were full: again at %d Mbit/s\n", 100*late, 100*busy, next)
		rate = next
	}
}
