package sim

import (
	"container/heap"
	"fmt"
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
	// Windows are the engine's; zero: schedule.DefaultWindows.
	Windows schedule.Windows
	// Unregistered says that In and Out are memory that was not registered.
	Unregistered bool
	// Part is which part of a longer collective the schedules stand for, in (0, 1]:
	// that one's working set is as much larger, and falls out of cache earlier. 0 is 1.
	Part float64
}

// The engine's limits in bytes (packages nbc/shm and, of InlineBytes, nbc/overmpi, whose
// tests hold them to these).
const (
	ShortBytes  = 4 << 10   // a message within a node travels with its news; where all do, Model.Short is what they cost
	HalvedFrom  = 128 << 10 // both of its ranks copy a message, where each has a core
	InlineBytes = 32 << 10  // a message between nodes travels with its envelope
	StreamFrom  = 8 << 20   // messages of such collectives are copied around the caches
)

// Result is what a simulation came to, in seconds from the common start.
type Result struct {
	Times []float64 // by rank: when it had ended
	Max   float64   // the last of them
}

// Simulate runs the schedules of all ranks, which start together. Schedules
// that do not match or that get stuck are an error.
func Simulate(all []*schedule.Schedule, s Setup) (Result, error) {
	w, err := newWorld(all, s)
	if err != nil {
		return Result{}, err
	}
	for r := range w.ranks {
		for i, n := range w.ranks[r].waits {
			if n == 0 {
				w.ready(int32(r), int32(i))
			}
		}
	}
	for len(w.events) > 0 {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		w.step(e)
	}
	res := Result{Times: make([]float64, len(all))}
	for r := range w.ranks {
		k := &w.ranks[r]
		if k.left > 0 {
			return Result{}, fmt.Errorf("sim: rank %d is stuck with %d ops left: package schedule/check tells why", r, k.left)
		}
		res.Times[r] = k.ended
	}
	if len(all) > 0 {
		res.Max = slices.Max(res.Times)
	}
	return res, nil
}
