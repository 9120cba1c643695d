package mpi

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/scaffe/scaffe/kernels/kernelstest"
	"github.com/scaffe/scaffe/mem"
)

// element is what rank gives at index i: unlike its neighbours', and small
// enough that products of up to seven ranks are exact in every type.
func element(rank, i int) int { return 1 + (rank+i)%2 }

// combined is what all ranks' elements at i come to.
func combined(op mem.Op, size, i int) int {
	acc := element(0, i)
	for r := 1; r < size; r++ {
		acc = int(kernelstest.Whole(op, int64(acc), int64(element(r, i))))
	}
	return acc
}

// put and get are the elements of b as whole numbers.
func put(b mem.Buffer, dt mem.Datatype, i, x int) {
	switch dt {
	case mem.Float32:
		mem.View[float32](b)[i] = float32(x)
	case mem.Float64:
		mem.View[float64](b)[i] = float64(x)
	case mem.Int32:
		mem.View[int32](b)[i] = int32(x)
	case mem.Int64:
		mem.View[int64](b)[i] = int64(x)
	case mem.Uint32:
		mem.View[uint32](b)[i] = uint32(x)
	case mem.Uint64:
		mem.View[uint64](b)[i] = uint64(x)
	case mem.Int16, mem.Uint16:
		mem.View[uint16](b)[i] = uint16(x)
	case mem.Int8, mem.Uint8:
		mem.View[uint8](b)[i] = uint8(x)
	}
}

func get(b mem.Buffer, dt mem.Datatype, i int) int {
	switch dt {
	case mem.Float32:
		return int(mem.View[float32](b)[i])
	case mem.Float64:
		return int(mem.View[float64](b)[i])
	case mem.Int32:
		return int(mem.View[int32](b)[i])
	case mem.Int64:
		return int(mem.View[int64](b)[i])
	case mem.Uint32:
		return int(mem.View[uint32](b)[i])
	case mem.Uint64:
		return int(mem.View[uint64](b)[i])
	case mem.Int16, mem.Uint16:
		return int(mem.View[uint16](b)[i])
	}
	return int(mem.View[uint8](b)[i])
}

// libraryTypes are the datatypes that MPI has.
var libraryTypes = slices.DeleteFunc(slices.Clone(mem.Datatypes), func(dt mem.Datatype) bool {
	return dt == mem.Float16 || dt == mem.BFloat16
})

// ask is one collective of the tests.
type ask struct {
	verb     verb
	dt       mem.Datatype
	op       mem.Op
	root     int
	inPlace  bool
	blocking bool
	timed    bool // by a Timer
}

func TestCollectives(t *testing.T) {
	for _, v := range []verb{reduce, bcast, allreduce} {
		for _, blocking := range []bool{true, false} {
			t.Run(v.name(!blocking), func(t *testing.T) {
				for _, dt := range libraryTypes {
					for _, op := range mem.OpsOf(dt) {
						if dt != mem.Float32 && dt != mem.Int32 && op != mem.Ops[int(dt)%len(mem.OpsOf(dt))] {
							continue // all ops of two types, and one of each other
						}
						for _, inPlace := range []bool{false, true} {
							for root := range world.Size() {
								on(t, func() error { return one(ask{v, dt, op, root, inPlace, blocking, false}) })
								if dt == mem.Float32 && op == mem.Sum {
									on(t, func() error { return one(ask{v, dt, op, root, inPlace, blocking, true}) })
								}
							}
						}
					}
				}
			})
		}
	}
}

// one runs a collective and compares every element.
func one(a ask) error {
	const n = 1000
	me, size := world.Rank(), world.Size()
	send, recv := mem.Alloc(a.dt.Bytes(n)), mem.Alloc(a.dt.Bytes(n))
	defer send.Free()
	defer recv.Free()
	for i := range n {
		put(send, a.dt, i, element(me, i))
		put(recv, a.dt, i, 99)
	}
	out := recv
	switch {
	case a.verb == bcast && me == a.root, a.verb != bcast && a.inPlace:
		out = send
	}
	if err := start1(a, send.Pointer(), out.Pointer(), n); err != nil {
		return fmt.Errorf("%+v: %w", a, err)
	}
	for i := range n {
		want := combined(a.op, size, i)
		switch {
		case a.verb == bcast:
			want = element(a.root, i)
		case a.verb == reduce && me != a.root && a.inPlace:
			want = element(me, i) // what it gave, untouched
		case a.verb == reduce && me != a.root:
			want = 99
		}
		if got := get(out, a.dt, i); got != want {
			return fmt.Errorf("%+v: element %d is %d, want %d", a, i, got, want)
		}
	}
	return nil
}

