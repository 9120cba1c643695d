// Package lending is the transport for messages that are read where they lie, in the memory of the sender's GPU: at their
// address by ranks of the same process, under a handle by those of another process of the node. It lies over
// another transport, which carries all other messages, and says where these lie.
//
//	open := func() (nbc.Transport, error) {
//		inner, err := world.Open(rank)() // such as one of package staging over one between processes
//		if err != nil {
//			return nil, err
//		}
//		return lending.New(inner, accelerator), nil
//	}
//	…
//	transport.SetPaths(paths) // before the first such message
//
// Between two ranks for which the Path Pointer or IPC is set, a message out of a GPU's memory is a note of some bytes
// that says where it lies. A receive has it copied from there by the receiver's GPU; a borrowing one is given the
// sender's memory itself. When the copy has ended, or with Release, which comes when the sum has, an
// answer without a byte goes back and the send is complete. So what is sent was finished before, as the transport's
// contract wants, and stays until nobody reads it any more. Both notes and answers are messages of the inner transport.
//
// It owns the notes and the memory that other processes have told of. It must not know what is sent, nor how
// the inner transport moves it. Both ends of a message lie in GPUs' memory, or both in the host's.
//
// # Memory of other processes
//
// A note names an allocation by its number and its handle. The receiver opens it with the first note and
// keeps it open. Where its owner frees it, the memory stays (nbc.Sharer) until all who were told of it have closed it: each is
// told by a note, for which one receive is posted where a rank has opened something of another, and answers as usual. When
// the transport is closed, what others still have open is left to the driver.
//
// # Failure
//
// When the engine fails, this rank's copies under way end before its requests do (nbc.Drainer), and none begins any more. Another
// rank may still read this one's memory until it has learnt of the failure.
package lending

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/internal/fifo"
	"github.com/scaffe/scaffe/nbc/internal/over"
)

// Transport is nbc.Transport over another one. It has the optional abilities of that, and is an nbc.Carrier.
type Transport struct {
	over.Transport
	inner   nbc.Transport
	carrier nbc.Carrier // the inner transport
	copies  nbc.Accelerator
	shares  nbc.Sharer // copies, where it is one
	space   mem.Space
	all     Paths
	paths   []Path // of this rank

	ops     []*op // by the number in their tokens
	unused  []*op
	notes   []mem.Buffer // memory of notes
	numbers uint32       // of messages
	answers uint32       // of answers
	lent    map[nbc.Token]*op
	ended   fifo.Queue[nbc.Completion]
	batch   [64]nbc.Completion
	failed  error // what ends no operation of the caller's
	closed  bool
	drained bool

	told   map[uint64]*share  // own allocations of which others were told
	opened map[key]mem.Buffer // other processes' allocations
	hears  []bool             // by rank: whether a receive is posted for notes of what was freed

	hasFreed atomic.Bool
	mu       sync.Mutex
	freed    []uint64 // own allocations that were freed, of which others have not been told yet
}

var (
	_ nbc.Transport      = (*Transport)(nil)
	_ nbc.Carrier        = (*Transport)(nil)
	_ nbc.Notifier       = (*Transport)(nil)
	_ nbc.Allocator      = (*Transport)(nil)
	_ nbc.Topology       = (*Transport)(nil)
	_ nbc.Expecter       = (*Transport)(nil)
	_ nbc.Waiter         = (*Transport)(nil)
	_ nbc.Drainer        = (*Transport)(nil)
	_ nbc.ThreadMigrator = (*Transport)(nil)
)

// New lays the transport over inner, which is an nbc.Carrier for the memory of an accelerator that nobody else gives
// work to. The result owns both. All paths are Staging until SetPaths.
func New(inner nbc.Transport, copies nbc.Accelerator) nbc.Transport {
	t := &Transport{
		Transport: over.New(inner), inner: inner, copies: copies, space: copies.Space(), all: NewPaths(inner.Size()),
		lent: map[nbc.Token]*op{}, told: map[uint64]*share{}, opened: map[key]mem.Buffer{}, hears: make([]bool, inner.Size()),
	}
	t.carrier, _ = inner.(nbc.Carrier)
	t.shares, _ = copies.(nbc.Sharer)
	t.paths = t.all[t.Rank()]
	return t.complete()
}

