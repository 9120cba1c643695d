package schedule

import "fmt"

// Windows bound how many messages of one pair of ranks, direction and schedule are
// in flight; 0 is no bound.
type Windows struct{ Send, Recv int }

// The windows of the engine (package nbc), and hence of the simulation.
const (
	// RecvWindow is enough to keep a link busy, and few enough that posting and
	// matching stay cheap.
	RecvWindow = 16
	// SendWindow lets the next message wait at the link, no more. Large messages
	// that are under way together share the link and arrive together, late, which
	// breaks a pipeline: with 16, a chain of four nodes at 1 Gbit/s took 1.7 times
	// the wire's time over Open MPI's TCP, with 2 it takes 1.01 times.
	SendWindow = 2
)

// DefaultWindows are RecvWindow and SendWindow.
var DefaultWindows = Windows{Send: SendWindow, Recv: RecvWindow}

// of returns the bound on messages in one direction.
func (w Windows) of(receives bool) int {
	if receives {
		return w.Recv
	}
	return w.Send
}

// Graph is the order of a schedule's ops: who waits for whom, as flat arrays. It is
// immutable.
type Graph struct {
	waits []int32 // per op: how many ops it waits for
	first []int32 // ops waiting for op i: next[first[i]:first[i+1]]
	next  []int32
}

// Waits returns for every op how many ops it waits for, to be copied and counted
// down.
func (g *Graph) Waits() []int32 { return g.waits }

// Waiting returns the ops that wait for op i.
func (g *Graph) Waiting(i int32) []int32 { return g.next[g.first[i]:g.first[i+1]] }

// Compile returns the graph of s: its dependencies and, beyond them, that a message
// from or to a peer waits until the message that is a window before it has
// completed. Package schedule/check proves schedules free of deadlock under the
// strictest such order of receives, a window of one.
func Compile(s *Schedule, w Windows) (*Graph, error) {
	return CompileFor(s, func(int) Windows { return w })
}

// CompileFor is Compile with windows that may differ from peer to peer.
func CompileFor(s *Schedule, windows func(peer int) Windows) (*Graph, error) {
	n := len(s.Ops)
	g := &Graph{waits: make([]int32, n), first: make([]int32, n+1)}
	before, err := s.windowed(windows)
	if err != nil {
		return nil, err
	}
	each := func(f func(from, to int32)) {
		for i := range s.Ops {
			for _, d := range s.Ops[i].Deps {
				f(int32(d), int32(i))
			}
			if b := before[i]; b >= 0 {
				f(b, int32(i))
			}
		}
	}
	edges := 0
	each(func(from, to int32) {
		g.first[from+1]++
		g.waits[to]++
		edges++
	})
	for i := range n {
		g.first[i+1] += g.first[i]
	}
	g.next = make([]int32, edges)
	at := append([]int32(nil), g.first[:n]...)
	each(func(from, to int32) {
		g.next[at[from]] = to
		at[from]++
	})
	return g, nil
}

// windowed returns for every op the one whose end lets it into its window, or -1.
// On the way it looks at the dependencies.
func (s *Schedule) windowed(windows func(peer int) Windows) ([]int32, error) {
	type stream struct {
		peer     int
		receives bool
	}
	streams := map[stream][]int32{}
	before := make([]int32, len(s.Ops))
	for i := range s.Ops {
		op := &s.Ops[i]
		for _, d := range op.Deps {
			if d < 0 || d >= i {
				return nil, fmt.Errorf("schedule: op %d of rank %d waits for op %d, which is not before it", i, s.Rank, d)
			}
		}
		before[i] = -1
		if op.Local() {
			continue
		}
		room := windows(op.Peer).of(op.Receives())
		if room == 0 {
			continue
		}
		key := stream{op.Peer, op.Receives()}
		messages := append(streams[key], int32(i))
		streams[key] = messages
		if k := len(messages) - 1 - room; k >= 0 {
			before[i] = messages[k]
		}
	}
	return before, nil
}
