//go:build mpi

package mpi

/*
#include "shim.h"
*/
import "C"

import (
	"unsafe"

	"github.com/scaffe/scaffe/mem"
)

// Barrier blocks, polling, until every rank of c has called it. The wait has no
// time limit.
func (c *Comm) Barrier() error {
	return failure(C.scaffe_barrier(c.c), "MPI_Barrier")
}

// Reduce combines count elements at send of every rank into recv at root,
// which may be send (in place); recv is used at root only. It blocks, without a
// time limit.
//
// Float16 and BFloat16, which MPI does not have, and more than 2³¹-1 elements are
// refused.
func (c *Comm) Reduce(send, recv unsafe.Pointer, count int, dt mem.Datatype, op mem.Op, root int) error {
	return c.collective(reduce, nil, 0, send, recv, count, dt, op, root)
}

// Bcast copies count elements at p of root to p of every other rank,
// otherwise like Reduce.
func (c *Comm) Bcast(p unsafe.Pointer, count int, dt mem.Datatype, root int) error {
	return c.collective(bcast, nil, 0, nil, p, count, dt, mem.Sum, root)
}

// Allreduce combines count elements at send of every rank into recv at every
// rank, otherwise like Reduce.
func (c *Comm) Allreduce(send, recv unsafe.Pointer, count int, dt mem.Datatype, op mem.Op) error {
	return c.collective(allreduce, nil, 0, send, recv, count, dt, op, 0)
}

// ReduceLocal combines count elements at in into those at inout, without any
// communication: MPI_Reduce_local.
func (c *Comm) ReduceLocal(in, inout unsafe.Pointer, count int, dt mem.Datatype, op mem.Op) error {
	if err := c.check(reduceLocal, false, count, dt, op, 0); err != nil {
		return err
	}
	return failure(C.scaffe_reduce_local(in, inout, C.int(count), C.int(types[dt]), C.int(op)), "MPI_Reduce_local of %d elements of %s", count, dt)
}

// Ireduce begins a Reduce. The memory must stay valid, and pinned where it
// lies in the Go heap, until Testsome reports id.
func (c *Comm) Ireduce(rs *Requests, id uint64, send, recv unsafe.Pointer, count int, dt mem.Datatype, op mem.Op, root int) error {
	return c.collective(reduce, rs, id, send, recv, count, dt, op, root)
}

// Ibcast begins a Bcast, like Ireduce.
func (c *Comm) Ibcast(rs *Requests, id uint64, p unsafe.Pointer, count int, dt mem.Datatype, root int) error {
	return c.collective(bcast, rs, id, nil, p, count, dt, mem.Sum, root)
}

// Iallreduce begins an Allreduce, like Ireduce.
func (c *Comm) Iallreduce(rs *Requests, id uint64, send, recv unsafe.Pointer, count int, dt mem.Datatype, op mem.Op) error {
	return c.collective(allreduce, rs, id, send, recv, count, dt, op, 0)
}

func (c *Comm) collective(v verb, rs *Requests, id uint64, send, recv unsafe.Pointer, count int, dt mem.Datatype, op mem.Op, root int) error {
	if err := c.check(v, rs != nil, count, dt, op, root); err != nil {
		return err
	}
	var set *C.scaffe_reqs
	if rs != nil {
		set = rs.r
	}
	inPlace := C.int(0)
	if v != bcast && send == recv && (v == allreduce || c.rank == root) {
		inPlace = 1
	}
	rc := C.scaffe_collective(c.c, set, C.uint64_t(id), C.int(v), send, recv, inPlace, C.int(count), C.int(types[dt]), C.int(op), C.int(root))
	if rc != C.SCAFFE_OK {
		return failure(rc, "%s of %d elements of %s", v.name(rs != nil), count, dt)
	}
	return nil
}