// SetPaths sets all ranks' paths, which all ranks do alike, with no message of a GPU's memory under way.
func (t *Transport) SetPaths(all Paths) error {
	if len(all) != t.Size() || len(all[t.Rank()]) != t.Size() {
		return fmt.Errorf("lending: the paths of %d ranks: want those of %d", len(all), t.Size())
	}
	for _, p := range all[t.Rank()] {
		if p == IPC && t.shares == nil {
			return errors.New("lending: the accelerator's memory cannot be shared with other processes")
		}
	}
	direct := make([]bool, t.Size())
	for r, p := range all[t.Rank()] {
		direct[r] = p == MPI
	}
	if s, ok := t.inner.(interface{ SetDirect([]bool) error }); ok {
		if err := s.SetDirect(direct); err != nil {
			return err
		}
	} else if slices.Contains(direct, true) {
		return errors.New("lending: the transport below hands no GPU's memory to the MPI library")
	}
	t.all, t.paths = all, all[t.Rank()]
	return nil
}

// Paths returns those of all ranks.
func (t *Transport) Paths() Paths { return t.all }

// kind is what an op does.
type kind uint8

const (
	sends kind = iota
	receives
	borrows
	frees   // tells another rank that memory was freed
	listens // for that
)

// op is an operation whose message is a note.
type op struct {
	number  int // in its tokens
	kind    kind
	tok     nbc.Token // the caller's
	peer    int
	tag     nbc.Tag
	n       int
	memory  mem.Buffer // of the device: the caller's
	note    mem.Buffer
	message uint32 // its number, at its sender
	left    int    // what has not ended: the note's way there, and the answer's back
	share   uint64 // of one that tells of it
	copying bool
	failed  bool // of what has two parts: one has
}

// ours marks the tokens that the inner transport is given for an op, or copies. An engine's begin with the number of
// a request under way, which never comes to that.
const ours = nbc.Token(1<<32-3) << 32

// A token has the part of the op that it is for, and its number; those of answers that leave are of no op.
const (
	partNote = nbc.Token(iota) << 30
	partAnswer
	partAnswers
	parts = 3 << 30
)

func (o *op) token(part nbc.Token) nbc.Token { return ours | part | nbc.Token(o.number) }

// own returns the op that a token names, and the part of it, with true where the token is this transport's.
func (t *Transport) own(tok nbc.Token) (o *op, part nbc.Token, own bool) {
	if tok>>32 != ours>>32 {
		return nil, 0, false
	}
	if part = tok & parts; part != partAnswers {
		o = t.ops[uint32(tok&^parts)]
	}
	return o, part, true
}

// notesAtOnce is for how many notes memory is allocated together.
const notesAtOnce = 64

// add returns an op of the kind and identity given.
func (t *Transport) add(k kind, tok nbc.Token, peer int, tag nbc.Tag, n int) (*op, error) {
	if len(t.unused) == 0 {
		all, err := mem.TryAlloc(notesAtOnce * noteBytes)
		if err != nil {
			return nil, err
		}
		t.notes = append(t.notes, all)
		for i := range notesAtOnce {
			o := &op{number: len(t.ops), note: all.Slice(i*noteBytes, noteBytes)}
			t.ops = append(t.ops, o)
			t.unused = append(t.unused, o)
		}
	}
	last := len(t.unused) - 1
	o := t.unused[last]
	t.unused = t.unused[:last]
	*o = op{number: o.number, note: o.note, kind: k, tok: tok, peer: peer, tag: tag, n: n}
	return o, nil
}

// drop forgets an op.
func (t *Transport) drop(o *op) {
	*o = op{number: o.number, note: o.note}
	t.unused = append(t.unused, o)
}

// direct reports whether a message of n bytes in a space goes to or from a peer as a note.
func (t *Transport) direct(peer int, s mem.Space, n int) bool {
	return s == t.space && n > 0 && peer >= 0 && peer < len(t.paths) && t.paths[peer].Lends()
}

// check reports why nothing can be begun.
func (t *Transport) check() error {
	if t.closed {
		return errors.New("lending: the transport is closed")
	}
	if t.drained {
		return errors.New("lending: the engine has failed")
	}
	return nil
}

// Carries reports whether messages may lie in memory of the space.
func (t *Transport) Carries(s mem.Space) bool {
	return s == mem.Host || s == t.space && t.carrier != nil && t.carrier.Carries(s)
}

