package mpi

import (
	"fmt"
	"math"

	"github.com/scaffe/scaffe/mem"
)

// verb is a collective of the library's own.
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

// types and operators are in the order of those of package mem; 0 is a type
// that MPI does not have.
var types = [...]int{
	mem.Float32: typeFloat, mem.Float64: typeDouble, mem.Int32: typeInt32, mem.Int64: typeInt64, mem.Uint8: typeUint8,
}

// How the C side knows the types.
const (
	typeFloat = 1 + iota
	typeDouble
	typeInt32
	typeInt64
	typeUint8
)

// check says what MPI's collectives cannot do.
func (c *Comm) check(v verb, nonblocking bool, count int, dt mem.Datatype, op mem.Op, root int) error {
	return c.Supports(v.name(nonblocking), count, dt, op, root)
}

// Supports returns what MPI's collectives cannot do with such a call, before
// it is made: f16 and bf16, more than 2³¹-1 elements, a root that there is not.
// call names it in the error, such as MPI_Ireduce. Any goroutine may call it.
func (c *Comm) Supports(call string, count int, dt mem.Datatype, op mem.Op, root int) error {
	refuse := func(class, format string, args ...any) error {
		return &Error{
			Op:    fmt.Sprintf("%s of %d elements of %s", call, count, dt),
			Class: class, Text: fmt.Sprintf(format, args...),
		}
	}
	switch {
	case int(dt) >= len(types) || types[dt] == 0:
		return refuse("TYPE", "MPI has no datatype for %s: use an algorithm of scaffe's own", dt)
	case !op.Valid():
		return refuse("OP", "unknown operator %v", op)
	case count < 0 || count > math.MaxInt32:
		return refuse("COUNT", "MPI's collectives count up to %d elements: divide the buffer, or use an algorithm of scaffe's own", math.MaxInt32)
	case root < 0 || root >= c.Size():
		return refuse("ROOT", "root %d is none of %d ranks", root, c.Size())
	}
	return nil
}
