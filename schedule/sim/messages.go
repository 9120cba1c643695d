package sim

import (
	"math/bits"

	"github.com/scaffe/scaffe/schedule"
)

// step is what happens at an event. A message is one of three kinds. Between nodes,
// one of at most Eager bytes leaves as soon as its send is posted, whether it is
// awaited or not:
//
//	sender    post ═══ port ═══▶ sendDone
//	               ╲
//	                wire ──▶ sendReady ┐
//	receiver  post ────────────────────┴▶ finish
//
// A longer one waits for its receive (rendezvous): the library asks, the receiver's
// thread answers, and the sender's then lets the data go:
//
//	sender    post ─ latency ─▶           ┌─ latency ─▶ data ═══ port ═══▶ sendDone
//	                         asked ┐      │                ╲
//	receiver  post ────────────────┴▶ answer                wire ──▶ dataArrived ▶ finish
//
// Within a node nothing travels but the news. As a rule the receiver reads the sender's
// memory, and then lets it go:
//
//	sender    post ─ latency ─▶                     ┌─ latency ─▶ sendDone
//	                          sendReady ┐           │
//	receiver  post ─────────────────────┴▶ finish ──┘
//
// Where a sender knows when it comes to it where the message is wanted, it writes it
// there; not so a message to be added, which the receiver reads in any case:
//
//	sender              post ▶ finish ─ latency ─▶
//	                  told ┘                       sendReady ▶ finish
//	receiver  post ─ latency ─▶
//
// A sum that its receivers have said where they want is written there when it is made, and
// the sender says so as it comes to sending it.
//
// Where every rank has a core and the other side has nothing else to do, each copies
// one half of a large message, and who ends last says so to the other.
//
// A message out of unregistered memory, of a collective that is copied around the caches, that is to be added, or whose
// ranks share a core, is copied by its sender to where the receiver reads it, when that asks:
//
//	sender    post ─ latency ─▶             ┌─▶ finish (copy) ─ latency ─▶                  ┌─ latency ─▶ sendDone
//	                          sendReady ┐   │ latency                     dataArrived       │
//	receiver  post ─────────────────────┴───┘                                         ▶ finish
//
// A message of at most ShortBytes travels with the news, and its sender is done.
//
// What becomes of these where buffers lie in GPUs' memory, begins says.
func (w *world) step(e event) {
	k := &w.ranks[e.rank]
	switch e.kind {
	case dataArrived, granted:
		k.todo = append(k.todo, e.op)
		w.wake(e.rank)
	case sendReady:
		if k.state[e.op] |= senderReady; k.state[e.op]&posted != 0 {
			w.meet(e.rank, e.op)
		}
	case sendDone:
		w.complete(e.rank, e.op)
	case wanted:
		k.state[e.op] |= told
	case gpuDone:
		w.gpuDone(e.rank, e.op)
	case taskDone:
		switch {
		case w.gpus != nil && w.begins(e.rank, e.op, e.finish):
		case e.finish:
			w.finished(e.rank, e.op)
		default:
			w.post(e.rank, e.op)
		}
		if k.busy = len(k.first)+len(k.todo) > 0; k.busy {
			w.work(e.rank, 0) // a thread keeps its core as long as it has work
		} else {
			w.release(e.rank)
		}
	}
}

// post notes that an op is posted, and starts its message as soon as that may go.
func (w *world) post(r, i int32) {
	k := &w.ranks[r]
	op := &k.ops[i]
	k.state[i] |= posted
	switch {
	case w.near(r, i):
		w.postNear(r, i)
	case op.Receives():
		if k.state[i]&senderReady != 0 {
			k.todo = append(k.todo, i)
			w.wake(r)
		}
	case w.eager(op):
		w.send(r, i, sendReady)
	default:
		w.tell(r, i, sendReady)
	}
}

// near reports whether op i of rank r is a message within a node.
func (w *world) near(r, i int32) bool {
	k := &w.ranks[r]
	return !k.ops[i].Local() && w.ranks[k.ops[i].Peer].node == k.node
}

// far reports whether it is one between nodes.
func (w *world) far(r, i int32) bool {
	k := &w.ranks[r]
	return !k.ops[i].Local() && w.ranks[k.ops[i].Peer].node != k.node
}

// eager reports whether a message between nodes leaves at once.
func (w *world) eager(op *schedule.Op) bool { return float64(op.Len()*w.ElemSize) <= w.Model.Eager }

