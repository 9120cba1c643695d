// Package faulty is a transport that misbehaves, in front of one that does
// not: what is tested over it runs unchanged, on a network that delays,
// reorders, loses and cuts messages, with a rank that stops at a given moment.
//
//	open := func() (nbc.Transport, error) {
//		t, err := world.Open(rank)()
//		return faulty.Wrap(t, faulty.Plan{Seed: 7, Delay: 5, Reorder: true}), err
//	}
//	e, err := nbc.Start(open, device, nbc.Options{})
//
// It owns the faults alone. Everything random follows from Plan.Seed and the
// rank, so that a failure can be had again; every error that passes through
// ends with the plan, which is what to type to have it again. (The timing of
// threads is not part of it: counted faults hit the same operations of a rank
// as long as the rank begins them in the same order.)
package faulty

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

// Plan says what goes wrong on one rank; the zero value nothing. Operations
// (calls of Send, Recv and RecvBorrow) and sends are counted from 1.
type Plan struct {
	Seed uint64
	// Delay is for how many polls a completion is held back at most; how many
	// it is is random.
	Delay int
	// Reorder hands completions on in random order.
	Reorder bool
	// Drop is the number of the send whose message never arrives; the sender
	// is told that it did. 0: none.
	Drop int
	// Cut is the number of the send whose message loses its last byte.
	Cut int
	// Die is the number of the operation with which the rank stops, as a
	// process does that was sent SIGSTOP: from then on it neither sends nor
	// receives nor answers nor hears anything.
	Die int
}

// String returns the plan as Go would read it, without what is zero.
func (p Plan) String() string {
	fields := []string{fmt.Sprintf("Seed: %d", p.Seed)}
	add := func(name string, n int) {
		if n != 0 {
			fields = append(fields, fmt.Sprintf("%s: %d", name, n))
		}
	}
	add("Delay", p.Delay)
	if p.Reorder {
		fields = append(fields, "Reorder: true")
	}
	add("Drop", p.Drop)
	add("Cut", p.Cut)
	add("Die", p.Die)
	return "faulty.Plan{" + strings.Join(fields, ", ") + "}"
}

// held is a completion held back.
type held struct {
	nbc.Completion
	polls int // still to come
}

// Transport is a transport with faults. It has the optional abilities Notifier,
// Allocator and Topology, with what the inner transport does for them, and no
// Library, whose collectives it could not disturb.
type Transport struct {
	inner  nbc.Transport
	plan   Plan
	random *rand.Rand
	begun  int // operations
	sends  int
	held   []held
	batch  [64]nbc.Completion
	dead   atomic.Bool
}

var (
	_ nbc.Transport = (*Transport)(nil)
	_ nbc.Notifier  = (*Transport)(nil)
	_ nbc.Allocator = (*Transport)(nil)
	_ nbc.Topology  = (*Transport)(nil)
)

// Wrap puts the faults of p in front of t, which the result owns.
func Wrap(t nbc.Transport, p Plan) *Transport {
	return &Transport{inner: t, plan: p, random: rand.New(rand.NewPCG(p.Seed, uint64(t.Rank())))}
}

// Dead reports whether the rank has stopped.
func (t *Transport) Dead() bool { return t.dead.Load() }

// Rank returns the inner transport's.
func (t *Transport) Rank() int { return t.inner.Rank() }

// Size returns the inner transport's.
func (t *Transport) Size() int { return t.inner.Size() }

// begins counts an operation and reports whether the rank is alive for it.
func (t *Transport) begins() bool {
	if t.begun++; t.begun == t.plan.Die {
		t.dead.Store(true)
	}
	return !t.dead.Load()
}

// explain adds the plan to an error.
func (t *Transport) explain(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w (rank %d under %v)", err, t.Rank(), t.plan)
}

// Send begins to send, unless the message is one to lose or to cut.
func (t *Transport) Send(tok nbc.Token, to int, tag nbc.Tag, src mem.Buffer) error {
	if !t.begins() {
		return nil
	}
	t.sends++
	switch {
	case t.sends == t.plan.Drop:
		t.hold(nbc.Completion{Token: tok})
		return nil
	case t.sends == t.plan.Cut && src.Len() > 0:
		src = src.Slice(0, src.Len()-1)
	}
	return t.explain(t.inner.Send(tok, to, tag, src))
}

