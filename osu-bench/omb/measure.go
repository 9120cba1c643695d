package omb

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/scaffe/scaffe/internal/stats"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/mem"
)

// series is what one subject's iterations came to on this rank.
type series struct {
	samples []sample
	wrong   int // elements, of all iterations
}

// measure measures all subjects in a case, and returns a row of each.
func (r *runner) measure(ctx context.Context, c *testCase) ([]Row, error) {
	subjects, err := r.subjectsOf(c)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, s := range subjects {
			s.release()
		}
	}()
	for _, s := range subjects {
		if err := s.prepare(c); err != nil {
			return nil, r.failed(c, s, err)
		}
	}
	works := make([]*work, len(subjects))
	pure, err := r.turns(ctx, c, subjects, works)
	if err != nil {
		return nil, err
	}
	under := pure
	if c.program.is(nonblocking) {
		for i := range works {
			length := meanOf(pure[i].samples, func(s sample) float64 { return s.total }) * r.opts.ComputeScale
			works[i] = &work{length: time.Duration(length * 1e3), tests: r.opts.Tests, idle: r.opts.Compute == "wait"}
		}
		if under, err = r.turns(ctx, c, subjects, works); err != nil {
			return nil, err
		}
	}
	rows := make([]Row, len(subjects))
	for i, s := range subjects {
		if rows[i], err = r.row(ctx, c, s, pure[i], under[i]); err != nil {
			return nil, err
		}
	}
	judge(rows)
	return rows, nil
}

func (r *runner) failed(c *testCase, s subject, err error) error {
	return fmt.Errorf("%s, %d bytes, %s: %w", c.program.Name, c.bytes, s.label(), err)
}

// iterations returns how many a case has, and how many before those.
func (r *runner) iterations(c *testCase) (timed, warmup int) {
	if c.bytes > Large {
		return r.opts.IterationsLarge, r.opts.WarmupLarge
	}
	return r.opts.Iterations, r.opts.Warmup
}

// block returns how many iterations of a subject follow each other before the next
// one has its turn. A small collective is timed as in the loop of a program that calls
// it again and again, caches and branch predictors warm, and a test between two ranks
// without a barrier in between, whose time would be the barrier's otherwise. Data are
// checked, and roots rotate, from turn to turn.
func (r *runner) block(c *testCase, timed int) int {
	turns := timed
	switch {
	case c.program.is(latency | bandwidth):
		turns = 20
	case c.program.is(collective) && c.bytes <= Large && !r.opts.Validate && r.opts.Root != Rotate:
		turns = 50
	}
	return (timed + turns - 1) / turns
}

// turns lets the subjects take turns, iteration by iteration: what disturbs
// the machine for a while disturbs all alike. The order of each iteration is
// drawn, the same on all ranks, so that no subject always follows another.
func (r *runner) turns(ctx context.Context, c *testCase, subjects []subject, works []*work) ([]series, error) {
	timed, warmup := r.iterations(c)
	block := r.block(c, timed)
	var check *checker
	if r.opts.Validate {
		check = newChecker(c)
		defer check.free()
	}
	all := make([]series, len(subjects))
	for i := range all {
		all[i].samples = make([]sample, 0, timed)
	}
	rng := rand.New(rand.NewPCG(uint64(c.bytes), 1))
	discard := make([]sample, max(1, min(block, warmup)))
	settling := make([][]sample, len(subjects))
	if r.opts.Settle > 0 {
		warmup = max(warmup, 2) // by the last of which the calls are counted: the first finds nothing in the caches
	}
	last := make([]float64, len(subjects)) // µs, of a call before those that are measured
	for done, iteration := -warmup, 0; done < timed; iteration++ {
		if done == 0 && r.opts.Settle > 0 {
			if err := r.settling(ctx, last, settling); err != nil {
				return nil, err
			}
		}
		n := min(block, timed-max(done, 0))
		if done < 0 {
			n = min(len(discard), -done)
		}
		for _, i := range rng.Perm(len(subjects)) {
			out := discard[:min(n, len(discard))]
			if done >= 0 {
				m := len(all[i].samples)
				all[i].samples = all[i].samples[:m+n]
				out = all[i].samples[m:]
			}
			if done >= 0 && len(settling[i]) > 0 {
				if err := subjects[i].run(ctx, c, iteration, works[i], settling[i]); err != nil {
					return nil, r.failed(c, subjects[i], err)
				}
			}
			wrong, err := r.turn(ctx, c, subjects[i], check, iteration, works[i], out)
			if err != nil {
				return nil, r.failed(c, subjects[i], err)
			}
			all[i].wrong += wrong
			last[i] = out[len(out)-1].total
		}
		done += n
	}
	return all, nil
}

// settling makes room for the calls of each subject that fill Options.Settle, as many on all ranks, by what the last
// call took. Calls that are much longer leave little of what was before them.
func (r *runner) settling(ctx context.Context, last []float64, calls [][]sample) error {
	slowest, err := r.gather(ctx, last, mem.Max)
	if err != nil {
		return err
	}
	settle := float64(r.opts.Settle.Microseconds())
	for i, t := range slowest {
		if t < 4*settle {
			calls[i] = make([]sample, int(math.Ceil(settle/max(t, 1))))
		}
	}
	return nil
}

// turn is one subject's iteration.
func (r *runner) turn(ctx context.Context, c *testCase, s subject, check *checker, iteration int, w *work, out []sample) (wrong int, err error) {
	if check != nil {
		if err := r.before(ctx, check, c, iteration); err != nil {
			return 0, err
		}
	}
	if !c.program.is(collective) { // whose subjects meet before each execution
		if err := r.meet(ctx); err != nil {
			return 0, err
		}
	}
	if err := s.run(ctx, c, iteration, w, out); err != nil {
		return 0, err
	}
	if check == nil {
		return 0, nil
	}
	return r.after(ctx, check, c, iteration)
}

