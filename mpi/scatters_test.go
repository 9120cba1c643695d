package mpi

import (
	"fmt"
	"testing"

	"github.com/scaffe/scaffe/mem"
)

// scattering is one reduce-scatter of the tests, or scatter from the last rank.
type scattering struct {
	verb     verb
	dt       mem.Datatype
	counts   []int // nil: equal
	blocking bool
	timed    bool // by a Timer
}

func TestScatters(t *testing.T) {
	size := world.Size()
	grow, one := make([]int, size), make([]int, size)
	for r := range grow {
		grow[r] = 10 * r
	}
	one[size-1] = 1000
	for _, dt := range []mem.Datatype{mem.Float32, mem.Float64, mem.Int32, mem.Int64} {
		for _, counts := range [][]int{nil, grow, one} {
			for how := range 8 {
				s := scattering{[]verb{reduceScatter, scatter}[how/4], dt, counts, how&1 > 0, how&2 > 0}
				on(t, s.run)
			}
		}
	}
}

// run runs it and compares every element, and one beyond.
func (s scattering) run() error {
	me, size := world.Rank(), world.Size()
	all := 100 * size
	if s.counts != nil {
		all = 0
		for _, n := range s.counts {
			all += n
		}
	}
	parts := PartsOf(Parts{}, all, size, s.counts)
	own, at := parts.of(me)
	send, recv := mem.Alloc(s.dt.Bytes(all)), mem.Alloc(s.dt.Bytes(own+1))
	defer send.Free()
	defer recv.Free()
	for i := range all {
		put(send, s.dt, i, i*(me+1))
	}
	for i := range own + 1 {
		put(recv, s.dt, i, 99)
	}
	if err := s.start(send, recv, parts); err != nil {
		return fmt.Errorf("%+v: %w", s, err)
	}
	factor := size * (size + 1) / 2
	if s.verb == scatter {
		factor = size
	}
	for i := range own {
		if got, want := get(recv, s.dt, i), (at+i)*factor; got != want {
			return fmt.Errorf("%+v: element %d is %d, want %d", s, i, got, want)
		}
	}
	if got := get(recv, s.dt, own); got != 99 {
		return fmt.Errorf("%+v: the element behind the result is %d", s, got)
	}
	return nil
}

// start runs it to its end.
func (s scattering) start(send, recv mem.Buffer, parts Parts) error {
	c := world.Comm()
	switch {
	case s.timed:
		t := c.Time()
		t.Nonblocking = !s.blocking
		if s.verb == scatter {
			return t.Scatter(make([]float64, 2), send.Pointer(), recv.Pointer(), parts, s.dt, c.Size()-1)
		}
		return t.ReduceScatter(make([]float64, 2), send.Pointer(), recv.Pointer(), parts, s.dt, mem.Sum)
	case s.blocking && s.verb == scatter:
		return c.Scatter(send.Pointer(), recv.Pointer(), parts, s.dt, c.Size()-1)
	case s.blocking:
		return c.ReduceScatter(send.Pointer(), recv.Pointer(), parts, s.dt, mem.Sum)
	}
	rs := world.NewRequests()
	defer rs.Free()
	var err error
	if s.verb == scatter {
		err = c.Iscatter(rs, 7, send.Pointer(), recv.Pointer(), parts, s.dt, c.Size()-1)
	} else {
		err = c.IreduceScatter(rs, 7, send.Pointer(), recv.Pointer(), parts, s.dt, mem.Sum)
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
