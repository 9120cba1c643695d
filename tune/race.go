package tune

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/internal/stats"
	"github.com/scaffe/scaffe/internal/units"
)

// race is a job's specs, measured against each other.
type race struct {
	job
	rounds int         // so far
	left   []int       // who is still in it
	times  [][]float64 // of each spec, the median of each burst, in seconds
	last   []float64   // of each the last burst's, infinity where there was none
}

func newRace(j job) *race {
	r := &race{job: j, left: make([]int, len(j.specs)), times: make([][]float64, len(j.specs)), last: make([]float64, len(j.specs))}
	for i := range r.left {
		r.left[i], r.last[i] = i, math.Inf(1)
	}
	return r
}

// minRounds is how often a spec is measured at least, unless it is dropped before.
const minRounds = 3

// run goes on for so many seconds, or until there were so many rounds.
func (r *race) run(ctx context.Context, s *sweep, rounds int, seconds float64) error {
	from := time.Now()
	for n := 0; r.rounds < rounds; n++ {
		var took []float64 // the calls that count, of one spec after the other
		counts := make([]int, len(r.left))
		for k, i := range r.left {
			calls, err := s.calls(ctx, r.job, r.specs[i], r.last[i])
			if err != nil {
				return fmt.Errorf("%v of %s by %v: %w", r.collective, units.FormatBytes(r.bytes), r.specs[i], err)
			}
			took, counts[k] = append(took, calls...), len(calls)
		}
		took = append(took, time.Since(from).Seconds())
		if err := s.maxima(ctx, took); err != nil {
			return err
		}
		for k, i := range r.left {
			r.last[i] = median(took[:counts[k]])
			if took = took[counts[k]:]; n > 0 { // the first round warms up
				r.times[i] = append(r.times[i], r.last[i])
			}
		}
		if n == 0 {
			continue
		}
		r.rounds++
		r.drop()
		if took[0] > seconds && r.rounds >= minRounds {
			break
		}
	}
	return nil
}

// drop leaves in the race after a first round those who take no more than four
// times as long as the best, after a few no more than twice: by the shortest of their times, since a bad moment is no reason. The best of all
// but the library's stays in any case: it serves where the library cannot.
func (r *race) drop() {
	beyond := map[int]float64{1: 4, minRounds: 2}[r.rounds]
	if beyond == 0 {
		return
	}
	best, own := math.Inf(1), math.Inf(1)
	for _, i := range r.left {
		m := slices.Min(r.times[i])
		if best = min(best, m); !r.specs[i].IsLibrary() {
			own = min(own, m)
		}
	}
	r.left = slices.DeleteFunc(r.left, func(i int) bool {
		m := slices.Min(r.times[i])
		return m > beyond*best && (r.specs[i].IsLibrary() || m > own)
	})
}

// point returns what the race has come to.
func (r *race) point() *Point {
	p := &Point{Collective: r.collective.String(), Bytes: r.bytes}
	for i, t := range r.times {
		p.Specs = append(p.Specs, Measured{Spec: r.specs[i].String(), Best: minimum(t), Median: median(t), Spread: spread(t), Iterations: len(t)})
	}
	slices.SortStableFunc(p.Specs, func(a, b Measured) int { return cmp.Compare(a.Median, b.Median) })
	return p
}

// A small call is measured in a burst, as a program makes it that calls it again and again: by the time it counts, caches and
// branch predictors are as it leaves them itself, not as the candidate before it left them.
const (
	settleFor  = 500e-6 // seconds of calls before those that count
	burstFor   = 500e-6 // seconds of calls that count
	mostCalls  = 50     // of each
	burstsFrom = 4 * settleFor
)

// burst returns how many calls of a spec that takes so many seconds, infinity where that is not known, go before those that
// count, and how many count.
func burst(seconds float64) (settling, counted int) {
	if seconds >= burstsFrom {
		return 0, 1
	}
	calls := func(of float64) int { return int(math.Ceil(min(of/max(seconds, 1e-9), mostCalls))) }
	return calls(settleFor), calls(burstFor)
}

// calls makes a burst of calls of a spec that took so many seconds before, and returns this rank's seconds of those that count.
func (s *sweep) calls(ctx context.Context, j job, sp spec.Spec, before float64) ([]float64, error) {
	settling, counted := burst(before)
	out := make([]float64, 0, counted)
	for n := range settling + counted {
		t, err := s.once(ctx, j, sp)
		if err != nil {
			return nil, err
		}
		if n >= settling {
			out = append(out, t)
		}
	}
	return out, nil
}

// minimum returns the smallest of values, 0 where there are none.
func minimum(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return slices.Min(values)
}

// median returns the median of some values, infinity of none.
func median(v []float64) float64 {
	if len(v) == 0 {
		return math.Inf(1)
	}
	return stats.Median(v).Median
}

// spread is the distance of the quartiles as a part of the median.
func spread(v []float64) float64 {
	m := median(v)
	if m <= 0 || len(v) < 2 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(v))
	return (stat.Quantile(0.75, stat.LinInterp, sorted, nil) - stat.Quantile(0.25, stat.LinInterp, sorted, nil)) / m
}
