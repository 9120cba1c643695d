package collectives_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

// The scenarios of this file hold over every transport: any number of requests
// and communicators live together, started in different orders on each rank, and
// no data is mixed up.

// identities runs all of them, on two ranks or more.
func identities(ctx context.Context, c *collectives.Comm, requests int) error {
	for _, f := range []func(context.Context, *collectives.Comm) error{
		oldRequestBesideNew, oldCommunicatorBesideNew, communicatorsAtOnce,
		func(ctx context.Context, c *collectives.Comm) error { return manyRequests(ctx, c, requests) },
	} {
		if err := errors.Join(f(ctx, c), c.Barrier(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// crossed starts two broadcasts of 1 and 2, in different orders on rank 0 and
// the others.
func crossed(ctx context.Context, c *collectives.Comm, one, two *nbc.Request, first, second []float32) error {
	if c.Rank() == 0 {
		for i := range first {
			first[i], second[i] = 1, 2
		}
	} else {
		one, two = two, one
	}
	if err := errors.Join(one.Start(), two.Start(), one.Wait(ctx), two.Wait(ctx)); err != nil {
		return err
	}
	for i := range first {
		if first[i] != 1 || second[i] != 2 {
			return fmt.Errorf("rank %d: element %d of the first is %v, of the second %v", c.Rank(), i, first[i], second[i])
		}
	}
	return nil
}

// oldRequestBesideNew: a persistent request, a thousand calls later another
// just like it.
func oldRequestBesideNew(ctx context.Context, c *collectives.Comm) error {
	a, b := make([]float32, 8), make([]float32, 8)
	one, err := c.BcastInit(mem.Of(a), mem.Float32, 0)
	if err != nil {
		return err
	}
	defer one.Close()
	for i := range 1023 {
		if i%2 == 0 {
			err = c.Barrier(ctx)
		} else {
			err = make1023(c)
		}
		if err != nil {
			return err
		}
	}
	two, err := c.BcastInit(mem.Of(b), mem.Float32, 0)
	if err != nil {
		return err
	}
	defer two.Close()
	return crossed(ctx, c, one, two, a, b)
}

// make1023 makes a persistent request that counts like those of the scenario.
func make1023(c *collectives.Comm) error {
	r, err := c.BcastInit(mem.Of(make([]float32, 8)), mem.Float32, 0)
	if err == nil {
		r.Close()
	}
	return err
}

// oldCommunicatorBesideNew: a communicator, and the 32nd made after it.
func oldCommunicatorBesideNew(ctx context.Context, c *collectives.Comm) error {
	first, err := c.Dup(ctx)
	if err != nil {
		return err
	}
	defer first.Close()
	var last *collectives.Comm
	for range 32 {
		if last, err = c.Dup(ctx); err != nil {
			return err
		}
		defer last.Close()
	}
	a, b := make([]float32, 5000), make([]float32, 5000)
	one, err := first.BcastInit(mem.Of(a), mem.Float32, 0)
	if err != nil {
		return err
	}
	defer one.Close()
	two, err := last.BcastInit(mem.Of(b), mem.Float32, 0)
	if err != nil {
		return err
	}
	defer two.Close()
	return crossed(ctx, c, one, two, a, b)
}

// communicatorsAtOnce: two goroutines of every rank make communicators of two
// parents, in no order.
func communicatorsAtOnce(ctx context.Context, c *collectives.Comm) error {
	other, err := c.Dup(ctx)
	if err != nil {
		return err
	}
	defer other.Close()
	for try := range 30 {
		dups := make([]*collectives.Comm, 2)
		errs := make(chan error, 2)
		for i, parent := range []*collectives.Comm{c, other} {
			go func() {
				var err error
				dups[i], err = parent.Dup(ctx)
				errs <- err
			}()
		}
		if err := errors.Join(<-errs, <-errs); err != nil {
			return err
		}
		for i, d := range dups {
			go func() {
				// Both sums are of one length, so only the communicator tells their
				// messages apart.
				x := []int64{int64(i*99 + 1)}
				err := d.Allreduce(ctx, mem.Of(x), mem.Of(x), mem.Int64, mem.Sum)
				if want := int64((i*99 + 1) * c.Size()); err == nil && x[0] != want {
					err = fmt.Errorf("try %d, rank %d: the sum on communicator %d is %d, want %d", try, c.Rank(), i, x[0], want)
				}
				errs <- errors.Join(err, d.Close())
			}()
		}
		if err := errors.Join(<-errs, <-errs); err != nil {
			return err
		}
	}
	return nil
}

// manyRequests makes n persistent requests on the first two ranks and starts
// them all, each rank in an order of its own, twice.
func manyRequests(ctx context.Context, c *collectives.Comm, n int) error {
	pair, err := c.Split(ctx, min(c.Rank()/2, 1), c.Rank())
	if err != nil {
		return err
	}
	defer pair.Close()
	if c.Rank() > 1 {
		return nil
	}
	data, requests := make([][]int32, n), make([]*nbc.Request, n)
	for i := range requests {
		data[i] = make([]int32, 2)
		if i%100 == 0 {
			data[i] = make([]int32, 3000) // more than goes in an envelope
		}
		if requests[i], err = pair.BcastInit(mem.Of(data[i]), mem.Int32, 0); err != nil {
			return err
		}
		defer requests[i].Close()
	}
	random := rand.New(rand.NewPCG(7, uint64(c.Rank())))
	for round := range int32(2) {
		for i, x := range data {
			for k := range x {
				x[k] = -1
				if c.Rank() == 0 {
					x[k] = int32(i) + round
				}
			}
		}
		for _, i := range random.Perm(n) {
			if err := requests[i].Start(); err != nil {
				return err
			}
		}
		for i, r := range requests {
			if err := r.Wait(ctx); err != nil {
				return err
			}
			for k, x := range data[i] {
				if x != int32(i)+round {
					return fmt.Errorf("rank %d, round %d: element %d of request %d is %d", c.Rank(), round, k, i, x)
				}
			}
		}
	}
	return nil
}

func TestIdentities(t *testing.T) {
	for _, seed := range []uint64{0, 1} {
		err := world(t, 2, seed, nbc.Options{Deadline: 5 * time.Minute}, func(c *collectives.Comm, _ *nbc.Engine) error {
			return identities(t.Context(), c, 1000)
		})
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// TestMPIIdentities is the same between processes, also with MPI's least
// bound of tags, and one that makes every tag ambiguous.
func TestMPIIdentities(t *testing.T) {
	for _, transport := range []string{"mpi", "mpi:32767", "mpi:3", "shm"} {
		t.Run(transport, func(t *testing.T) {
			reports, said, err := ranks(t, transport, "identities")
			if err != nil {
				t.Errorf("mpirun: %v\n%s", err, said)
			}
			for r, report := range reports {
				if !strings.HasSuffix(report, fmt.Sprintf("on %d ranks", mpiRanks)) {
					t.Errorf("rank %d ended with %q", r, report)
				}
			}
		})
	}
}

// TestCloseComm: a closed communicator says so, gives back what it kept, and
// leaves requests and other communicators alone.
func TestCloseComm(t *testing.T) {
	err := world(t, 2, 0, nbc.Options{Deadline: time.Minute}, func(c *collectives.Comm, _ *nbc.Engine) error {
		ctx := t.Context()
		x := []int64{1}
		b := mem.Of(x)
		d, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		r, err := d.AllreduceInit(b, b, mem.Int64, mem.Sum)
		if err != nil {
			return err
		}
		defer r.Close()
		if err := d.Allreduce(ctx, b, b, mem.Int64, mem.Sum); err != nil {
			return err
		}
		if err := errors.Join(d.Close(), d.Close()); err != nil {
			return err
		}
		_, initErr := d.BcastInit(b, mem.Int64, 0)
		_, startErr := d.Iallreduce(b, b, mem.Int64, mem.Sum)
		_, dupErr := d.Dup(ctx)
		for _, err := range []error{initErr, startErr, dupErr, d.Barrier(ctx), d.Agree(ctx, nil), d.Allreduce(ctx, b, b, mem.Int64, mem.Sum)} {
			if !errors.Is(err, collectives.ErrClosed) {
				return fmt.Errorf("a closed communicator answered %v", err)
			}
		}
		if err := r.Run(ctx); err != nil || x[0] != 4 {
			return fmt.Errorf("the request made before gave %d, %v", x[0], err)
		}
		if err := c.Barrier(ctx); err != nil {
			return err
		}
		return c.Close() // that of the world too
	})
	if err != nil {
		t.Fatal(err)
	}
}
