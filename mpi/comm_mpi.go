//go:build mpi

package mpi

/*
#cgo noescape scaffe_isend
#cgo nocallback scaffe_isend
#cgo noescape scaffe_irecv
#cgo nocallback scaffe_irecv
#cgo noescape scaffe_testsome
#cgo nocallback scaffe_testsome
#include "shim.h"
#include <stdlib.h>
*/
import "C"

import (
	"fmt"
	"math"
	"unsafe"
)

// Comm is a communicator of this package's own, whose errors are returned. Its
// methods are called on MPI's thread.
type Comm struct {
	c          *C.scaffe_comm
	rank, size int
}

// Rank returns this process's rank in c.
func (c *Comm) Rank() int { return c.rank }

// Size returns the number of ranks in c.
func (c *Comm) Size() int { return c.size }

// Dup returns a communicator of the same ranks, whose messages do not match
// those of c. It is a collective and waits for all ranks.
func (c *Comm) Dup() (*Comm, error) {
	d := &Comm{rank: c.rank, size: c.size}
	if err := failure(C.scaffe_comm_dup(c.c, &d.c), "MPI_Comm_dup"); err != nil {
		return nil, err
	}
	return d, nil
}

// Split returns a communicator of the ranks that gave the same color, ordered
// by key, then by rank in c. A rank with a negative color is in none and gets
// nil. It is a collective and waits for all ranks.
func (c *Comm) Split(color, key int) (*Comm, error) {
	d := &Comm{}
	if err := failure(C.scaffe_comm_split(c.c, C.int(color), C.int(key), &d.c), "MPI_Comm_split"); err != nil {
		return nil, err
	}
	if d.c == nil {
		return nil, nil
	}
	var rank, size C.int
	if err := failure(C.scaffe_comm_rank(d.c, &rank, &size), "MPI_Comm_rank"); err != nil {
		return nil, err
	}
	d.rank, d.size = int(rank), int(size)
	return d, nil
}

// Free frees c. All ranks call it; no request on c may be under way. A second
// call does nothing.
func (c *Comm) Free() error {
	if c.c == nil {
		return nil
	}
	if err := onThread("MPI_Comm_free"); err != nil {
		return err
	}
	p := c.c
	c.c = nil
	return failure(C.scaffe_comm_free(p), "MPI_Comm_free")
}

// Isend begins to send n bytes at p to rank to. p must stay valid, unchanged,
// and pinned where it lies in the Go heap, until Testsome reports id.
func (c *Comm) Isend(rs *Requests, id uint64, p unsafe.Pointer, n, to, tag int) error {
	rc := C.scaffe_isend(c.c, rs.r, C.uint64_t(id), p, C.int64_t(n), C.int(to), C.int(tag))
	if rc != C.SCAFFE_OK {
		return failure(rc, "MPI_Isend of %d bytes to rank %d, tag %d", n, to, tag)
	}
	return nil
}

// IsendTest is Isend of a small message, and reports whether it has ended: then Testsome
// does not report it.
func (c *Comm) IsendTest(rs *Requests, id uint64, p unsafe.Pointer, n, to, tag int) (ended bool, err error) {
	rc := C.scaffe_isend_test(c.c, rs.r, C.uint64_t(id), p, C.int(n), C.int(to), C.int(tag), rs.n)
	if rc != C.SCAFFE_OK {
		return false, failure(rc, "MPI_Isend of %d bytes to rank %d, tag %d", n, to, tag)
	}
	return *rs.n != 0, nil
}

// Issend is Isend, but ends only when the receiver has begun to receive.
func (c *Comm) Issend(rs *Requests, id uint64, p unsafe.Pointer, n, to, tag int) error {
	if n > math.MaxInt32 {
		return &Error{Op: "MPI_Issend", Class: "COUNT", Text: fmt.Sprintf("a synchronous send takes at most 2147483647 bytes (got %d)", n)}
	}
	rc := C.scaffe_issend(c.c, rs.r, C.uint64_t(id), p, C.int(n), C.int(to), C.int(tag))
	return failure(rc, "MPI_Issend of %d bytes to rank %d, tag %d", n, to, tag)
}

