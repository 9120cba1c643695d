package collectives_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/scaffe/scaffe/collectives"
	ct "github.com/scaffe/scaffe/collectives/collectivestest"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/faulty"
	"github.com/scaffe/scaffe/nbc/inproc"
	"github.com/scaffe/scaffe/schedule"
)

// under opens the transports of n ranks of one process, on the given nodes (nil:
// one), each with the faults that plan says.
func under(n int, nodes []int, seed uint64, plan func(rank int) faulty.Plan) func(rank int) func() (nbc.Transport, error) {
	w := inproc.NewWorld(n, inproc.Options{Seed: seed, Nodes: nodes})
	return func(rank int) func() (nbc.Transport, error) {
		return func() (nbc.Transport, error) {
			t, err := w.Open(rank)()
			return faulty.Wrap(t, plan(rank)), err
		}
	}
}

func none(int) faulty.Plan { return faulty.Plan{} }

// patient is the deadline where nothing is to go wrong.
var patient = nbc.Options{Deadline: 10 * time.Minute}

// TestConformance is the suite over ranks of one process, whose messages come
// in random order. Three ranks do everything; what other numbers of ranks change is in
// the schedules, which depend on the types' sizes alone.
func TestConformance(t *testing.T) {
	defer goleak.VerifyNone(t)
	for _, n := range []int{1, 2, 3, 5, 8} {
		if raced && n == 8 {
			continue // TestAnyCollective has up to nine
		}
		cases := ct.Sizes(n)
		switch {
		case n == 8 || raced:
			cases = ct.Some(n)
		case n == 3:
			cases = ct.Every(n)
		}
		t.Run(fmt.Sprintf("%d ranks, %d cases", n, len(cases)), func(t *testing.T) {
			seed := uint64(n)
			errs := ct.World(n, inproc.NewWorld(n, inproc.Options{Seed: seed}).Open, patient, func(c *collectives.Comm, _ *nbc.Engine) error {
				return ct.Run(c, cases)
			})
			if err := errors.Join(errs...); err != nil {
				t.Errorf("inproc seed %d: %v", seed, err)
			}
		})
	}
}

// TestConformanceOnNodes has ranks on unequal nodes, in and out of order.
func TestConformanceOnNodes(t *testing.T) {
	defer goleak.VerifyNone(t)
	for _, nodes := range [][]int{{0, 1}, {0, 0, 1}, {0, 1, 0, 1, 1}, {0, 0, 0, 1, 2, 2, 2, 2}} {
		n := len(nodes)
		if raced && n == 8 {
			continue // TestAnyCollective has up to nine, on up to four nodes
		}
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			errs := ct.World(n, under(n, nodes, 3, none), patient, func(c *collectives.Comm, _ *nbc.Engine) error {
				return ct.Run(c, ct.Some(n))
			})
			if err := errors.Join(errs...); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestConformanceUnderDelays holds completions back and mixes them up: the
// results must not change.
func TestConformanceUnderDelays(t *testing.T) {
	defer goleak.VerifyNone(t)
	for _, n := range []int{2, 3, 5} {
		for seed := range uint64(3) {
			if raced && (seed != uint64(n)%3 || n == 5) {
				continue
			}
			plan := faulty.Plan{Seed: seed, Delay: int(seed) * 4, Reorder: true}
			t.Run(fmt.Sprintf("%d ranks/%v", n, plan), func(t *testing.T) {
				errs := ct.World(n, under(n, nil, seed, func(int) faulty.Plan { return plan }), patient, func(c *collectives.Comm, _ *nbc.Engine) error {
					return ct.Run(c, ct.Some(n))
				})
				if err := errors.Join(errs...); err != nil {
					t.Errorf("%v: %v", plan, err)
				}
			})
		}
	}
}

// drawSpec draws a spec of one to three levels.
func drawSpec(t *rapid.T) spec.Spec {
	algorithms := slices.DeleteFunc(spec.Algorithms(), func(a string) bool { return a == spec.Library })
	return rapid.Custom(func(t *rapid.T) spec.Spec {
		var s spec.Spec
		levels := rapid.IntRange(1, 3).Draw(t, "levels")
		for i := range levels {
			l := spec.Level{
				Algorithm: rapid.SampledFrom(algorithms).Draw(t, "algorithm"),
				Chunk:     rapid.IntRange(0, 300).Draw(t, "chunk"),
			}
			if i < levels-1 {
				l.Size = rapid.SampledFrom([]int{spec.Node, 1, 2, 3, 4, 7}).Draw(t, "group")
			}
			s.Levels = append(s.Levels, l)
		}
		return s
	}).Filter(func(s spec.Spec) bool { return s.Validate() == nil }).Draw(t, "spec")
}

// TestAnyCollective draws everything: ranks, nodes, specs, several collectives
// at once, delays.
func TestAnyCollective(t *testing.T) {
	defer goleak.VerifyNone(t)
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 9).Draw(t, "ranks")
		nodes := rapid.SliceOfN(rapid.IntRange(0, 3), n, n).Draw(t, "nodes")
		plan := faulty.Plan{
			Seed:    rapid.Uint64().Draw(t, "seed"),
			Delay:   rapid.IntRange(0, 6).Draw(t, "delay"),
			Reorder: rapid.Bool().Draw(t, "reorder"),
		}
		var cases []ct.Case
		for range rapid.IntRange(1, 6).Draw(t, "collectives") {
			s := drawSpec(t)
			k := ct.Case{
				Spec: s, Collective: rapid.SampledFrom(ct.Collectives(s)).Draw(t, "collective"),
				Datatype: rapid.SampledFrom(mem.Datatypes).Draw(t, "type"),
				InPlace:  rapid.Bool().Draw(t, "in place"),
				Root:     rapid.IntRange(0, n-1).Draw(t, "root"),
				Count:    rapid.IntRange(0, 300).Draw(t, "count"),
			}
			if k.Collective.Parts() {
				k.Count = 0
				for range n {
					k.Counts = append(k.Counts, max(0, rapid.IntRange(-20, 100).Draw(t, "part")))
					k.Count += k.Counts[len(k.Counts)-1]
				}
			}
			if k.Collective == schedule.Alltoall {
				k.Count, k.InPlace = k.Count/n*n, false
			}
			if k.Collective.Reduces() {
				k.Op = rapid.SampledFrom(ct.Ops(k.Datatype)).Draw(t, "op")
			}
			cases = append(cases, k)
		}
		errs := ct.World(n, under(n, nodes, plan.Seed, func(int) faulty.Plan { return plan }), patient, func(c *collectives.Comm, _ *nbc.Engine) error {
			return ct.Run(c, cases)
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatalf("%v: %v", plan, err)
		}
	})
}

