package mpi

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/scaffe/scaffe/mem"
)

// gathering is one allgather of the tests, or gather to the last rank.
type gathering struct {
	verb     verb
	dt       mem.Datatype
	counts   []int // nil: equal
	inPlace  bool
	blocking bool
	timed    bool // by a Timer
}

func TestGathers(t *testing.T) {
	size := world.Size()
	grow, one := make([]int, size), make([]int, size)
	for r := range grow {
		grow[r] = 10 * r
	}
	one[size-1] = 1000
	for _, dt := range []mem.Datatype{mem.Float32, mem.Float64, mem.Int32, mem.Int64, mem.Uint8} {
		for _, counts := range [][]int{nil, grow, one} {
			for how := range 16 {
				g := gathering{[]verb{allgather, gather}[how/8], dt, counts, how&1 > 0, how&2 > 0, how&4 > 0}
				on(t, g.run)
			}
		}
	}
}

// run runs it and compares every element.
func (g gathering) run() error {
	me, size := world.Rank(), world.Size()
	all := 100 * size
	if g.counts != nil {
		all = 0
		for _, n := range g.counts {
			all += n
		}
	}
	parts := PartsOf(Parts{}, all, size, g.counts)
	own, at := parts.of(me)
	recv, apart := mem.Alloc(g.dt.Bytes(all)), mem.Alloc(g.dt.Bytes(own))
	defer recv.Free()
	defer apart.Free()
	for i := range all {
		put(recv, g.dt, i, 99)
	}
	send := apart
	if g.inPlace {
		send = recv.Slice(g.dt.Bytes(at), g.dt.Bytes(own))
	}
	for i := range own {
		put(send, g.dt, i, element(me, i))
	}
	if err := g.start(send, recv, parts); err != nil {
		return fmt.Errorf("%+v: %w", g, err)
	}
	if g.verb == gather && me != size-1 {
		return nil
	}
	for rank := range size {
		n, off := parts.of(rank)
		for i := range n {
			if got := get(recv, g.dt, off+i); got != element(rank, i) {
				return fmt.Errorf("%+v: element %d of rank %d's part is %d, want %d", g, i, rank, got, element(rank, i))
			}
		}
	}
	return nil
}

// start runs it to its end.
func (g gathering) start(send, recv mem.Buffer, parts Parts) error {
	c := world.Comm()
	if g.timed {
		took := []float64{-1, -1, -1}
		timer := c.Time()
		timer.Nonblocking, timer.Barrier = !g.blocking, true
		var err error
		if g.verb == gather {
			err = timer.Gather(took, send.Pointer(), recv.Pointer(), parts, g.dt, c.Size()-1)
		} else {
			err = timer.Allgather(took, send.Pointer(), recv.Pointer(), parts, g.dt)
		}
		if err == nil && slices.Min(took) < 0 {
			err = fmt.Errorf("times %v", took)
		}
		return err
	}
	if g.blocking && g.verb == gather {
		return c.Gather(send.Pointer(), recv.Pointer(), parts, g.dt, c.Size()-1)
	}
	if g.blocking {
		return c.Allgather(send.Pointer(), recv.Pointer(), parts, g.dt)
	}
	rs := world.NewRequests()
	defer rs.Free()
	var err error
	if g.verb == gather {
		err = c.Igather(rs, 7, send.Pointer(), recv.Pointer(), parts, g.dt, c.Size()-1)
	} else {
		err = c.Iallgather(rs, 7, send.Pointer(), recv.Pointer(), parts, g.dt)
	}
	if err != nil {
		return err
	}
	got, err := finish(rs, 1)
	if err == nil {
		err = got[7].Err
	}
	return err
}

func TestAllgatherOfTooMuch(t *testing.T) {
	on(t, func() error {
		c := world.Comm()
		err := c.Allgather(nil, nil, PartsOf(Parts{}, math.MaxInt32+1, c.Size(), nil), mem.Float32)
		var e *Error
		if !errors.As(err, &e) || e.Class != "COUNT" {
			return fmt.Errorf("got %v, want an error of class COUNT", err)
		}
		return nil
	})
}
