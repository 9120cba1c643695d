package omb

import (
	"context"
	"errors"

	"github.com/scaffe/scaffe/mem"
)

// With -d cuda the buffers lie in a GPU's memory. Data are made and checked in copies of them in the host's.

// errCUDA says why the MPI library is not measured.
var errCUDA = errors.New("the MPI library's own collectives and messages are not used on cuda memory: compare scaffe's own, or use -d cpu")

// allocateCopies makes the copies, and the contents of the buffers.
func (r *runner) allocateCopies() (err error) {
	for _, b := range []struct{ of, to *mem.Buffer }{{&r.send, &r.sendCopy}, {&r.recv, &r.recvCopy}} {
		if *b.to, err = mem.TryAlloc(b.of.Len()); err != nil {
			return err
		}
		bytes := mem.Bytes(*b.to)
		for i := range bytes {
			bytes[i] = 1
		}
		if err := r.comm.Copy(context.Background(), *b.of, *b.to); err != nil {
			return err
		}
	}
	return nil
}

// copy returns the case with other buffers.
func (c *testCase) copy(send, recv mem.Buffer) *testCase {
	o := *c
	o.send, o.recv = send, recv
	return &o
}

// before makes the data of an iteration.
func (r *runner) before(ctx context.Context, check *checker, c *testCase, iteration int) error {
	if c.onHost == nil {
		check.before(c, iteration)
		return nil
	}
	check.before(c.onHost, iteration)
	return errors.Join(r.comm.Copy(ctx, c.send, c.onHost.send), r.comm.Copy(ctx, c.recv, c.onHost.recv))
}

// after counts the wrong elements of an iteration's result.
func (r *runner) after(ctx context.Context, check *checker, c *testCase, iteration int) (wrong int, err error) {
	if c.onHost != nil {
		if err := r.comm.Copy(ctx, c.onHost.recv, c.recv); err != nil {
			return 0, err
		}
		c = c.onHost
	}
	if r.opts.corrupt != nil {
		r.opts.corrupt(c.rank, iteration, c.recv)
	}
	return check.after(c, iteration), nil
}