// Recv begins to receive.
func (t *Transport) Recv(tok nbc.Token, from int, tag nbc.Tag, dst mem.Buffer) error {
	if !t.begins() {
		return nil
	}
	return t.explain(t.inner.Recv(tok, from, tag, dst))
}

// RecvBorrow begins to receive.
func (t *Transport) RecvBorrow(tok nbc.Token, from int, tag nbc.Tag, n int) error {
	if !t.begins() {
		return nil
	}
	return t.explain(t.inner.RecvBorrow(tok, from, tag, n))
}

// Release gives borrowed memory back.
func (t *Transport) Release(tok nbc.Token) {
	if !t.dead.Load() {
		t.inner.Release(tok)
	}
}

func (t *Transport) hold(c nbc.Completion) {
	polls := 0
	if t.plan.Delay > 0 {
		polls = t.random.IntN(t.plan.Delay + 1)
	}
	t.held = append(t.held, held{c, polls})
}

// Poll takes what has ended, and hands on what was held back for long enough.
func (t *Transport) Poll(done []nbc.Completion) (int, error) {
	if t.dead.Load() {
		return 0, nil
	}
	n, err := t.inner.Poll(t.batch[:])
	if err != nil {
		return 0, t.explain(err)
	}
	for _, c := range t.batch[:n] {
		c.Err = t.explain(c.Err)
		t.hold(c)
	}
	if t.plan.Reorder {
		t.random.Shuffle(len(t.held), func(i, j int) { t.held[i], t.held[j] = t.held[j], t.held[i] })
	}
	kept := t.held[:0]
	ended := 0
	for _, h := range t.held {
		if h.polls > 0 || ended == len(done) {
			h.polls--
			kept = append(kept, h)
			continue
		}
		done[ended] = h.Completion
		ended++
	}
	t.held = kept
	return ended, nil
}

// Park rests, but not with completions held back.
func (t *Transport) Park(d time.Duration) {
	if len(t.held) > 0 && !t.dead.Load() {
		runtime.Gosched()
		return
	}
	t.inner.Park(d)
}

// Wake ends a Park. It works on a rank that has stopped too, so that its
// engine can be closed.
func (t *Transport) Wake() { t.inner.Wake() }

// Abort tells the others, unless the rank has stopped.
func (t *Transport) Abort(ctx context.Context, reason string) error {
	if t.dead.Load() {
		return nil
	}
	return t.inner.Abort(ctx, reason)
}

// Close closes the inner transport.
func (t *Transport) Close() error { return t.inner.Close() }

// Notify hands a notice on. Where the inner transport is no Notifier, notices
// are lost.
func (t *Transport) Notify(to int, notice []byte) error {
	if n, ok := t.inner.(nbc.Notifier); ok && !t.dead.Load() {
		return n.Notify(to, notice)
	}
	return nil
}

// NextNotice hands the next notice on.
func (t *Transport) NextNotice(buf []byte) (from, length int) {
	if n, ok := t.inner.(nbc.Notifier); ok && !t.dead.Load() {
		return n.NextNotice(buf)
	}
	return -1, 0
}

// Alloc returns the inner transport's memory.
func (t *Transport) Alloc(n int) (mem.Buffer, error) {
	if a, ok := t.inner.(nbc.Allocator); ok {
		return a.Alloc(n)
	}
	return mem.TryAlloc(n)
}

// Free gives it back.
func (t *Transport) Free(b mem.Buffer) {
	if a, ok := t.inner.(nbc.Allocator); ok {
		a.Free(b)
		return
	}
	b.Free()
}

// Nodes returns the inner transport's, one node where it does not know.
func (t *Transport) Nodes() []int {
	if p, ok := t.inner.(nbc.Topology); ok {
		return p.Nodes()
	}
	return make([]int, t.Size())
}
