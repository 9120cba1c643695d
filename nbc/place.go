package nbc

import (
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
)

// A sum that is only sent on, or is sent to several ranks, is stored by the device where its
// receivers want it, in the pass that makes it, if they have said where that is (Placer)
// and the device can (Spreader): otherwise it is written once more, and read once more, for each
// of them. So is a message that is sent on, as a part of a broadcast: who receives it is lent it, and the device copies it to where all of the
// node want it, rather than first to where this rank does (schedule.Relays). A rank waits a little for the others to say where that is. To
// the schedule that is as before: the messages are sent when the sum is
// there, and the transport finds that they have arrived.

// Placer is implemented by a Transport that reaches the memory in which other ranks wait for messages.
type Placer interface {
	// Shared reports whether other ranks of the node read and write b where it is. Any goroutine may call it.
	Shared(b mem.Buffer) bool
	// Place returns the memory in which rank to waits for the n bytes of the message with the tag given; false
	// where it does not yet, or that memory cannot be reached. A Send of it from there, or of none, is to
	// follow; the caller may write there until then.
	Place(to int, tag Tag, n int) (mem.Buffer, bool)
}

// Spreader is a Folder that stores what it combines in several buffers at once, all of host memory.
type Spreader interface {
	Folder
	// ReduceTo is ReduceAll to equally long buffers that are apart from each other, one at least; only the
	// first may be one of the first two of from. Both slices are the caller's again when it returns.
	ReduceTo(tok Token, dt mem.Datatype, op mem.Op, to, from []mem.Buffer) (done bool, err error)
	// CopyTo begins that equally long buffers that are apart from each other and from src hold what that does. to is the caller's
	// again when it returns.
	CopyTo(tok Token, to []mem.Buffer, src mem.Buffer) (done bool, err error)
	// Spreads reports whether that is worth while for parts of a collective of so many bytes that are stored
	// at so many places.
	Spreads(bytes, places int) bool
}

// spreads reports whether what r makes is stored where others wait for it, at so many places at most.
func (e *Engine) spreads(r *Request, places int) bool {
	return places > 0 && e.placer != nil && e.spreader != nil && r.bind.space() == mem.Host && e.spreader.Spreads(r.size(), places)
}

// relayLeast is the longest message, in bytes, that is not worth while to relay: to say where it is wanted takes longer than to copy it.
const relayLeast = 16 << 10

// relays reports whether r stores messages that it passes on where others wait for them. In memory that is not shared it receives them as others.
func (e *Engine) relays(r *Request) bool {
	p := r.plan
	return p.relays != nil && r.bind.Datatype.Bytes(p.relayed) > relayLeast && e.spreads(r, p.others) && e.placer.Shared(r.bind.Out)
}

// destinations returns where the sum of op last of r, or the message that it passes on, is to be stored: dst, which is its
// place in the schedule, unless nobody reads it there, and where other ranks wait for it. all
// says that all who want it have it then, but for who calls.
func (e *Engine) destinations(r *Request, last int32, dst mem.Buffer) (to []mem.Buffer, all bool) {
	e.places = append(e.places[:0], dst)
	p := r.plan
	spreads := r.spreads
	if !p.schedule.Ops[last].Adds() {
		spreads = r.relays
	}
	if p.next[last] >= 0 || !spreads {
		return e.places, false
	}
	sum, read := p.schedule.Ops[last].Dst, false
	for _, j := range p.graph.Waiting(last) {
		op := &p.schedule.Ops[j]
		if op.Passes(&p.schedule.Ops[last]) && r.state[j] > 0 {
			if place, ok := e.placer.Place(r.peer(op.Peer), r.tag(uint32(op.Msg)), dst.Len()); ok {
				r.data[j] = place
				e.places = append(e.places, place)
				continue
			}
		}
		read = read || reads(op, sum)
	}
	all = !read && len(e.places) > 1
	if all && sum.Buf == schedule.Scratch {
		e.places = e.places[1:]
	}
	return e.places, all
}

// awaited reports whether all of the node to whom op i of r passes its message on have said where they want it.
func (e *Engine) awaited(r *Request, i int32) bool {
	p, n := r.plan, r.bytes(r.plan.schedule.Ops[i].Dst).Len()
	for _, j := range p.graph.Waiting(i) {
		op := &p.schedule.Ops[j]
		if !op.Passes(&p.schedule.Ops[i]) || r.state[j] <= 0 || !p.near[op.Peer] {
			continue
		}
		if _, ok := e.placer.Place(r.peer(op.Peer), r.tag(uint32(op.Msg)), n); !ok {
			return false
		}
	}
	return true
}

// partWanted reports whether the first of what waits for others, in host memory, is a message that has meanwhile become wanted by all.
func (e *Engine) partWanted() bool {
	p := e.exec.partials[onHost].top()
	return e.exec.relays(p.r, p.op) && e.awaited(p.r, p.op)
}

// reads reports whether op reads a part of ref.
func reads(op *schedule.Op, ref schedule.Ref) bool {
	var room [2]schedule.Ref
	for _, src := range op.Sources(room[:0]) {
		if src.Buf == ref.Buf && src.Overlaps(ref.Range) {
			return true
		}
	}
	return false
}

// message returns what op i of r, a Send, sends: what lies at its receiver's place already where
// it was put there.
func (e *Engine) message(r *Request, i int32) mem.Buffer {
	if r.data != nil && r.data[i].Len() > 0 {
		place := r.data[i]
		r.data[i] = mem.Buffer{}
		return place
	}
	return r.bytes(r.plan.schedule.Ops[i].Src)
}