// start1 runs the collective to its end.
func start1(a ask, send, recv unsafe.Pointer, n int) error {
	c := world.Comm()
	if a.timed {
		return timed(a, send, recv, n)
	}
	if a.blocking {
		switch a.verb {
		case reduce:
			return c.Reduce(send, recv, n, a.dt, a.op, a.root)
		case bcast:
			return c.Bcast(recv, n, a.dt, a.root)
		}
		return c.Allreduce(send, recv, n, a.dt, a.op)
	}
	rs := world.NewRequests()
	defer rs.Free()
	var err error
	switch a.verb {
	case reduce:
		err = c.Ireduce(rs, 7, send, recv, n, a.dt, a.op, a.root)
	case bcast:
		err = c.Ibcast(rs, 7, recv, n, a.dt, a.root)
	default:
		err = c.Iallreduce(rs, 7, send, recv, n, a.dt, a.op)
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

// timed runs the collective as often as its result stays the same.
func timed(a ask, send, recv unsafe.Pointer, n int) error {
	took := []float64{-1, -1, -1}
	if a.inPlace && a.verb != bcast {
		took = took[:1]
	}
	timer := world.Comm().Time()
	timer.Nonblocking, timer.Barrier = !a.blocking, true
	var err error
	switch a.verb {
	case reduce:
		err = timer.Reduce(took, send, recv, n, a.dt, a.op, a.root)
	case bcast:
		err = timer.Bcast(took, recv, n, a.dt, a.root)
	default:
		err = timer.Allreduce(took, send, recv, n, a.dt, a.op)
	}
	if err == nil {
		err = timer.Meet(took)
	}
	if err == nil && slices.Min(took) < 0 {
		err = fmt.Errorf("times %v", took)
	}
	return err
}

func TestCollectivesRefuseWhatMPICannot(t *testing.T) {
	b := make([]byte, 64)
	p := unsafe.Pointer(&b[0])
	c := world.Comm()
	for _, k := range []struct {
		class, names string
		call         func(rs *Requests) error
	}{
		{"TYPE", "bf16", func(*Requests) error { return c.Allreduce(p, p, 4, mem.BFloat16, mem.Sum) }},
		{"TYPE", "MPI_Ireduce", func(rs *Requests) error { return c.Ireduce(rs, 1, p, p, 4, mem.Float16, mem.Sum, 0) }},
		{"OP", "avg", func(*Requests) error { return c.Reduce(p, p, 4, mem.Uint8, mem.Avg, 0) }},
		{"COUNT", "2147483647", func(*Requests) error { return c.Bcast(p, math.MaxInt32+1, mem.Uint8, 0) }},
		{"COUNT", "-1", func(*Requests) error { return c.Bcast(p, -1, mem.Uint8, 0) }},
		{"TYPE", "MPI_Reduce of 4", func(*Requests) error { return c.Time().Reduce(make([]float64, 1), p, p, 4, mem.Float16, mem.Sum, 0) }},
		{"ROOT", fmt.Sprint(world.Size()), func(*Requests) error { return c.Bcast(p, 4, mem.Uint8, world.Size()) }},
	} {
		on(t, func() error {
			rs := world.NewRequests()
			defer rs.Free()
			err := k.call(rs)
			var e *Error
			if !errors.As(err, &e) || e.Class != k.class || !strings.Contains(err.Error(), k.names) {
				return fmt.Errorf("got %v, want an error of class %s that says %q", err, k.class, k.names)
			}
			if rs.Live() != 0 {
				return errors.New("a refused request is under way")
			}
			return nil
		})
	}
}

func TestCollectivesOfNothing(t *testing.T) {
	on(t, func() error {
		c := world.Comm()
		return errors.Join(c.Barrier(), c.Allgather(nil, nil, PartsOf(Parts{}, 0, c.Size(), nil), mem.Float32), c.ReduceScatter(nil, nil, PartsOf(Parts{}, 0, c.Size(), nil), mem.Float32, mem.Sum), c.Allreduce(nil, nil, 0, mem.Float32, mem.Sum), c.Bcast(nil, 0, mem.Float32, 0),
			c.Reduce(nil, nil, 0, mem.Float32, mem.Sum, 0))
	})
}

func TestReduceLocal(t *testing.T) {
	on(t, func() error {
		a, b := []int64{1, 2, 3}, []int64{10, 20, 30}
		err := world.Comm().ReduceLocal(unsafe.Pointer(&a[0]), unsafe.Pointer(&b[0]), 3, mem.Int64, mem.Sum)
		if Built() == "" {
			if err == nil {
				return errors.New("there is no MPI, and no error")
			}
			return nil
		}
		if err == nil && !slices.Equal(b, []int64{11, 22, 33}) {
			return fmt.Errorf("got %v", b)
		}
		return err
	})
}
