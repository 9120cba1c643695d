package selection

import (
	"reflect"
	"slices"
	"testing"

	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/internal/units"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/sim"
)

// withGPUs are models whose GPUs differ: they are made up.
func withGPUs() map[string]sim.Model {
	usual := sim.Default()
	usual.GPU = sim.GPU{
		Launch: 8e-6, Memory: 2e12, Lends: sim.LendsAll,
		Down: sim.Copies{Latency: 1e-5, Bandwidth: 5e10}, Up: sim.Copies{Latency: 1e-5, Bandwidth: 5e10},
	}
	staged, shared, turns := usual, usual, usual
	staged.GPU.Lends = sim.LendsNone
	shared.GPU.Devices = 1
	turns.GPU.Devices, turns.GPU.Turns = 1, 1
	return map[string]sim.Model{"in place": usual, "staged": staged, "shared": shared, "in turns": turns}
}

// Of all candidates the one is chosen, or one nearly as fast, that is predicted to be the fastest: the closed forms of GPUs tell which
// are worth a simulation.
func TestGPUChoices(t *testing.T) {
	for _, l := range [][2]int{{1, 2}, {1, 4}, {4, 1}, {4, 2}} {
		layout := spec.LayoutOf(spec.NodesOf(l[0], l[1]))
		for name, m := range withGPUs() {
			for _, v := range []schedule.Collective{schedule.Reduce, schedule.Bcast, schedule.Allreduce, schedule.ReduceScatter} {
				for _, bytes := range []int{1 << 20, 64 << 20} {
					q := Query{Collective: v, Bytes: bytes, Buffers: CUDA, Blocking: true}
					choice, err := (&Selector{Model: m}).Select(layout, q, spec.Spec{})
					if err != nil {
						t.Fatal(err)
					}
					took := Predict(v, bytes, choice.Spec, layout, m, CUDA)
					for _, shape := range shapes(layout, v) {
						for _, s := range chunked(shape, layout, cutBytes(layout, q), q.Blocking, gpuChunks) {
							if p := Predict(v, bytes, s, layout, m, CUDA); took > 1.15*p {
								t.Errorf("%v, GPUs %s: %v of %s by %v, predicted %.1f µs, and by %v %.1f µs", layout, name, v, units.FormatBytes(bytes), choice.Spec, 1e6*took, s, 1e6*p)
							}
						}
					}
				}
			}
		}
	}
}

// The slower a launch, or to begin a copy, the larger the chunks of what is staged. Kernels that are launched while others run take no
// longer for that.
func TestSlowLaunchesHaveLargerChunks(t *testing.T) {
	layout := spec.LayoutOf(spec.NodesOf(1, 4))
	for _, v := range []schedule.Collective{schedule.Reduce, schedule.Bcast, schedule.Allreduce} {
		var chunks []int
		for _, launch := range []float64{1e-7, 1e-5, 2e-3} {
			m := withGPUs()["staged"]
			m.GPU.Launch, m.GPU.Down.Latency, m.GPU.Up.Latency = launch, launch, launch
			c, err := (&Selector{Model: m}).Select(layout, Query{Collective: v, Bytes: 64 << 20, Buffers: CUDA}, spec.Spec{})
			if err != nil {
				t.Fatal(err)
			}
			chunks = append(chunks, c.Spec.Levels[len(c.Spec.Levels)-1].Chunk)
		}
		if !slices.IsSorted(chunks) || chunks[0] == chunks[2] {
			t.Errorf("%v: chunks of %d bytes", v, chunks)
		}
	}
}

// The slower copies are, the more is gained where messages are read in place: between all ranks, or between those of one GPU. What
// is read so costs the same however slow they are.
func TestSlowCopies(t *testing.T) {
	layout := spec.LayoutOf(spec.NodesOf(1, 4))
	model := func(lends, bandwidth float64) sim.Model {
		m := withGPUs()["in place"]
		m.GPU.Lends, m.GPU.Devices = lends, 2 // of ranks 0 and 2, and of 1 and 3
		m.GPU.Down.Bandwidth, m.GPU.Up.Bandwidth = bandwidth, bandwidth
		m.Staging = sim.Rates{Cached: 1e13, Shared: 1e13, Bandwidth: 1e13} // nothing but the copies
		return m
	}
	for _, v := range []schedule.Collective{schedule.Reduce, schedule.Bcast, schedule.Allreduce} {
		var took []float64
		for _, m := range []sim.Model{model(sim.LendsAll, 1e10), model(sim.LendsAll, 1e9), model(sim.LendsOwn, 1e10), model(sim.LendsOwn, 1e9), model(sim.LendsNone, 1e9)} {
			took = append(took, Predict(v, 64<<20, parse(t, "binomial,chunk=4M"), layout, m, CUDA))
		}
		if took[0] != took[1] || took[1] >= took[2] || took[2] >= took[3] || took[3] >= took[4] {
			t.Errorf("%v takes %g: in place, so with slow copies, in part, so with slow copies, and staged", v, took)
		}
	}
}

func parse(t *testing.T, text string) (s spec.Spec) {
	t.Helper()
	s, err := spec.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A model that knows of GPUs predicts for the host's memory what one does that does not, and chooses the same; of one that does not, GPUs'
// memory is as the host's that is not registered, and chunks are a rule's.
func TestGPUsChangeNothingElse(t *testing.T) {
	with, without := &Selector{Model: withGPUs()["in turns"]}, Default()
	layout := spec.LayoutOf(spec.NodesOf(2, 2))
	for _, v := range []schedule.Collective{schedule.Reduce, schedule.Allreduce} {
		for _, kind := range []BufferKind{Registered, Unregistered} {
			q := Query{Collective: v, Bytes: 16 << 20, Buffers: kind}
			if a, b := with.Candidates(layout, q), without.Candidates(layout, q); !reflect.DeepEqual(a, b) {
				t.Errorf("%v of %v memory: %v, and %v without", v, kind, a, b)
			}
		}
		s := parse(t, "direct,chunk=4M/chain,chunk=4M")
		if a, b := Predict(v, 16<<20, s, layout, without.Model, CUDA), Predict(v, 16<<20, s, layout, without.Model, Unregistered); a != b {
			t.Errorf("%v: of GPUs of which nothing is known %g is predicted, and %g of the host's memory", v, a, b)
		}
		if a, b := Predict(v, 16<<20, s, layout, with.Model, CUDA), Predict(v, 16<<20, s, layout, with.Model, Unregistered); a == b {
			t.Errorf("%v: of GPUs that are known the same is predicted as of the host's memory", v)
		}
	}
}
