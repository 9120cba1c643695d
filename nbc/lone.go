package nbc

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
)

// A collective of few bytes among ranks that share memory takes less time than
// a turn of the loop, and one of small messages not much more; between nodes a turn for
// each message can be seen. Where nothing else is under way, the calling goroutine
// executes its schedule by itself: op after op, with a Transport that is Eager, on
// a Device that is Immediate. Nothing is posted or woken. The messages are
// those that the loop would send, so it does not matter how other ranks execute
// theirs; and if one is not there soon, the loop takes over where this has stopped,
// with all that it has for waiting: sleep, deadline, signals, diagnosis.
//
// A message that is too large to be handed over with its news is lent: its receiver
// reads it where it is. An op that waits for such a one, and the end of the request, wait
// until it has been read; if the loop takes over before, it learns of the end of it.
//
// A request that need lend nothing is begun like that too where it is started and not waited
// for at once. If
// it has not ended then it lingers: its caller goes on with it in Test and Wait, so
// that no thread has to wake for it; but if the caller computes for longer, the
// engine's goroutine hands it to the loop. Not so between nodes, where nothing moves
// without somebody who looks (Eager.Bound).

const (
	// loneOps is how many ops a schedule that is executed so has at most, loneLent how
	// many messages it lends to one rank: the chunks of a pipeline wait for each other
	// where they go one by one, and the loop has several under way.
	loneOps  = 128
	loneLent = 2
	// loneTrade is how large a message may be of two ranks that trade sums (schedule.Trades) in memory that they share: the loop has larger ones
	// stored where they are wanted, while who executes alone reads them out of the other core's cache.
	loneTrade = 32 << 10
	// lingerMost is how many requests may linger at a time.
	lingerMost = 16
	// lingerNap is how long one lingers at least. The engine's goroutine looks after
	// that, and for so many naps more in case another one follows.
	lingerNap  = 200 * time.Microsecond
	lingerNaps = 10
)

// loneOp is an op, bound to memory.
type loneOp struct {
	kind     schedule.Kind
	peer     int
	message  uint32
	dst, src mem.Buffer
	with     mem.Buffer // of an Add
	into     mem.Buffer // of a receive: where a message goes that has to be copied; empty: wherever the transport likes
	lent     []Token    // the messages, of those that may be lent, for whose ends it waits
}

// lone is a request's schedule in the order in which it is executed alone.
type lone struct {
	ops     []loneOp
	order   []int32    // the schedule's op that each is
	lends   bool       // some of its messages may be lent,
	must    bool       // and some are, even if its caller does not wait
	bound   bool       // on the transport's thread alone; see Eager.Bound
	scratch mem.Buffer // that the ops are bound to
}

// bindLone returns how r is executed alone, nil where it cannot be.
func (e *Engine) bindLone(r *Request) *lone {
	s := r.plan.schedule
	if e.eager == nil || r.library != nil || r.plan.sequence == nil || r.bind.In.Space() != mem.Host || r.bind.Out.Space() != mem.Host {
		return nil
	}
	stored := r.plan.trades && e.placer != nil && (e.placer.Shared(r.bind.In) || e.placer.Shared(r.bind.Out))
	l := &lone{ops: make([]loneOp, 0, len(s.Ops)), scratch: r.buffers[schedule.Scratch]}
	waits := make([][]Token, len(s.Ops)) // for messages that may be lent
	lent := map[int]int{}                // by rank
	for i := range s.Ops {
		op := &s.Ops[i]
		if op.Local() {
			continue
		}
		room, n := e.eager.EagerRoom(r.peer(op.Peer)), r.bind.Datatype.Bytes(op.Len())
		most := room.Most
		if op.Kind != schedule.Recv {
			most = max(most, room.Added)
		}
		if n > most || room.Most == 0 || n > loneTrade && stored {
			return nil
		}
		l.bound = l.bound || e.eager.Bound(r.peer(op.Peer))
		if op.Kind == schedule.Send && n > room.Kept {
			if lent[op.Peer]++; lent[op.Peer] > loneLent {
				return nil
			}
			l.lends, l.must = true, l.must || n > room.Copied
			for _, j := range r.plan.graph.Waiting(int32(i)) {
				waits[j] = append(waits[j], Token(i))
			}
		}
	}
	if l.order = r.plan.sequence; l.lends {
		l.order = r.plan.lending
	}
	for _, i := range l.order {
		op := &s.Ops[i]
		b := loneOp{kind: op.Kind, message: uint32(op.Msg), lent: waits[i]}
		if !op.Local() {
			b.peer = r.peer(op.Peer)
		}
		if op.Reads() {
			b.src = r.bytes(op.Src)
		}
		if op.Kind == schedule.Add {
			b.with = r.bytes(op.With)
		}
		if op.Writes() {
			b.dst = r.bytes(op.Dst)
		}
		l.ops = append(l.ops, b)
	}
	l.direct()
	l.land()
	return l
}

