package overmpi

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/mpi"
	"github.com/scaffe/scaffe/nbc"
)

// Options of a transport; the zero value is good.
type Options struct {
	// CloseWait bounds how long Close waits for the other ranks to come to
	// their end; 0 means a minute.
	CloseWait time.Duration
}

// Transport is nbc.Transport over MPI.
type Transport struct {
	opts    Options
	world   *mpi.World
	owns    bool // Close finalises the world
	data    *mpi.Comm
	control *mpi.Comm // notices and the meeting at the end
	reqs    *mpi.Requests

	bits    tagBits
	guard   guard
	staging staging
	ops     []*op
	unused  []uint64 // indexes into ops
	active  int      // operations begun and not yet settled
	lent    map[nbc.Token]mem.Buffer
	self    loop
	library library

	batch [64]mpi.Done
	ended []nbc.Completion // settled, not yet reported
	next  int              // ended[next:] are to be reported

	rest    rest
	abort   abort
	notices notices
	fault   error // why nothing works any more, sticky
	over    atomic.Bool

	reached bool // what Close waits for has come
}

var _ nbc.Transport = (*Transport)(nil)

// ErrClosed is what calls after Close return.
var ErrClosed = errors.New("overmpi: the transport is closed")

// op is an operation under way.
type op struct {
	tok     nbc.Token
	way     way
	tag     nbc.Tag
	want    int // bytes
	staged  mem.Buffer
	borrows bool
	pin     runtime.Pinner
	pinned  bool
}

// Identifiers of requests: an index into ops, or one of these.
const (
	idNotice uint64 = 1<<32 + iota // the standing receive of notices
	idMeet                         // the barrier at the end
	idTell                         // and above, by rank: telling it that this one gives up

	idLibrary uint64 = 1 << 33   // and above: an index into library.calls
	idNote    uint64 = 1 << 34   // the standing receive of nbc.Notifier's notices
	idNoteTo  uint64 = 1<<34 + 1 // and above, by rank: such a notice to it
)

// Open returns what starts MPI and opens the transport over all ranks, for
// nbc.Start. Its Close ends MPI. All ranks call it together.
func Open(opts Options) func() (nbc.Transport, error) {
	return func() (nbc.Transport, error) {
		w, err := mpi.Start()
		if err != nil {
			return nil, err
		}
		t, err := New(w, opts)
		if err != nil {
			return nil, err
		}
		t.owns = true
		return t, nil
	}
}

// New opens a transport in a world that was started on the calling thread and
// that outlives it. All ranks call it together.
func New(w *mpi.World, opts Options) (*Transport, error) {
	if opts.CloseWait == 0 {
		opts.CloseWait = time.Minute
	}
	t := &Transport{
		opts: opts, world: w, bits: splitBits(w.TagUB()), guard: guard{},
		lent: map[nbc.Token]mem.Buffer{},
	}
	var err error
	if t.data, err = w.Comm().Dup(); err != nil {
		return nil, err
	}
	if t.control, err = w.Comm().Dup(); err != nil {
		return nil, err
	}
	t.reqs = w.NewRequests()
	if err := t.rest.open(w.Nodes().LocalSize); err != nil {
		return nil, err
	}
	t.abort.open()
	return t, errors.Join(t.listen(), t.hark())
}

// World returns the world below, for what is asked of MPI itself. Its methods
// are called on the transport's thread (nbc.Engine.Do).
func (t *Transport) World() *mpi.World { return t.world }

// Rank returns this process's rank.
func (t *Transport) Rank() int { return t.world.Rank() }

// Size returns the number of ranks.
func (t *Transport) Size() int { return t.world.Size() }

