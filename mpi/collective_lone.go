//go:build !mpi

package mpi

import (
	"time"
	"unsafe"

	"github.com/scaffe/scaffe/mem"
)

// Barrier returns when every rank of c has called it, which is at once.
func (c *Comm) Barrier() error { return nil }

// Reduce combines count elements at send of every rank into recv at root: with
// one rank it copies them, unless the two are the same memory.
func (c *Comm) Reduce(send, recv unsafe.Pointer, count int, dt mem.Datatype, op mem.Op, root int) error {
	return c.collective(reduce, nil, 0, send, recv, count, dt, op, root, Parts{})
}

// Bcast copies count elements at p of root to p of every other rank.
func (c *Comm) Bcast(p unsafe.Pointer, count int, dt mem.Datatype, root int) error {
	return c.collective(bcast, nil, 0, p, p, count, dt, mem.Sum, root, Parts{})
}

// Allreduce combines count elements at send of every rank into recv.
func (c *Comm) Allreduce(send, recv unsafe.Pointer, count int, dt mem.Datatype, op mem.Op) error {
	return c.collective(allreduce, nil, 0, send, recv, count, dt, op, 0, Parts{})
}

// Allgather copies the only part there is.
func (c *Comm) Allgather(send, recv unsafe.Pointer, parts Parts, dt mem.Datatype) error {
	return c.collective(allgather, nil, 0, send, recv, parts.all, dt, mem.Sum, 0, parts)
}

// ReduceScatter copies the only part there is.
func (c *Comm) ReduceScatter(send, recv unsafe.Pointer, parts Parts, dt mem.Datatype, op mem.Op) error {
	return c.collective(reduceScatter, nil, 0, send, recv, parts.all, dt, op, 0, parts)
}

// Alltoall copies the only block there is.
func (c *Comm) Alltoall(send, recv unsafe.Pointer, count int, dt mem.Datatype) error {
	return c.collective(alltoall, nil, 0, send, recv, count, dt, mem.Sum, 0, Parts{})
}

// Gather copies the only part there is.
func (c *Comm) Gather(send, recv unsafe.Pointer, parts Parts, dt mem.Datatype, root int) error {
	return c.collective(gather, nil, 0, send, recv, parts.all, dt, mem.Sum, root, parts)
}

// Scatter copies the only part there is.
func (c *Comm) Scatter(send, recv unsafe.Pointer, parts Parts, dt mem.Datatype, root int) error {
	return c.collective(scatter, nil, 0, send, recv, parts.all, dt, mem.Sum, root, parts)
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
	return c.collective(reduce, rs, id, send, recv, count, dt, op, root, Parts{})
}

// Ibcast begins a Bcast.
func (c *Comm) Ibcast(rs *Requests, id uint64, p unsafe.Pointer, count int, dt mem.Datatype, root int) error {
	return c.collective(bcast, rs, id, p, p, count, dt, mem.Sum, root, Parts{})
}

// Iallreduce begins an Allreduce.
func (c *Comm) Iallreduce(rs *Requests, id uint64, send, recv unsafe.Pointer, count int, dt mem.Datatype, op mem.Op) error {
	return c.collective(allreduce, rs, id, send, recv, count, dt, op, 0, Parts{})
}

// Iallgather begins an Allgather.
func (c *Comm) Iallgather(rs *Requests, id uint64, send, recv unsafe.Pointer, parts Parts, dt mem.Datatype) error {
	return c.collective(allgather, rs, id, send, recv, parts.all, dt, mem.Sum, 0, parts)
}

// IreduceScatter begins a ReduceScatter.
func (c *Comm) IreduceScatter(rs *Requests, id uint64, send, recv unsafe.Pointer, parts Parts, dt mem.Datatype, op mem.Op) error {
	return c.collective(reduceScatter, rs, id, send, recv, parts.all, dt, op, 0, parts)
}

// Ialltoall begins an Alltoall.
func (c *Comm) Ialltoall(rs *Requests, id uint64, send, recv unsafe.Pointer, count int, dt mem.Datatype) error {
	return c.collective(alltoall, rs, id, send, recv, count, dt, mem.Sum, 0, Parts{})
}

// Igather begins a Gather.
func (c *Comm) Igather(rs *Requests, id uint64, send, recv unsafe.Pointer, parts Parts, dt mem.Datatype, root int) error {
	return c.collective(gather, rs, id, send, recv, parts.all, dt, mem.Sum, root, parts)
}

// Iscatter begins a Scatter.
func (c *Comm) Iscatter(rs *Requests, id uint64, send, recv unsafe.Pointer, parts Parts, dt mem.Datatype, root int) error {
	return c.collective(scatter, rs, id, send, recv, parts.all, dt, mem.Sum, root, parts)
}

func (c *Comm) collective(v verb, rs *Requests, id uint64, send, recv unsafe.Pointer, count int, dt mem.Datatype, op mem.Op, root int, _ Parts) error {
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

func (t Timer) loop(took []float64, v verb, send, recv unsafe.Pointer, count int, dt mem.Datatype, op mem.Op, root int, parts Parts) error {
	for i := range took {
		start := time.Now()
		if err := t.Comm.collective(v, nil, 0, send, recv, count, dt, op, root, parts); err != nil {
			return err
		}
		took[i] = float64(time.Since(start)) / float64(time.Microsecond)
	}
	return nil
}
