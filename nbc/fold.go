package nbc

import (
	"slices"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
)

// Messages that a rank adds to one range, one after the other, are read in one pass where
// the device can (Folder): then the sum so far need not be written and read again between
// them, and memory is read at several places at once, which moves more than at one. The
// receives begin together, for all that wait for nothing but the one before: a rank of another node
// that is to be added last can send as soon as the first, so that servers that all begin with
// the same rank do not leave the links of the others idle. Of those
// that have arrived none waits for ever: when there is nothing else to do, also for an accelerator, they are added
// without the others, for which there has been a moment to come before (Engine.partly). The order of additions, and so the bits, are the schedule's in
// any case. An Add is a RecvReduce whose message is the rank's own, and there already; a Recv
// whose range is only added to is the first message of a run, and not copied.

// foldMost is how many messages are added in one pass.
const foldMost = 7

// chains returns for each op the one that adds to its sum next, and the one before; -1
// for none.
func chains(s *schedule.Schedule, g *schedule.Graph) (next, prev []int32) {
	next, prev = make([]int32, len(s.Ops)), make([]int32, len(s.Ops))
	for i := range s.Ops {
		next[i], prev[i] = -1, -1
		op := &s.Ops[i]
		if !op.Adds() {
			continue
		}
		for _, d := range op.Deps {
			b := &s.Ops[d]
			if (b.Adds() || b.Kind == schedule.Recv) && b.Dst == op.Src &&
				(op.Src == op.Dst || apart(op) && readBy(s, g, int32(d), int32(i))) {
				next[d], prev[i] = int32(i), int32(d)
			}
		}
	}
	return next, prev
}

// apart reports whether the sum that op writes, elsewhere than where it was before, is not
// over what it adds: a pass may write a part of it before it has read all of that.
func apart(op *schedule.Op) bool {
	return op.Kind != schedule.Add || op.With.Buf != op.Dst.Buf || !op.With.Overlaps(op.Dst.Range)
}

// readBy reports whether nobody but op i reads what op d writes: then the sum that goes on
// elsewhere need not be written there. (Whoever else reads a sum that goes on in place has
// done so before it goes on: the schedule says that.)
func readBy(s *schedule.Schedule, g *schedule.Graph, d, i int32) bool {
	var room [2]schedule.Ref
	for _, j := range g.Waiting(d) {
		for _, src := range s.Ops[j].Sources(room[:0]) {
			if j != i && src.Buf == s.Ops[d].Dst.Buf && src.Overlaps(s.Ops[d].Dst.Range) {
				return false
			}
		}
	}
	return true
}

// folded reports whether the message of op i, a Recv, is the first of a run, or one that is stored at several places.
func (x *executor) folded(r *Request, i int32) bool {
	if !x.folds || r.library != nil || r.plan.schedule.Ops[i].Kind != schedule.Recv {
		return false
	}
	return r.plan.next[i] >= 0 || x.relays(r, i)
}

// relays reports whether the message of op i is one that is stored where those wait for it to whom it is passed on.
func (x *executor) relays(r *Request, i int32) bool {
	return r.relays && r.plan.relays[i] && r.plan.next[i] < 0
}

// split reports whether a run ends before op i in any case: the sum goes on in Out, which
// holds what was to be added, as In is the same memory.
func (r *Request) split(i int32) bool {
	op := &r.plan.schedule.Ops[i]
	return r.inPlace && op.Src != op.Dst
}

// current reports whether the run of messages that begins with the op is still to be added.
func (p *pending) current() bool {
	prev := p.r.plan.prev[p.op]
	return p.r.state[p.op] == opArrived && (prev < 0 || p.r.state[prev] == opDone)
}

// follow begins the receives of the messages that are added after that of op i.
func (x *executor) follow(r *Request, i int32) {
	if !x.folds || r.library != nil {
		return
	}
	for n := 1; n < foldMost; n++ {
		if i = r.plan.next[i]; i < 0 || r.state[i] != 1 {
			return
		}
		r.state[i] = opPosted
		x.acts = append(x.acts, action{step: stepBegin, r: r, op: i})
	}
}

// arrived takes the message of op i.
func (x *executor) arrived(r *Request, i int32) {
	r.state[i] = opArrived
	first := i
	for prev := r.plan.prev[first]; prev >= 0 && r.state[prev] != opDone; prev = r.plan.prev[first] {
		if r.state[prev] != opArrived {
			return // it is added before this one, and looked at then
		}
		first = prev
	}
	if early := x.relays(r, i) && x.awaited != nil && !x.awaited(r, i); early || !x.add(r, first, false) && first == i {
		x.keep(r, first)
	}
}

// add asks for the addition of the messages that have come from op first on, if those are
// all that are under way, or any will do.
func (x *executor) add(r *Request, first int32, any bool) bool {
	last := first
	for {
		next := r.plan.next[last]
		if next >= 0 && r.state[next] == opPosted && !any && !r.split(next) {
			return false
		}
		if next < 0 || r.state[next] != opArrived || r.split(next) {
			break
		}
		last = next
	}
	for i := first; i >= 0; i = r.plan.next[i] {
		r.state[i] = opCombining
		if i == last {
			break
		}
	}
	x.sum(r, first, last)
	return true
}

