//go:build linux && (amd64 || arm64)

package shm

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/internal/fifo"
	"github.com/scaffe/scaffe/nbc/internal/over"
)

// Transport is nbc.Transport over the memory that the ranks of a node share,
// and over another transport for the rest.
type Transport struct {
	inner  nbc.Transport
	bulk   interface{ Bulk() bool } // inner, where it knows whether all it has under way are large messages
	eager  nbc.Eager                // inner, where it is one
	opts   Options
	nodes  []int
	local  []int // the ranks of this node, this one among them
	layout layout
	arena  *arena
	own    *header
	why    error // memory is not shared with all

	readable bool // see allowReading

	peers  []*peer // of this node, which this rank reaches through shared memory
	byRank []*peer // by rank; nil for those reached through inner

	table    table
	ops      []*op
	unused   []int // indexes into ops
	active   int   // operations that wait for a peer
	loans    []*op // messages of Put whose memory is the caller's, and their tokens
	loaned   []nbc.Token
	fetched  mem.Buffer // what Take has copied of another process's memory
	lent     map[nbc.Token]*op
	work     []*op // to be copied by this rank; work[worked:] are left
	worked   int
	copies   map[mem.Buffer]*staging // by what they are copies of
	unstaged *staging
	asking   []*op // receives for whose messages a copy is to be asked
	asked    int   // bytes of copies that were asked for and are in use
	filled   int   // bytes of this rank's copies
	askRoom  int   // of them at a time
	expected int   // bytes of the collective whose operations come
	shares   bool  // there is a core for each rank: two of them copy a large message
	claims   *[claimsPerRank]claim
	iov      vectors
	backlogs int // postings that found a ring full
	moved    bool

	ended []nbc.Completion // not yet reported
	next  int              // ended[next:] are to be reported

	innerActive int // operations of inner under way
	turns       int // since inner was asked
	innerFault  bool

	rest  rest
	fault error // why nothing works any more, sticky

	mu       sync.Mutex // holds the areas mapped while other goroutines write to them
	gaveUp   bool       // this rank has told the others
	telling  atomic.Int32
	heard    atomic.Bool
	over     atomic.Bool
	lastSeen time.Time // when the peers' processes were last looked after
}

// peer is another rank of this node.
type peer struct {
	rank, local int
	pid         int
	pidfd       int  // -1 where there is none
	vm          bool // the two may read and write each other's private memory
	mapping     []byte
	arena       int // where its arena begins in mapping
	header      *header

	claims    *[claimsPerRank]claim
	in, out   *ring
	read      uint64                // descriptors taken from in
	published uint64                // of them, told to the peer
	written   uint64                // descriptors written to out
	taken     uint64                // of them, taken by the peer when last looked
	boxed     uint64                // messages written to out's blocks
	boxes     [blocksPerRing]uint64 // by block: 1 + the position of the last message in it
	backlog   fifo.Queue[posting]
	shown     bool   // the next descriptor of in is one that Take has returned the message of
	owed      uint64 // the send of the peer whose message Take has returned, 0 where it is finished with that
	asks      bool   // it cannot read this rank's memory, and asked for a copy of the last large message that it was told of there
}

var (
	_ nbc.Transport = (*Transport)(nil)
	_ nbc.Allocator = (*Transport)(nil)
	_ nbc.Topology  = (*Transport)(nil)
	_ nbc.Expecter  = (*Transport)(nil)
	_ nbc.Lander    = (*Transport)(nil)
	_ nbc.Waiter    = (*Transport)(nil)
)

// turnsBetween is how many Polls may pass without a look at inner where nothing
// of it is under way: another node's giving up, or a notice, is seen later.
const turnsBetween = 512

// Rank returns this process's rank.
func (t *Transport) Rank() int { return t.inner.Rank() }

// Size returns the number of ranks.
func (t *Transport) Size() int { return t.inner.Size() }

// Inner returns the transport below, for what only one kind of it has.
func (t *Transport) Inner() nbc.Transport { return t.inner }

// Nodes returns for every rank the index of its node.
func (t *Transport) Nodes() []int { return t.nodes }

// Alloc returns n > 0 zeroed bytes that the ranks of this node reach without a
// copy.
func (t *Transport) Alloc(n int) (mem.Buffer, error) { return t.arena.alloc(n) }

// Free gives back what Alloc returned.
func (t *Transport) Free(b mem.Buffer) { t.arena.release(b) }

// Expect says how many bytes the collective has whose operations come next.
func (t *Transport) Expect(bytes int) { t.expected = bytes }

// Send begins to send src to rank to.
func (t *Transport) Send(tok nbc.Token, to int, tag nbc.Tag, src mem.Buffer) error {
	p, err := t.peer(to, src)
	switch {
	case err != nil:
		return err
	case p != nil:
		return t.send(tok, p, tag, src)
	}
	return t.innerBegan(t.inner.Send(tok, to, tag, src))
}

// Recv begins to receive exactly dst.Len() bytes from rank from.
func (t *Transport) Recv(tok nbc.Token, from int, tag nbc.Tag, dst mem.Buffer) error {
	p, err := t.peer(from, dst)
	switch {
	case err != nil:
		return err
	case p != nil:
		t.receive(tok, p, tag, dst, dst.Len(), false)
		return nil
	}
	return t.innerBegan(t.inner.Recv(tok, from, tag, dst))
}