// Send begins to send src to rank to.
func (t *Transport) Send(tok nbc.Token, to int, tag nbc.Tag, src mem.Buffer) error {
	if err := t.usable(src); err != nil {
		return err
	}
	if to == t.Rank() {
		return t.self.send(t, tok, tag, src)
	}
	i, o, err := t.begin(op{tok: tok, tag: tag, want: src.Len(), way: t.way(to, tag, true)}, src)
	if err != nil {
		return err
	}
	if err := t.data.Isend(t.reqs, i, src.Pointer(), src.Len(), to, int(o.way.wire)); err != nil {
		t.finish(i)
		return fmt.Errorf("overmpi: %w", err)
	}
	return nil
}

// Recv begins to receive exactly dst.Len() bytes from rank from.
func (t *Transport) Recv(tok nbc.Token, from int, tag nbc.Tag, dst mem.Buffer) error {
	if err := t.usable(dst); err != nil {
		return err
	}
	if from == t.Rank() {
		return t.self.recv(t, tok, tag, dst, false)
	}
	i, o, err := t.begin(op{tok: tok, tag: tag, want: dst.Len(), way: t.way(from, tag, false)}, dst)
	if err != nil {
		return err
	}
	return t.irecv(i, o, from, dst)
}

// RecvBorrow begins to receive n bytes from rank from into staging memory.
func (t *Transport) RecvBorrow(tok nbc.Token, from int, tag nbc.Tag, n int) error {
	if n < 0 {
		return fmt.Errorf("overmpi: receive of %d bytes", n)
	}
	if err := t.usable(mem.Buffer{}); err != nil {
		return err
	}
	staged := t.staging.get(n)
	if from == t.Rank() {
		return t.self.recv(t, tok, tag, staged, true)
	}
	i, o, err := t.begin(op{tok: tok, tag: tag, want: n, way: t.way(from, tag, false), staged: staged, borrows: true}, staged)
	if err != nil {
		t.staging.put(staged)
		return err
	}
	return t.irecv(i, o, from, staged)
}

func (t *Transport) irecv(i uint64, o *op, from int, dst mem.Buffer) error {
	if err := t.data.Irecv(t.reqs, i, dst.Pointer(), dst.Len(), from, int(o.way.wire)); err != nil {
		t.staging.put(o.staged)
		t.finish(i)
		return fmt.Errorf("overmpi: %w", err)
	}
	return nil
}

// Release gives the Data of the completion of tok back.
func (t *Transport) Release(tok nbc.Token) {
	if b, ok := t.lent[tok]; ok {
		delete(t.lent, tok)
		t.staging.put(b)
	}
}

// usable says whether an operation on b can begin.
func (t *Transport) usable(b mem.Buffer) error {
	if t.fault != nil {
		return t.fault
	}
	if t.over.Load() {
		return ErrClosed
	}
	if b.Space() != mem.Host && t.world.CUDAAware() != mpi.Yes {
		return fmt.Errorf("overmpi: %s cannot send or receive %s memory (CUDA-aware: %s): stage it through the host",
			t.world.Library(), b.Space(), t.world.CUDAAware())
	}
	return nil
}

func (t *Transport) way(peer int, tag nbc.Tag, sending bool) way {
	return way{peer: int32(peer), wire: int32(t.bits.wire(tag)), sending: sending}
}

// begin notes an operation on b and returns its index.
func (t *Transport) begin(o op, b mem.Buffer) (uint64, *op, error) {
	if int(o.way.peer) < 0 || int(o.way.peer) >= t.Size() {
		return 0, nil, fmt.Errorf("overmpi: there is no rank %d among %d", o.way.peer, t.Size())
	}
	if err := t.guard.enter(o.way, o.tag, t.bits); err != nil {
		return 0, nil, err
	}
	var i uint64
	if n := len(t.unused); n > 0 {
		i, t.unused = t.unused[n-1], t.unused[:n-1]
	} else {
		i = uint64(len(t.ops))
		t.ops = append(t.ops, &op{})
	}
	p := t.ops[i]
	o.pin = p.pin
	*p = o
	if b.OnGoHeap() && b.Len() > 0 {
		p.pin.Pin(b.Pointer())
		p.pinned = true
	}
	t.active++
	t.rest.stir()
	return i, p, nil
}

