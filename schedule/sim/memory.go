package sim

import (
	"slices"

	"github.com/scaffe/scaffe/schedule"
)

// setRates finds the rates of memory. A machine's working set is what its ranks touch
// in all, spread over the cores that they use.
func (w *world) setRates() {
	sets := make([]float64, len(w.hosts))
	for r := range w.ranks {
		k := &w.ranks[r]
		for i := range k.ops {
			if op := &k.ops[i]; op.Local() || op.Receives() {
				t := w.traffic(int32(r), int32(i))
				sets[k.host] += t.all()
				if w.asks(int32(r), int32(i)) {
					sets[k.host] += w.copies(int32(r), int32(i))
				}
			}
		}
	}
	m := &w.Model
	for i := range w.hosts {
		if cores := w.hosts[i].ranks; cores > 0 {
			if m.Cores >= 1 {
				cores = min(cores, m.Cores)
			}
			sets[i] /= cores
		}
		if w.Part > 0 {
			sets[i] /= w.Part
		}
		w.hosts[i].rate = m.Memory.At(sets[i], m.Cache)
	}
	for r := range w.ranks {
		k := &w.ranks[r]
		k.core, k.staged = m.Core.At(sets[k.host], m.Cache), m.Staging.At(sets[k.host], m.Cache)
	}
}

// traffic is what finishing an op moves, in bytes.
type traffic struct {
	memory float64 // read and written in memory, or in the caches that it passes
	fresh  float64 // likewise, but in another core's cache
	cached float64 // in the core's own cache
	staged float64 // copied out of private memory for another rank: through the kernel, or by its own rank
}

// all is what passes a node's memory.
func (t traffic) all() float64 { return t.memory + t.fresh + 2*t.staged }

// moved is the traffic of finishing an op on rank r, where the later of the two
// sides of a message copies it.
func (w *world) moved(r, i int32) traffic {
	k := &w.ranks[r]
	op := &k.ops[i]
	switch {
	case w.gpus != nil:
		return w.traffic(r, i)
	case k.state[i]&halved != 0:
		to, t := op, w.traffic(r, i)
		if !op.Receives() {
			to, t = &w.ranks[op.Peer].ops[k.peer[i]], w.traffic(int32(op.Peer), k.peer[i])
		}
		if to != op && t.staged == 0 && w.Unregistered && to.Dst.Buf != schedule.Scratch { // through the kernel, as it is not registered there
			return w.written(k, t.all()/4)
		}
		return traffic{t.memory / 2, t.fresh / 2, t.cached / 2, t.staged / 2}
	case op.Local():
	case w.far(r, i):
		if !op.Receives() || !w.eager(op) && k.state[i]&answered == 0 {
			return traffic{} // the network takes them; no data yet
		}
	case !op.Receives() && w.asks(int32(op.Peer), k.peer[i]):
		if k.filled[op.Src] { // one copy for all who receive it
			return traffic{}
		}
		bytes := float64(op.Len() * w.ElemSize)
		if !w.hosts[k.host].roomy {
			return traffic{memory: 2 * bytes}
		}
		return traffic{memory: bytes, cached: bytes} // to memory that is used again, which nobody else's has driven out of the cache
	case !op.Receives():
		t := w.traffic(int32(op.Peer), k.peer[i])
		switch {
		case t.staged > 0:
			return w.written(k, t.staged)
		case !w.streams: // it writes into the other's memory, not around its cache, and reads its own
			t.memory, t.fresh = t.all()/2, t.all()/2
		}
		return t
	case k.state[i]&put != 0:
		return traffic{}
	}
	t := w.traffic(r, i)
	switch {
	case k.places > 0 && op.Adds():
		w.place(r, i, &t)
	case k.relayed(i):
		w.relay(r, i, &t)
	}
	return t
}

// relayed reports whether op i of k receives a message that is stored where those want it to whom it is passed on.
func (k *rank) relayed(i int32) bool { return k.relays != nil && k.relays[i] }

// relay stores the message of op i of rank r at those places as well, and adds to t what that moves. A rank waits a little for others
// to say where they want it.
func (w *world) relay(r, i int32, t *traffic) {
	k := &w.ranks[r]
	op := &k.ops[i]
	bytes := float64(op.Len() * w.ElemSize)
	for _, j := range k.graph.Waiting(i) {
		if send := &k.ops[j]; send.Passes(op) && w.near(r, j) && w.waits(int32(send.Peer), k.peer[j]) {
			k.state[j] |= placed
			t.memory += bytes
		}
	}
}

