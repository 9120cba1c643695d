package sim

import (
	"fmt"
	"math"
	"slices"

	"github.com/scaffe/scaffe/schedule"
)

// Setup is what a simulation depends on besides the schedules.
type Setup struct {
	Model Model
	// Nodes[r] is the node of rank r; nil: all are on one.
	Nodes []int
	// ElemSize is the size of an element in bytes.
	ElemSize int
	// Unregistered says that In and Out are memory that was not registered.
	Unregistered bool
	// GPU says that In, Out and Scratch lie in the memory of the ranks' GPUs, of which the model has parameters (GPU.Known);
	// Unregistered does not count then.
	GPU bool
	// ByRank says that the collective is one of parts that ranks have (schedule.Collective.ByRank).
	ByRank bool
	// Part is which part of a longer collective the schedules stand for, in (0, 1]:
	// that one's working set is as much larger, and falls out of cache earlier. 0 is 1.
	Part float64
	// Until, unless it is 0, is how many seconds are simulated at most: what takes longer has an infinite Max, and no Times.
	Until float64
}

// The engine's limits, most in bytes (packages nbc/shm, nbc/overmpi of InlineBytes and kernels/device of the places, whose
// tests hold them to these).
const (
	ShortBytes  = 4 << 10   // a message within a node travels with its news; where all do, Model.Short is what they cost
	EagerCopy   = 64 << 10  // a message out of unregistered memory is copied by its sender before anybody asks
	HalvedFrom  = 128 << 10 // both of its ranks copy a message, where each has a core
	InlineBytes = 32 << 10  // a message between nodes travels with its envelope
	StreamFrom  = 8 << 20   // messages of such collectives are copied around the caches
	MostPlaces  = 8         // where a sum of such a collective is stored at once,
	FewPlaces   = 2         // and of any
	GPUOperands = 8         // how many buffers a GPU's kernel adds at once; of integers, and but for sums, it is two
	RelayLeast  = 16 << 10  // the longest message that is not worth while to relay
	AloneAdded  = 256 << 10 // a message that is added, or sent, by a rank with a core of its own whose caller executes its schedule alone
	AloneTrade  = 32 << 10  // a message of two ranks that divide sums up, where their callers execute them alone,
	AloneLent   = 2         // and of all ranks' how many are sent to one
)

// Result is what a simulation came to, in seconds from the common start.
type Result struct {
	Times []float64 // by rank: when it had ended
	Max   float64   // the last of them, or what the busiest port takes for all that passes it, where that is longer and a loop of such calls leaves no time for it
}

// Plans are the schedules of all ranks, matched with each other: what any number of
// simulations of them have in common. They are not changed.
type Plans struct {
	all    []*schedule.Schedule
	graphs []*schedule.Graph
	peers  [][]int32
	writes []bool // the schedule writes Out
}

// Prepare matches the schedules of all ranks. Those that do not match are an error. windows are the
// engine's; zero: schedule.DefaultWindows.
func Prepare(all []*schedule.Schedule, windows schedule.Windows) (*Plans, error) {
	if windows == (schedule.Windows{}) {
		windows = schedule.DefaultWindows
	}
	p := &Plans{all: all, graphs: make([]*schedule.Graph, len(all)), writes: make([]bool, len(all))}
	for r, sch := range all {
		for i := range sch.Ops {
			o := &sch.Ops[i]
			if !o.Local() && (o.Peer < 0 || o.Peer >= len(all)) {
				return nil, fmt.Errorf("sim: op %d of rank %d has the peer %d of %d ranks", i, r, o.Peer, len(all))
			}
			p.writes[r] = p.writes[r] || o.Kind != schedule.Send && o.Dst.Buf == schedule.Out
		}
	}
	var err error
	if p.peers, err = schedule.Match(all); err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	for r, sch := range all {
		if p.graphs[r], err = schedule.Compile(sch, windows); err != nil {
			return nil, fmt.Errorf("sim: %w", err)
		}
	}
	return p, nil
}

// Simulate is Prepare and the simulation of what it returns, with the engine's windows.
func Simulate(all []*schedule.Schedule, s Setup) (Result, error) {
	p, err := Prepare(all, schedule.Windows{})
	if err != nil {
		return Result{}, err
	}
	return p.Simulate(s)
}

// Simulate runs the schedules of all ranks, which start together. Schedules that get stuck
// are an error.
func (p *Plans) Simulate(s Setup) (Result, error) {
	w, err := newWorld(p, s)
	if err != nil {
		return Result{}, err
	}
	for r := range w.ranks {
		for _, i := range p.all[r].Begin(p.graphs[r], w.ranks[r].trades) {
			w.ready(int32(r), i)
		}
	}
	for len(w.events) > 0 {
		e := w.events.pop()
		if w.now = e.at; s.Until > 0 && w.now > s.Until {
			return Result{Max: math.Inf(1)}, nil
		}
		w.step(e)
	}
	res := Result{Times: make([]float64, len(p.all))}
	for r := range w.ranks {
		k := &w.ranks[r]
		if k.left > 0 {
			return Result{}, fmt.Errorf("sim: rank %d is stuck with %d ops left: package schedule/check tells why", r, k.left)
		}
		res.Times[r] = k.ended
	}
	if len(p.all) > 0 {
		res.Max = w.ports(slices.Max(res.Times))
	}
	return res, nil
}
