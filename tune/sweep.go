package tune

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/internal/host"
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
	// is measured at most, each time by one call or a burst of small ones.
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
		c.Min = 8
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
	Passes     int        `json:"passes"` // of the sweep
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
	s.races, s.points = make([]*race, len(s.jobs)), make([]*Point, len(s.jobs))
	s.together = comm.Layout().Nodes == 1 && comm.Layout().PPN <= host.Cores()
	for i, j := range s.jobs {
		if s.points[i] = find(s.kept, j); s.points[i] != nil {
			s.result.Resumed++
		}
		if s.points[i] == nil || s.points[i].Passes < passes {
			s.races[i] = newRace(j)
		}
	}
	for pass := range passes {
		for i := range s.jobs {
			if err := s.next(ctx, pass, i); err != nil {
				return nil, err
			}
		}
	}
	return s.finish(), nil
}

// passes is how often a sweep comes to each job, so that what disturbs the machine for some seconds does not decide any.
const passes = 2

// next does job i, for the first time or again, if an earlier sweep has not done so and the budget is not spent.
func (s *sweep) next(ctx context.Context, pass, i int) error {
	part := float64(pass+1) / passes
	rounds := max(minRounds, int(part*float64(s.Iterations)))
	if r := s.races[i]; r == nil || r.rounds >= rounds || s.points[i] != nil && s.points[i].Passes > pass {
		return nil
	}
	s.tell(pass, i)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	used, err := s.elapsed(ctx)
	if err != nil {
		return err
	}
	if used > s.Budget.Seconds() && len(s.measured()) > 0 {
		return nil // jobs after it may be those of an earlier sweep
	}
	if err := s.races[i].run(ctx, s, rounds, share(part*s.Budget.Seconds()-used, s.jobs[i:])); err != nil {
		return err
	}
	s.points[i] = s.races[i].point()
	if s.points[i].Passes = pass + 1; rounds >= s.Iterations {
		s.points[i].Passes = passes
	}
	return s.keep(ctx, s.measured())
}

// measured returns the points that there are.
func (s *sweep) measured() (all []Point) {
	for _, p := range s.points {
		if p != nil {
			all = append(all, *p)
		}
	}
	return all
}

// finish returns the result, its points in order.
func (s *sweep) finish() *Result {
	s.tell(passes, 0)
	s.result.Points = s.measured()
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
	comm     *collectives.Comm
	from     time.Time
	in, out  mem.Buffer
	kept     []Point // of an earlier sweep
	jobs     []job
	races    []*race  // of each job, nil of what an earlier sweep has measured
	points   []*Point // likewise, nil of what is still to be measured
	together bool     // the ranks have a clock in common, and a core each
	result   *Result
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
	from := s.begin()
	err := s.comm.Do(ctx, k, collectives.With(spec))
	return time.Since(from).Seconds(), err
}

// begins is longer than the ranks of a node need to leave a barrier.
const begins = 4 * time.Microsecond

// begin returns when a call is to begin, and what time that is: at the next tick of the clock, which the ranks of a node have in common. They leave
// a barrier one after the other, some tenths of a microsecond apart, of which a small call would gain or lose a part by who is first.
// Where they share cores none waits, as that would keep another from its core.
func (s *sweep) begin() time.Time {
	now := time.Now()
	if !s.together {
		return now
	}
	for until := now.Add(begins - now.Sub(now.Truncate(begins))); now.Before(until); now = time.Now() {
	}
	return now
}

// parts returns as much of a buffer as equal parts fill, and this rank's.
func (s *sweep) parts(out mem.Buffer) (all, own mem.Buffer) {
	ranks := s.comm.Size()
	each := out.Len() / s.Type.Size() / ranks * s.Type.Size()
	return out.Slice(0, each*ranks), out.Slice(each*s.comm.Rank(), each)
}

// tell reports progress, before job i.
func (s *sweep) tell(pass, i int) {
	if s.OnProgress == nil || s.comm.Rank() != 0 {
		return
	}
	p := Progress{Done: len(s.measured()), Jobs: len(s.jobs), Part: 1}
	if pass < passes {
		p.Job = fmt.Sprintf("%v of %s", s.jobs[i].collective, units.FormatBytes(s.jobs[i].bytes))
		if pass > 0 {
			p.Job += " again"
		}
		used := time.Since(s.from)
		p.Part = min(max(float64(pass*len(s.jobs)+i)/float64(passes*len(s.jobs)), used.Seconds()/s.Budget.Seconds()), 1)
		p.Left = max(s.Budget-used, 0)
	}
	s.OnProgress(p)
}