// land has messages that have to be copied go to where their ops write: what is added there, too, unless the other operand is there.
func (l *lone) land() {
	for i := range l.ops {
		if op := &l.ops[i]; op.kind == schedule.Recv || op.kind == schedule.RecvReduce && !op.dst.Overlaps(op.src) {
			op.into = op.dst
		}
	}
}

// direct has a sum that is made in scratch memory, only to be copied from there by the
// next op, made where that copies it: the schedule keeps the two apart for messages
// that are lent, which may still be read there.
func (l *lone) direct() {
	if l.lends {
		return
	}
	for i := range len(l.ops) - 1 {
		sum, after := &l.ops[i], &l.ops[i+1]
		if sum.kind != schedule.RecvReduce || after.kind != schedule.Copy || !after.src.Same(sum.dst) || !l.scratch.Overlaps(sum.dst) {
			continue
		}
		if after.dst.Overlaps(sum.src) && !after.dst.Same(sum.src) {
			continue
		}
		if slices.ContainsFunc(l.ops[i+2:], func(op loneOp) bool { return op.src.Overlaps(sum.dst) || op.with.Overlaps(sum.dst) }) {
			continue
		}
		sum.dst, after.src = after.dst, after.dst
	}
}

// sequence returns an order in which a rank may do the ops of s one after another,
// waiting for each message: no receive is before an op that may be done already. Where
// messages are lent, an op that waits until a message of this rank has been read is after
// both: its reader may wait in the same way for one that this rank is to receive, as in an
// exchange, after which each overwrites what it has sent.
func sequence(s *schedule.Schedule, g *schedule.Graph, lends bool) []int32 {
	waits := append([]int32(nil), g.Waits()...)
	late := make([]int, len(waits)) // the later the greater
	for i := range s.Ops {
		if s.Ops[i].Receives() {
			late[i] = max(late[i], 1)
		}
		if lends && s.Ops[i].Kind == schedule.Send {
			for _, j := range g.Waiting(int32(i)) {
				late[j] = 2
			}
		}
	}
	order := make([]int32, 0, len(waits))
	for len(order) < len(waits) {
		pick := int32(-1)
		for i, w := range waits {
			if w == 0 && (pick < 0 || late[i] < late[pick]) {
				pick = int32(i)
			}
		}
		waits[pick] = opDone
		order = append(order, pick)
		for _, j := range g.Waiting(pick) {
			waits[j]--
		}
	}
	return order
}

// endLone keeps account of an execution that has ended alone.
func (e *Engine) endLone(r *Request) {
	r.round++
	e.stalls.history.last = r.called()
	e.account(r)
}

// startLone begins r alone, and reports false where it cannot.
func (e *Engine) startLone(r *Request) bool {
	if r.lone == nil || !e.enter() {
		return false
	}
	if r.lone.must || r.lone.bound || len(e.lingering) == lingerMost {
		e.leave()
		return false
	}
	done, ended, err := e.runLone(r, 0, false)
	switch {
	case err != nil:
		e.handOver(r, done, err)
	case ended:
		e.endLone(r)
		r.end(nil)
	default:
		r.loneDone, r.loneSeen = done, false
		r.lingers.Store(true)
		e.lingering = append(e.lingering, r)
	}
	asleep := len(e.lingering) > 0 && !e.naps
	e.leave()
	if asleep {
		e.wakeLoop()
	}
	return true
}

// resume goes on with a request that lingers: as far as messages are there, or,
// where it is waited for, until it has ended or ctx.
func (e *Engine) resume(ctx context.Context, r *Request, waits bool) {
	if !r.lingers.Load() {
		e.help(ctx, r, waits)
		return
	}
	if !e.enter() {
		return
	}
	defer e.leave()
	if !r.lingers.Load() { // the loop has got it meanwhile
		return
	}
	done, ended, err := e.runLone(r, r.loneDone, waits)
	r.loneDone = done
	switch {
	case ended:
		e.unlinger(r)
		e.endLone(r)
		r.end(nil)
	case err != nil || waits:
		e.unlinger(r)
		e.proceed(ctx, r, done, err)
	}
}

// unlinger takes r off the list of those that linger.
func (e *Engine) unlinger(r *Request) {
	r.lingers.Store(false)
	at := slices.Index(e.lingering, r)
	e.lingering = slices.Delete(e.lingering, at, at+1)
}