// tell lets the other side of op i of rank r know something.
func (w *world) tell(r, i int32, what kind) {
	op := &w.ranks[r].ops[i]
	latency := w.Model.Inter.Latency
	if w.near(r, i) {
		latency = w.Model.Intra.Latency
	}
	w.push(event{at: w.now + latency, kind: what, rank: int32(op.Peer), op: w.ranks[r].peer[i]})
}

// Packets returns of how many packets a message between nodes of the given bytes
// consists: its envelope with the data in it, or the data besides, or a rendezvous in
// their place, which is the library's question, the answer, and the data.
func Packets(bytes float64, m Model) float64 {
	switch {
	case bytes <= InlineBytes:
		return 1
	case bytes <= m.Eager:
		return 2
	}
	return 4
}

// packets is how many of them a task of op i has to do with.
func (w *world) packets(r, i int32, finish bool) float64 {
	k := &w.ranks[r]
	op := &k.ops[i]
	if !w.far(r, i) || !finish && op.Receives() {
		return 0
	}
	switch all := Packets(float64(op.Len()*w.ElemSize), w.Model); {
	case w.eager(op):
		return all
	case !finish:
		return 2 // the envelope and the question
	case op.Receives() && k.state[i]&answered == 0:
		return all - 1 // these, and the answer
	case op.Receives():
		return 1 // the data
	default:
		return all - 2 // the answer and the data
	}
}

// carries is for how long a task of op i carries its message to or from the network.
func (w *world) carries(r, i int32, finish bool) float64 {
	k := &w.ranks[r]
	op := &k.ops[i]
	eager := w.eager(op)
	switch {
	case w.Model.Carry == 0 || !w.far(r, i):
		return 0
	case op.Receives() && (!finish || !eager && k.state[i]&answered == 0):
		return 0
	case !op.Receives() && finish == eager:
		return 0
	}
	return float64(op.Len()*w.ElemSize) / w.Model.Carry
}

// postNear is post for a message within a node.
func (w *world) postNear(r, i int32) {
	k := &w.ranks[r]
	op := &k.ops[i]
	small := op.Len()*w.ElemSize <= ShortBytes && !w.lends(r, i)
	switch {
	case op.Receives() && k.state[i]&senderReady != 0:
		w.meet(r, i)
	case op.Receives():
		if op.Kind == schedule.Recv && !small && w.wants(r, i) {
			w.tell(r, i, wanted)
		}
	case k.state[i]&placed != 0:
		w.ranks[op.Peer].state[k.peer[i]] |= put
		w.tell(r, i, sendReady)
		w.push(event{at: w.now, kind: sendDone, rank: r, op: i})
	case k.state[i]&told != 0:
		w.ranks[op.Peer].state[k.peer[i]] |= put
		w.meet(r, i)
	default:
		w.tell(r, i, sendReady)
		if small {
			w.push(event{at: w.now, kind: sendDone, rank: r, op: i})
		}
	}
}

// wants reports whether a receive of rank r tells its sender where it wants the message: not one
// into unregistered memory that the sender does not write to (package nbc/shm).
func (w *world) wants(r, i int32) bool {
	k := &w.ranks[r]
	op := &k.ops[i]
	if w.gpus != nil || k.relayed(i) {
		return false
	}
	return !w.Unregistered || op.Dst.Buf == schedule.Scratch || w.hosts[k.host].roomy && op.Len()*w.ElemSize > EagerCopy
}

// meet gives rank r a message of which the other side is ready: to copy it or, where
// the other has nothing to do, half of it.
func (w *world) meet(r, i int32) {
	k := &w.ranks[r]
	op := &k.ops[i]
	other, at := int32(op.Peer), k.peer[i]
	peer := &w.ranks[other]
	if w.asks(r, i) {
		w.tell(r, i, granted)
		return
	}
	if w.shares(r, i) && k.state[i]&put == 0 && k.node == peer.node && op.Len()*w.ElemSize >= HalvedFrom && w.hosts[k.host].roomy && !peer.busy && !(op.Receives() && w.awaits(other, r)) {
		k.state[i] |= halved
		peer.state[at] |= halved
		peer.todo = append(peer.todo, at)
		w.wake(other)
	}
	k.todo = append(k.todo, i)
	w.wake(r)
}

// awaits reports whether rank r is about to get a large message from rank other, which it will copy: in an exchange each
// copies its own.
func (w *world) awaits(r, other int32) bool {
	k, peer := &w.ranks[r], &w.ranks[other]
	for i := range k.ops {
		op := &k.ops[i]
		if op.Receives() && int32(op.Peer) == other && op.Len()*w.ElemSize >= HalvedFrom && k.state[i]&(posted|senderReady) == posted && peer.state[k.peer[i]]&posted != 0 {
			return true
		}
	}
	return false
}

