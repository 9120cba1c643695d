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
}

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

// world is a simulation under way.
type world struct {
	Setup
	now    float64
	seq    uint64
	ranks  []rank
	nodes  []node
	events events
}

// rank is one rank's schedule and its progress thread.
type rank struct {
	ops   []schedule.Op
	graph *schedule.Graph
	waits []int32 // per op: how many ops it still waits for
	peer  []int32 // per op: the index of the op at the other end, -1 for none
	state []uint8 // per op: posted, there
	first []int32 // ops to post, and then
	todo  []int32 // ops to finish: first come, first served
	busy  bool    // it has a core, or waits for one
	node  int32
	left  int
	ended float64
	// cached says that the schedule's scratch memory fits the cache.
	cached bool
}

// node is what the ranks of a node share.
type node struct {
	free     int     // idle cores
	waiting  []int32 // ranks that have work and no core
	memory   float64 // until when memory is busy
	tx, rx   float64 // until when the port is busy
	infinite bool
}

// What an op's state says.
const (
	posted      uint8 = 1 << iota
	senderReady       // of a receive: sendReady has happened
)

// newWorld links the ops with each other.
func newWorld(all []*schedule.Schedule, s Setup) (*world, error) {
	if s.ElemSize < 1 || s.Nodes != nil && len(s.Nodes) != len(all) {
		return nil, fmt.Errorf("sim: elements of %d bytes, nodes of %d ranks for %d schedules", s.ElemSize, len(s.Nodes), len(all))
	}
	if s.Windows == (schedule.Windows{}) {
		s.Windows = schedule.DefaultWindows
	}
	for r, sch := range all {
		for i := range sch.Ops {
			if o := &sch.Ops[i]; !o.Local() && (o.Peer < 0 || o.Peer >= len(all)) {
				return nil, fmt.Errorf("sim: op %d of rank %d has the peer %d of %d ranks", i, r, o.Peer, len(all))
			}
		}
	}
	peers, err := schedule.Match(all)
	if err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	w := &world{Setup: s, ranks: make([]rank, len(all))}
	nodes := 1
	for r, sch := range all {
		k := &w.ranks[r]
		if s.Nodes != nil {
			if s.Nodes[r] < 0 {
				return nil, fmt.Errorf("sim: rank %d is on node %d", r, s.Nodes[r])
			}
			k.node = int32(s.Nodes[r])
		}
		nodes = max(nodes, int(k.node)+1)
		k.ops, k.left = sch.Ops, len(sch.Ops)
		k.cached = float64(sch.Scratch*s.ElemSize) <= s.Model.Cache
		if k.graph, err = schedule.Compile(sch, s.Windows); err != nil {
			return nil, fmt.Errorf("sim: %w", err)
		}
		k.waits, k.peer, k.state = slices.Clone(k.graph.Waits()), peers[r], make([]uint8, len(sch.Ops))
	}
	w.nodes = make([]node, nodes)
	for i := range w.nodes {
		w.nodes[i].free, w.nodes[i].infinite = int(s.Model.Cores), s.Model.Cores < 1
	}
	return w, nil
}

// ready gives an op that waits for nothing to its rank's thread.
func (w *world) ready(r, i int32) {
	k := &w.ranks[r]
	if k.ops[i].Local() {
		k.todo = append(k.todo, i)
	} else {
		k.first = append(k.first, i)
	}
	w.wake(r)
}

// wake sets rank r's thread to work, if it rests.
func (w *world) wake(r int32) {
	if k := &w.ranks[r]; !k.busy {
		k.busy = true
		w.ask(r)
	}
}

// ask gets a core for rank r, now or later.
func (w *world) ask(r int32) {
	n := &w.nodes[w.ranks[r].node]
	if n.free == 0 && !n.infinite {
		n.waiting = append(n.waiting, r)
		return
	}
	n.free--
	w.work(r)
}

// work does the first task of rank r, which has a core.
func (w *world) work(r int32) {
	k := &w.ranks[r]
	queue := &k.first
	finish := len(k.first) == 0
	if finish {
		queue = &k.todo
	}
	op := (*queue)[0]
	*queue = (*queue)[1:]
	n, m := &w.nodes[k.node], &w.Model
	end := w.now + m.Op
	if finish {
		touched, staged := w.traffic(r, op)
		end += touched/m.Core.Bandwidth + staged/m.Staging.Bandwidth
		if all := touched + 2*staged; all > 0 {
			n.memory = max(n.memory, w.now) + all/m.Memory.Bandwidth
			end = max(end, n.memory)
		}
	}
	w.push(event{at: end, kind: taskDone, rank: r, op: op, finish: finish})
}

// traffic returns how many bytes finishing an op reads and writes in memory,
// and how many have to be copied through the kernel.
func (w *world) traffic(r, i int32) (touched, staged float64) {
	k := &w.ranks[r]
	op := &k.ops[i]
	bytes := float64(op.Len() * w.ElemSize)
	near := op.Receives() && w.ranks[op.Peer].node == k.node
	inMemory := func(ref schedule.Ref) float64 {
		if ref.Buf == schedule.Scratch && k.cached {
			return 0
		}
		return bytes
	}
	var theirs schedule.Buffer
	if near {
		theirs = w.ranks[op.Peer].ops[k.peer[i]].Src.Buf
	}
	staging := near && w.Unregistered && theirs != schedule.Scratch
	switch op.Kind {
	case schedule.Copy, schedule.Scale:
		touched = 2 * bytes
	case schedule.Recv:
		switch {
		case staging:
			staged = bytes
		case near:
			touched = 2 * bytes
		}
	case schedule.RecvReduce:
		touched = bytes // the message
		if op.Src != op.Dst || bytes > w.Model.Cache {
			touched += inMemory(op.Src) + inMemory(op.Dst)
		}
		if staging {
			staged = bytes
		}
	}
	return touched, staged
}

