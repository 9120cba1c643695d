package nbc

import (
	"github.com/scaffe/scaffe/mem"
)

// executor is the pure part of the engine: which ops of which requests may
// begin, and what follows from the end of one. It knows no transport, no
// device, no thread and no time. Its owner tells it what has happened (admit,
// received, combined, fail) and does what it asks for (next), as the user of a
// raft node does with Step and Ready.
type executor struct {
	active []*Request // by slot; nil where free
	free   []uint32   // slots
	inUse  int
	failed bool
	folds  bool // messages for one range may be added together: see fold.go

	acts   []action // that come first: they take no time
	actsAt int
	ready  turns // requests with ops that may begin
	sums   heap  // of several requests: runs of messages that may be added, by their first, and sums that may be divided

	begun     precedence    // of sums, and of ops that began while some waited
	overtaken func(pending) // unless nil, is told of sums that begun counts
	partials  [lies]heap    // runs of messages of which not all have come, by their first: in host memory, and in an accelerator's
	// awaited, unless nil, says whether all to whom the message of an op is passed on wait for it: one that is not yet waits
	// with the partials.
	awaited func(r *Request, op int32) bool
}

// step is what an executor asks for.
type step uint8

const (
	stepBegin   step = iota // begin op, then tell of its end
	stepCombine             // add the data of the ops from op to last to their range, then tell combined of last
	stepDivide              // divide the sum, then tell combined
	stepRelease             // give back the memory that the op has borrowed
	stepEnd                 // the request has done all its ops
)

// action is a step of op of a request.
type action struct {
	step step
	op   int32
	last int32 // of stepCombine
	r    *Request
}

// admit gives r a slot and makes its first ops ready. Some of its ops, with all
// that they waited for, may be done already, or begun as those that are lent.
func (x *executor) admit(r *Request, done []int32, lent []Token) {
	r.reset()
	if r.left == 0 { // no elements
		x.acts = append(x.acts, action{step: stepEnd, r: r})
		return
	}
	if len(x.free) == 0 {
		x.free = append(x.free, uint32(len(x.active)))
		x.active = append(x.active, nil)
	}
	r.slot = x.free[len(x.free)-1]
	x.free = x.free[:len(x.free)-1]
	x.active[r.slot] = r
	x.inUse++
	r.skip(done, lent)
	if r.left == 0 { // what was lent has been read by now
		x.completed(r, done[len(done)-1])
		return
	}
	x.enlist(r)
}

// enlist puts r among those with ready ops. One of the MPI library's own begins at once, however
// urgent: all ranks must begin those in the same order.
func (x *executor) enlist(r *Request) {
	switch {
	case r.enlisted || r.head == len(r.queue):
	case r.library != nil:
		i := r.queue[r.head]
		r.head++
		r.state[i] = opPosted
		x.acts = append(x.acts, action{step: stepBegin, r: r, op: i})
	default:
		r.enlisted = true
		x.ready.push(r)
	}
}

// next returns what is to be done next, the most urgent first (P3, section 4.2: of what has
// arrived at a server, it is added and sent on before the rest); false where that is nothing
// until something has ended. Of one request, messages are sent and received before others are
// added, which takes time; those are left alone where sums is false, with what comes after
// them. What next costs does not depend on how many requests wait.
func (x *executor) next(sums bool) (action, bool) {
	if x.actsAt < len(x.acts) {
		a := x.acts[x.actsAt]
		if x.actsAt++; x.actsAt == len(x.acts) {
			x.acts, x.actsAt = x.acts[:0], 0
		}
		return a, true
	}
	r := x.ready.top()
	switch {
	case !x.sums.empty() && (r == nil || x.sums.top().r.sooner(r)):
		if !sums {
			return action{}, false
		}
		return x.nextSum(), true
	case r == nil:
		return action{}, false
	}
	if !x.sums.empty() {
		x.begun.passed(r.bind.Priority, x.sums.pushed)
	}
	i := r.queue[r.head]
	r.state[i] = opPosted
	if r.head++; r.head == len(r.queue) {
		r.enlisted = false
		x.ready.pop()
	}
	x.follow(r, i)
	return action{step: stepBegin, r: r, op: i}, true
}

// sum lets a sum wait for its turn: the messages of ops first to last, or the division of the
// whole. That of a request that is alone has it at once.
func (x *executor) sum(r *Request, first, last int32) {
	if x.inUse > 1 {
		x.sums.push(r, first)
		return
	}
	a := action{step: stepCombine, r: r, op: first, last: last}
	if r.divided {
		a.step = stepDivide
	}
	x.acts = append(x.acts, a)
}

// nextSum takes the most urgent sum.
func (x *executor) nextSum() action {
	p := x.sums.pop()
	if x.begun.begin(&p, x.sums.pushed) && x.overtaken != nil {
		x.overtaken(p)
	}
	if p.r.divided {
		return action{step: stepDivide, r: p.r, op: p.op}
	}
	last := p.op
	for next := p.r.plan.next[last]; next >= 0 && p.r.state[next] == opCombining; next = p.r.plan.next[last] {
		last = next
	}
	return action{step: stepCombine, r: p.r, op: p.op, last: last}
}

// lookup returns the op that a token names; nil where its request has ended.
func (x *executor) lookup(tok Token) (*Request, int32) {
	slot := int(tok >> 32)
	if slot >= len(x.active) || x.active[slot] == nil {
		return nil, 0
	}
	return x.active[slot], int32(uint32(tok))
}

// holds reports whether r is under way.
func (x *executor) holds(r *Request) bool {
	return int(r.slot) < len(x.active) && x.active[r.slot] == r
}

// received says that the transport has ended op i of r: data is what a
// borrowing receive has got. An Add has got With at once.
func (x *executor) received(r *Request, i int32, data mem.Buffer) {
	if r.plan.schedule.Ops[i].Adds() && r.library == nil || x.folded(r, i) {
		r.data[i] = data
		x.arrived(r, i)
		return
	}
	x.complete(r, i)
}

// combined says that the device has ended what it did for op i of r: an
// addition, a copy, or the division of the whole.
func (x *executor) combined(r *Request, i int32) {
	if r.divided {
		x.finish(r)
		return
	}
	if r.plan.schedule.Ops[i].Adds() || x.folded(r, i) {
		x.added(r, i)
		return
	}
	x.complete(r, i)
}

// complete marks op i of r done, and r with its last op.
func (x *executor) complete(r *Request, i int32) {
	if r.complete(i); r.left > 0 {
		x.enlist(r)
		return
	}
	x.completed(r, i)
}

// completed does what follows when all ops of r are done, op i as the last.
func (x *executor) completed(r *Request, i int32) {
	if r.bind.Divide > 0 {
		r.divided = true
		x.sum(r, i, i)
		return
	}
	x.finish(r)
}

// finish ends r in success.
func (x *executor) finish(r *Request) {
	x.active[r.slot] = nil
	x.free = append(x.free, r.slot)
	x.inUse--
	x.acts = append(x.acts, action{step: stepEnd, r: r})
}

// fail forgets all that is under way and returns it. Completions
// that come later are ignored.
func (x *executor) fail() []*Request {
	var under []*Request
	for slot, r := range x.active {
		if r != nil {
			under = append(under, r)
			x.active[slot] = nil
		}
	}
	for _, a := range x.acts[x.actsAt:] {
		if a.step == stepEnd { // it had done all; only that was not said yet
			under = append(under, a.r)
		}
	}
	overtaken := x.begun.overtaken.Load()
	*x = executor{failed: true}
	x.begun.overtaken.Store(overtaken)
	return under
}
