package collectives

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/x448/float16"

	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/kernels/device"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/inproc"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/check"
)

func half(v float64) uint16   { return float16.Fromfloat32(float32(v)).Bits() }
func unhalf(b uint16) float64 { return float64(float16.Frombits(b).Float32()) }

func brain(v float64) uint16   { return uint16(math.Float32bits(float32(v)) >> 16) }
func unbrain(b uint16) float64 { return float64(math.Float32frombits(uint32(b) << 16)) }

// averageSpecs have every algorithm, and levels.
var averageSpecs = []string{"linear", "chain,chunk=8", "binomial,chunk=8", "direct,chunk=16", "ring,chunk=4", "chain:2,chunk=8/binomial,chunk=8", "direct,chunk=8/ring,chunk=4"}

// TestAverageDoesNotOverflow: two contributions of 40000, whose sum f16 cannot hold.
func TestAverageDoesNotOverflow(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4} {
		w := inproc.NewWorld(n, inproc.Options{Seed: 5})
		errs := make(chan error)
		for r := range n {
			go func() {
				k, err := kernels.NewCPU()
				if err != nil {
					errs <- err
					return
				}
				e, err := nbc.Start(w.Open(r), device.CPU(k), nbc.Options{Deadline: time.Minute})
				if err != nil {
					errs <- err
					return
				}
				err = averages(World(e, Options{}))
				_ = e.Close()
				errs <- err
			}()
		}
		for range n {
			if err := <-errs; err != nil {
				t.Errorf("%d ranks: %v", n, err)
			}
		}
	}
}

// averages makes averages of equal contributions, near the largest number of their
// types, in every way.
func averages(c *Comm) error {
	for _, text := range averageSpecs {
		s, err := spec.Parse(text)
		if err != nil {
			return err
		}
		for _, how := range []string{"allreduce", "allreduce in parts", "allreduce in place", "reduce"} {
			if how == "reduce" && strings.HasSuffix(text, "ring,chunk=4") {
				continue // it is for allreduce alone
			}
			for _, k := range []struct {
				dt    mem.Datatype
				value float64
				to    func(float64) uint16
				from  func(uint16) float64
			}{{mem.Float16, 40000, half, unhalf}, {mem.BFloat16, 0x1.8p127, brain, unbrain}} {
				in, out := make([]uint16, 21), make([]uint16, 21)
				for i := range in {
					in[i], out[i] = k.to(k.value), k.to(k.value)
				}
				if err := average(c, how, mem.Of(in), mem.Of(out), k.dt, With(s)); err != nil {
					return fmt.Errorf("%s of %v by %s: %w", how, k.dt, text, err)
				}
				for i := range out {
					if got := k.from(out[i]); got != k.value || in[i] != k.to(k.value) {
						return fmt.Errorf("%s of %v by %s: the average of %v is %v, and the contribution is now %v", how, k.dt, text, k.value, got, k.from(in[i]))
					}
				}
			}
		}
	}
	return nil
}

func average(c *Comm, how string, in, out mem.Buffer, dt mem.Datatype, with Option) error {
	ctx := context.Background()
	switch how {
	case "reduce":
		return c.Reduce(ctx, in, out, dt, mem.Avg, c.Size()-1, with)
	case "allreduce in parts":
		return c.Allreduce(ctx, in, out, dt, mem.Avg, with, Parts(5, 11))
	case "allreduce in place":
		return c.Allreduce(ctx, out, out, dt, mem.Avg, with)
	}
	return c.Allreduce(ctx, in, out, dt, mem.Avg, with)
}