// written is the traffic of rank k's writing so many bytes into another's private memory, through the kernel: over what that one's cache has.
func (w *world) written(k *rank, bytes float64) traffic {
	return traffic{staged: bytes, fresh: w.apart(k, bytes)}
}

// apart returns what to count as fresh of so many bytes that the kernel copies for rank k, and another core's cache has written, or holds what is
// overwritten: they take no less time than such lines do. Ranks that share cores find them in the cache of their own as often.
func (w *world) apart(k *rank, bytes float64) float64 {
	if w.streams || !w.hosts[k.host].roomy {
		return 0
	}
	return bytes * max(0, 1-w.Model.Fresh/k.staged)
}

// Spreads reports whether what a rank makes for others of its node is stored at so many places at once, of a collective of so many
// bytes.
func Spreads(bytes, places int) bool {
	return places <= FewPlaces || places <= MostPlaces && bytes >= StreamFrom
}

// place stores the sum of op i of rank r where others have said that they want it, and adds to t what that moves.
func (w *world) place(r, i int32, t *traffic) {
	k := &w.ranks[r]
	op := &k.ops[i]
	bytes := float64(op.Len() * w.ElemSize)
	sends, places := 0.0, 0.0
	for _, j := range k.graph.Waiting(i) {
		if send := &k.ops[j]; !send.Passes(op) || !w.near(r, j) {
			continue
		}
		if sends++; w.asked(r, j) {
			k.state[j] |= placed
			places++
		}
	}
	t.memory += places * bytes
	switch {
	case k.places > 1:
		if !w.streams { // it is copied to each out of the core's cache, otherwise stored at all in one pass
			t.cached += 2 * places * bytes
		}
	case k.cached:
	case sends > places: // it goes to where the schedule has it, too
		if op.Src == op.Dst {
			t.memory += bytes
		}
	case places > 0 && op.Src != op.Dst: // it goes nowhere else
		t.memory -= bytes
		if w.streams {
			t.memory -= bytes
		}
	}
}

// folds reports whether op i of rank r is the first of several contributions that are added in one pass, whose sum lies in no
// memory of the rank's own before the last of them.
func (w *world) folds(r, i int32) bool {
	k := &w.ranks[r]
	op := &k.ops[i]
	if k.places != 1 || op.Dst.Buf != schedule.Scratch {
		return false
	}
	return slices.ContainsFunc(k.graph.Waiting(i), func(j int32) bool {
		next := &k.ops[j]
		return next.Adds() && next.Src == op.Dst && next.Dst == op.Dst
	})
}

// asked reports whether it is known where the receiver of op j of rank r wants its message, or will be while a sum is made: a word of
// that needs no thread's turn.
func (w *world) asked(r, j int32) bool {
	op := &w.ranks[r].ops[j]
	peer, at := int32(op.Peer), w.ranks[r].peer[j]
	return w.ranks[r].state[j]&told != 0 || w.ranks[peer].state[at]&posted != 0 && w.waits(peer, at)
}

// waits reports whether op i of rank r, which receives, says where it wants its message as soon as it is posted.
func (w *world) waits(r, i int32) bool {
	return w.ranks[r].ops[i].Kind == schedule.Recv && w.wants(r, i)
}

// copiedAtOnce reports whether the sender of a message out of unregistered memory copies it into registered memory before
// its receiver asks (package nbc/shm): the sender's core, which it has to itself, does it meanwhile, and has it in its cache. A
// caller that executes its schedule by itself lends the message instead, which its receiver reads.
func (w *world) copiedAtOnce(sender int32, op *schedule.Op) bool {
	k := &w.ranks[sender]
	return op.Len()*w.ElemSize <= EagerCopy && w.hosts[k.host].roomy && !k.alone
}

// copied reports whether op i of rank r receives a copy that the sender made before it was asked, one for all who receive it: where
// ranks share cores it counts as work of those.
func (w *world) copied(r, i int32) bool {
	k := &w.ranks[r]
	return !w.hosts[k.host].roomy && k.ops[i].Len()*w.ElemSize <= EagerCopy
}