// shares reports whether both ranks may copy the message of op i of rank r: not one that is read to be added where it lies, or passed
// on.
func (w *world) shares(r, i int32) bool {
	k := &w.ranks[r]
	to, relayed := &k.ops[i], k.relayed(i)
	if !to.Receives() {
		to, relayed = &w.ranks[to.Peer].ops[k.peer[i]], w.ranks[to.Peer].relayed(k.peer[i])
	}
	return w.gpus == nil && !relayed && to.Kind == schedule.Recv
}

// send lets rank r's message go through the ports: since its thread began to carry it
// there.
func (w *world) send(r, i int32, how kind) {
	k := &w.ranks[r]
	op := &k.ops[i]
	a, b := &w.nodes[k.node], &w.nodes[w.ranks[op.Peer].node]
	bytes := float64(op.Len() * w.ElemSize)
	leaves, arrives := w.wire(bytes, &a.sent), w.wire(bytes, &b.received)
	start := w.now
	if w.Model.Carry > 0 {
		start -= bytes / w.Model.Carry
	}
	start = max(start, a.tx)
	a.tx = max(w.now, start+leaves)
	b.rx = max(start+w.Model.Inter.Latency, b.rx) + max(leaves, arrives)
	w.push(event{at: a.tx, kind: sendDone, rank: r, op: i})
	w.push(event{at: max(w.now, b.rx), kind: how, rank: int32(op.Peer), op: k.peer[i]})
}

// wire is how long bytes need to pass a port, after those that have passed.
func (w *world) wire(bytes float64, passed *float64) float64 {
	inter := &w.Model.Inter
	burst := min(bytes, max(0, inter.Burst-*passed))
	*passed += bytes
	return burst/(BurstRate*inter.Bandwidth) + (bytes-burst)/inter.Bandwidth
}

// ports is how long a call takes at least for what passes the busiest port, in a loop in which ranks meet before each call:
// what a burst lets pass early the next call misses, unless it comes back while ranks meet. took is what the call takes
// after a long pause.
func (w *world) ports(took float64) float64 {
	most := 0.0
	for i := range w.nodes {
		most = max(most, w.nodes[i].sent, w.nodes[i].received)
	}
	if least := most / w.Model.Inter.Bandwidth; took+w.meeting() < least {
		return least
	}
	return took
}

// meeting is about how long ranks take to meet: a message of no bytes to another node for each doubling of those that
// know of each other, on cores that ranks may share.
func (w *world) meeting() float64 {
	m, sharing := &w.Model, 1.0
	if m.Cores >= 1 {
		sharing = max(1, float64(len(w.ranks))/float64(len(w.nodes))*max(1, m.Hosted)/m.Cores)
	}
	return float64(bits.Len(uint(len(w.nodes)-1))) * (m.Inter.Latency + 2*sharing*(m.Packet+m.Op))
}

// finished ends an op, and tells the other side of a message within a node. Of a
// message between nodes that waits for its receive it is one step.
func (w *world) finished(r, i int32) {
	k := &w.ranks[r]
	op := &k.ops[i]
	switch {
	case w.near(r, i):
		if !w.finishedNear(r, i) {
			return
		}
	case w.far(r, i) && !op.Receives():
		w.send(r, i, dataArrived)
		return
	case w.far(r, i) && !w.eager(op) && k.state[i]&answered == 0:
		k.state[i] |= answered
		w.tell(r, i, granted)
		return
	}
	w.complete(r, i)
}

// finishedNear is finished for a message within a node. It reports whether this side's
// op has ended.
func (w *world) finishedNear(r, i int32) bool {
	k := &w.ranks[r]
	op := &k.ops[i]
	switch {
	case k.state[i]&halved != 0:
		k.state[i] |= copied
		if w.ranks[op.Peer].state[k.peer[i]]&copied == 0 {
			return false // the other one completes both
		}
		w.tell(r, i, sendDone)
	case !op.Receives() && w.asks(int32(op.Peer), k.peer[i]):
		k.filled[op.Src] = true
		w.tell(r, i, dataArrived)
		return false
	case !op.Receives():
		w.tell(r, i, sendReady)
	case k.state[i]&put == 0 && op.Len()*w.ElemSize > ShortBytes:
		w.tell(r, i, sendDone)
	}
	return true
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