// Send begins to send src to rank to.
func (t *Transport) Send(tok nbc.Token, to int, tag nbc.Tag, src mem.Buffer) error {
	if !t.direct(to, src.Space(), src.Len()) {
		return t.inner.Send(tok, to, tag, src)
	}
	if err := t.check(); err != nil {
		return err
	}
	o, err := t.add(sends, tok, to, tag, src.Len())
	if err != nil {
		return err
	}
	n := note{path: t.paths[to], at: uint64(uintptr(src.Pointer())), bytes: int64(src.Len())}
	if n.path == IPC {
		if err := t.name(&n, to, src); err != nil {
			t.drop(o)
			return fmt.Errorf("lending: %w: want memory of Comm.AllocIn, or SCAFFE_CUDA_PATH=staging", err)
		}
	}
	return t.tell(o, &n, tag)
}

// tell sends a note, and expects the answer.
func (t *Transport) tell(o *op, n *note, tag nbc.Tag) error {
	t.numbers++
	o.message, o.left = t.numbers, 2
	n.message = o.message
	n.write(mem.Bytes(o.note))
	if err := t.inner.Recv(o.token(partAnswer), o.peer, answerTag(o.message), mem.Buffer{}); err != nil {
		t.drop(o)
		return err
	}
	return t.inner.Send(o.token(partNote), o.peer, tag, o.note)
}

// comm is the communicator of answers and of notes of what was freed, which no other messages have.
const comm = nbc.SetupComm - 1

func answerTag(message uint32) nbc.Tag { return nbc.Tag{Comm: comm, Instance: message} }

// Recv begins to receive into dst.
func (t *Transport) Recv(tok nbc.Token, from int, tag nbc.Tag, dst mem.Buffer) error {
	if !t.direct(from, dst.Space(), dst.Len()) {
		return t.inner.Recv(tok, from, tag, dst)
	}
	return t.receive(receives, tok, from, tag, dst, dst.Len())
}

// RecvBorrow begins to receive n bytes into host memory.
func (t *Transport) RecvBorrow(tok nbc.Token, from int, tag nbc.Tag, n int) error {
	return t.inner.RecvBorrow(tok, from, tag, n)
}

// RecvBorrowIn begins to receive n bytes, which lie where the sender has them, or in memory of the inner transport's.
func (t *Transport) RecvBorrowIn(s mem.Space, tok nbc.Token, from int, tag nbc.Tag, n int) error {
	if t.direct(from, s, n) {
		return t.receive(borrows, tok, from, tag, mem.Buffer{}, n)
	}
	if t.carrier == nil {
		return fmt.Errorf("lending: %v memory: the transport below carries host memory alone", s)
	}
	return t.carrier.RecvBorrowIn(s, tok, from, tag, n)
}

// receive posts the receive of a note.
func (t *Transport) receive(k kind, tok nbc.Token, from int, tag nbc.Tag, dst mem.Buffer, n int) error {
	if err := t.check(); err != nil {
		return err
	}
	o, err := t.add(k, tok, from, tag, n)
	if err != nil {
		return err
	}
	o.memory = dst
	if err = t.inner.Recv(o.token(partNote), from, tag, o.note); err != nil {
		t.drop(o)
	}
	return err
}

// Release gives borrowed memory back to its sender.
func (t *Transport) Release(tok nbc.Token) {
	o := t.lent[tok]
	if o == nil {
		t.inner.Release(tok)
		return
	}
	delete(t.lent, tok)
	t.failed = errors.Join(t.failed, t.answer(o))
	t.drop(o)
}

// answer tells the sender of o's message that nobody reads its memory any more.
func (t *Transport) answer(o *op) error {
	t.answers = (t.answers + 1) &^ parts
	return t.inner.Send(ours|partAnswers|nbc.Token(t.answers), o.peer, answerTag(o.message), mem.Buffer{})
}

// arrived takes what the inner transport says of a part of o.
func (t *Transport) arrived(o *op, err error) {
	switch {
	case o.kind == sends || o.kind == frees:
		t.hasLeft(o, err)
	case err != nil:
		t.end(o, err)
	default:
		t.read(o)
	}
}

// hasLeft takes the end of one part of what o tells: the note's way there, or the answer's back.
func (t *Transport) hasLeft(o *op, err error) {
	o.left--
	if err != nil && !o.failed {
		o.failed = true
		t.report(o, err)
	}
	switch {
	case o.left > 0:
		return
	case !o.failed && o.kind == frees:
		t.failed = errors.Join(t.failed, t.hasClosed(o.share))
	case !o.failed:
		t.report(o, nil)
	}
	t.drop(o)
}