// TestAverageOfIntegersIsRefused: 200 and 200 make 144 in a byte, and 72 for an
// average.
func TestAverageOfIntegersIsRefused(t *testing.T) {
	k, err := kernels.NewCPU()
	if err != nil {
		t.Fatal(err)
	}
	e, err := nbc.Start(inproc.NewWorld(1, inproc.Options{}).Open(0), device.CPU(k), nbc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	c := World(e, Options{})
	for _, dt := range mem.Datatypes {
		b := mem.Of(make([]byte, 16))
		err := c.Allreduce(context.Background(), b, b, dt, mem.Avg)
		if refused := err != nil && strings.Contains(err.Error(), "op avg needs a floating-point type (got "+dt.String()); refused == dt.Float() {
			t.Errorf("%v: %v", dt, err)
		}
	}
}

// execute runs the schedules of all ranks, one op after the other, and returns
// their Outs.
func execute(t *testing.T, all []*schedule.Schedule, dt mem.Datatype, in []mem.Buffer, scale, divide float64) []mem.Buffer {
	t.Helper()
	k, err := kernels.NewCPU()
	if err != nil {
		t.Fatal(err)
	}
	type message struct{ from, to, number int }
	under := map[message]mem.Buffer{}
	buffers := make([][3]mem.Buffer, len(all))
	for r, s := range all {
		buffers[r] = [3]mem.Buffer{in[r], mem.Of(make([]byte, dt.Bytes(s.Count))), mem.Of(make([]byte, dt.Bytes(s.Scratch)))}
	}
	next := make([]int, len(all))
	for left := len(all); left > 0; {
		moved := false
		for r, s := range all {
			for next[r] < len(s.Ops) {
				o := &s.Ops[next[r]]
				at := func(ref schedule.Ref) mem.Buffer {
					return buffers[r][ref.Buf].Slice(dt.Bytes(ref.Off), dt.Bytes(ref.Len))
				}
				came, ok := under[message{o.Peer, r, o.Msg}]
				if o.Receives() && !ok {
					break
				}
				var err error
				switch o.Kind {
				case schedule.Send:
					under[message{r, o.Peer, o.Msg}] = mem.Of(append([]byte(nil), mem.Bytes(at(o.Src))...))
				case schedule.Recv:
					err = k.Copy(at(o.Dst), came)
				case schedule.RecvReduce:
					err = k.Reduce(dt, mem.Sum, at(o.Dst), came, at(o.Src))
				case schedule.Copy:
					err = k.Copy(at(o.Dst), at(o.Src))
				case schedule.Scale:
					err = k.Divide(dt, at(o.Dst), at(o.Src), scale)
				}
				if err != nil {
					t.Fatal(err)
				}
				if moved = true; o.Receives() {
					delete(under, message{o.Peer, r, o.Msg})
				}
				if next[r]++; next[r] == len(s.Ops) {
					left--
				}
			}
		}
		if !moved {
			t.Fatalf("stuck with %d ranks left", left)
		}
	}
	outs := make([]mem.Buffer, len(all))
	for r := range all {
		if outs[r] = buffers[r][schedule.Out]; divide != 1 {
			if err := k.Divide(dt, outs[r], outs[r], divide); err != nil {
				t.Fatal(err)
			}
		}
	}
	return outs
}

func averageSchedules(t *testing.T, size, count int, text string, isScaled bool) []*schedule.Schedule {
	t.Helper()
	s, err := spec.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	all := make([]*schedule.Schedule, size)
	for r := range all {
		c := spec.Call{Collective: schedule.Allreduce, Rank: r, Size: size, Count: count, ElemSize: 2, Nodes: spec.NodesOf((size+7)/8, 8)[:size], Scaled: isScaled}
		if all[r], err = spec.Build(c, s); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// TestAverageOverManyRanks: 1,024 ranks overflow binary16 from contributions of 64
// on, where they are summed first.
func TestAverageOverManyRanks(t *testing.T) {
	const size, count = 1024, 3
	for _, text := range []string{"binomial", "chain:8/binomial", "direct/chain"} {
		in := make([]mem.Buffer, size)
		for r := range in {
			v := make([]uint16, count)
			for i := range v {
				v[i] = half(60000)
			}
			in[r] = mem.Of(v)
		}
		scale, divide := averaging(mem.Float16, size)
		all := averageSchedules(t, size, count, text, true)
		if err := check.Prove(schedule.Allreduce, all, 0); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		for r, out := range execute(t, all, mem.Float16, in, scale, divide) {
			for i, b := range mem.View[uint16](out) {
				// A chain of many additions rounds, a few units in the last place each time.
				if got := unhalf(b); math.Abs(got-60000) > 60000*0.03 {
					t.Fatalf("%s: rank %d element %d is %v, not about 60000", text, r, i, got)
				}
			}
		}
	}
}

// TestAverageHasTheBitsOfSumAndDivide: where sums fit, scaling the contributions
// changes nothing.
func TestAverageHasTheBitsOfSumAndDivide(t *testing.T) {
	const count = 57
	random := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{2, 3, 5, 8, 13} {
		for dt, to := range map[mem.Datatype]func(float64) uint16{mem.Float16: half, mem.BFloat16: brain} {
			for _, text := range averageSpecs {
				in := make([]mem.Buffer, size)
				for r := range in {
					v := make([]uint16, count)
					for i := range v {
						v[i] = to((1 + random.Float64()) * math.Pow(2, float64(random.IntN(8))) * float64(1-2*random.IntN(2)))
					}
					in[r] = mem.Of(v)
				}
				scale, divide := averaging(dt, size)
				got := execute(t, averageSchedules(t, size, count, text, true), dt, in, scale, divide)
				want := execute(t, averageSchedules(t, size, count, text, false), dt, in, 1, float64(size))
				for r := range want {
					if string(mem.Bytes(got[r])) != string(mem.Bytes(want[r])) {
						t.Errorf("%v over %d ranks by %s: rank %d has other bits than sum and divide give", dt, size, text, r)
						break
					}
				}
			}
		}
	}
}
