//go:build !mpi

package mpi

import (
	"fmt"
	"os"
	"slices"
	"unsafe"
)

func built() string { return "" }

var loneStarted bool

func start() (*World, error) {
	l := DetectLauncher()
	if err := checkLauncher(l, ""); err != nil {
		return nil, err
	}
	if loneStarted {
		return nil, ErrStarted
	}
	loneStarted = true
	return &World{
		size: 1, library: "none (built without MPI)", level: "single", tagUB: 1<<31 - 1, cuda: No,
		nodes: newNodes([]place{hereWith(0)}, 0), launcher: l, comm: &Comm{box: &mailbox{}},
	}, nil
}

func attach(unsafe.Pointer) (*World, error) {
	return nil, fmt.Errorf("mpi: built without MPI, so there is none to attach to: build it with scripts/with-mpi")
}

func onThread(string) error { return nil }

func moveThread() bool { return true }

// Barrier returns when every rank has called it, which is at once.
func (w *World) Barrier() error { return nil }

func (w *World) finalize() error { return nil }

// Kill ends this process with status code, 1 for 0. It does not return.
func (w *World) Kill(code int) {
	if code == 0 {
		code = 1
	}
	os.Exit(code)
}

// Comm is a communicator of one rank.
type Comm struct{ box *mailbox }

// mailbox holds the operations on a communicator that have not been matched yet.
type mailbox struct{ sends, recvs []posted }

type posted struct {
	rs   *Requests
	id   uint64
	data []byte
	tag  int
}

// Rank returns 0.
func (c *Comm) Rank() int { return 0 }

// Size returns 1.
func (c *Comm) Size() int { return 1 }

// Dup returns a communicator whose messages do not match those of c.
func (c *Comm) Dup() (*Comm, error) { return &Comm{box: &mailbox{}}, nil }

// Split returns a communicator of the ranks that gave the same color; nil for
// a negative one.
func (c *Comm) Split(color, _ int) (*Comm, error) {
	if color < 0 {
		return nil, nil
	}
	return c.Dup()
}

// Free frees c.
func (c *Comm) Free() error { return nil }

func rankError(op string, rank int) error {
	return &Error{Op: op, Class: "RANK", Code: 6, Text: fmt.Sprintf("no rank %d: the world has one rank (the program was built without MPI)", rank)}
}

// Isend begins to send n bytes at p to rank to. p must stay valid and
// unchanged until Testsome reports id.
func (c *Comm) Isend(rs *Requests, id uint64, p unsafe.Pointer, n, to, tag int) error {
	if to != 0 {
		return rankError("Isend", to)
	}
	s := posted{rs, id, unsafe.Slice((*byte)(p), n), tag}
	c.box.sends, c.box.recvs = meet(s, c.box.sends, c.box.recvs, deliver)
	rs.live++
	return nil
}

// IsendTest is Isend, and reports whether the message has left: not before it is
// received here.
func (c *Comm) IsendTest(rs *Requests, id uint64, p unsafe.Pointer, n, to, tag int) (ended bool, err error) {
	return false, c.Isend(rs, id, p, n, to, tag)
}

// Issend is Isend, but ends only when the receiver has begun to receive. With one
// rank Isend does so too.
func (c *Comm) Issend(rs *Requests, id uint64, p unsafe.Pointer, n, to, tag int) error {
	return c.Isend(rs, id, p, n, to, tag)
}

// Irecv begins to receive up to n bytes at p from rank from, or AnySource.
func (c *Comm) Irecv(rs *Requests, id uint64, p unsafe.Pointer, n, from, tag int) error {
	if from != 0 && from != AnySource {
		return rankError("Irecv", from)
	}
	r := posted{rs, id, unsafe.Slice((*byte)(p), n), tag}
	c.box.recvs, c.box.sends = meet(r, c.box.recvs, c.box.sends, func(r, s posted) { deliver(s, r) })
	rs.live++
	if !slices.Contains(rs.waiting, c.box) {
		rs.waiting = append(rs.waiting, c.box)
	}
	return nil
}

// meet matches p with the first of others that has its tag, or adds it to own.
func meet(p posted, own, others []posted, with func(p, other posted)) (ownNow, othersNow []posted) {
	for i, o := range others {
		if o.tag == p.tag {
			with(p, o)
			return own, slices.Delete(others, i, i+1)
		}
	}
	return append(own, p), others
}

// deliver copies what s sends to the memory of r and ends both.
func deliver(s, r posted) {
	n := copy(r.data, s.data)
	d := Done{ID: r.id, Bytes: n, Tag: r.tag}
	if n < len(s.data) {
		d.Err = &Error{
			Op: "Irecv", Class: "TRUNCATE", Code: 15,
			Text: fmt.Sprintf("a message of %d bytes was received into %d bytes of memory", len(s.data), len(r.data)),
		}
	}
	s.rs.ended = append(s.rs.ended, Done{ID: s.id})
	r.rs.ended = append(r.rs.ended, d)
}

// Ibarrier begins to wait until every rank of c has called it.
func (c *Comm) Ibarrier(rs *Requests, id uint64) error {
	rs.live++
	rs.ended = append(rs.ended, Done{ID: id})
	return nil
}

// Requests is a set of operations under way, of any communicators.
type Requests struct {
	live    int
	ended   []Done
	waiting []*mailbox // that may hold receives of this set
}

// NewRequests returns an empty set.
func (w *World) NewRequests() *Requests { return &Requests{} }

// KeepCore changes nothing here: nobody is waited for.
func (rs *Requests) KeepCore(bool) {}

// Live returns how many operations are under way or still to be reported.
func (rs *Requests) Live() int { return rs.live }

// Testsome stores requests that ended in done and returns how many.
func (rs *Requests) Testsome(done []Done) (int, error) {
	n := copy(done, rs.ended)
	rs.ended = slices.Delete(rs.ended, 0, n)
	rs.live -= n
	return n, nil
}

// Cancel asks for the receive id to end. Testsome reports it with ErrCancelled,
// or as usual if the message arrived first.
func (rs *Requests) Cancel(id uint64) error {
	for _, box := range rs.waiting {
		for i, r := range box.recvs {
			if r.rs == rs && r.id == id {
				box.recvs = slices.Delete(box.recvs, i, i+1)
				rs.ended = append(rs.ended, Done{ID: id, Err: ErrCancelled})
				return nil
			}
		}
	}
	return &Error{Op: fmt.Sprintf("Cancel of request %d", id), Class: "REQUEST", Text: "no such request is under way"}
}

// Free frees the set; receives under way are dropped.
func (rs *Requests) Free() {
	mine := func(r posted) bool { return r.rs == rs }
	for _, box := range rs.waiting {
		box.recvs = slices.DeleteFunc(box.recvs, mine)
	}
	*rs = Requests{}
}

func setLarge(n int) int { return n }