// finish forgets operation i.
func (t *Transport) finish(i uint64) {
	o := t.ops[i]
	if o.pinned {
		o.pin.Unpin()
	}
	t.guard.leave(o.way)
	t.unused = append(t.unused, i)
	t.active--
}

// Poll advances everything and stores what ended in done.
func (t *Transport) Poll(done []nbc.Completion) (int, error) {
	if t.over.Load() {
		return 0, ErrClosed
	}
	if err := t.advance(); err != nil {
		return 0, err
	}
	n := copy(done, t.ended[t.next:])
	if t.next += n; t.next == len(t.ended) {
		t.ended, t.next = t.ended[:0], 0
	}
	if n > 0 {
		t.rest.stir()
	}
	return n, nil
}

// advance moves what can move and settles what ended. It goes on after a fault,
// for the sake of notices both ways, and returns it.
func (t *Transport) advance() error {
	t.abort.tell(t)
	for {
		n, err := t.reqs.Testsome(t.batch[:])
		if err != nil && t.fault == nil {
			t.fault = fmt.Errorf("overmpi: %w", err)
		}
		for _, d := range t.batch[:n] {
			t.settle(d)
		}
		if err != nil || n < len(t.batch) {
			return t.fault
		}
	}
}

// settle takes one finished request.
func (t *Transport) settle(d mpi.Done) {
	switch {
	case d.ID == idNotice:
		t.noticed(d)
		return
	case d.ID == idMeet:
		t.reached = true
		return
	case d.ID == idNote:
		t.noted(d)
		return
	case d.ID >= idNoteTo:
		delete(t.notices.sending, int(d.ID-idNoteTo))
		return
	case d.ID >= idLibrary:
		t.settleLibrary(d)
		return
	case d.ID >= idTell:
		t.abort.told(1)
		return
	}
	o := t.ops[d.ID]
	c := nbc.Completion{Token: o.tok, Err: t.judge(o, d)}
	if o.borrows {
		if c.Err == nil {
			c.Data = o.staged
			t.lent[o.tok] = o.staged
		} else {
			t.staging.put(o.staged)
		}
	}
	t.finish(d.ID)
	t.ended = append(t.ended, c)
}

// judge says what was wrong with a finished operation.
func (t *Transport) judge(o *op, d mpi.Done) error {
	switch {
	case mpi.Truncated(d.Err):
		return fmt.Errorf("overmpi: %w: rank %d sent more than the %d bytes that rank %d expects as message %s: the ranks run different collectives or counts",
			nbc.ErrLength, o.way.peer, o.want, t.Rank(), describe(o.tag))
	case d.Err != nil && o.way.sending:
		return fmt.Errorf("overmpi: sending message %s to rank %d: %w", describe(o.tag), o.way.peer, d.Err)
	case d.Err != nil:
		return fmt.Errorf("overmpi: receiving message %s from rank %d: %w", describe(o.tag), o.way.peer, d.Err)
	case !o.way.sending && d.Bytes != o.want:
		return fmt.Errorf("overmpi: %w: rank %d sent %d bytes where rank %d expects %d as message %s: the ranks run different collectives or counts",
			nbc.ErrLength, o.way.peer, d.Bytes, t.Rank(), o.want, describe(o.tag))
	}
	return nil
}

// Move makes the calling thread the one that calls MPI.
func (t *Transport) Move() bool {
	ok, other := t.world.Move()
	if other {
		quickSleeps()
	}
	return ok
}

// Park lets the thread rest; see the package comment.
func (t *Transport) Park(d time.Duration) {
	if t.next < len(t.ended) || t.over.Load() {
		return
	}
	t.rest.park(d, t.active > 0 || t.abort.under())
}

// Wake ends a Park under way, or the next one.
func (t *Transport) Wake() { t.rest.wake() }

// Abort tells every other rank that this one gives up and why.
func (t *Transport) Abort(ctx context.Context, reason string) error {
	return t.giveUp(ctx, reason)
}