// fault is a case with something that goes wrong on one rank.
type fault struct {
	k      ct.Case
	n      int
	victim int
	plan   faulty.Plan
}

func (f fault) String() string {
	return fmt.Sprintf("%v, %d ranks, rank %d under %v", f.k, f.n, f.victim, f.plan)
}

// ops returns how many ops of a rank begin with the transport, and how many of
// them are sends.
func (f fault) ops(t *testing.T, rank int) (all, sends int) {
	s, err := spec.Build(spec.Call{
		Collective: f.k.Collective, Rank: rank, Size: f.n, Root: f.k.Root,
		Count: f.k.Count, Counts: f.k.Counts, ElemSize: f.k.Datatype.Size(), Nodes: make([]int, f.n),
	}, f.k.Spec)
	if err != nil {
		t.Fatal(err)
	}
	for i := range s.Ops {
		switch s.Ops[i].Kind {
		case schedule.Send:
			sends++
			all++
		case schedule.Recv, schedule.RecvReduce:
			all++
		}
	}
	return all, sends
}

// reducing returns the specs that have an allreduce.
func reducing() []spec.Spec {
	return slices.DeleteFunc(ct.Specs(), func(s spec.Spec) bool { return s.Serves(schedule.Allreduce) != nil })
}

// drawFault draws a collective and a rank on which what sets a fault: it is
// given a random source and how many ops and sends the rank has.
func drawFault(t *testing.T, seed uint64, set func(p *faulty.Plan, r *rand.Rand, ops, sends int)) fault {
	r := rand.New(rand.NewPCG(seed, 1))
	specs := reducing() // an allreduce follows
	for {
		s := specs[r.IntN(len(specs))]
		served := ct.Collectives(s)
		f := fault{
			k: ct.Case{Spec: s, Collective: served[r.IntN(len(served))], Datatype: mem.Int32, Count: 100},
			n: 2 + r.IntN(6), plan: faulty.Plan{Seed: seed, Delay: r.IntN(3), Reorder: r.IntN(2) == 0},
		}
		f.k.Root, f.victim = r.IntN(f.n), r.IntN(f.n)
		if f.k.Collective == schedule.Alltoall {
			f.k.Count = 20 * f.n
		}
		if f.k.Collective.Parts() { // unequal parts
			f.k.Counts = make([]int, f.n)
			for range f.k.Count {
				f.k.Counts[r.IntN(f.n)]++
			}
		}
		if ops, sends := f.ops(t, f.victim); sends > 0 {
			set(&f.plan, r, ops, sends)
			return f
		}
	}
}

