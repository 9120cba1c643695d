package nbc

import (
	"time"

	"github.com/scaffe/scaffe/mem"
)

// Accelerator is implemented by a Device that has memory of its own, combines buffers in it while
// the CPU does something else, and copies between it and the host's. Buffers in host memory it combines
// at once or as it likes. Alloc, Free, AllocHost and FreeHost may be called by any goroutine.
type Accelerator interface {
	Device
	// Space names the memory.
	Space() mem.Space
	// Alloc returns n > 0 bytes of it, whose contents are undefined. Free gives them back, with nothing
	// under way that touches them.
	Alloc(n int) (mem.Buffer, error)
	Free(b mem.Buffer)
	// AllocHost returns n > 0 bytes of host memory to and from which Copy goes without
	// the CPU. FreeHost gives them back likewise.
	AllocHost(n int) (mem.Buffer, error)
	FreeHost(b mem.Buffer)
	// Busy reports whether something that was begun has not been reported by Poll, Combining whether a kernel is among it. Nothing wakes
	// who waits for it.
	Busy() bool
	Combining() bool
	// Folds reports whether a Folder combines several buffers of that memory by one kernel.
	Folds(dt mem.Datatype, op mem.Op) bool
}

// Sharer is implemented by an Accelerator whose memory the accelerators of other processes of the node can read where
// it lies. Its methods may be called by any goroutine.
type Sharer interface {
	// Find returns the number of the allocation in which b lies, which no other one of this process ever has, and
	// where b begins in it.
	Find(b mem.Buffer) (id uint64, at int, err error)
	// Share names an allocation to other processes. From then on its Free calls freed, on any goroutine, and
	// leaves the memory to those who have opened it, until Unshare.
	Share(id uint64, freed func()) (SharedName, error)
	Unshare(id uint64) error
	// Open makes another process's memory readable here, until CloseOpened.
	Open(SharedName) (mem.Buffer, error)
	CloseOpened(mem.Buffer) error
}

// SharedName is what a Sharer calls memory that it shares.
type SharedName struct {
	Handle [64]byte
	Bytes  int64
}

// Carrier is implemented by a Transport that carries messages from and to other memory than the
// host's. Both ends of a message lie in memory of one space, unless the transport says more.
type Carrier interface {
	// Carries reports whether Send and Recv take memory of the space. Any goroutine may call it.
	Carries(s mem.Space) bool
	// RecvBorrowIn is RecvBorrow, where Carries is true of the space, in which the completion's Data lies.
	RecvBorrowIn(s mem.Space, tok Token, from int, tag Tag, n int) error
}

// PartCarrier is implemented by a Transport that itself carries messages from and to other memory than the host's, but not between all
// ranks: one over an MPI library that is CUDA-aware.
type PartCarrier interface {
	// CarriesWith reports whether Send and Recv take memory of the space for messages to and from a rank; so its library says.
	// Any goroutine may call it.
	CarriesWith(rank int, s mem.Space) bool
}

// AcceleratorRest is for how long a loop rests at most where something is under way on an accelerator,
// which wakes nobody.
const AcceleratorRest = 20 * time.Microsecond
