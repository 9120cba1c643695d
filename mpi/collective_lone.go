//go:build !mpi

package mpi

import (
	"unsafe"

	"github.com/scaffe/scaffe/mem"
)

// Barrier returns when every rank of c has called it, which is at once.
func (c *Comm) Barrier() error { return nil }

// Reduce combines count elements at send of every rank into recv at root: with
// one rank it copies them, unless the two are the same memory.
func (c *Comm) Reduce(send, recv unsafe.Pointer, count int, dt mem.Datatype, op mem.Op, root int) error {
	return c.collective(reduce, nil, 0, send, recv, count, dt, op, root)
}

// Bcast copies count elements at p of root to p of every other rank.
func (c *Comm) Bcast(p unsafe.Pointer, count int, dt mem.Datatype, root int) error {
	return c.collective(bcast, nil, 0, p, p, count, dt, mem.Sum, root)
}

// Allreduce combines count elements at send of every rank into recv.
func (c *Comm) Allreduce(send, recv unsafe.Pointer, count int, dt mem.Datatype, op mem.Op) error {
	return c.collective(allreduce, nil, 0, send, recv, count, dt, op, 0)
}

// ReduceLocal would combine count elements at in into those at inout; without MPI
// it returns an error.
func (c *Comm) ReduceLocal(_, _ unsafe.Pointer, count int, dt mem.Datatype, op mem.Op) error {
	if err := c.check(reduceLocal, false, count, dt, op, 0); err != nil {
		return err
	}
	return errLone
}

var errLone error = &Error{Op: "MPI_Reduce_local", Class: "UNSUPPORTED_OPERATION", Text: "the program was built without MPI"}

// Ireduce begins a Reduce.
func (c *Comm) Ireduce(rs *Requests, id uint64, send, recv unsafe.Pointer, count int, dt mem.Datatype, op mem.Op, root int) error {
	return c.collective(reduce, rs, id, send, recv, count, dt, op, root)
}

// Ibcast begins a Bcast.
func (c *Comm) Ibcast(rs *Requests, id uint64, p unsafe.Pointer, count int, dt mem.Datatype, root int) error {
	return c.collective(bcast, rs, id, p, p, count, dt, mem.Sum, root)
}

// Iallreduce begins an Allreduce.
func (c *Comm) Iallreduce(rs *Requests, id uint64, send, recv unsafe.Pointer, count int, dt mem.Datatype, op mem.Op) error {
	return c.collective(allreduce, rs, id, send, recv, count, dt, op, 0)
}

func (c *Comm) collective(v verb, rs *Requests, id uint64, send, recv unsafe.Pointer, count int, dt mem.Datatype, op mem.Op, root int) error {
	if err := c.check(v, rs != nil, count, dt, op, root); err != nil {
		return err
	}
	if send != recv && count > 0 {
		n := dt.Bytes(count)
		copy(unsafe.Slice((*byte)(recv), n), unsafe.Slice((*byte)(send), n))
	}
	if rs != nil {
		rs.live++
		rs.ended = append(rs.ended, Done{ID: id})
	}
	return nil
}
