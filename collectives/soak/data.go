package soak

import (
	"bytes"
	"fmt"

	"github.com/scaffe/scaffe/collectives/collectivestest"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/kernels/kernelstest"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
)

// serves reports whether a spec can do a collective.
func serves(text string, c schedule.Collective) bool {
	s, err := spec.Parse(text)
	return err == nil && s.Serves(c) == nil
}

// room is the bound of a contribution, so that any sum over ten of them is
// exact in its type.
func room(dt mem.Datatype) uint64 {
	switch dt {
	case mem.Float32:
		return 1 << 20
	case mem.Float16:
		return 128
	case mem.BFloat16:
		return 16
	case mem.Int32, mem.Uint32:
		return 1 << 27
	case mem.Uint8:
		return 256 // which wraps around, as those of the next do
	case mem.Int8:
		return 128
	case mem.Int16, mem.Uint16:
		return 1 << 15
	}
	return 1 << 40
}

// data is one execution of a call on a communicator of size ranks.
type data struct {
	call
	key  uint64 // of the execution
	size int
}

func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// contribution returns rank's element i.
func (d *data) contribution(rank, i int) int64 {
	same := mix(d.key*0x9e3779b97f4a7c15 + uint64(i))
	own := mix(same + uint64(rank)*0xd1342543de82ef95)
	switch {
	case !d.collective.Reduces():
		return int64(own % room(d.dt))
	case d.op == mem.Prod:
		return 1 + int64(own&1)*int64((rank+i)%2) // of ones and twos
	case d.op == mem.Avg:
		return int64(same%16) + 2*int64(rank) // sums that size divides
	}
	return int64(own % room(d.dt))
}

// result returns element i of a rank's result.
func (d *data) result(rank, i int) int64 {
	switch d.collective {
	case schedule.Alltoall:
		each := d.count / d.size
		return d.contribution(i/each, rank*each+i%each)
	case schedule.Bcast, schedule.Scatter:
		return d.contribution(d.root, i)
	case schedule.Allgather, schedule.Gather:
		from := 0
		for i >= d.part(from).End() {
			from++
		}
		return d.contribution(from, i)
	}
	acc := d.contribution(0, i)
	for r := 1; r < d.size; r++ {
		x := d.contribution(r, i)
		if d.op == mem.Avg {
			acc += x
		} else {
			acc = kernelstest.Whole(d.op, acc, x)
		}
	}
	if d.op == mem.Avg {
		acc /= int64(d.size)
	}
	return acc
}

// given returns the elements that a rank gives, got those that it gets.
func (d *data) given(rank int) schedule.Range {
	if !d.collective.Gathers() {
		return schedule.Range{Len: d.count}
	}
	return d.part(rank)
}

func (d *data) got(rank int) schedule.Range {
	if !d.collective.Gathers() {
		return d.part(rank)
	}
	return schedule.Range{Len: d.count}
}

// part returns a rank's part of the elements: all of them, but where there are parts, which
// are equal or not as the call's key says, and may be none.
func (d *data) part(rank int) schedule.Range {
	if !d.collective.Parts() {
		return schedule.Range{Len: d.count}
	}
	cut := func(rank int) int {
		if rank == d.size || d.call.key%3 == 0 {
			return d.count * rank / d.size
		}
		return int(mix(d.call.key)%uint64(d.count+1)) * rank / d.size // the rest is the last rank's
	}
	return schedule.Range{Off: cut(rank), Len: cut(rank+1) - cut(rank)}
}

// gives reports whether a rank contributes, gets whether it has the result.
func (d *data) gives(rank int) bool {
	return d.collective != schedule.Bcast && d.collective != schedule.Scatter || rank == d.root
}

func (d *data) gets(rank int) bool {
	return d.collective != schedule.Reduce && d.collective != schedule.Gather || rank == d.root
}

// fill writes rank's contribution to send and what must not stay to recv, which
// may be the same.
func (d *data) fill(send, recv []byte, rank int) {
	for i := range recv {
		recv[i] = 0xa5
	}
	if d.gives(rank) {
		own := d.given(rank)
		for i := range own.Len {
			collectivestest.Put(d.dt, send, i, d.contribution(rank, own.Off+i))
		}
	}
}

// check compares what rank has with what is due.
func (d *data) check(send, recv []byte, rank int) error {
	want := make([]byte, d.dt.Size())
	compare := func(name string, b []byte, value func(i int) int64) error {
		for i := range len(b) / len(want) {
			collectivestest.Put(d.dt, want, 0, value(i))
			if got := b[i*len(want) : (i+1)*len(want)]; !bytes.Equal(got, want) {
				return fmt.Errorf("%v: element %d of %s has the bytes %x, want %x", d.call, i, name, got, want)
			}
		}
		return nil
	}
	if d.gets(rank) {
		if err := compare("the result", recv, func(i int) int64 { return d.result(rank, d.got(rank).Off+i) }); err != nil {
			return err
		}
	}
	if d.gives(rank) && !d.inPlace && d.collective != schedule.Bcast {
		off := d.given(rank).Off
		return compare("what was sent", send, func(i int) int64 { return d.contribution(rank, off+i) })
	}
	return nil
}
