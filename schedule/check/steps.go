package check

import (
	"slices"

	"github.com/scaffe/scaffe/schedule"
)

// Steps returns the length of the critical path of all, one schedule per rank
// in the order of ranks, in the step model of S-Caffe section 5.
//
// One message takes one step, whatever its length; in a step, a rank sends at
// most one message and receives at most one, both at once (one full-duplex
// port). An op can take part once the ops it waits for have completed in
// earlier steps; copies take no time. Among what it could do, a rank prefers
// what comes first in its program: of two ranks, neither has an exchange with
// the other that both would rather have made.
//
// Schedules that do not match or that get stuck are an error, but no proof is
// made that they are right.
func Steps(all []*schedule.Schedule) (int, error) {
	transfers, err := Timeline(all)
	if err != nil || len(transfers) == 0 {
		return 0, err
	}
	return transfers[len(transfers)-1].Step + 1, nil
}

// Transfer is one message in the step model.
type Transfer struct {
	// Step is when it travels, from 0.
	Step int
	// From and To are ranks.
	From, To int
	// Send and Recv are the ops at its two ends: indices into the Ops of the
	// schedules of From and To.
	Send, Recv int
}

// Timeline returns every message of all in the step model of Steps, by step
// and then by receiving rank: what package draw draws.
func Timeline(all []*schedule.Schedule) ([]Transfer, error) {
	if err := shape(all); err != nil {
		return nil, err
	}
	j, err := join(all)
	if err != nil {
		return nil, err
	}
	w, err := newWalk(j)
	if err != nil {
		return nil, err
	}
	var transfers []Transfer
	for step := 0; ; step++ {
		done := w.step()
		if len(done) == 0 {
			break
		}
		for _, send := range done {
			recv := j.peer[send]
			t := Transfer{Step: step, From: int(j.rank[send]), To: int(j.rank[recv])}
			t.Send, t.Recv = int(send-j.base[t.From]), int(recv-j.base[t.To])
			transfers = append(transfers, t)
		}
		for _, send := range done {
			w.complete(send)
			w.complete(j.peer[send])
		}
	}
	if w.left > 0 {
		if _, err := j.order(); err != nil {
			return nil, err
		}
		return nil, fail(Deadlock, -1, "%d ops never start", w.left)
	}
	return transfers, nil
}

// walk is the state of a run in steps.
type walk struct {
	*joint
	waits []int32 // op -> how many ops it still waits for
	graph []*schedule.Graph
	ready [][]int32 // rank -> the sends that could go, both ends, in program order
	taken []int32   // rank -> the send it has agreed to receive in this step, -1: none
	left  int       // ops not completed
}

func newWalk(j *joint) (*walk, error) {
	n := len(j.rank)
	w := &walk{
		joint: j,
		waits: make([]int32, 0, n),
		graph: make([]*schedule.Graph, len(j.all)),
		ready: make([][]int32, len(j.all)),
		taken: make([]int32, len(j.all)),
		left:  n,
	}
	for r, s := range j.all {
		g, err := schedule.Compile(s, schedule.Windows{}) // ports take one message a step anyway
		if err != nil {
			return nil, err
		}
		w.graph[r], w.waits = g, append(w.waits, g.Waits()...)
	}
	for op := range int32(n) {
		if len(j.op(op).Deps) == 0 {
			w.eligible(op)
		}
	}
	return w, nil
}

// eligible notes that op waits for nothing any more.
func (w *walk) eligible(op int32) {
	peer := w.peer[op]
	if peer < 0 {
		w.complete(op)
		return
	}
	if w.waits[peer] > 0 {
		return
	}
	send := op
	if w.op(op).Kind != schedule.Send {
		send = peer
	}
	sends := &w.ready[w.rank[send]]
	if i, found := slices.BinarySearch(*sends, send); !found {
		*sends = slices.Insert(*sends, i, send)
	}
}

func (w *walk) complete(op int32) {
	w.left--
	base := w.base[w.rank[op]]
	for _, i := range w.graph[w.rank[op]].Waiting(op - base) {
		if w.waits[base+i]--; w.waits[base+i] == 0 {
			w.eligible(base + i)
		}
	}
}

// step chooses the messages of one step and takes them off the ready ones:
// the stable matching of Gale and Shapley. Ranks offer their sends in program
// order, and a receiver keeps the offer that comes first in its own.
func (w *walk) step() []int32 {
	offers := make([]int, len(w.all)) // rank -> how many of its sends were refused
	for r := range w.taken {
		w.taken[r] = -1
	}
	for r := range w.all {
		for sender := r; sender >= 0; {
			if offers[sender] == len(w.ready[sender]) {
				break // no rank takes anything from it in this step
			}
			send := w.ready[sender][offers[sender]]
			recv := w.peer[send]
			taken := &w.taken[w.rank[recv]]
			if *taken >= 0 && w.peer[*taken] < recv {
				offers[sender]++
				continue
			}
			*taken, send = send, *taken
			if sender = -1; send >= 0 {
				sender = int(w.rank[send])
				offers[sender]++
			}
		}
	}
	var done []int32
	for _, send := range w.taken {
		if send >= 0 {
			sends := &w.ready[w.rank[send]]
			i, _ := slices.BinarySearch(*sends, send)
			*sends = slices.Delete(*sends, i, i+1)
			done = append(done, send)
		}
	}
	return done
}
