package nbc

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Order is what became of the order of urgency in which large messages leave for other nodes, and
// in which what has arrived is added.
type Order struct {
	// Inversions counts the large messages that were held back while one of a request with a higher
	// Binding.Priority, which is less urgent, began: their link was full, and another had room. What
	// had begun before, as many as the credit allows, does not count. Where all have a credit there are none.
	Inversions int64
	// Sums counts the additions that were ready, while something less urgent of another request began:
	// there are none. One that had begun before does not count.
	Sums int64
	// Patience counts the messages that left though there was no room, since nothing had
	// ended for a while.
	Patience int64
	// Longest is the longest that a message was held back.
	Longest time.Duration
}

// Order returns what became of the order of urgency since the engine started, or TakeOrder was called last.
// It may be called from any goroutine.
func (e *Engine) Order() Order {
	q := &e.links
	return Order{q.begun.overtaken.Load(), e.exec.begun.overtaken.Load(), q.patience.Load(), time.Duration(q.longest.Load())}
}

// TakeOrder is Order, and begins to count anew: for who compares parts of a run.
func (e *Engine) TakeOrder() Order {
	q := &e.links
	return Order{q.begun.overtaken.Swap(0), e.exec.begun.overtaken.Swap(0), q.patience.Swap(0), time.Duration(q.longest.Swap(0))}
}

// Disorder is one event that Order counts.
type Disorder struct {
	Kind DisorderKind
	// What was overtaken or let go, in the words of Binding.About, or else the collective's name.
	What string
	// Begin is when a message began to be held back, End when it left. Of an addition both are when it began.
	Begin, End time.Time
}

// DisorderKind says which of Order's counts an event belongs to.
type DisorderKind uint8

// The kinds, as in Order.
const (
	Inversion DisorderKind = iota // at a port or link
	SumInversion
	LetGo // by patience
)

// HandleDisorder has f called with each event that Order counts from now on; nil ends that. f runs on
// the engine's progress loop, so it must not block or call the engine. What goes in order costs nothing.
func (e *Engine) HandleDisorder(f func(Disorder)) {
	if f == nil {
		e.onDisorder.Store(nil)
		return
	}
	e.onDisorder.Store(&f)
}

// disorder tells what became of p, which was held back and leaves now.
func (e *Engine) disorder(kind DisorderKind, p *pending, now time.Time) {
	if f := e.onDisorder.Load(); f != nil {
		(*f)(Disorder{kind, p.r.moves(), e.links.started.Add(p.at), now})
	}
}

// sumOvertaken tells that p, an addition, was overtaken, and begins now.
func (e *Engine) sumOvertaken(p pending) {
	if f := e.onDisorder.Load(); f != nil {
		now := time.Now()
		(*f)(Disorder{SumInversion, p.r.moves(), now, now})
	}
}

// moves names what a request moves.
func (r *Request) moves() string {
	if a := r.bind.About; a != nil {
		return a.What
	}
	return r.bind.name()
}

// Add returns the counts of o and p together.
func (o Order) Add(p Order) Order {
	return Order{o.Inversions + p.Inversions, o.Sums + p.Sums, o.Patience + p.Patience, max(o.Longest, p.Longest)}
}

// String says all of it: "0 inversions at ports, 0 among additions; patience let 3 messages go; the longest wait at a port was 4.10 ms".
func (o Order) String() string {
	return fmt.Sprintf("%d inversions at ports, %d among additions; patience let %d messages go; the longest wait at a port was %.2f ms",
		o.Inversions, o.Sums, o.Patience, o.Longest.Seconds()*1e3)
}

// precedence counts what was overtaken by something less urgent. It does not ask what orders them: so it
// counts the faults of that too. Time is the number of pushes, ever. The zero value has counted nothing.
type precedence struct {
	overtaken atomic.Int64
	// Of what has begun, that than which nothing less urgent has begun since: each is more urgent than
	// the one before, so they are no more than there are priorities.
	last []beginning
}

// beginning is of something of a priority, when so many had been pushed.
type beginning struct {
	priority int
	pushed   uint64
}

// begin says that p begins, after so many pushes of which it was one: it was overtaken where something less
// urgent has begun since, which begin reports.
func (o *precedence) begin(p *pending, pushed uint64) (overtaken bool) {
	o.passed(p.priority, pushed)
	if n := len(o.last) - 2; n >= 0 && o.last[n].pushed >= p.seq {
		o.overtaken.Add(1)
		return true
	}
	return false
}

// passed says that something of a priority begins after so many pushes, whether or not it has waited.
func (o *precedence) passed(priority int, pushed uint64) {
	for len(o.last) > 0 && o.last[len(o.last)-1].priority <= priority {
		o.last = o.last[:len(o.last)-1]
	}
	o.last = append(o.last, beginning{priority, pushed})
}
