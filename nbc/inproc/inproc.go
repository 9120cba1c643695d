// Package inproc is the transport between ranks that are goroutines of one
// process: N ranks without MPI, for `scaffe train --local N` and for tests.
//
//	w := inproc.NewWorld(4, inproc.Options{})
//	e, err := nbc.Start(w.Open(2), device, nbc.Options{}) // rank 2's engine
//
// A message is copied once, by the receiver, from the sender's memory; a
// borrowing receiver reads it there without any copy. With a seed, messages
// are delivered in a random order, as much as the transport's contract allows:
// what must not depend on the order shows that it does not.
package inproc

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

// Options of a world; the zero value delivers everything at once.
type Options struct {
	// Seed, unless 0, makes the order and delay of deliveries random.
	Seed uint64
}

// World is the ranks of one process.
type World struct{ ranks []*endpoint }

// NewWorld returns a world of n ranks.
func NewWorld(n int, opts Options) *World {
	w := &World{}
	for r := range n {
		e := &endpoint{
			world: w, rank: r,
			expected: map[identity]queue{}, arrived: map[identity]queue{}, lent: map[nbc.Token]*message{},
			wake: make(chan struct{}, 1), timer: time.NewTimer(time.Hour),
		}
		if opts.Seed != 0 {
			e.random = rand.New(rand.NewPCG(opts.Seed, uint64(r)))
		}
		w.ranks = append(w.ranks, e)
	}
	return w
}

// Open returns what opens the transport of the given rank, once, for
// nbc.Start.
func (w *World) Open(rank int) func() (nbc.Transport, error) {
	return func() (nbc.Transport, error) { return w.ranks[rank], nil }
}

// identity is what a message and its receive have in common.
type identity struct {
	from int
	tag  nbc.Tag
}

// message is a send, a receive, or both once they have met.
type message struct {
	identity
	sender           *endpoint
	sendTok, recvTok nbc.Token
	src, dst         mem.Buffer
	want             int // bytes the receiver asked for
	borrow           bool
	next             *message // in a queue
}

// queue holds messages of equal identity, oldest first.
type queue struct{ head, tail *message }

// notice is one that has arrived.
type notice struct {
	from int
	text []byte
}

// endpoint is one rank's transport.
type endpoint struct {
	world *World
	rank  int
	wake  chan struct{}
	timer *time.Timer

	mu       sync.Mutex
	expected map[identity]queue // receives without a message yet
	arrived  map[identity]queue // messages without a receive yet
	met      []*message         // to be delivered by this rank's Poll
	ended    []nbc.Completion   // sends that were taken
	unused   *message
	notices  []notice
	aborted  *nbc.AbortError
	told     bool // this rank has aborted

	// What follows belongs to the goroutine of this rank.
	lent   map[nbc.Token]*message
	taken  []*message
	random *rand.Rand // nil: in order
}

var (
	_ nbc.Transport = (*endpoint)(nil)
	_ nbc.Notifier  = (*endpoint)(nil)
)

func (e *endpoint) Rank() int { return e.rank }
func (e *endpoint) Size() int { return len(e.world.ranks) }

func (e *endpoint) Send(tok nbc.Token, to int, tag nbc.Tag, src mem.Buffer) error {
	if to < 0 || to >= len(e.world.ranks) {
		return fmt.Errorf("inproc: send to rank %d of %d", to, len(e.world.ranks))
	}
	p := e.world.ranks[to]
	id := identity{e.rank, tag}
	p.mu.Lock()
	m := p.take(p.expected, id)
	matched := m != nil
	if !matched {
		m = p.fresh()
		m.identity = id
		p.put(p.arrived, m)
	} else {
		p.met = append(p.met, m)
	}
	m.sender, m.sendTok, m.src = e, tok, src
	p.mu.Unlock()
	if matched {
		p.Wake()
	}
	return nil
}

func (e *endpoint) Recv(tok nbc.Token, from int, tag nbc.Tag, dst mem.Buffer) error {
	return e.receive(from, tag, func(m *message) { m.recvTok, m.dst, m.want, m.borrow = tok, dst, dst.Len(), false })
}

func (e *endpoint) RecvBorrow(tok nbc.Token, from int, tag nbc.Tag, n int) error {
	return e.receive(from, tag, func(m *message) { m.recvTok, m.want, m.borrow = tok, n, true })
}

func (e *endpoint) receive(from int, tag nbc.Tag, set func(*message)) error {
	if from < 0 || from >= len(e.world.ranks) {
		return fmt.Errorf("inproc: receive from rank %d of %d", from, len(e.world.ranks))
	}
	id := identity{from, tag}
	e.mu.Lock()
	defer e.mu.Unlock()
	m := e.take(e.arrived, id)
	if m == nil {
		m = e.fresh()
		m.identity = id
		set(m)
		e.put(e.expected, m)
		return nil
	}
	set(m)
	e.met = append(e.met, m)
	return nil
}

