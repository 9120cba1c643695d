package overmpi

import (
	"fmt"
	"runtime"
	"slices"

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

	parts mpi.Parts // of a collective of parts
	// A reduce-scatter whose result replaces a part of what is sent, as MPI's do not have it, is
	// received apart, and then copied to into.
	apart []byte
	into  mem.Buffer
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
	c = t.library.calls[i].c
	if c.Blocking {
		err := t.callLibrary(c, t.library.calls[i].parts)
		if err == nil {
			t.library.calls[i].replace()
			t.ended = append(t.ended, nbc.Completion{Token: tok})
		}
		t.dropLibrary(i)
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
	case schedule.ReduceScatter:
		return t.data.ReduceScatter(send, recv, parts, c.Datatype, c.Op)
	case schedule.Alltoall:
		return t.data.Alltoall(send, recv, c.Count, c.Datatype)
	case schedule.Gather:
		return t.data.Gather(send, recv, parts, c.Datatype, c.Root)
	case schedule.Scatter:
		return t.data.Scatter(send, recv, parts, c.Datatype, c.Root)
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
	names := [...]string{
		schedule.Reduce: "MPI_Ireduce", schedule.Bcast: "MPI_Ibcast", schedule.Allreduce: "MPI_Iallreduce", schedule.Allgather: "MPI_Iallgatherv",
		schedule.ReduceScatter: "MPI_Ireduce_scatter", schedule.Alltoall: "MPI_Ialltoall", schedule.Gather: "MPI_Igatherv", schedule.Scatter: "MPI_Iscatterv",
	}
	if c.Blocking {
		names = [...]string{
			schedule.Reduce: "MPI_Reduce", schedule.Bcast: "MPI_Bcast", schedule.Allreduce: "MPI_Allreduce", schedule.Allgather: "MPI_Allgatherv",
			schedule.ReduceScatter: "MPI_Reduce_scatter", schedule.Alltoall: "MPI_Alltoall", schedule.Gather: "MPI_Gatherv", schedule.Scatter: "MPI_Scatterv",
		}
	}
	if int(c.Collective) >= len(names) || names[c.Collective] == "" {
		return fmt.Errorf("overmpi: unknown collective %d of the library", c.Collective)
	}
	if err := t.data.Supports(names[c.Collective], c.Count, c.Datatype, c.Op, c.Root); err != nil {
		return wrapLibrary(err)
	}
	gives, gets, part := c.Count, c.Count, c.Count/t.Size()
	if c.Counts != nil {
		part = c.Counts[t.Rank()]
	}
	if c.Collective.Gathers() {
		gives = part
	} else if c.Collective.Parts() {
		gets = part
	}
	root := c.Root == t.Rank()
	for _, b := range []struct {
		mem.Buffer
		name  string
		used  bool
		count int
	}{
		{c.Send, "send", c.Collective != schedule.Bcast && (c.Collective != schedule.Scatter || root), gives},
		{c.Recv, "receive", c.Collective != schedule.Reduce && c.Collective != schedule.Gather || root, gets},
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
	case schedule.ReduceScatter:
		return t.data.IreduceScatter(t.reqs, id, send, recv, parts, c.Datatype, c.Op)
	case schedule.Alltoall:
		return t.data.Ialltoall(t.reqs, id, send, recv, c.Count, c.Datatype)
	case schedule.Gather:
		return t.data.Igather(t.reqs, id, send, recv, parts, c.Datatype, c.Root)
	case schedule.Scatter:
		return t.data.Iscatter(t.reqs, id, send, recv, parts, c.Datatype, c.Root)
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
	p.tok = tok
	if c.Collective == schedule.ReduceScatter && c.Send.Overlaps(c.Recv) {
		p.into = c.Recv
		p.apart = slices.Grow(p.apart[:0], p.into.Len())[:p.into.Len()]
		c.Recv = mem.Of(p.apart)
	}
	p.c = c
	for _, b := range []mem.Buffer{c.Send, c.Recv} {
		if b.OnGoHeap() && b.Len() > 0 {
			p.pin.Pin(b.Pointer())
		}
	}
	if c.Collective.Parts() {
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
	p.c, p.into = nbc.LibraryCall{}, mem.Buffer{}
	t.library.unused = append(t.library.unused, i)
	t.active--
	t.small--
}

// replace copies what was received apart to where it belongs.
func (p *libraryCall) replace() { copy(mem.Bytes(p.into), p.apart) }

// settleLibrary takes a finished call.
func (t *Transport) settleLibrary(i uint64, d mpi.Done) {
	if d.Err == nil {
		t.library.calls[i].replace()
	}
	t.ended = append(t.ended, nbc.Completion{Token: t.library.calls[i].tok, Err: wrapLibrary(d.Err)})
	t.dropLibrary(i)
}