// keep notes the run that begins with op first of r, for when there is nothing else to do.
func (x *executor) keep(r *Request, first int32) {
	h := &x.partials[r.where()]
	if n := len(h.items); n == cap(h.items) {
		if h.retain((*pending).current); len(h.items) > n/2 { // it is not looked through again soon
			h.items = slices.Grow(h.items, n+1)
		}
	}
	h.push(r, first)
}

// Where the messages of a run lie.
const (
	onHost = iota
	onAccelerator
	lies
)

// where says it of r's.
func (r *Request) where() int {
	if r.bind.space() == mem.Host {
		return onHost
	}
	return onAccelerator
}

// hasPart reports whether there is a run of which not all has come.
func (x *executor) hasPart(where int) bool {
	for h := &x.partials[where]; !h.empty(); h.pop() {
		if h.top().current() {
			return true
		}
	}
	return false
}

// partly asks for the addition of a run of which not all has come, the most urgent, and
// reports whether there is one.
func (x *executor) partly(where int) bool {
	if !x.hasPart(where) {
		return false
	}
	p := x.partials[where].pop()
	return x.add(p.r, p.op, true)
}

// How often a thread that only waits offers a core that ranks share to the others before it adds a part of what is to be added in one pass; and how many
// turns in which nothing moves the loop makes before an accelerator that has nothing to add is given a part, some 10 µs.
const (
	offers = 4
	looks  = 16
)

// partly adds a part of a run of which not all has come, and reports whether it has done anything. A sum in two passes writes, and reads again, what one does
// not. So ranks that share a core have it in turn first: they need some µs to send what they give.
func (e *Engine) partly() bool {
	if e.exec.hasPart(onHost) {
		if e.offered < offers && e.shares() && !e.partWanted() {
			e.offered++
			e.waiter.Yield()
			return true
		}
		e.offered = 0
		if e.exec.partly(onHost) && e.perform() {
			return true
		}
	}
	return e.exec.hasPart(onAccelerator) && e.partlyThere()
}

// shares reports whether the thread that turns the loop only waits, on a core that ranks share.
func (e *Engine) shares() bool { return e.waits && e.waiter.Crowded() }

// partlyThere is partly on an accelerator, which needs as long to begin a second pass as others to come: what is given to it behind another addition
// begins no sooner than that has ended.
func (e *Engine) partlyThere() bool {
	if b := e.exec.partials[onAccelerator].top().r.bind; e.other.Folds(b.Datatype, b.Op) {
		switch {
		case e.other.Combining():
			return false
		case e.looks < looks:
			if e.looks++; e.shares() {
				e.waiter.Yield()
			}
			return true
		}
	}
	e.looks = 0
	return e.exec.partly(onAccelerator) && e.perform()
}

// added says that the device has added the run that ends with op last.
func (x *executor) added(r *Request, last int32) {
	first := last
	for prev := r.plan.prev[first]; prev >= 0 && r.state[prev] == opCombining; prev = r.plan.prev[first] {
		first = prev
	}
	next := r.plan.next[last]
	for i := first; ; i = r.plan.next[i] {
		if r.plan.schedule.Ops[i].Receives() {
			x.acts = append(x.acts, action{step: stepRelease, r: r, op: i})
		}
		end := i == last // complete may be the request's end
		x.complete(r, i)
		if end {
			break
		}
	}
	if next >= 0 && r.state[next] == opArrived && !x.add(r, next, false) {
		x.keep(r, next)
	}
}

// combine begins the addition of what ops first to last of r have received, in this
// order, to what first adds to. The sum goes where last writes it.
func (e *Engine) combine(r *Request, first, last int32) {
	op, dst := &r.plan.schedule.Ops[first], r.plan.schedule.Ops[last].Dst
	own := r.bytes(dst)
	to, all := e.destinations(r, last, own)
	final := e.sums != nil && r.plan.next[last] < 0 && (all || dst.Buf == schedule.Out && !r.plan.readsOut)
	if final {
		e.sums.Expect(r.size())
	}
	e.operands = e.operands[:0]
	if op.Adds() {
		e.operands = append(e.operands, r.bytes(op.Src))
	}
	e.operands = append(e.operands, r.data[first])
	for i := first; i != last; {
		i = r.plan.next[i]
		e.operands = append(e.operands, r.data[i])
	}
	var done bool
	var err error
	switch {
	case len(e.operands) == 1: // a Recv, as what comes after it is not there yet, or it is passed on
		done, err = e.store(r.token(last), to, e.operands[0])
	case len(to) > 1 || !to[0].Same(own):
		done, err = e.spreader.ReduceTo(r.token(last), r.bind.Datatype, r.bind.Op, to, e.operands)
	case e.folder == nil:
		done, err = e.device.Reduce(r.token(last), r.bind.Datatype, r.bind.Op, own, e.operands[1], e.operands[0])
	default:
		done, err = e.folder.ReduceAll(r.token(last), r.bind.Datatype, r.bind.Op, own, e.operands)
	}
	if final {
		e.sums.Expect(0)
	}
	e.began(r, last, done, err)
}

// store begins that all of to hold the message, which the transport may have copied to the first.
func (e *Engine) store(tok Token, to []mem.Buffer, message mem.Buffer) (done bool, err error) {
	if to[0].Same(message) {
		to = to[1:]
	}
	switch len(to) {
	case 0:
		return true, nil
	case 1:
		return e.device.Copy(tok, to[0], message)
	}
	return e.spreader.CopyTo(tok, to, message)
}
