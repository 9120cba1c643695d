package mpi

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/scaffe/scaffe/mem"
)

// verb is a collective of the MPI library.
type verb int

const (
	reduce verb = iota
	bcast
	allreduce
	reduceLocal
	barrier
	allgather
	reduceScatter
	alltoall
	gather
	scatter
)

// name returns the MPI name of v, of its non-blocking form where rs says so.
func (v verb) name(nonblocking bool) string {
	if nonblocking {
		return [...]string{"MPI_Ireduce", "MPI_Ibcast", "MPI_Iallreduce", "", "MPI_Ibarrier", "MPI_Iallgatherv", "MPI_Ireduce_scatter", "MPI_Ialltoall", "MPI_Igatherv", "MPI_Iscatterv"}[v]
	}
	return [...]string{"MPI_Reduce", "MPI_Bcast", "MPI_Allreduce", "MPI_Reduce_local", "MPI_Barrier", "MPI_Allgatherv", "MPI_Reduce_scatter", "MPI_Alltoall", "MPI_Gatherv", "MPI_Scatterv"}[v]
}

// types are the numbers by which the C side knows package mem's datatypes; 0 is a
// type that MPI does not have.
var types = [...]int{
	mem.Float32: typeFloat, mem.Float64: typeDouble, mem.Int32: typeInt32, mem.Int64: typeInt64, mem.Uint8: typeUint8,
	mem.Int8: typeInt8, mem.Int16: typeInt16, mem.Uint16: typeUint16, mem.Uint32: typeUint32, mem.Uint64: typeUint64,
}

// The values of types, as in collectives.c.
const (
	typeFloat = 1 + iota
	typeDouble
	typeInt32
	typeInt64
	typeUint8
	typeInt8
	typeInt16
	typeUint16
	typeUint32
	typeUint64
)

// check refuses what MPI's collectives cannot do.
func (c *Comm) check(v verb, nonblocking bool, count int, dt mem.Datatype, op mem.Op, root int) error {
	return c.Supports(v.name(nonblocking), count, dt, op, root)
}

// Supports returns an error if MPI's collectives cannot do such a call: f16 and
// bf16, more than 2³¹-1 elements, a root outside the communicator. call names it
// in the error, such as MPI_Ireduce. It may be called from any goroutine.
func (c *Comm) Supports(call string, count int, dt mem.Datatype, op mem.Op, root int) error {
	refuse := func(class, format string, args ...any) error {
		return &Error{
			Op:    fmt.Sprintf("%s of %d elements of %s", call, count, dt),
			Class: class, Text: fmt.Sprintf(format, args...),
		}
	}
	switch {
	case int(dt) >= len(types) || types[dt] == 0:
		return refuse("TYPE", "MPI has no datatype for %s: use one of scaffe's own algorithms", dt)
	case !op.Valid():
		return refuse("OP", "unknown operator %v", op)
	case !op.Combines(dt):
		return refuse("OP", "operator %v combines integers alone", op)
	case count < 0 || count > math.MaxInt32:
		return refuse("COUNT", "MPI's collectives take at most %d elements: split the buffer, or use one of scaffe's own algorithms", math.MaxInt32)
	case root < 0 || root >= c.Size():
		return refuse("ROOT", "root must be at least 0 and less than the number of ranks (got %d of %d)", root, c.Size())
	}
	return nil
}

// Timer times the library's collectives as a benchmark in C does: in a loop in C,
// with two readings of the monotonic clock around each execution. The fields may be
// changed between calls.
type Timer struct {
	Comm        *Comm
	Nonblocking bool // MPI_I… and MPI_Wait in place of the blocking form
	Barrier     bool // MPI_Barrier before each execution, outside its time
}

// Time returns what times the collectives of c.
func (c *Comm) Time() Timer { return Timer{Comm: c} }

// Reduce executes Comm.Reduce len(took) times, with the same arguments, and stores
// how long each took on this rank, in microseconds.
func (t Timer) Reduce(took []float64, send, recv unsafe.Pointer, count int, dt mem.Datatype, op mem.Op, root int) error {
	return t.run(took, reduce, send, recv, count, dt, op, root, Parts{})
}