// step is what happens at an event. A message is one of three kinds. Between nodes,
// one of at most Eager bytes leaves as soon as its send is posted, whether it is
// awaited or not:
//
//	sender    post ═══ port ═══▶ sendDone
//	               ╲
//	                wire ──▶ sendReady ┐
//	receiver  post ────────────────────┴▶ finish
//
// A longer one waits for its receive (rendezvous), which is told nothing before the
// data is there:
//
//	sender    post ┐═══ port ═══▶ sendDone
//	               ├ wire ──▶ dataArrived ▶ finish
//	receiver  post ┘
//
// Within a node nothing travels but the news: the receiver reads the sender's memory,
// and then lets it go.
//
//	sender    post ─ latency ─▶                     ┌─ latency ─▶ sendDone
//	                          sendReady ┐           │
//	receiver  post ─────────────────────┴▶ finish ──┘
func (w *world) step(e event) {
	k := &w.ranks[e.rank]
	switch e.kind {
	case dataArrived:
		k.todo = append(k.todo, e.op)
		w.wake(e.rank)
	case sendReady:
		if k.state[e.op] |= senderReady; k.state[e.op]&posted != 0 {
			k.todo = append(k.todo, e.op)
			w.wake(e.rank)
		}
	case sendDone:
		w.complete(e.rank, e.op)
	case taskDone:
		n := &w.nodes[k.node]
		n.free++
		if len(n.waiting) > 0 {
			other := n.waiting[0]
			n.waiting = n.waiting[1:]
			n.free--
			w.work(other)
		}
		if k.busy = len(k.first)+len(k.todo) > 0; k.busy {
			w.ask(e.rank)
		}
		if e.finish {
			w.finished(e.rank, e.op)
		} else {
			w.post(e.rank, e.op)
		}
	}
}

// post notes that an op is posted, and starts its message as soon as that may go.
func (w *world) post(r, i int32) {
	k := &w.ranks[r]
	op, other, at := &k.ops[i], int32(k.ops[i].Peer), k.peer[i]
	k.state[i] |= posted
	near := w.ranks[other].node == k.node
	eager := near || float64(op.Len()*w.ElemSize) <= w.Model.Eager
	switch theirs := w.ranks[other].state[at]&posted != 0; {
	case eager && op.Receives():
		if k.state[i]&senderReady != 0 {
			k.todo = append(k.todo, i)
			w.wake(r)
		}
	case near:
		w.push(event{at: w.now + w.Model.Intra.Latency, kind: sendReady, rank: other, op: at})
	case eager:
		w.send(r, i, sendReady)
	case theirs && op.Receives():
		w.send(other, at, dataArrived)
	case theirs:
		w.send(r, i, dataArrived)
	}
}

// send lets rank r's message go through the ports.
func (w *world) send(r, i int32, how kind) {
	k := &w.ranks[r]
	op := &k.ops[i]
	a, b := &w.nodes[k.node], &w.nodes[w.ranks[op.Peer].node]
	wire := float64(op.Len()*w.ElemSize) / w.Model.Inter.Bandwidth
	start := max(w.now, a.tx)
	a.tx = start + wire
	b.rx = max(start+w.Model.Inter.Latency, b.rx) + wire
	w.push(event{at: a.tx, kind: sendDone, rank: r, op: i})
	w.push(event{at: b.rx, kind: how, rank: int32(op.Peer), op: k.peer[i]})
}

// finished ends an op, and the send of a message read in its sender's memory.
func (w *world) finished(r, i int32) {
	k := &w.ranks[r]
	op := &k.ops[i]
	if op.Receives() && w.ranks[op.Peer].node == k.node {
		w.push(event{at: w.now + w.Model.Intra.Latency, kind: sendDone, rank: int32(op.Peer), op: k.peer[i]})
	}
	w.complete(r, i)
}

// complete makes those ready that waited for an op.
func (w *world) complete(r, i int32) {
	k := &w.ranks[r]
	k.left--
	k.ended = w.now
	for _, j := range k.graph.Waiting(i) {
		if k.waits[j]--; k.waits[j] == 0 {
			w.ready(r, j)
		}
	}
}

func (w *world) push(e event) {
	e.seq = w.seq
	w.seq++
	heap.Push(&w.events, e)
}

// event is something that happens to an op at a time.
type event struct {
	at     float64
	seq    uint64 // of two at the same time the one that was made first
	kind   kind
	finish bool
	rank   int32
	op     int32
}

type kind uint8

const (
	taskDone    kind = iota // a thread has posted or finished an op
	sendReady               // a message is there to be received or read, its receive perhaps not yet posted
	dataArrived             // the data of a message whose receive is posted is there
	sendDone                // a message has left, or has been read
)

// events is a heap, the next one first.
type events []event

func (h events) Len() int { return len(h) }
func (h events) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h events) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push is container/heap's.
func (h *events) Push(x any) { *h = append(*h, x.(event)) }

// Pop is container/heap's.
func (h *events) Pop() any {
	old := *h
	e := old[len(old)-1]
	*h = old[:len(old)-1]
	return e
}