// adopt hands those that have lingered for long, or all, to the loop.
func (e *Engine) adopt(all bool) {
	kept := e.lingering[:0]
	for _, r := range e.lingering {
		if !all && !r.loneSeen {
			r.loneSeen = true
			kept = append(kept, r)
			continue
		}
		r.lingers.Store(false)
		e.handOver(r, r.loneDone, nil)
	}
	clear(e.lingering[len(kept):])
	e.lingering = kept
}

// handOver has the loop go on with r, of which some ops are done alone; err is what
// the one after them came to.
func (e *Engine) handOver(r *Request, done int, err error) {
	r.number()
	switch {
	case r.lone == nil:
		e.admit(r, nil, nil)
	case r.lone.lends: // at most who was executed last does: those that linger lend nothing
		e.admit(r, r.lone.order[:done], e.eager.Lent())
		e.eager.Keep(r.token(0))
	default:
		e.admit(r, r.lone.order[:done], nil)
	}
	if err != nil {
		r.divided = r.lone != nil && done == len(r.lone.ops)
		e.failAndTell(err)
	}
}

// runLone executes r from op number from on, as far as messages are there, or, where
// it waits, as far as they are there soon. It returns how many of its ops are done, of
// which some may be messages that are lent, and whether all is; the error is of the op
// after them.
func (e *Engine) runLone(r *Request, from int, waits bool) (done int, ended bool, err error) {
	if !r.lone.bound {
		return e.execLone(r, from, waits)
	}
	done = from
	e.onThread(func() { done, ended, err = e.execLone(r, from, waits) })
	return done, ended, err
}

// execLone is runLone on the thread that the transport asks for.
func (e *Engine) execLone(r *Request, from int, waits bool) (done int, ended bool, err error) {
	l, lends := r.lone, waits && !r.lingers.Load() // one that lingers may stay so for long
	for i := from; i < len(l.ops); i++ {
		op := &l.ops[i]
		if len(op.lent) > 0 && !e.settle(op.lent, waits) {
			return i, false, nil
		}
		switch op.kind {
		case schedule.Send:
			if !e.eager.Put(Token(l.order[i]), op.peer, r.tag(op.message), op.src, lends) {
				return i, false, nil
			}
		case schedule.Copy:
			if !op.dst.Same(op.src) {
				_, err = e.device.Copy(0, op.dst, op.src)
			}
		case schedule.Scale:
			_, err = e.device.Divide(0, r.bind.Datatype, op.dst, op.src, r.bind.Scale)
		case schedule.Add:
			_, err = e.device.Reduce(0, r.bind.Datatype, r.bind.Op, op.dst, op.with, op.src)
		default:
			message, ok := e.await(op.peer, r.tag(op.message), op.dst.Len(), op.into, waits)
			if !ok {
				return i, false, nil
			}
			switch {
			case op.kind != schedule.Recv:
				_, err = e.device.Reduce(0, r.bind.Datatype, r.bind.Op, op.dst, message, op.src)
			case !message.Same(op.dst):
				_, err = e.device.Copy(0, op.dst, message)
			}
			e.eager.Taken(op.peer)
		}
		if err != nil {
			return i, false, r.opError(l.order[i], err)
		}
	}
	if l.lends && !e.settle(nil, waits) {
		return len(l.ops), false, nil
	}
	if r.bind.Divide > 0 {
		if _, err = e.device.Divide(0, r.bind.Datatype, r.bind.Out, r.bind.Out, r.bind.Divide); err != nil {
			return len(l.ops), false, fmt.Errorf("%s: dividing the sum: %w", r.name(), err)
		}
	}
	return len(l.ops), true, nil
}

// settle reports whether none of the messages given, nil for all, is lent any more or,
// where it waits, will be soon.
func (e *Engine) settle(messages []Token, waits bool) bool {
	for looks := 1; ; looks++ {
		lent := e.eager.Lent()
		if len(lent) == 0 || messages != nil && !slices.ContainsFunc(lent, func(t Token) bool { return slices.Contains(messages, t) }) {
			return true
		}
		if !waits || !e.eager.Linger(-1, looks) {
			return false
		}
	}
}

// await returns the message given if it is there or, where it waits, comes soon.
func (e *Engine) await(from int, tag Tag, n int, dst mem.Buffer, waits bool) (mem.Buffer, bool) {
	for looks := 1; ; looks++ {
		message, ok := e.eager.Take(from, tag, n, dst)
		if ok || !waits || !e.eager.Linger(from, looks) {
			return message, ok
		}
	}
}