// meet lets all ranks begin together.
func (r *runner) meet(ctx context.Context) error {
	if r.meetsMPI {
		return r.mpi.engine.Do(ctx, r.mpi.comm.Barrier)
	}
	return r.comm.Barrier(ctx)
}

func meanOf(samples []sample, field func(sample) float64) float64 {
	sum := 0.0
	for _, s := range samples {
		sum += field(s)
	}
	return sum / float64(len(samples))
}

// row gathers what the ranks measured of one subject. Nothing of this runs
// while anything is timed.
func (r *runner) row(ctx context.Context, c *testCase, s subject, pure, under series) (Row, error) {
	row := Row{
		Program: c.program.Name, Asked: s.label(), Algorithm: s.ran(c), Size: c.bytes, Datatype: c.typ.Name,
		Ranks: c.size, Buffers: r.opts.Buffers, Inputs: r.opts.Inputs, Machine: launch.Machine(r.opts.Local).Host, Iterations: len(under.samples), validated: r.opts.Validate,
	}
	row.Nodes, row.MPI, row.Barrier = r.where()
	slowest, mean, err := r.iterationTimes(ctx, c, under)
	if err != nil {
		return row, err
	}
	if err := r.averages(ctx, &row, pure, under); err != nil {
		return row, err
	}
	if c.program.is(latency | bandwidth) { // rank 0's alone
		avg := stat.Mean(slowest, nil)
		row.Avg, row.Min, row.Max = avg, avg, avg
		mean = slowest
	}
	row.Time = stats.Median(slowest)
	if s, ours := s.(*specSubject); ours {
		row.Predicted = s.predicted(c)
	}
	row.rate(c, slowest)
	row.Percentiles = r.percentiles(c, mean)
	row.Wrong, err = r.wrong(ctx, c, pure, under)
	return row, err
}

// iterationTimes returns, for each iteration, the time of the slowest rank and
// the mean of the ranks.
func (r *runner) iterationTimes(ctx context.Context, c *testCase, s series) (slowest, mean []float64, err error) {
	times := make([]float64, len(s.samples))
	for i, s := range s.samples {
		times[i] = s.total
	}
	if slowest, err = r.gather(ctx, times, mem.Max); err != nil {
		return nil, nil, err
	}
	if mean, err = r.gather(ctx, times, mem.Sum); err != nil {
		return nil, nil, err
	}
	for i := range mean {
		mean[i] /= float64(c.size)
	}
	return slowest, mean, nil
}

// percentiles returns those that -z asks for: of times or, in the bandwidth
// test, of bandwidths.
func (r *runner) percentiles(c *testCase, times []float64) (ps []Percentile) {
	values := slices.Clone(times)
	if c.program.is(bandwidth) {
		for i, t := range values {
			values[i] = perSecond(c.bytes*r.opts.Window, t) * 1e3
		}
	}
	slices.Sort(values)
	for _, p := range r.opts.Percentiles {
		ps = append(ps, Percentile{p, percentile(values, p)})
	}
	return ps
}

// wrong returns how many elements were wrong, of all ranks.
func (r *runner) wrong(ctx context.Context, c *testCase, pure, under series) (int, error) {
	wrong, err := r.gather(ctx, []float64{float64(pure.wrong), float64(under.wrong)}, mem.Sum)
	if err != nil {
		return 0, err
	}
	if !c.program.is(nonblocking) { // pure and under are the same
		return int(wrong[0]), nil
	}
	return int(wrong[0] + wrong[1]), nil
}

// averages fills in OMB's columns: means over the iterations of each rank,
// then the mean, the least and the largest of the ranks.
func (r *runner) averages(ctx context.Context, row *Row, pure, under series) error {
	own := []float64{
		meanOf(under.samples, func(s sample) float64 { return s.total }),
		meanOf(pure.samples, func(s sample) float64 { return s.total }),
		meanOf(under.samples, func(s sample) float64 { return s.compute }),
		meanOf(under.samples, func(s sample) float64 { return s.begin }),
		meanOf(under.samples, func(s sample) float64 { return s.test }),
		meanOf(under.samples, func(s sample) float64 { return s.wait }),
	}
	least, err := r.gather(ctx, own, mem.Min)
	if err != nil {
		return err
	}
	most, err := r.gather(ctx, own, mem.Max)
	if err != nil {
		return err
	}
	sum, err := r.gather(ctx, own, mem.Sum)
	if err != nil {
		return err
	}
	for i := range sum {
		sum[i] /= float64(r.comm.Size())
	}
	row.Avg, row.Min, row.Max = sum[0], least[0], most[0]
	if r.program.is(nonblocking) {
		row.Overlap = &Overlap{
			Overall: sum[0], Pure: sum[1], Compute: sum[2], Begin: sum[3], Test: sum[4], Wait: sum[5],
			MinComm: least[1], MaxComm: most[1],
		}
		row.Overlap.Percent = overlap(sum[0], sum[2], sum[1])
	}
	return nil
}

// overlap is how much of the communication hides behind the computation, by
// OMB's formula.
func overlap(overall, compute, pure float64) float64 {
	return max(0, 100-(overall-compute)/pure*100)
}

// gather combines xs of all ranks, element by element.
func (r *runner) gather(ctx context.Context, xs []float64, op mem.Op) ([]float64, error) {
	in := slices.Clone(xs)
	out := make([]float64, len(xs))
	err := r.comm.Allreduce(ctx, mem.Of(in), mem.Of(out), mem.Float64, op)
	return out, err
}
