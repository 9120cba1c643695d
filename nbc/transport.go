package nbc

import (
	"context"
	"time"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
)

// Token names one operation to its caller. The transport hands it back
// and does not look into it.
type Token uint64

// Completion reports that an operation ended.
type Completion struct {
	Token Token
	// Data is, for an operation begun by RecvBorrow, the received bytes.
	// They stay valid until Release.
	Data mem.Buffer
	// Err is why the operation failed; nil where it did not. A message of
	// another length than the receiver asked for is an error that wraps
	// ErrLength.
	Err error
}

// Transport moves messages between the ranks of one world. All methods but
// Wake and Abort are called by one thread at a time: whichever turns the
// engine's loop, which is the one that opened the transport unless it is a
// ThreadMigrator. None of them blocks but Park. Operations that begin successfully
// (nil error) are reported exactly once by Poll.
type Transport interface {
	Rank() int
	Size() int

	// Send begins to send src to rank to. src must stay as it is until the
	// completion.
	Send(tok Token, to int, tag Tag, src mem.Buffer) error
	// Recv begins to receive exactly dst.Len() bytes from rank from into dst.
	Recv(tok Token, from int, tag Tag, dst mem.Buffer) error
	// RecvBorrow begins to receive n bytes from rank from into memory of the
	// transport's choice: a staging buffer, or the sender's own memory where
	// that can be read. The completion carries it; Release gives it back
	// (and, where it is the sender's, completes the send).
	RecvBorrow(tok Token, from int, tag Tag, n int) error
	// Release gives the Data of the completion of tok back.
	Release(tok Token)

	// Poll advances everything and stores what ended in done. It returns how
	// many; an error means that the transport as a whole failed, such as an
	// *AbortError when another rank gave up.
	Poll(done []Completion) (int, error)
	// Park lets the thread rest, for d at most, until Poll may have something
	// to report or Wake is called. It may return early. With operations under
	// way, a transport that cannot be notified backs off from call to call
	// (spin, yield, sleep), so that ranks which share cores do not fight; with
	// none it waits for Wake alone.
	Park(d time.Duration)
	// Wake ends a Park under way, or the next one. Any goroutine may call it.
	Wake()

	// Abort tells every other rank, as well as it can, that this one gives up and
	// why: their Poll returns an *AbortError with this rank and the reason.
	// Any goroutine may call it, while the loop turns on: it hands the reason
	// over, wakes the loop, and waits until all are told or ctx ends. It does
	// not poll. Later calls do nothing.
	Abort(ctx context.Context, reason string) error
	// Close gives everything back. Operations under way are dropped. It may be
	// called twice.
	Close() error
}

// Allocator is implemented by a Transport with memory that it moves
// better than other memory: ranks of one node read and write it without a copy.
// Any goroutine may call it.
type Allocator interface {
	// Alloc returns n > 0 zeroed bytes of host memory.
	Alloc(n int) (mem.Buffer, error)
	// Free gives back what Alloc returned. No operation may be using it.
	Free(mem.Buffer)
}

// ThreadMigrator is implemented by a Transport, or a Device, whose calls may come from another
// thread than the one that opened it, one at a time: the calling thread, which
// is locked, makes them from Migrate on, until another calls Migrate. The first
// thread makes the last call, Close.
type ThreadMigrator interface {
	// Migrate reports whether that is possible; if not, all stays as it is.
	Migrate() bool
}

// Topology is implemented by a Transport that knows where its ranks are.
type Topology interface {
	// Nodes returns for every rank the index of its node.
	Nodes() []int
}

// NoticeRoom is how many bytes a notice has at most.
const NoticeRoom = 1000

// Notifier is implemented by a Transport that hands small notes between ranks
// outside the messages. No receive is posted for a notice, so a rank that does
// nothing hears it too: engines ask each other with notices why nothing moves.
// Without it a deadline's error knows this rank's side alone. A transport
// composed of others forwards it to one of them. Its methods are called by one
// thread at a time, like the Transport's.
type Notifier interface {
	// Notify hands a notice of at most NoticeRoom bytes to rank to, some time,
	// and does not block. It keeps a copy. A notice may be lost, as when the
	// last one to that rank has not been taken yet.
	Notify(to int, notice []byte) error
	// NextNotice stores the next notice that has arrived in buf, which has
	// NoticeRoom bytes, and returns who sent it and its length; from is -1
	// where there is none. A notice that arrives ends a Park, at once or, where
	// the transport cannot be notified, after some milliseconds.
	NextNotice(buf []byte) (from, n int)
}

// LibraryCall is a collective of the MPI library's own, over all ranks, in its
// non-blocking form: a thread inside a blocking one would hear of no deadline,
// no other rank's failure and no question.
type LibraryCall struct {
	Collective schedule.Collective
	Send, Recv mem.Buffer // as in package collectives; Send is Recv in place
	Count      int
	Datatype   mem.Datatype
	Op         mem.Op
	Root       int
}

// Library is implemented by a Transport over a library that has collectives
// of its own. The library's rule holds for them: all ranks begin them in the
// same order.
type Library interface {
	// Supports returns what the library cannot do with c: a datatype that it
	// lacks, too many elements, device memory. Any goroutine may call it.
	Supports(c LibraryCall) error
	// Begin begins a collective that Supports has nothing against; Poll reports
	// tok.
	Begin(tok Token, c LibraryCall) error
}

// Device combines buffers. All methods are called by the goroutine that runs the
// engine's loop, one at a time; a device whose calls are bound to a thread, as a CUDA
// context is, implements ThreadMigrator too. Package nbc/devicetest is the suite
// that every device passes.
//
// What has been begun may end in any order: the engine begins an operation when
// all that it depends on has ended. A device that works on a stream
// reports the end when any other thread, and the transport, may read the result.
type Device interface {
	// Reduce begins dst[i] = a[i] ⊕ b[i], with the bits that package kernels
	// prescribes. All three are equally long; dst may be a or b. Where it
	// reports done, the result is there already and no completion follows;
	// otherwise Poll reports tok. With an error nothing has begun.
	Reduce(tok Token, dt mem.Datatype, op mem.Op, dst, a, b mem.Buffer) (done bool, err error)
	// Divide begins dst[i] = src[i] / by, integers towards zero, likewise; dst
	// may be src.
	Divide(tok Token, dt mem.Datatype, dst, src mem.Buffer, by float64) (done bool, err error)
	// Copy begins dst = src, likewise.
	Copy(tok Token, dst, src mem.Buffer) (done bool, err error)
	// Poll stores what ended in done and returns how many.
	Poll(done []Completion) (int, error)
	// Drain returns when nothing that was begun touches a buffer any more, and
	// forgets it: Poll reports none of it. The engine calls it when it fails,
	// before the requests end and their buffers are the caller's again.
	Drain()
	// Close gives the device's resources back, with nothing under way.
	Close() error
}
