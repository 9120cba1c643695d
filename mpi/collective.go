package mpi

import (
	"fmt"
	"math"

	"github.com/scaffe/scaffe/mem"
)

// verb is a collective of the MPI library.
type verb int

const (
	reduce verb = iota
	bcast
	allreduce
	reduceLocal
)

// name returns the MPI name of v, of its non-blocking form where rs says so.
func (v verb) name(nonblocking bool) string {
	if nonblocking {
		return [...]string{"MPI_Ireduce", "MPI_Ibcast", "MPI_Iallreduce"}[v]
	}
	return [...]string{"MPI_Reduce", "MPI_Bcast", "MPI_Allreduce", "MPI_Reduce_local"}[v]
}

// types are the numbers by which the C side knows package mem's datatypes; 0 is a
// type that MPI does not have.
var types = [...]int{
	mem.Float32: typeFloat, mem.Float64: typeDouble, mem.Int32: typeInt32, mem.Int64: typeInt64, mem.Uint8: typeUint8,
}

// The values of types, as in collectives.c.
const (
	typeFloat = 1 + iota
	typeDouble
	typeInt32
	typeInt64
	typeUint8
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
	case count < 0 || count > math.MaxInt32:
		return refuse("COUNT", "MPI's collectives take at most %d elements: split the buffer, or use one of scaffe's own algorithms", math.MaxInt32)
	case root < 0 || root >= c.Size():
		return refuse("ROOT", "root must be at least 0 and less than the number of ranks (got %d of %d)", root, c.Size())
	}
	return nil
}
