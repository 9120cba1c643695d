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
	return c.collective(reduce, nil, 0, send, recv, count, dt, op, root, Parts{})
}

// Bcast copies count elements at p of root to p of every other rank,
// otherwise like Reduce.
func (c *Comm) Bcast(p unsafe.Pointer, count int, dt mem.Datatype, root int) error {
	return c.collective(bcast, nil, 0, nil, p, count, dt, mem.Sum, root, Parts{})
}

// Allreduce combines count elements at send of every rank into recv at every
// rank, otherwise like Reduce.
func (c *Comm) Allreduce(send, recv unsafe.Pointer, count int, dt mem.Datatype, op mem.Op) error {
	return c.collective(allreduce, nil, 0, send, recv, count, dt, op, 0, Parts{})
}

// Allgather copies every rank's part, at send, to recv of every rank, one part after the
// other; send may be this rank's part of recv (in place). Otherwise it is like Reduce.
// Equal parts are left to MPI_Allgather, others to MPI_Allgatherv.
func (c *Comm) Allgather(send, recv unsafe.Pointer, parts Parts, dt mem.Datatype) error {
	return c.collective(allgather, nil, 0, send, recv, parts.all, dt, mem.Sum, 0, parts)
}

// ReduceScatter combines all ranks' elements at send, and stores at recv this rank's part of
// the result; the two must not overlap. Otherwise it is like Reduce. Equal parts are left to
// MPI_Reduce_scatter_block, others to MPI_Reduce_scatter.
func (c *Comm) ReduceScatter(send, recv unsafe.Pointer, parts Parts, dt mem.Datatype, op mem.Op) error {
	return c.collective(reduceScatter, nil, 0, send, recv, parts.all, dt, op, 0, parts)
}

// Alltoall copies block k of count elements at send of every rank to recv of rank k, one block after the other;
// the ranks must divide count, and the two not overlap. Otherwise it is like Reduce.
func (c *Comm) Alltoall(send, recv unsafe.Pointer, count int, dt mem.Datatype) error {
	return c.collective(alltoall, nil, 0, send, recv, count, dt, mem.Sum, 0, Parts{})
}

// Gather copies every rank's part, at send, to recv of root, one part after the other; send of root may be its part of
// recv (in place). Otherwise it is like Reduce. Equal parts are left to MPI_Gather, others to MPI_Gatherv.
func (c *Comm) Gather(send, recv unsafe.Pointer, parts Parts, dt mem.Datatype, root int) error {
	return c.collective(gather, nil, 0, send, recv, parts.all, dt, mem.Sum, root, parts)
}

// Scatter copies every rank's part at send of root to recv of that rank; recv of root may be its part of send (in
// place). Otherwise it is like Reduce. Equal parts are left to MPI_Scatter, others to MPI_Scatterv.
func (c *Comm) Scatter(send, recv unsafe.Pointer, parts Parts, dt mem.Datatype, root int) error {
	return c.collective(scatter, nil, 0, send, recv, parts.all, dt, mem.Sum, root, parts)
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
	return c.collective(reduce, rs, id, send, recv, count, dt, op, root, Parts{})
}

// Ibcast begins a Bcast, like Ireduce.
func (c *Comm) Ibcast(rs *Requests, id uint64, p unsafe.Pointer, count int, dt mem.Datatype, root int) error {
	return c.collective(bcast, rs, id, nil, p, count, dt, mem.Sum, root, Parts{})
}

// Iallreduce begins an Allreduce, like Ireduce.
func (c *Comm) Iallreduce(rs *Requests, id uint64, send, recv unsafe.Pointer, count int, dt mem.Datatype, op mem.Op) error {
	return c.collective(allreduce, rs, id, send, recv, count, dt, op, 0, Parts{})
}

// Iallgather begins an Allgather, like Ireduce; so must parts' Memory.
func (c *Comm) Iallgather(rs *Requests, id uint64, send, recv unsafe.Pointer, parts Parts, dt mem.Datatype) error {
	return c.collective(allgather, rs, id, send, recv, parts.all, dt, mem.Sum, 0, parts)
}