// read does with the memory that o's note tells of what o is for.
func (t *Transport) read(o *op) {
	var n note
	n.read(mem.Bytes(o.note))
	o.message = n.message
	if o.kind == listens {
		t.close(o, &n)
		return
	}
	if int(n.bytes) != o.n {
		err := fmt.Errorf("lending: %w: rank %d sent %d bytes where rank %d expects %d as %v", nbc.ErrLength, o.peer, n.bytes, t.Rank(), o.n, o.tag)
		t.end(o, errors.Join(err, t.answer(o)))
		return
	}
	from, err := t.locate(o.peer, &n)
	switch {
	case err != nil:
		t.end(o, err)
	case o.kind == borrows:
		t.lent[o.tok] = o
		t.ended.Push(nbc.Completion{Token: o.tok, Data: from})
	default:
		t.copy(o, from)
	}
}

// copy has the GPU copy the message of o.
func (t *Transport) copy(o *op, from mem.Buffer) {
	done, err := t.copies.Copy(o.token(partNote), o.memory, from)
	switch {
	case err != nil:
		t.end(o, fmt.Errorf("lending: %w", err))
	case done:
		t.hasCopied(o)
	default:
		o.copying = true
	}
}

func (t *Transport) hasCopied(o *op) {
	o.copying = false
	t.end(o, t.answer(o))
}

// report says how o ended; of what no caller has begun, that it failed.
func (t *Transport) report(o *op, err error) {
	if o.kind == frees || o.kind == listens {
		t.failed = errors.Join(t.failed, err)
		return
	}
	t.ended.Push(nbc.Completion{Token: o.tok, Err: err})
}

// end reports the end of o, and forgets it.
func (t *Transport) end(o *op, err error) {
	t.report(o, err)
	t.drop(o)
}

// Poll advances everything and stores what ended in done.
func (t *Transport) Poll(done []nbc.Completion) (int, error) {
	n, err := t.inner.Poll(done)
	if err != nil || t.drained {
		return 0, err
	}
	if t.hasFreed.Load() {
		t.failed = errors.Join(t.failed, t.tellFreed())
	}
	if t.failed != nil {
		return 0, t.failed
	}
	if len(t.ops) == 0 {
		return n, nil
	}
	kept := 0
	for _, c := range done[:n] {
		o, _, own := t.own(c.Token)
		switch {
		case !own:
			done[kept] = c
			kept++
		case o != nil:
			t.arrived(o, c.Err)
		}
	}
	t.look()
	k := copy(done[kept:], t.ended.All())
	t.ended.Drop(k)
	return kept + k, nil
}

// look takes the copies that have ended.
func (t *Transport) look() {
	if !t.copies.Busy() {
		return
	}
	n, err := t.copies.Poll(t.batch[:])
	for _, c := range t.batch[:n] {
		switch o, _, _ := t.own(c.Token); {
		case o == nil || !o.copying: // of an op that has failed
		case c.Err != nil:
			t.end(o, fmt.Errorf("lending: %w", c.Err))
		default:
			t.hasCopied(o)
		}
	}
	if err == nil {
		return
	}
	for _, o := range t.ops { // the GPU has failed, and with it all that was begun
		if o.copying {
			t.end(o, fmt.Errorf("lending: %w", err))
		}
	}
}

// Park lets the thread rest, but not for long with copies under way, of whose end nobody tells.
func (t *Transport) Park(d time.Duration) {
	switch {
	case t.drained:
	case t.ended.Len() > 0 || t.hasFreed.Load():
		return
	case t.copies.Busy():
		d = min(d, nbc.AcceleratorRest)
	}
	t.inner.Park(d)
}

// Drain returns when the GPU touches no message any more, and drops what is under way.
func (t *Transport) Drain() {
	t.drained = true
	t.copies.Drain()
	t.Transport.Drain()
}

// Abort tells the other ranks.
func (t *Transport) Abort(ctx context.Context, reason string) error {
	return t.inner.Abort(ctx, reason)
}

// Close closes the inner transport and gives everything back but memory that other processes may still read.
func (t *Transport) Close() error {
	if t.closed {
		return nil
	}
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.copies.Drain()
	var err error
	for _, b := range t.opened {
		err = errors.Join(err, t.shares.CloseOpened(b))
	}
	clear(t.opened)
	err = errors.Join(err, t.inner.Close())
	for _, b := range t.notes {
		b.Free()
	}
	return errors.Join(err, t.copies.Close())
}