// asks reports whether op i of rank r receives a message out of unregistered memory that its sender copies when it is
// asked: of a collective that is copied around the caches, to be added or where ranks share cores.
func (w *world) asks(r, i int32) bool {
	k := &w.ranks[r]
	op := &k.ops[i]
	if !w.Unregistered || !w.streams || !op.Receives() || !w.near(r, i) || k.state[i]&put != 0 {
		return false
	}
	peer, crowded := &w.ranks[op.Peer], !w.hosts[k.host].roomy
	if peer.ops[k.peer[i]].Src.Buf == schedule.Scratch || op.Len()*w.ElemSize <= EagerCopy || peer.alone && !crowded {
		return false
	}
	return op.Kind == schedule.RecvReduce || crowded
}

// copies returns what the sender of the message of op i of rank r copies for it, when it makes one copy for all who receive it.
func (w *world) copies(r, i int32) float64 {
	op := &w.ranks[r].ops[i]
	peer := &w.ranks[op.Peer]
	return float64(op.Len()*w.ElemSize) / float64(peer.sends[peer.ops[w.ranks[r].peer[i]].Src])
}

// copying returns how many bytes rank r copies as it posts op i: its message, for
// all who receive that range.
func (w *world) copying(r, i int32) float64 {
	k := &w.ranks[r]
	op := &k.ops[i]
	if !w.Unregistered || op.Kind != schedule.Send || op.Src.Buf == schedule.Scratch || !w.near(r, i) || !w.copiedAtOnce(r, op) {
		return 0
	}
	return float64(op.Len()*w.ElemSize) / float64(k.sends[op.Src])
}

// traffic returns what an op that is not a send moves where its own rank does it.
func (w *world) traffic(r, i int32) (t traffic) {
	k := &w.ranks[r]
	op := &k.ops[i]
	bytes := float64(op.Len() * w.ElemSize)
	if w.gpus != nil {
		if op.Receives() && w.near(r, i) && !w.lends(r, i) { // from the sender's slot, which is not registered
			t.staged = bytes
		}
		return t
	}
	var message *float64 // reading the message
	if !op.Local() && w.ranks[op.Peer].node == k.node {
		peer := &w.ranks[op.Peer]
		message = &t.memory
		switch src := peer.ops[k.peer[i]].Src; {
		case w.Unregistered && src.Buf != schedule.Scratch:
			switch message = &t.staged; {
			case k.state[i]&put != 0 && op.Dst.Buf == schedule.Scratch, w.asks(r, i): // its sender copies it to registered memory
				message = &t.memory
			case w.copiedAtOnce(int32(op.Peer), op):
				message = &t.fresh
			case w.copied(r, i):
				message = &t.memory
				t.memory += 2 * w.copies(r, i)
			case src.Buf == schedule.Out && peer.writes:
				t.fresh += w.apart(k, bytes)
			}
		case src.Buf == schedule.Scratch || src.Buf == schedule.Out && peer.writes:
			message = &t.fresh
		default: // its rank has computed it before the call
			t.fresh = float64(w.given * bytes)
			t.memory = -t.fresh
		}
	}
	touch := func(ref schedule.Ref) {
		if ref.Buf == schedule.Scratch && k.cached {
			t.cached += bytes
		} else {
			t.memory += bytes
		}
	}
	switch op.Kind {
	case schedule.Copy, schedule.Scale:
		t.memory += 2 * bytes
	case schedule.Add:
		touch(op.With)
		touch(op.Src)
		touch(op.Dst)
	case schedule.Recv:
		if message == nil { // the network writes it
			break
		}
		if *message += bytes; message != &t.staged {
			t.memory += bytes
		}
	case schedule.RecvReduce:
		switch message {
		case nil: // from a buffer of the network's
			t.memory += bytes
		case &t.staged: // through a buffer in cache, or to where the sum goes
			t.staged += bytes
			t.cached += bytes
			if op.Src != op.Dst && !w.streams && bytes <= w.Model.Cache {
				touch(op.Src)
				t.cached += bytes
				return t
			}
		default:
			*message += bytes
		}
		switch {
		case op.Src != op.Dst && w.folds(r, i):
			touch(op.Src)
			t.cached += bytes
		case op.Src != op.Dst || bytes > w.Model.Cache:
			touch(op.Src)
			touch(op.Dst)
			if w.streams && op.Src != op.Dst { // unlike a copy, a sum is read into the cache before it is written
				touch(op.Dst)
			}
		default:
			t.cached += 2 * bytes
		}
	}
	return t
}