// IreduceScatter begins a ReduceScatter, like Ireduce; so must parts' Memory.
func (c *Comm) IreduceScatter(rs *Requests, id uint64, send, recv unsafe.Pointer, parts Parts, dt mem.Datatype, op mem.Op) error {
	return c.collective(reduceScatter, rs, id, send, recv, parts.all, dt, op, 0, parts)
}

// Ialltoall begins an Alltoall, like Ireduce.
func (c *Comm) Ialltoall(rs *Requests, id uint64, send, recv unsafe.Pointer, count int, dt mem.Datatype) error {
	return c.collective(alltoall, rs, id, send, recv, count, dt, mem.Sum, 0, Parts{})
}

// Igather begins a Gather, like Ireduce; so must parts' Memory.
func (c *Comm) Igather(rs *Requests, id uint64, send, recv unsafe.Pointer, parts Parts, dt mem.Datatype, root int) error {
	return c.collective(gather, rs, id, send, recv, parts.all, dt, mem.Sum, root, parts)
}

// Iscatter begins a Scatter, like Ireduce; so must parts' Memory.
func (c *Comm) Iscatter(rs *Requests, id uint64, send, recv unsafe.Pointer, parts Parts, dt mem.Datatype, root int) error {
	return c.collective(scatter, rs, id, send, recv, parts.all, dt, mem.Sum, root, parts)
}

func (c *Comm) collective(v verb, rs *Requests, id uint64, send, recv unsafe.Pointer, count int, dt mem.Datatype, op mem.Op, root int, parts Parts) error {
	if err := c.check(v, rs != nil, count, dt, op, root); err != nil {
		return err
	}
	var set *C.scaffe_reqs
	if rs != nil {
		set = rs.r
	}
	rc := C.scaffe_collective(c.c, set, C.uint64_t(id), C.int(v), send, recv, c.inPlace(v, send, recv, dt, root, parts),
		c.count(v, count, parts), C.int(types[dt]), C.int(op), C.int(root), (*C.int)(parts.Memory()))
	if rc != C.SCAFFE_OK {
		return failure(rc, "%s of %d elements of %s", v.name(rs != nil), count, dt)
	}
	return nil
}

func flag(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

// inPlace is 1 where the result replaces this rank's contribution, or holds it already, or is held by what it gives.
func (c *Comm) inPlace(v verb, send, recv unsafe.Pointer, dt mem.Datatype, root int, parts Parts) C.int {
	switch v {
	case allgather, gather, scatter:
		whole, part := recv, send
		if v == scatter {
			whole, part = send, recv
		}
		_, off := parts.of(c.rank)
		return flag((v == allgather || c.rank == root) && whole != nil && part == unsafe.Add(whole, dt.Bytes(off)))
	}
	return flag(send == recv && (v == allreduce || v == reduce && c.rank == root))
}

// count returns how many elements this rank gives, or gets of a reduce-scatter or a scatter; of an alltoall, how many a block has.
func (c *Comm) count(v verb, all int, parts Parts) C.int {
	switch v {
	case allgather, reduceScatter, gather, scatter:
		all, _ = parts.of(c.rank)
	case alltoall:
		all /= c.Size()
	}
	return C.int(all)
}

func (t Timer) loop(took []float64, v verb, send, recv unsafe.Pointer, count int, dt mem.Datatype, op mem.Op, root int, parts Parts) error {
	rc := C.scaffe_time(t.Comm.c, flag(t.Nonblocking), flag(t.Barrier), C.int(v), send, recv, t.Comm.inPlace(v, send, recv, dt, root, parts),
		t.Comm.count(v, count, parts), C.int(types[dt]), C.int(op), C.int(root), (*C.int)(parts.Memory()), C.int(len(took)), (*C.double)(&took[0]))
	if rc != C.SCAFFE_OK {
		return failure(rc, "%s of %d elements of %s", v.name(t.Nonblocking), count, dt)
	}
	return nil
}
