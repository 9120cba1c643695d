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

// noToken + an op's index names no operation.
const noToken = Token(1<<32-1) << 32

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

// Eager is implemented by a Transport that hands over messages at once, as through
// memory that two ranks share: the receiver finds the message without a receive that
// was begun. The sender of a small one is finished with its memory when the call
// returns; a larger one may be lent, where its receiver reads it in place. They are
// messages like those of Send and Recv, and meet them: one rank may send with Send
// what another gets with Take. Its methods are called as a Transport's are, but
// without regard to a ThreadMigrator's thread where Bound does not ask for it.
type Eager interface {
	// EagerRoom returns how large such messages to or from a rank may be. Any goroutine may call it.
	EagerRoom(rank int) EagerRoom
	// Bound reports whether Put and Take of messages to and from a rank are called on a
	// ThreadMigrator's thread alone. Any goroutine may call it.
	Bound(rank int) bool
	// Put sends src to rank to, and reports whether it has: a false is for lack of
	// room, and leaves the message to Send. A message that is lent has the token
	// given; src must stay as it is while Lent returns that. lend says that the caller
	// waits for the end of one anyway: otherwise one that can be copied is.
	Put(tok Token, to int, tag Tag, src mem.Buffer, lend bool) bool
	// Lent returns the tokens of the messages that are lent, until the next call.
	Lent() []Token
	// Keep has Poll report when these have ended, each by base + its token.
	Keep(base Token)
	// Take returns the message of n bytes with the tag given, if it has come from
	// rank from and no receive was begun for it. It is the caller's until Taken,
	// before which no other method is called. One that has to be copied is so into
	// dst, unless that is empty.
	Take(from int, tag Tag, n int, dst mem.Buffer) (mem.Buffer, bool)
	Taken(from int)
	// Unsent reports whether messages of Put are left for which Poll must be called.
	Unsent() bool
	// Linger is called after every look in vain for a message from a rank, or, where
	// that is -1, for the end of one that is lent, with the number of looks, from 1 on.
	// It may let other threads run, and reports whether to look again soon; if not, the
	// message is left to Recv and Park.
	Linger(from, looks int) bool
	// Nap lets the calling thread sleep for d at most, or until Wake is called, while
	// another thread may call the other methods.
	Nap(d time.Duration)
}

// EagerRoom is how large the messages of an Eager may be, in bytes.
type EagerRoom struct {
	Most   int // of one that a rank executing alone receives; 0 where Put sends none
	Added  int // of one that it receives to add, if that is more, and of one that Put may send
	Copied int // of one that Put copies where its caller does not let it be lent
	Kept   int // of one that is never lent
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

// Drainer is implemented by a Transport for which something that works on by itself, as a GPU does, copies
// from and to the memory of messages.
type Drainer interface {
	// Drain returns when no such copy is under way, and has none begin any more: messages under way are dropped, and
	// none is taken. The engine calls it when it fails, after Device.Drain; notices, Abort and Close go on.
	Drain()
}

// Waiter is implemented by a Transport that knows how threads share cores.
type Waiter interface {
	// Yield offers the calling thread's core to others, once.
	Yield()
	// Crowded reports whether ranks of this node share cores.
	Crowded() bool
	// Waits says whether the thread that calls the Transport is from now on that of a
	// blocking call, which computes nothing meanwhile.
	Waits(bool)
}

// Expecter is implemented by a Transport or a Device that copies or adds otherwise where
// there is more than a cache holds: it cannot know that of a chunk.
type Expecter interface {
	// Expect says how many bytes the collective has to which the operations belong
	// that begin next. Of sums a Device is told so where nothing reads them
	// before the collective ends, otherwise 0; of copies always.
	Expect(bytes int)
}

// Topology is implemented by a Transport that knows where its ranks are.
type Topology interface {
	// Nodes returns for every rank the index of its node.
	Nodes() []int
}

// Hosted is implemented by a Transport that knows whether nodes are containers of one machine.
type Hosted interface {
	// Rivals returns how many ranks of other nodes may run on this rank's cores.
	Rivals() int
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
	// and does not block. It keeps a copy. A notice may be lost, as when dozens
	// to that rank have not been taken yet.
	Notify(to int, notice []byte) error
	// NextNotice stores the next notice that has arrived in buf, which has
	// NoticeRoom bytes, and returns who sent it and its length; from is -1
	// where there is none. A notice that arrives ends a Park, at once or, where
	// the transport cannot be notified, after some milliseconds.
	NextNotice(buf []byte) (from, n int)
}

// LibraryCall is a collective of the MPI library's own, over all ranks.
type LibraryCall struct {
	Collective schedule.Collective
	Send, Recv mem.Buffer // as in package collectives; Send is Recv in place, or its part of it
	Count      int        // of the whole buffer
	Counts     []int      // of the parts of a collective of parts; nil: equal
	Datatype   mem.Datatype
	Op         mem.Op
	Root       int
	// Blocking asks for the library's blocking form. A thread inside of it hears of no
	// deadline, no other rank's failure and no question, and moves nothing else: the
	// engine makes the call when nothing else is under way on the rank, and ends the
	// process of a rank that does not come out within the deadline (Options.Exit).
	// All ranks ask for the same form.
	Blocking bool
}

// Library is implemented by a Transport over a library that has collectives
// of its own. The library's rule holds for them: all ranks begin them in the
// same order.
type Library interface {
	// Supports returns what the library cannot do with c: a datatype that it
	// lacks, too many elements, device memory. Any goroutine may call it.
	Supports(c LibraryCall) error
	// Begin begins a collective that Supports has nothing against; Poll reports
	// tok. A blocking one has ended when Begin returns.
	Begin(tok Token, c LibraryCall) error
}

// Immediate is implemented by a Device whose operations on host memory are done when the calls
// return, on any thread.
type Immediate interface {
	// Immediate does nothing.
	Immediate()
}

// Folder is implemented by a Device that combines several buffers in one pass. To
// others messages are given one after the other.
type Folder interface {
	// ReduceAll begins dst = ((from[0] ⊕ from[1]) ⊕ from[2]) … as Reduce does, with
	// the bits of one after the other. There are two or more; dst may be one of the first
	// two. from is the caller's again when it returns.
	ReduceAll(tok Token, dt mem.Datatype, op mem.Op, dst mem.Buffer, from []mem.Buffer) (done bool, err error)
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
