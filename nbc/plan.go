package nbc

import (
	"fmt"

	"github.com/scaffe/scaffe/schedule"
)

// Window is how many messages of one pair of ranks, direction and collective
// are in flight at most: enough to keep a link busy, few enough that posting
// and matching stay cheap.
const Window = 16

// SendWindow is the same for sends: the next one may wait at the link, no more.
// Large messages that are under way together share the link and arrive
// together, late, which breaks a pipeline: with 16, a chain of four nodes at 1
// Gbit/s took 1.7 times the wire's time over Open MPI's TCP, with 2 it takes
// 1.01 times.
const SendWindow = 2

// window is how many operations of one stream are in flight at most.
func window(receives bool) int {
	if receives {
		return Window
	}
	return SendWindow
}

// Plan is a schedule made ready for execution: who waits for whom, as flat
// arrays. It is immutable, and one Plan serves any number of requests.
type Plan struct {
	schedule *schedule.Schedule
	waits    []int32 // per op: how many ops it waits for
	first    []int32 // ops waiting for op i: next[first[i]:first[i+1]]
	next     []int32
	uses     [3]bool // by schedule.Buffer
}

// Compile makes s ready for execution. Beyond the schedule's own
// dependencies, message n from or to a peer waits until the message that is a
// window before it has completed. Package schedule/check proves schedules free of deadlock under
// the strictest such order, a window of one.
func Compile(s *schedule.Schedule) (*Plan, error) {
	n := len(s.Ops)
	p := &Plan{schedule: s, waits: make([]int32, n), first: make([]int32, n+1)}
	type stream struct {
		peer     int
		receives bool
	}
	streams := map[stream][]int32{}
	windowed := make([]int32, n) // 1 + the op that leaves the window before i enters
	edges := 0
	for i := range s.Ops {
		op := &s.Ops[i]
		p.uses[op.Src.Buf] = p.uses[op.Src.Buf] || op.Reads()
		p.uses[op.Dst.Buf] = p.uses[op.Dst.Buf] || op.Writes()
		for _, d := range op.Deps {
			if d < 0 || d >= i {
				return nil, fmt.Errorf("nbc: op %d of the schedule of rank %d waits for op %d, which is not before it", i, s.Rank, d)
			}
			p.first[d+1]++
		}
		p.waits[i] = int32(len(op.Deps))
		edges += len(op.Deps)
		if op.Local() {
			continue
		}
		key := stream{op.Peer, op.Receives()}
		sent := append(streams[key], int32(i))
		streams[key] = sent
		if k := len(sent) - 1 - window(key.receives); k >= 0 {
			windowed[i] = sent[k] + 1
			p.first[sent[k]+1]++
			p.waits[i]++
			edges++
		}
	}
	for i := range n {
		p.first[i+1] += p.first[i]
	}
	p.next = make([]int32, edges)
	at := append([]int32(nil), p.first[:n]...)
	link := func(from, to int32) {
		p.next[at[from]] = to
		at[from]++
	}
	for i := range s.Ops {
		for _, d := range s.Ops[i].Deps {
			link(int32(d), int32(i))
		}
		if w := windowed[i]; w > 0 {
			link(w-1, int32(i))
		}
	}
	return p, nil
}

// Schedule returns the schedule that the plan was compiled from.
func (p *Plan) Schedule() *schedule.Schedule { return p.schedule }

// waiting returns the ops that wait for op i.
func (p *Plan) waiting(i int32) []int32 { return p.next[p.first[i]:p.first[i+1]] }
