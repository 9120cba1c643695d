package overmpi

import (
	"fmt"
	"runtime"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/mpi"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/schedule"
)

// library holds the collectives of the MPI library that are under way.
type library struct {
	calls  []*libraryCall
	unused []uint64 // indexes into calls
}

type libraryCall struct {
	tok nbc.Token
	pin runtime.Pinner
	c   nbc.LibraryCall

	parts mpi.Parts // of an allgather
}

var _ nbc.Library = (*Transport)(nil)

// Begin begins a collective of the MPI library's own on all ranks. Buffers in
// the Go heap are pinned until it ends.
func (t *Transport) Begin(tok nbc.Token, c nbc.LibraryCall) error {
	if t.fault != nil {
		return t.fault
	}
	if t.over.Load() {
		return ErrClosed
	}
	i := t.addLibrary(tok, c)
	if c.Blocking {
		err := t.callLibrary(c, t.library.calls[i].parts)
		t.dropLibrary(i)
		if err == nil {
			t.ended = append(t.ended, nbc.Completion{Token: tok})
		}
		return wrapLibrary(err)
	}
	if err := t.beginLibrary(forLibrary|i, c, t.library.calls[i].parts); err != nil {
		t.dropLibrary(i)
		return wrapLibrary(err)
	}
	t.rest.stir()
	return nil
}

// callLibrary makes a blocking call of the library.
func (t *Transport) callLibrary(c nbc.LibraryCall, parts mpi.Parts) error {
	send, recv := c.Send.Pointer(), c.Recv.Pointer()
	switch c.Collective {
	case schedule.Reduce:
		return t.data.Reduce(send, recv, c.Count, c.Datatype, c.Op, c.Root)
	case schedule.Bcast:
		return t.data.Bcast(recv, c.Count, c.Datatype, c.Root)
	case schedule.Allreduce:
		return t.data.Allreduce(send, recv, c.Count, c.Datatype, c.Op)
	case schedule.Allgather:
		return t.data.Allgather(send, recv, parts, c.Datatype)
	}
	return fmt.Errorf("unknown collective %d of the library", c.Collective)
}

func wrapLibrary(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("overmpi: %w", err)
}

// Supports returns what the library cannot do with c. Device memory it never
// gets: reductions of it crash or crawl, whatever the library says of itself.
func (t *Transport) Supports(c nbc.LibraryCall) error {
	names := [...]string{schedule.Reduce: "MPI_Ireduce", schedule.Bcast: "MPI_Ibcast", schedule.Allreduce: "MPI_Iallreduce", schedule.Allgather: "MPI_Iallgatherv"}
	if c.Blocking {
		names = [...]string{schedule.Reduce: "MPI_Reduce", schedule.Bcast: "MPI_Bcast", schedule.Allreduce: "MPI_Allreduce", schedule.Allgather: "MPI_Allgatherv"}
	}
	if int(c.Collective) >= len(names) {
		return fmt.Errorf("overmpi: unknown collective %d of the library", c.Collective)
	}
	if err := t.data.Supports(names[c.Collective], c.Count, c.Datatype, c.Op, c.Root); err != nil {
		return wrapLibrary(err)
	}
	gives := c.Count
	switch {
	case c.Collective == schedule.Allgather && c.Counts != nil:
		gives = c.Counts[t.Rank()]
	case c.Collective == schedule.Allgather:
		gives /= t.Size()
	}
	for _, b := range []struct {
		mem.Buffer
		name  string
		used  bool
		count int
	}{
		{c.Send, "send", c.Collective != schedule.Bcast, gives},
		{c.Recv, "receive", c.Collective != schedule.Reduce || c.Root == t.Rank(), c.Count},
	} {
		need := c.Datatype.Bytes(b.count)
		switch {
		case b.used && b.Space() != mem.Host:
			return fmt.Errorf("overmpi: %s's own collectives are not used on %s memory: use an algorithm of scaffe's own", t.world.Library(), b.Space())
		case b.used && b.Len() < need:
			return fmt.Errorf("overmpi: the %s buffer has %d bytes, %d %s need %d", b.name, b.Len(), b.count, c.Datatype, need)
		}
	}
	return nil
}

func (t *Transport) beginLibrary(id uint64, c nbc.LibraryCall, parts mpi.Parts) error {
	send, recv := c.Send.Pointer(), c.Recv.Pointer()
	switch c.Collective {
	case schedule.Reduce:
		return t.data.Ireduce(t.reqs, id, send, recv, c.Count, c.Datatype, c.Op, c.Root)
	case schedule.Bcast:
		return t.data.Ibcast(t.reqs, id, recv, c.Count, c.Datatype, c.Root)
	case schedule.Allreduce:
		return t.data.Iallreduce(t.reqs, id, send, recv, c.Count, c.Datatype, c.Op)
	case schedule.Allgather:
		return t.data.Iallgather(t.reqs, id, send, recv, parts, c.Datatype)
	}
	return fmt.Errorf("unknown collective %d of the library", c.Collective)
}

// addLibrary notes a call and returns its index.
func (t *Transport) addLibrary(tok nbc.Token, c nbc.LibraryCall) uint64 {
	l := &t.library
	if len(l.unused) == 0 {
		l.unused = append(l.unused, uint64(len(l.calls)))
		l.calls = append(l.calls, &libraryCall{})
	}
	i := l.unused[len(l.unused)-1]
	l.unused = l.unused[:len(l.unused)-1]
	p := l.calls[i]
	p.tok, p.c = tok, c
	for _, b := range []mem.Buffer{c.Send, c.Recv} {
		if b.OnGoHeap() && b.Len() > 0 {
			p.pin.Pin(b.Pointer())
		}
	}
	if c.Collective == schedule.Allgather {
		p.parts = mpi.PartsOf(p.parts, c.Count, t.Size(), c.Counts)
		if at := p.parts.Memory(); at != nil {
			p.pin.Pin(at)
		}
	}
	t.active++
	t.small++
	return i
}

// dropLibrary forgets call i.
func (t *Transport) dropLibrary(i uint64) {
	p := t.library.calls[i]
	p.pin.Unpin()
	p.c = nbc.LibraryCall{}
	t.library.unused = append(t.library.unused, i)
	t.active--
	t.small--
}

// settleLibrary takes a finished call.
func (t *Transport) settleLibrary(i uint64, d mpi.Done) {
	t.ended = append(t.ended, nbc.Completion{Token: t.library.calls[i].tok, Err: wrapLibrary(d.Err)})
	t.dropLibrary(i)
}