// RecvBorrow begins to receive n bytes from rank from, which lie in the
// sender's own memory where that is registered.
func (t *Transport) RecvBorrow(tok nbc.Token, from int, tag nbc.Tag, n int) error {
	p, err := t.peer(from, mem.Buffer{})
	switch {
	case err != nil:
		return err
	case n < 0:
		return fmt.Errorf("shm: receive of %d bytes", n)
	case p != nil:
		t.receive(tok, p, tag, mem.Buffer{}, n, true)
		return nil
	}
	return t.innerBegan(t.inner.RecvBorrow(tok, from, tag, n))
}

// RecvBorrowTo is RecvBorrow that may copy the message to dst where it is not registered, unless its sender copies it to where this rank
// reads it, as of a collective larger than the caches.
func (t *Transport) RecvBorrowTo(tok nbc.Token, from int, tag nbc.Tag, dst mem.Buffer) error {
	p, err := t.peer(from, dst)
	if err != nil || p == nil {
		return t.RecvBorrow(tok, from, tag, dst.Len())
	}
	t.receive(tok, p, tag, dst, dst.Len(), true)
	return nil
}

// CarriesWith reports whether messages to and from a rank may lie in memory of the space: in other than the host's where inner
// carries them, and takes it.
func (t *Transport) CarriesWith(rank int, s mem.Space) bool {
	return s == mem.Host || rank >= 0 && rank < len(t.byRank) && t.byRank[rank] == nil && over.CarriesWith(t.inner, rank, s)
}

// peer returns the peer of the rank given, nil where inner is to be used.
func (t *Transport) peer(rank int, b mem.Buffer) (*peer, error) {
	if t.fault != nil {
		return nil, t.fault
	}
	if t.over.Load() {
		return nil, ErrClosed
	}
	if rank < 0 || rank >= len(t.byRank) || t.byRank[rank] == nil {
		return nil, nil // inner says what is wrong with a rank
	}
	if b.Space() != mem.Host {
		return nil, fmt.Errorf("shm: %s memory cannot be sent to or received from rank %d of this node: stage it through the host", b.Space(), rank)
	}
	return t.byRank[rank], nil
}

func (t *Transport) innerBegan(err error) error {
	if err == nil {
		t.innerActive++
	}
	return err
}

// Poll advances everything and stores what ended in done.
func (t *Transport) Poll(done []nbc.Completion) (int, error) {
	if t.over.Load() {
		return 0, ErrClosed
	}
	if t.fault == nil {
		t.advance()
	}
	n := 0
	if t.fault == nil {
		n = copy(done, t.ended[t.next:])
		if t.next += n; t.next == len(t.ended) {
			t.ended, t.next = t.ended[:0], 0
		}
	}
	n += t.pollInner(done[n:])
	if t.fault != nil {
		return 0, t.fault
	}
	if n > 0 || t.moved {
		t.rest.Reset()
	}
	t.moved = false
	return n, nil
}

// advance moves what can move in shared memory.
func (t *Transport) advance() {
	t.listen()
	if t.backlogs > 0 {
		t.flush()
	}
	t.drain()
	if len(t.work) > 0 {
		t.labor()
	}
}

// innerBusy reports whether operations of inner are under way.
func (t *Transport) innerBusy() bool { return t.innerActive > 0 || t.Unsent() }

// pollInner asks inner, where there is reason to.
func (t *Transport) pollInner(done []nbc.Completion) int {
	t.turns++
	if !t.innerBusy() && t.turns < turnsBetween && t.fault == nil && t.telling.Load() == 0 {
		return 0
	}
	t.turns = 0
	n, err := t.inner.Poll(done)
	if err != nil {
		t.innerFault = true
		if t.fault == nil {
			t.fault = err
		}
	}
	t.innerActive -= n
	return n
}

// library and notifier are what a Transport has where inner has it.
type library struct {
	t     *Transport
	inner nbc.Library
}

// Supports returns what the inner transport's library cannot do with c.
func (l library) Supports(c nbc.LibraryCall) error { return l.inner.Supports(c) }

// Begin begins a collective of the inner transport's library.
func (l library) Begin(tok nbc.Token, c nbc.LibraryCall) error {
	if l.t.fault != nil {
		return l.t.fault
	}
	return l.t.innerBegan(l.inner.Begin(tok, c))
}

type notifier struct {
	t     *Transport
	inner nbc.Notifier
}

// Notify hands a notice to rank to through the inner transport.
func (n notifier) Notify(to int, notice []byte) error {
	n.t.turns = turnsBetween
	return n.inner.Notify(to, notice)
}

// NextNotice returns the next notice that has arrived. An idle engine looks now
// and then and does not park: its next Poll is to ask inner.
func (n notifier) NextNotice(buf []byte) (from, length int) {
	if n.t.active == 0 {
		n.t.turns = turnsBetween
	}
	return n.inner.NextNotice(buf)
}

// complete returns t with the optional abilities of inner.
func (t *Transport) complete() nbc.Transport {
	l, calls := t.inner.(nbc.Library)
	n, notes := t.inner.(nbc.Notifier)
	switch {
	case calls && notes:
		return struct {
			*Transport
			library
			notifier
		}{t, library{t, l}, notifier{t, n}}
	case calls:
		return struct {
			*Transport
			library
		}{t, library{t, l}}
	case notes:
		return struct {
			*Transport
			notifier
		}{t, notifier{t, n}}
	}
	return t
}

// Reaches reports whether this rank reaches all others through shared memory, and inner is not needed.
func (t *Transport) Reaches() bool { return len(t.peers) == t.Size()-1 }
