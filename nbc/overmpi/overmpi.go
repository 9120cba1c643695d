package overmpi

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/mpi"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/internal/backoff"
	"github.com/scaffe/scaffe/nbc/internal/match"
)

// Options of a transport; the zero value is good.
type Options struct {
	// CloseWait bounds how long Close waits for the other ranks to come to
	// their end; 0 means a minute.
	CloseWait time.Duration
	// TagBound is the largest MPI tag to use, the same on all ranks; 0 means
	// the library's. Messages are told apart whatever it is: tests use small
	// ones.
	TagBound int
}

// Transport is nbc.Transport over MPI.
type Transport struct {
	opts    Options
	world   *mpi.World
	owns    bool // Close finalizes the world
	data    *mpi.Comm
	control *mpi.Comm // notices and the meeting at the end
	reqs    *mpi.Requests

	staging  staging
	ops      []*op
	unused   []*op
	active   int // operations begun and not yet settled
	small    int // of them, those that are no large messages
	lent     map[nbc.Token]mem.Buffer
	wires    wires
	peers    []peer // by rank
	standing standing
	waiting  match.Table[*op, *arrival]
	arrivals arrivals
	asked    bool // data were asked for since MPI was
	library  library
	eager    eager

	batch [64]mpi.Done
	ended []nbc.Completion // settled, not yet reported
	next  int              // ended[next:] are to be reported

	rest    rest
	abort   abort
	notices notices
	fault   error // why nothing works any more, sticky
	over    atomic.Bool

	reached bool // what Close waits for has come
	closing bool // nothing is expected any more
}

var _ nbc.Transport = (*Transport)(nil)

// ErrClosed is what calls after Close return.
var ErrClosed = errors.New("overmpi: the transport is closed")

// op is an operation under way.
type op struct {
	index    uint64 // in ops
	live     bool
	tok      nbc.Token
	peer     int
	tag      nbc.Tag
	n        int        // bytes
	buf      mem.Buffer // where they are; a borrowing receive gets that with them
	envelope mem.Buffer // of a send
	sending  bool
	borrows  bool
	parts    int // requests of MPI under way
	err      error
	pin      runtime.Pinner
	pinned   bool
}