// Irecv begins to receive up to n bytes at p from rank from, or AnySource. p
// must stay valid, and pinned where it lies in the Go heap, until Testsome
// reports id. A longer message is an error (Truncated), except that Open MPI may
// silently cut one that a rank sends to itself.
func (c *Comm) Irecv(rs *Requests, id uint64, p unsafe.Pointer, n, from, tag int) error {
	rc := C.scaffe_irecv(c.c, rs.r, C.uint64_t(id), p, C.int64_t(n), C.int(from), C.int(tag))
	if rc != C.SCAFFE_OK {
		return failure(rc, "MPI_Irecv of %d bytes from rank %d, tag %d", n, from, tag)
	}
	return nil
}

// Ibarrier begins to wait until every rank of c has called it.
func (c *Comm) Ibarrier(rs *Requests, id uint64) error {
	return failure(C.scaffe_ibarrier(c.c, rs.r, C.uint64_t(id)), "MPI_Ibarrier")
}

// Requests is a set of operations under way, on any communicators. Beginning
// and testing them does not allocate once the set has grown to its largest.
type Requests struct {
	r    *C.scaffe_reqs
	next int // r.done[next:end] are still to be reported
	end  int
	n    *C.int
}

// NewRequests returns an empty set.
func (w *World) NewRequests() *Requests {
	return &Requests{r: C.scaffe_reqs_new(), n: (*C.int)(C.calloc(1, C.sizeof_int))}
}

// KeepCore says whether MPI is to keep the core where Testsome looks in vain. Otherwise Open MPI offers it at each such look where ranks share cores, and a
// rank that computes there keeps it for milliseconds: whoever looks again and again, and sleeps meanwhile, decides by itself.
func (rs *Requests) KeepCore(keep bool) {
	rs.r.keeps = 0
	if keep {
		rs.r.keeps = 1
	}
}

// Live returns how many operations are under way or still to be reported.
func (rs *Requests) Live() int { return int(rs.r.live) + rs.end - rs.next }

// Testsome advances MPI, stores requests that ended in done and returns how
// many. Each is reported once. An error means that the test itself failed; the
// failure of a single request is in its Done.
func (rs *Requests) Testsome(done []Done) (int, error) {
	if len(done) == 0 {
		return 0, nil
	}
	if rs.next == rs.end {
		rc := C.scaffe_testsome(rs.r, rs.n)
		if rc != C.SCAFFE_OK {
			return 0, failure(rc, "MPI_Testsome of %d requests", int(rs.r.live))
		}
		rs.next, rs.end = 0, int(*rs.n)
	}
	if rs.next == rs.end {
		return 0, nil
	}
	ended := unsafe.Slice(rs.r.done, rs.end)
	n := min(len(done), rs.end-rs.next)
	for i := range done[:n] {
		d := &ended[rs.next+i]
		done[i] = Done{ID: uint64(d.id), Bytes: int(d.bytes), Source: int(d.source), Tag: int(d.tag)}
		if d.error != C.SCAFFE_OK {
			done[i].Err = failure(d.error, "a request")
		}
	}
	rs.next += n
	return n, nil
}

// Cancel asks for the receive id to end. Testsome reports it with ErrCancelled,
// or as usual if the message arrived first.
func (rs *Requests) Cancel(id uint64) error {
	return failure(C.scaffe_cancel(rs.r, C.uint64_t(id)), "MPI_Cancel of request %d", id)
}

// Free frees the set. Receives under way are canceled; sends continue
// unobserved, so their memory must stay valid. A second call does nothing.
func (rs *Requests) Free() {
	if rs.r == nil {
		return
	}
	C.scaffe_reqs_free(rs.r)
	C.free(unsafe.Pointer(rs.n))
	rs.r, rs.n, rs.next, rs.end = nil, nil, 0, 0
}

// setLarge sets above how many bytes a message is sent as a derived datatype,
// and returns the previous limit. It is for tests.
func setLarge(n int) int {
	old := int(C.scaffe_large)
	C.scaffe_large = C.int64_t(n)
	return old
}