// run runs the case and then, so that nobody is done before everybody was
// there, an allreduce by the same spec. It returns how each rank ended.
func (f fault) run(deadline time.Duration) []error {
	plan := func(rank int) faulty.Plan {
		if rank == f.victim {
			return f.plan
		}
		return faulty.Plan{Seed: f.plan.Seed, Delay: f.plan.Delay, Reorder: f.plan.Reorder}
	}
	after := f.k
	after.Collective, after.Counts = schedule.Allreduce, nil
	return ct.World(f.n, under(f.n, nil, f.plan.Seed, plan), nbc.Options{Deadline: deadline}, func(c *collectives.Comm, _ *nbc.Engine) error {
		return errors.Join(ct.Run(c, []ct.Case{f.k}), ct.Run(c, []ct.Case{after}))
	})
}

// unhurried calls f for 0 to n-1, each on a clock of its own, which moves only
// when all ranks rest: how fast the machine is plays no part in what deadlines
// say, and waiting for them takes no time.
func unhurried(t *testing.T, n int, f func(i int)) {
	t.Helper()
	for i := range n {
		synctest.Test(t, func(*testing.T) { f(i) })
	}
}

// faults runs drawn faults.
func faults(t *testing.T, seeds int, set func(p *faulty.Plan, r *rand.Rand, ops, sends int), deadline time.Duration, check func(t *testing.T, f fault, errs []error)) {
	defer goleak.VerifyNone(t)
	drawn, ends := make([]fault, seeds), make([][]error, seeds)
	for seed := range drawn {
		drawn[seed] = drawFault(t, uint64(seed), set)
	}
	unhurried(t, seeds, func(i int) { ends[i] = drawn[i].run(deadline) })
	for seed, f := range drawn {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			errs := ends[seed]
			for rank, err := range errs {
				if err == nil {
					t.Errorf("%v: rank %d ended well", f, rank)
				}
			}
			check(t, f, errs)
			if t.Failed() {
				t.Logf("%v ended with\n%v", f, errors.Join(errs...))
			}
		})
	}
}

// TestARankThatStops stops one at any of its ops: all others end within their
// deadlines, and each of them says who it was.
func TestARankThatStops(t *testing.T) {
	die := func(p *faulty.Plan, r *rand.Rand, ops, _ int) { p.Die = 1 + r.IntN(ops) }
	faults(t, 24, die, 2*time.Second, func(t *testing.T, f fault, errs []error) {
		culprit := fmt.Sprintf("rank %d has not answered", f.victim)
		for rank, err := range errs {
			if rank != f.victim && !strings.Contains(fmt.Sprint(err), culprit) {
				t.Errorf("%v: rank %d does not say %q", f, rank, culprit)
			}
		}
	})
}

// TestAMessageThatIsLost loses one: all ranks end within their deadlines, and
// one of them names the edge, whose other end is not to be had any more.
func TestAMessageThatIsLost(t *testing.T) {
	drop := func(p *faulty.Plan, r *rand.Rand, _, sends int) { p.Drop = 1 + r.IntN(sends) }
	faults(t, 24, drop, time.Second, func(t *testing.T, f fault, errs []error) {
		edge := fmt.Sprintf("from rank %d", f.victim)
		var deadline *nbc.DeadlineError
		if err := errors.Join(errs...); !errors.As(err, &deadline) || !strings.Contains(err.Error(), edge) {
			t.Errorf("%v: no rank says that it waits for a message %s", f, edge)
		}
	})
}

// TestAMessageThatIsCut cuts one short: its receiver says so, and the others
// learn.
func TestAMessageThatIsCut(t *testing.T) {
	cut := func(p *faulty.Plan, r *rand.Rand, _, sends int) { p.Cut = 1 + r.IntN(sends) }
	faults(t, 12, cut, 20*time.Second, func(t *testing.T, f fault, errs []error) {
		if err := errors.Join(errs...); !errors.Is(err, nbc.ErrLength) {
			t.Errorf("%v: nobody noticed the length", f)
		}
	})
}