// A request of MPI is identified by what it is for, one of these, and an index.
const (
	forData     uint64 = iota << 32 // the data of an operation: its index in ops
	forEnvelope                     // the envelope of a send: likewise
	forStanding                     // a receive for envelopes: its place in the ring
	forAhead                        // data received ahead: their arrival's index
	forEager                        // a message of Put: its index in eager.sent
	forLibrary                      // a collective of the library: its index in library.calls
	forAbort                        // the receive for the notice that a rank gives up
	forTell                         // such a notice to a rank
	forNote                         // the receive for nbc.Notifier's notices
	forNoteTo                       // such a notice to a rank
	forMeeting                      // the barrier at the end

	forMask uint64 = 1<<32 - 1 // of the index
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
// that outlives it. All ranks call it together: where one fails, all do.
func New(w *mpi.World, opts Options) (*Transport, error) {
	if opts.CloseWait == 0 {
		opts.CloseWait = time.Minute
	}
	t := &Transport{opts: opts, world: w, lent: map[nbc.Token]mem.Buffer{}, peers: make([]peer, w.Size()), rest: rest{event: -1}}
	var err error
	if t.data, err = w.Comm().Dup(); err != nil {
		return nil, err
	}
	if t.control, err = w.Comm().Dup(); err != nil {
		return nil, err
	}
	t.reqs = w.NewRequests()
	if err := t.agree(t.prepare()); err != nil {
		t.reqs.Free()
		t.rest.close()
		return nil, errors.Join(err, t.control.Free(), t.data.Free())
	}
	return t, nil
}

// prepare does what can fail on one rank alone.
func (t *Transport) prepare() error {
	bound := t.opts.TagBound
	if bound == 0 {
		bound = t.world.TagUB()
	}
	if bound < 1 || bound > t.world.TagUB() {
		return fmt.Errorf("overmpi: invalid tag bound %d: want 1 to %d, the largest tag of %s", bound, t.world.TagUB(), t.world.Library())
	}
	t.wires = wires{uint64(bound)}
	if err := t.rest.open(t.world.Nodes().LocalSize); err != nil {
		return err
	}
	t.abort.open()
	return errors.Join(t.listen(), t.hark(), t.expectEnvelopes())
}

// agree returns nil where err is nil on all ranks, and an error on all where it
// is not: otherwise the others would wait for the rank that has left.
func (t *Transport) agree(err error) error {
	first := []int32{int32(t.Size())}
	if err != nil {
		first[0] = int32(t.Rank())
	}
	p := unsafe.Pointer(&first[0])
	if e := t.control.Allreduce(p, p, 1, mem.Int32, mem.Min); e != nil {
		return errors.Join(err, e)
	}
	if err == nil && int(first[0]) < t.Size() {
		err = fmt.Errorf("overmpi: rank %d could not open its transport and says why", first[0])
	}
	return err
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
	o, err := t.begin(op{tok: tok, peer: to, tag: tag, n: src.Len(), buf: src, sending: true})
	if err != nil {
		return err
	}
	if to == t.Rank() {
		t.sendToSelf(o)
		return nil
	}
	if o.n <= inlineRoom && src.Space() == mem.Host {
		err = t.sendEnvelope(o, 0)
	} else {
		err = t.sendData(o)
	}
	if err != nil {
		t.finish(o)
		return fmt.Errorf("overmpi: %w", err)
	}
	return nil
}

// sendData begins to send a message that travels by itself, then its envelope: so
// the data, or the library's request to send them, are there when the receiver
// asks for them.
func (t *Transport) sendData(o *op) error {
	p := &t.peers[o.peer]
	wire := t.wires.tag(p.sent)
	t.pin(o)
	if err := t.data.Isend(t.reqs, forData|o.index, o.buf.Pointer(), o.n, o.peer, wire); err != nil {
		return err
	}
	o.parts++
	p.sent++
	if err := t.sendEnvelope(o, wire); err != nil {
		t.fail(fmt.Errorf("overmpi: %w", err)) // what is sent already has no name
	}
	return nil
}

// sendToSelf hands a message to this rank.
func (t *Transport) sendToSelf(o *op) {
	t.pin(o)
	id := identity(t.Rank(), o.tag)
	a := t.arrivals.get()
	a.from, a.length, a.sender = t.Rank(), o.n, o
	if r, waits := t.waiting.TakeReceive(id); waits {
		t.loopback(r, a)
	} else {
		t.waiting.KeepMessage(id, a)
	}
}

// Recv begins to receive exactly dst.Len() bytes from rank from.
func (t *Transport) Recv(tok nbc.Token, from int, tag nbc.Tag, dst mem.Buffer) error {
	return t.receive(op{tok: tok, peer: from, tag: tag, n: dst.Len(), buf: dst})
}

// RecvBorrow begins to receive n bytes from rank from into staging memory.
func (t *Transport) RecvBorrow(tok nbc.Token, from int, tag nbc.Tag, n int) error {
	if n < 0 {
		return fmt.Errorf("overmpi: receive of %d bytes", n)
	}
	return t.receive(op{tok: tok, peer: from, tag: tag, n: n, borrows: true})
}

func (t *Transport) receive(what op) error {
	o, err := t.begin(what)
	if err != nil {
		return err
	}
	t.pin(o)
	id := identity(o.peer, o.tag)
	if a, arrived := t.waiting.TakeMessage(id); arrived {
		t.claim(o, a)
	} else {
		t.waiting.KeepReceive(id, o)
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

// CarriesWith reports whether messages to and from a rank may lie in memory of the space: in a GPU's where the MPI library says that
// it takes pointers to that, and the rank is another one.
func (t *Transport) CarriesWith(rank int, s mem.Space) bool {
	return s == mem.Host || t.world.CUDAAware() == mpi.Yes && rank != t.Rank()
}

// begin notes an operation.
func (t *Transport) begin(what op) (*op, error) {
	if err := t.usable(what.buf); err != nil {
		return nil, err
	}
	if what.peer < 0 || what.peer >= t.Size() {
		return nil, fmt.Errorf("overmpi: there is no rank %d among %d", what.peer, t.Size())
	}
	var o *op
	if n := len(t.unused); n > 0 {
		o, t.unused = t.unused[n-1], t.unused[:n-1]
	} else {
		o = &op{index: uint64(len(t.ops))}
		t.ops = append(t.ops, o)
	}
	what.index, what.live, what.pin = o.index, true, o.pin
	*o = what
	t.active++
	if o.n < backoff.BulkSize {
		t.small++
	}
	t.rest.stir()
	return o, nil
}

// pin keeps the memory of o where it is.
func (t *Transport) pin(o *op) {
	if o.buf.OnGoHeap() && o.n > 0 {
		o.pin.Pin(o.buf.Pointer())
		o.pinned = true
	}
}

// end reports o and forgets it.
func (t *Transport) end(o *op, err error) {
	c := nbc.Completion{Token: o.tok, Err: err}
	switch {
	case !o.borrows:
	case err == nil:
		c.Data = o.buf
		t.lent[o.tok] = o.buf
	default:
		t.staging.put(o.buf)
	}
	t.finish(o)
	t.ended = append(t.ended, c)
}

// finish forgets o.
func (t *Transport) finish(o *op) {
	if o.pinned {
		o.pin.Unpin()
	}
	if o.n < backoff.BulkSize {
		t.small--
	}
	*o = op{index: o.index, pin: o.pin}
	t.unused = append(t.unused, o)
	t.active--
}

// fail notes why nothing works any more.
func (t *Transport) fail(err error) {
	if t.fault == nil {
		t.fault = err
	}
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

// advance moves what can move and settles what ended. Data that were asked for
// meanwhile are there more often than not, since they left before their envelope:
// it looks again for them. It continues after a fault, for the sake of notices both
// ways, and returns it.
func (t *Transport) advance() error {
	t.abort.tell(t)
	t.reqs.KeepCore(t.rest.Spins == 0 || t.Bulk())
	for {
		n, err := t.reqs.Testsome(t.batch[:])
		if err != nil && t.fault == nil {
			t.fault = fmt.Errorf("overmpi: %w", err)
		}
		for _, d := range t.batch[:n] {
			t.settle(d)
		}
		if n > 0 {
			t.rest.stir()
		}
		if err != nil || n < len(t.batch) && !t.asked {
			return t.fault
		}
		t.asked = false
	}
}

// settle takes one finished request.
func (t *Transport) settle(d mpi.Done) {
	i := d.ID & forMask
	switch d.ID &^ forMask {
	case forData:
		t.dataEnded(t.ops[i], d)
	case forEnvelope:
		o := t.ops[i]
		t.staging.put(o.envelope)
		t.partEnded(o, d.Err)
	case forStanding:
		t.envelopeEnded(i, d)
	case forAhead:
		t.aheadEnded(i, d)
	case forEager:
		t.eagerEnded(i, d)
	case forLibrary:
		t.settleLibrary(i, d)
	case forAbort:
		t.noticed(d)
	case forTell:
		t.abort.told(1)
	case forNote:
		t.noted(d)
	case forNoteTo:
		t.noticeSent(int(i))
	case forMeeting:
		t.reached = true
	}
}

// dataEnded takes the end of a message's data at either end.
func (t *Transport) dataEnded(o *op, d mpi.Done) {
	err := d.Err
	switch {
	case mpi.Truncated(err):
		err = fmt.Errorf("overmpi: rank %d sent more than the %d bytes that it announced as %v", o.peer, o.n, o.tag)
	case err == nil && !o.sending && d.Bytes != o.n:
		err = fmt.Errorf("overmpi: rank %d sent %d bytes and announced %d as %v", o.peer, d.Bytes, o.n, o.tag)
	}
	t.partEnded(o, err)
}

// partEnded takes the end of one of the requests that o is made of.
func (t *Transport) partEnded(o *op, err error) {
	if o.err == nil {
		o.err = err
	}
	if o.parts--; o.parts > 0 {
		return
	}
	if err = o.err; err != nil {
		doing := "receiving %v from rank %d"
		if o.sending {
			doing = "sending %v to rank %d"
		}
		err = fmt.Errorf("overmpi: "+doing+": %w", o.tag, o.peer, err)
	}
	t.end(o, err)
}

// Migrate makes the calling thread the one that calls MPI.
func (t *Transport) Migrate() bool { return t.world.Move() }

// Park lets the thread rest; see the package comment.
func (t *Transport) Park(d time.Duration) {
	if t.next < len(t.ended) || t.over.Load() {
		return
	}
	t.rest.park(d, t.active > 0 || t.abort.under(), t.Bulk())
}

// Bulk reports whether all that is under way are large messages.
func (t *Transport) Bulk() bool { return t.active > 0 && t.small == 0 && !t.abort.under() }

// Wake ends a Park under way, or the next one.
func (t *Transport) Wake() { t.rest.wake() }

// Abort tells every other rank that this one gives up and why.
func (t *Transport) Abort(ctx context.Context, reason string) error {
	return t.giveUp(ctx, reason)
}