// Bcast times Comm.Bcast, as Reduce does Comm.Reduce.
func (t Timer) Bcast(took []float64, p unsafe.Pointer, count int, dt mem.Datatype, root int) error {
	return t.run(took, bcast, p, p, count, dt, mem.Sum, root, Parts{})
}

// Allreduce times Comm.Allreduce, as Reduce does Comm.Reduce.
func (t Timer) Allreduce(took []float64, send, recv unsafe.Pointer, count int, dt mem.Datatype, op mem.Op) error {
	return t.run(took, allreduce, send, recv, count, dt, op, 0, Parts{})
}

// Allgather times Comm.Allgather, as Reduce does Comm.Reduce.
func (t Timer) Allgather(took []float64, send, recv unsafe.Pointer, parts Parts, dt mem.Datatype) error {
	return t.run(took, allgather, send, recv, parts.all, dt, mem.Sum, 0, parts)
}

// ReduceScatter times Comm.ReduceScatter, as Reduce does Comm.Reduce.
func (t Timer) ReduceScatter(took []float64, send, recv unsafe.Pointer, parts Parts, dt mem.Datatype, op mem.Op) error {
	return t.run(took, reduceScatter, send, recv, parts.all, dt, op, 0, parts)
}

// Alltoall times Comm.Alltoall, as Reduce does Comm.Reduce.
func (t Timer) Alltoall(took []float64, send, recv unsafe.Pointer, count int, dt mem.Datatype) error {
	return t.run(took, alltoall, send, recv, count, dt, mem.Sum, 0, Parts{})
}

// Gather times Comm.Gather, as Reduce does Comm.Reduce.
func (t Timer) Gather(took []float64, send, recv unsafe.Pointer, parts Parts, dt mem.Datatype, root int) error {
	return t.run(took, gather, send, recv, parts.all, dt, mem.Sum, root, parts)
}

// Scatter times Comm.Scatter, as Reduce does Comm.Reduce.
func (t Timer) Scatter(took []float64, send, recv unsafe.Pointer, parts Parts, dt mem.Datatype, root int) error {
	return t.run(took, scatter, send, recv, parts.all, dt, mem.Sum, root, parts)
}

// Meet times Comm.Barrier, as Reduce does Comm.Reduce.
func (t Timer) Meet(took []float64) error {
	return t.run(took, barrier, nil, nil, 0, mem.Uint8, mem.Sum, 0, Parts{})
}

func (t Timer) run(took []float64, v verb, send, recv unsafe.Pointer, count int, dt mem.Datatype, op mem.Op, root int, parts Parts) error {
	if err := t.Comm.check(v, t.Nonblocking, count, dt, op, root); err != nil || len(took) == 0 {
		return err
	}
	return t.loop(took, v, send, recv, count, dt, op, root, parts)
}

// Parts are how many elements every rank has in an allgather, a gather, a scatter or a reduce-scatter, and where they lie
// in the buffer of all: one after the other.
type Parts struct {
	all  int
	each int     // elements of every rank, where list is empty
	list []int32 // otherwise the ranks' counts, and then their offsets
}

// PartsOf returns the parts of size ranks whose counts are given; nil: equal ones of all
// elements. Their sum must be all, and at most what MPI's collectives take (Supports).
// The memory of old is used again.
func PartsOf(old Parts, all, size int, counts []int) Parts {
	p := Parts{all: all, each: all / size, list: old.list[:0]}
	if counts == nil {
		return p
	}
	for _, n := range counts {
		p.list = append(p.list, int32(n))
	}
	off := int32(0)
	for _, n := range p.list[:size] {
		p.list = append(p.list, off)
		off += n
	}
	return p
}

// Memory returns what MPI reads until the collective has ended, nil for nothing. In the Go
// heap, where it lies, it must be pinned for as long.
func (p Parts) Memory() unsafe.Pointer {
	if len(p.list) == 0 {
		return nil
	}
	return unsafe.Pointer(&p.list[0])
}

// of returns a rank's count and offset.
func (p Parts) of(rank int) (count, off int) {
	if len(p.list) == 0 {
		return p.each, p.each * rank
	}
	return int(p.list[rank]), int(p.list[len(p.list)/2+rank])
}