// TestARankThatNeverCalls leaves one rank out. The others wait for it in vain,
// and each says so.
func TestARankThatNeverCalls(t *testing.T) {
	defer goleak.VerifyNone(t)
	specs := slices.DeleteFunc(reducing(), func(s spec.Spec) bool { // keep one of each kind
		return len(s.Levels) > 2 || strings.Contains(s.String(), ":3") || strings.Contains(s.String(), ":node")
	})
	const n, absent = 5, 3
	ends := make([][]error, len(specs))
	unhurried(t, len(specs), func(i int) {
		var others sync.WaitGroup
		others.Add(n - 1)
		ends[i] = ct.World(n, under(n, nil, 1, none), nbc.Options{Deadline: 2 * time.Second, MaxDeadline: 2 * time.Second}, func(c *collectives.Comm, e *nbc.Engine) error {
			if c.Rank() == absent {
				others.Wait()
				return e.Err()
			}
			defer others.Done()
			k := ct.Case{Spec: specs[i], Collective: schedule.Allreduce, Datatype: mem.Float32, Count: 64}
			return ct.Run(c, []ct.Case{k})
		})
	})
	for i, errs := range ends {
		t.Run(specs[i].String(), func(t *testing.T) {
			culprit := fmt.Sprintf("rank %d has not entered allreduce#p1", absent)
			for rank, err := range errs {
				if rank != absent && !strings.Contains(fmt.Sprint(err), culprit) {
					t.Errorf("rank %d does not say %q but: %v", rank, culprit, err)
				}
			}
		})
	}
}

// TestMismatches calls different collectives on the ranks: every rank prints
// both sides, long before the deadline, and no data has been mixed.
func TestMismatches(t *testing.T) {
	defer goleak.VerifyNone(t)
	chain, binomial := parse(t, "chain,chunk=64"), parse(t, "binomial,chunk=64")
	usual := ct.Case{Spec: chain, Collective: schedule.Reduce, Datatype: mem.Float32, Op: mem.Sum, Count: 100}
	changes := []struct {
		name   string
		change func(k *ct.Case)
	}{
		{"count", func(k *ct.Case) { k.Count = 101 }},
		{"none", func(k *ct.Case) { k.Count = 0 }},
		{"type", func(k *ct.Case) { k.Datatype = mem.Int32 }}, // as long
		{"op", func(k *ct.Case) { k.Op = mem.Max }},
		{"avg", func(k *ct.Case) { k.Op = mem.Avg }}, // a sum until the end
		{"root", func(k *ct.Case) { k.Root = 1 }},
		{"collective", func(k *ct.Case) { k.Collective = schedule.Allreduce }},
		{"spec", func(k *ct.Case) { k.Spec = binomial }},
	}
	const n, odd = 3, 1
	others, ends := make([]ct.Case, len(changes)), make([][]error, len(changes))
	unhurried(t, len(changes), func(i int) {
		others[i] = usual
		changes[i].change(&others[i])
		ends[i] = ct.World(n, under(n, nil, 1, none), nbc.Options{Deadline: time.Minute}, func(c *collectives.Comm, _ *nbc.Engine) error {
			k := usual
			if c.Rank() == odd {
				k = others[i]
			}
			err := ct.Run(c, []ct.Case{k})
			if err == nil && c.Rank() == odd {
				err = c.Barrier(context.Background()) // it had nothing to wait for
			}
			return err
		})
	})
	for i, errs := range ends {
		t.Run(changes[i].name, func(t *testing.T) {
			other := others[i]
			for rank, err := range errs {
				for _, k := range []ct.Case{usual, other} {
					averaging, op := "", k.Op
					if op == mem.Avg {
						averaging, op = "averaging ", mem.Sum
					}
					side := fmt.Sprintf("called %s%v of %d elements, root %d, spec %v, %v %v", averaging, k.Collective, k.Count, k.Root, k.Spec, k.Datatype, op)
					if !strings.Contains(fmt.Sprint(err), side) {
						t.Errorf("rank %d does not say %q but: %v", rank, side, err)
					}
				}
			}
		})
	}
}

// TestMismatchedCounts: counts of an allgather that differ between ranks, though their
// sums do not.
func TestMismatchedCounts(t *testing.T) {
	defer goleak.VerifyNone(t)
	k := ct.Case{Spec: parse(t, "ring,chunk=64"), Collective: schedule.Allgather, Datatype: mem.Float32, Count: 100, Counts: []int{50, 30, 20}}
	other := k
	other.Counts = []int{50, 20, 30}
	errs := ct.World(3, under(3, nil, 1, none), nbc.Options{Deadline: time.Minute}, func(c *collectives.Comm, _ *nbc.Engine) error {
		if c.Rank() == 1 {
			return ct.Run(c, []ct.Case{other})
		}
		return ct.Run(c, []ct.Case{k})
	})
	for rank, err := range errs {
		for _, side := range []string{"called allgather of 100 elements in parts of 50, 30, 20", "called allgather of 100 elements in parts of 50, 20, 30"} {
			if !strings.Contains(fmt.Sprint(err), side) {
				t.Errorf("rank %d does not say %q but: %v", rank, side, err)
			}
		}
	}
}