// Poll delivers what has met, and reports what has ended.
func (e *endpoint) Poll(done []nbc.Completion) (int, error) {
	e.mu.Lock()
	if e.aborted != nil {
		defer e.mu.Unlock()
		return 0, e.aborted
	}
	n := copy(done, e.ended)
	e.ended = e.ended[:copy(e.ended, e.ended[n:])]
	k := min(len(done)-n, len(e.met))
	if e.random != nil && k > 0 {
		e.random.Shuffle(len(e.met), func(i, j int) { e.met[i], e.met[j] = e.met[j], e.met[i] })
		k = e.random.IntN(k + 1)
	}
	e.taken = append(e.taken[:0], e.met[:k]...)
	e.met = e.met[:copy(e.met, e.met[k:])]
	if len(e.met) > 0 || len(e.ended) > 0 {
		e.Wake()
	}
	e.mu.Unlock()
	for _, m := range e.taken {
		done[n] = e.deliver(m)
		n++
	}
	return n, nil
}

// deliver hands the message to the receiver, this rank.
func (e *endpoint) deliver(m *message) nbc.Completion {
	c := nbc.Completion{Token: m.recvTok}
	switch {
	case m.src.Len() != m.want:
		c.Err = fmt.Errorf("inproc: %w: rank %d sent %d bytes where rank %d expects %d (tag %+v)", nbc.ErrLength, m.from, m.src.Len(), e.rank, m.want, m.tag)
	case m.borrow:
		c.Data = m.src
		e.lent[m.recvTok] = m
		return c
	default:
		copy(mem.Bytes(m.dst), mem.Bytes(m.src))
	}
	e.finish(m)
	return c
}

// finish tells the sender that its memory is its own again.
func (e *endpoint) finish(m *message) {
	s, tok := m.sender, m.sendTok
	e.mu.Lock()
	*m = message{next: e.unused}
	e.unused = m
	e.mu.Unlock()
	s.mu.Lock()
	s.ended = append(s.ended, nbc.Completion{Token: tok})
	s.mu.Unlock()
	s.Wake()
}

func (e *endpoint) Release(tok nbc.Token) {
	if m := e.lent[tok]; m != nil {
		delete(e.lent, tok)
		e.finish(m)
	}
}

func (e *endpoint) Park(d time.Duration) {
	e.timer.Reset(d)
	select {
	case <-e.wake:
	case <-e.timer.C:
	}
}

// Move does nothing: it is all the same which thread calls.
func (e *endpoint) Move() bool { return true }

func (e *endpoint) Wake() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

func (e *endpoint) Abort(_ context.Context, reason string) error {
	e.mu.Lock()
	told := e.told
	e.told = true
	e.mu.Unlock()
	if told {
		return nil
	}
	for _, p := range e.world.ranks {
		if p == e {
			continue
		}
		p.mu.Lock()
		if p.aborted == nil {
			p.aborted = &nbc.AbortError{Rank: e.rank, Reason: reason}
		}
		p.mu.Unlock()
		p.Wake()
	}
	return nil
}

// Notify hands a notice to rank to.
func (e *endpoint) Notify(to int, text []byte) error {
	if to < 0 || to >= len(e.world.ranks) || len(text) > nbc.NoticeRoom {
		return fmt.Errorf("inproc: notice of %d bytes to rank %d of %d", len(text), to, len(e.world.ranks))
	}
	p := e.world.ranks[to]
	p.mu.Lock()
	if len(p.notices) < mostNotices {
		p.notices = append(p.notices, notice{e.rank, slices.Clone(text)})
	}
	p.mu.Unlock()
	p.Wake()
	return nil
}

// mostNotices bounds what waits for a rank that does not look.
const mostNotices = 1024

// NextNotice stores the next notice in buf.
func (e *endpoint) NextNotice(buf []byte) (from, n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.notices) == 0 {
		return -1, 0
	}
	first := e.notices[0]
	if e.notices = e.notices[1:]; len(e.notices) == 0 {
		e.notices = nil
	}
	return first.from, copy(buf, first.text)
}

func (e *endpoint) Close() error {
	e.timer.Stop()
	return nil
}

// take removes the oldest message of identity id from q; nil if there is none.
func (e *endpoint) take(q map[identity]queue, id identity) *message {
	at, ok := q[id]
	if !ok {
		return nil
	}
	m := at.head
	if at.head = m.next; at.head == nil {
		delete(q, id)
	} else {
		q[id] = at
	}
	m.next = nil
	return m
}

func (e *endpoint) put(q map[identity]queue, m *message) {
	at, ok := q[m.identity]
	if ok {
		at.tail.next = m
	} else {
		at.head = m
	}
	at.tail = m
	q[m.identity] = at
}

// fresh returns an empty message.
func (e *endpoint) fresh() *message {
	m := e.unused
	if m == nil {
		return &message{}
	}
	e.unused, m.next = m.next, nil
	return m
}
