package tune

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/internal/stats"
	"github.com/scaffe/scaffe/internal/units"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
)

// Config is what to tune; Defaults fills in what is 0.
type Config struct {
	Collectives []schedule.Collective
	Min, Max    int // sizes in bytes
	Type        mem.Datatype
	Buffers     selection.BufferKind
	// Budget is how long the sweep may take. Iterations is how often each spec
	// runs at most.
	Budget     time.Duration
	Iterations int
	// Out is the table's file. What is measured before it is written is kept in
	// Partial().
	Out string
	// Machine and Version, the program's, go into the table.
	Machine selection.Machine
	Version string
	// OnProgress, where it is not nil, is told on rank 0 how the sweep goes.
	OnProgress func(Progress)
	// Now is the time for the table; nil means time.Now.
	Now func() time.Time
}

// Progress is how far a sweep has come.
type Progress struct {
	Done, Jobs int
	Job        string        // such as "reduce of 64K"
	Part       float64       // of the whole, from 0 to 1
	Left       time.Duration // about
}

// Defaults returns c with what is 0 filled in.
func (c Config) Defaults() Config {
	if len(c.Collectives) == 0 {
		c.Collectives = slices.Clone(schedule.Collectives)
	}
	if c.Min == 0 {
		c.Min = 4 << 10
	}
	if c.Max == 0 {
		c.Max = 64 << 20
	}
	if c.Budget == 0 {
		c.Budget = time.Minute
	}
	if c.Iterations == 0 {
		c.Iterations = 30
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Validate reports what is wrong with c.
func (c Config) Validate() error {
	switch {
	case c.Min < c.Type.Size() || c.Max < c.Min:
		return fmt.Errorf("invalid sizes from %s to %s: want at least one element, smallest first", units.FormatBytes(c.Min), units.FormatBytes(c.Max))
	case c.Min%c.Type.Size() != 0 || c.Max%c.Type.Size() != 0:
		return fmt.Errorf("invalid sizes from %d to %d bytes: want whole elements of %v", c.Min, c.Max, c.Type)
	case c.Budget < 0:
		return fmt.Errorf("budget must be at least 0 (got %v)", c.Budget)
	case c.Iterations < minRounds:
		return fmt.Errorf("iterations must be at least %d (got %d)", minRounds, c.Iterations)
	case c.Out == "":
		return errors.New("missing name of the table's file")
	}
	return nil
}

// minRounds is how often a spec is measured at least, unless it is dropped before.
const minRounds = 3

// Measured is one spec at one size.
type Measured struct {
	Spec       string  `json:"spec"`
	Best       float64 `json:"best"`   // seconds, the last rank's
	Median     float64 `json:"median"` // likewise
	Spread     float64 `json:"spread"` // between the quartiles, of the median
	Iterations int     `json:"iterations"`
}

// Point is everything that was measured for a collective at a size, the
// fastest first.
type Point struct {
	Collective string     `json:"collective"`
	Bytes      int        `json:"bytes"`
	Specs      []Measured `json:"specs"`
}

// Result is what a sweep came to.
type Result struct {
	Config   Config
	Layout   spec.Layout
	Selector *selection.Selector
	Points   []Point // by collective and size
	Jobs     int     // how many there would be
	Resumed  int     // points that an earlier sweep had measured
	Took     time.Duration
}

// Complete reports whether all was measured within the budget.
func (r *Result) Complete() bool { return len(r.Points) == r.Jobs }

// Sweep measures. It is a collective: all ranks call it with equal configs, and
// all get the result.
func Sweep(ctx context.Context, comm *collectives.Comm, c Config) (result *Result, err error) {
	c = c.Defaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	s := &sweep{Config: c, comm: comm, from: time.Now()}
	if s.kept, err = s.resume(ctx); err != nil {
		return nil, err
	}
	if err := s.buffers(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if err == nil { // otherwise other ranks may still use the buffers
			s.free()
		}
	}()
	selector := comm.Selector()
	s.jobs = c.jobs(selector, comm.Layout(), comm.HasLibrary() && c.Buffers != selection.CUDA)
	s.result = &Result{Config: c, Layout: comm.Layout(), Selector: selector, Jobs: len(s.jobs)}
	for i := range s.jobs {
		if err := s.next(ctx, i); err != nil {
			return nil, err
		}
	}
	return s.finish(), nil
}

// next does job i: an earlier sweep has measured it, or this one does, or the
// budget is spent.
func (s *sweep) next(ctx context.Context, i int) error {
	if p := find(s.kept, s.jobs[i]); p != nil {
		s.result.Points = append(s.result.Points, *p)
		s.result.Resumed++
		return nil
	}
	s.tell(i)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	used, err := s.elapsed(ctx)
	if err != nil {
		return err
	}
	left := s.Budget.Seconds() - used
	if left < 0 && len(s.result.Points) > 0 {
		return nil // jobs after it may be those of an earlier sweep
	}
	return s.measure(ctx, s.jobs[i], share(left, s.jobs[i:]))
}

// measure measures a job for about that many seconds, and keeps what it came to.
func (s *sweep) measure(ctx context.Context, j job, seconds float64) error {
	p, err := s.point(ctx, j, seconds)
	if err != nil {
		return err
	}
	s.result.Points = append(s.result.Points, p)
	return s.keep(ctx, s.result)
}

// finish returns the result, its points in order.
func (s *sweep) finish() *Result {
	s.tell(len(s.jobs))
	slices.SortStableFunc(s.result.Points, func(a, b Point) int {
		va, _ := schedule.ParseCollective(a.Collective)
		vb, _ := schedule.ParseCollective(b.Collective)
		return cmp.Or(cmp.Compare(va, vb), cmp.Compare(a.Bytes, b.Bytes))
	})
	s.result.Took = time.Since(s.from)
	return s.result
}

func find(kept []Point, j job) *Point {
	for i := range kept {
		if kept[i].Collective == j.collective.String() && kept[i].Bytes == j.bytes {
			return &kept[i]
		}
	}
	return nil
}

// share returns how many seconds the first of jobs may take of those left: in
// proportion to its bytes, above a fixed part for what each costs anyway.
func share(left float64, jobs []job) float64 {
	weight := func(j job) float64 { return float64(len(j.specs)) * (1<<20 + float64(j.bytes)) }
	all := 0.0
	for _, j := range jobs {
		all += weight(j)
	}
	return left * weight(jobs[0]) / all
}

// sweep is a Sweep under way on one rank.
type sweep struct {
	Config
	comm    *collectives.Comm
	from    time.Time
	in, out mem.Buffer
	kept    []Point // of an earlier sweep
	jobs    []job
	result  *Result
}

func (s *sweep) buffers(ctx context.Context) error {
	var err error
	if s.in, err = s.alloc(); err == nil {
		if s.out, err = s.alloc(); err != nil {
			s.give(s.in)
		}
	}
	if err := s.comm.Agree(ctx, err); err != nil {
		return err
	}
	return s.comm.Agree(ctx, errors.Join(s.fill(ctx, s.in), s.fill(ctx, s.out)))
}

// alloc returns memory of the kind that is tuned for.
func (s *sweep) alloc() (mem.Buffer, error) {
	switch s.Buffers {
	case selection.CUDA:
		return s.comm.AllocIn(mem.CUDA, s.Max)
	case selection.Unregistered:
		return mem.TryAlloc(s.Max)
	}
	return s.comm.Alloc(s.Max)
}

// fill writes to all of b: memory that was never written is one page of zeros, and too fast.
func (s *sweep) fill(ctx context.Context, b mem.Buffer) error {
	if s.Buffers != selection.CUDA {
		all := mem.Bytes(b)
		for i := range all {
			all[i] = 1
		}
		return nil
	}
	ones, err := mem.TryAlloc(b.Len())
	if err != nil {
		return err
	}
	defer ones.Free()
	all := mem.Bytes(ones)
	for i := range all {
		all[i] = 1
	}
	return s.comm.Copy(ctx, b, ones)
}

func (s *sweep) give(b mem.Buffer) {
	if s.Buffers == selection.Unregistered {
		b.Free()
		return
	}
	s.comm.Free(b)
}

func (s *sweep) free() {
	s.give(s.in)
	s.give(s.out)
}

// maxima returns, for every value, the largest of all ranks'.
func (s *sweep) maxima(ctx context.Context, values []float64) error {
	b := mem.Of(values)
	return s.comm.Allreduce(ctx, b, b, mem.Float64, mem.Max, collectives.With(parse("binomial")))
}

// elapsed returns for how many seconds the sweep has run, equal on all ranks.
func (s *sweep) elapsed(ctx context.Context) (float64, error) {
	v := []float64{time.Since(s.from).Seconds()}
	err := s.maxima(ctx, v)
	return v[0], err
}

// point measures one job for about the given number of seconds.
func (s *sweep) point(ctx context.Context, j job, seconds float64) (Point, error) {
	times := make([][]float64, len(j.specs))
	left := make([]int, len(j.specs)) // still in the race
	for i := range left {
		left[i] = i
	}
	from := time.Now()
	for round := 0; round <= s.Iterations; round++ {
		took := make([]float64, len(left)+1)
		for k, i := range left {
			t, err := s.once(ctx, j, j.specs[i])
			if err != nil {
				return Point{}, fmt.Errorf("%v of %s by %v: %w", j.collective, units.FormatBytes(j.bytes), j.specs[i], err)
			}
			took[k] = t
		}
		took[len(left)] = time.Since(from).Seconds()
		if err := s.maxima(ctx, took); err != nil {
			return Point{}, err
		}
		if round > 0 { // the first one warms up
			for k, i := range left {
				times[i] = append(times[i], took[k])
			}
		}
		left = race(times, left, round, slices.IndexFunc(j.specs, spec.Spec.IsLibrary))
		if took[len(took)-1] > seconds && round >= minRounds {
			break
		}
	}
	return result(j, times), nil
}

// race returns who stays: after a first round those who take no more than four
// times as long as the best, after a few no more than twice. The best of all
// but the library's stays in any case: it serves where the library cannot.
func race(times [][]float64, left []int, round, library int) []int {
	beyond := map[int]float64{1: 4, minRounds: 2}[round]
	if beyond == 0 {
		return left
	}
	best, own := math.Inf(1), math.Inf(1)
	for _, i := range left {
		m := median(times[i])
		if best = min(best, m); i != library {
			own = min(own, m)
		}
	}
	return slices.DeleteFunc(slices.Clone(left), func(i int) bool {
		m := median(times[i])
		return m > beyond*best && (i == library || m > own)
	})
}

// minimum returns the smallest of values, 0 where there are none.
func minimum(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return slices.Min(values)
}

func result(j job, times [][]float64) Point {
	p := Point{Collective: j.collective.String(), Bytes: j.bytes}
	for i, t := range times {
		p.Specs = append(p.Specs, Measured{Spec: j.specs[i].String(), Best: minimum(t), Median: median(t), Spread: spread(t), Iterations: len(t)})
	}
	slices.SortStableFunc(p.Specs, func(a, b Measured) int { return cmp.Compare(a.Median, b.Median) })
	return p
}

// once executes a spec once and returns this rank's seconds from the barrier.
func (s *sweep) once(ctx context.Context, j job, spec spec.Spec) (float64, error) {
	in, out := s.in.Slice(0, j.bytes), s.out.Slice(0, j.bytes)
	k := collectives.Call{Collective: j.collective, Send: in, Recv: out, Datatype: s.Type, Op: mem.Sum}
	switch j.collective {
	case schedule.Allgather, schedule.Gather:
		k.Recv, k.Send = s.parts(out)
	case schedule.Alltoall:
		k.Send, _ = s.parts(in)
		k.Recv, _ = s.parts(out)
	case schedule.ReduceScatter, schedule.Scatter:
		k.Send, _ = s.parts(in)
		_, k.Recv = s.parts(out)
	}
	if s.Buffers != selection.CUDA { // written before each call, as a program does: what nobody writes stays in the caches of those who read it
		mem.Rewrite(k.Given(s.comm.Rank()))
	}
	if err := s.comm.Barrier(ctx); err != nil {
		return 0, err
	}
	from := time.Now()
	err := s.comm.Do(ctx, k, collectives.With(spec))
	return time.Since(from).Seconds(), err
}

// parts returns as much of a buffer as equal parts fill, and this rank's.
func (s *sweep) parts(out mem.Buffer) (all, own mem.Buffer) {
	ranks := s.comm.Size()
	each := out.Len() / s.Type.Size() / ranks * s.Type.Size()
	return out.Slice(0, each*ranks), out.Slice(each*s.comm.Rank(), each)
}

// tell reports progress, before job i.
func (s *sweep) tell(i int) {
	if s.OnProgress == nil || s.comm.Rank() != 0 {
		return
	}
	p := Progress{Done: i, Jobs: len(s.jobs), Part: 1}
	if i < len(s.jobs) {
		p.Job = fmt.Sprintf("%v of %s", s.jobs[i].collective, units.FormatBytes(s.jobs[i].bytes))
		used := time.Since(s.from)
		p.Part = min(max(float64(i)/float64(len(s.jobs)), used.Seconds()/s.Budget.Seconds()), 1)
		p.Left = max(s.Budget-used, 0)
	}
	s.OnProgress(p)
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
