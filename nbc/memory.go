package nbc

import (
	"context"
	"fmt"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
)

// openMemory finds out which memory besides the host's the engine's collectives may lie in.
func (e *Engine) openMemory() {
	a, _ := e.device.(Accelerator)
	c, _ := e.transport.(Carrier)
	if a == nil || c == nil || !c.Carries(a.Space()) {
		return
	}
	e.other, e.carrier = a, c
	e.scratch[1] = scratch{alloc: a.Alloc, give: a.Free}
}

// Serves reports whether buffers of collectives may lie in a memory: the device combines what lies there, and
// the transport carries it.
func (e *Engine) Serves(s mem.Space) bool {
	return s == mem.Host || e.other != nil && e.other.Space() == s
}

// Accelerator returns the device that has a memory of its own which the engine serves; nil where there is none.
func (e *Engine) Accelerator() Accelerator { return e.other }

// Alloc returns n zeroed bytes of the host memory that the transport moves best.
func (e *Engine) Alloc(n int) (mem.Buffer, error) {
	if a, ok := e.transport.(Allocator); ok && n > 0 {
		return a.Alloc(n)
	}
	return mem.TryAlloc(n)
}

// AllocIn returns n bytes of a memory that the engine serves: as Alloc does of the host's; of others the contents are undefined.
func (e *Engine) AllocIn(s mem.Space, n int) (mem.Buffer, error) {
	switch {
	case !e.Serves(s):
		return mem.Buffer{}, e.unserved(s)
	case s == mem.Host:
		return e.Alloc(n)
	case n == 0:
		return mem.Buffer{}, nil
	}
	return e.other.Alloc(n)
}

func (e *Engine) unserved(s mem.Space) error {
	return fmt.Errorf("nbc: %v memory is not served: the engine's device or its transport is for host memory alone", s)
}

// Free gives back what Alloc or AllocIn returned.
func (e *Engine) Free(b mem.Buffer) {
	a, ok := e.transport.(Allocator)
	switch {
	case b.Space() != mem.Host && e.other != nil:
		e.other.Free(b)
	case ok && b.Len() > 0:
		a.Free(b)
	default:
		b.Free()
	}
}

// scratchOf returns the scratch memory for collectives of a memory.
func (e *Engine) scratchOf(s mem.Space) *scratch {
	if s == mem.Host {
		return &e.scratch[0]
	}
	return &e.scratch[1]
}

// space returns the memory that the request's buffers lie in.
func (b *Binding) space() mem.Space {
	if b.In.Len() > 0 {
		return b.In.Space()
	}
	return b.Out.Space()
}

// Lander is implemented by a Transport that copies some of what is borrowed, and can do so to where the caller likes.
type Lander interface {
	// RecvBorrowTo is RecvBorrow of a message as long as dst, which is the caller's again once it has ended. The transport may
	// write there; where it has copied the message to dst, the completion's Data is that.
	RecvBorrowTo(tok Token, from int, tag Tag, dst mem.Buffer) error
}

// borrow begins to receive the message of op i of r, which is to be combined, or passed on. Where the sum goes elsewhere than where
// it was before, a message that is copied is best copied there: it is added in place then. One that is passed on goes to this rank's own place.
func (e *Engine) borrow(r *Request, i int32, tok Token, tag Tag) error {
	op := &r.plan.schedule.Ops[i]
	from, dst := r.peer(op.Peer), r.bytes(op.Dst)
	switch s := dst.Space(); {
	case s != mem.Host:
		return e.carrier.RecvBorrowIn(s, tok, from, tag, dst.Len())
	case e.lander != nil && (e.exec.relays(r, i) || op.Adds() && op.Src != op.Dst && r.plan.prev[i] < 0 && !r.inPlace):
		return e.lander.RecvBorrowTo(tok, from, tag, dst)
	}
	return e.transport.RecvBorrow(tok, from, tag, dst.Len())
}

// copyComm is the communicator of Copy's requests, which send nothing.
const copyComm = 1<<63 + 1<<62

// Copy makes dst hold what src does, and returns when it has been done. Either may lie in any memory that the engine serves, but
// not in the Go heap where the other is not host memory.
func (e *Engine) Copy(ctx context.Context, dst, src mem.Buffer) error {
	n := src.Len()
	if dst.Len() != n {
		return fmt.Errorf("nbc: copy of %d bytes to %d", n, dst.Len())
	}
	whole := schedule.Range{Len: n}
	plan, err := Compile(&schedule.Schedule{Size: 1, Count: n, Ops: []schedule.Op{
		{Kind: schedule.Copy, Peer: -1, Src: schedule.In.At(whole), Dst: schedule.Out.At(whole)},
	}})
	if err != nil || n == 0 {
		return err
	}
	r, err := e.Prepare(plan, Binding{
		Name: "copy", Call: "copy", In: src, Out: dst, Datatype: mem.Uint8, Comm: copyComm, Instance: e.copies.Add(1),
	})
	if err != nil {
		return err
	}
	defer r.Close()
	return r.Run(ctx)
}
