// Package devicetest is the conformance suite of nbc.Device. Every device runs
// the same cases, on the kind of memory that it combines.
//
//	for _, c := range devicetest.Cases() {
//		t.Run(c.Name, func(t *testing.T) {
//			if err := c.Run(devicetest.Subject{Device: d, Memory: devicetest.Host{}}); err != nil {
//				t.Error(err)
//			}
//		})
//	}
package devicetest

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/scaffe/scaffe/kernels/kernelstest"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

// within bounds every wait of the suite.
const within = time.Minute

// Memory is the memory that a device combines.
type Memory interface {
	Alloc(n int) (mem.Buffer, error)
	Free(b mem.Buffer)
	// Write makes b hold src, Read makes dst hold what b does. Both return
	// when that is done.
	Write(b mem.Buffer, src []byte) error
	Read(dst []byte, b mem.Buffer) error
}

// Host is the memory of the host.
type Host struct{}

// Alloc returns n bytes.
func (Host) Alloc(n int) (mem.Buffer, error) { return mem.TryAlloc(n) }

// Free gives them back.
func (Host) Free(b mem.Buffer) { b.Free() }

// Write makes b hold src.
func (Host) Write(b mem.Buffer, src []byte) error {
	copy(mem.Bytes(b), src)
	return nil
}

// Read makes dst hold what b does.
func (Host) Read(dst []byte, b mem.Buffer) error {
	copy(dst, mem.Bytes(b))
	return nil
}

// Subject is a device under test, with nothing under way.
type Subject struct {
	Device nbc.Device
	Memory Memory
	// Both says that the device combines what is all in host memory, and what is all in a GPU's.
	Both bool
}

// Case is one case of the suite. It returns what was wrong.
type Case struct {
	Name string
	Run  func(s Subject) error
}

// Cases lists the suite. They can run one after the other on one device, which
// is not closed.
func Cases() []Case {
	return []Case{
		{"reduce", reduce},
		{"special numbers", specials},
		{"divide", divide},
		{"copy", copies},
		{"many under way", many},
		{"what cannot be done is refused", refusals},
		{"drain", drain},
		{"another thread", anotherThread},
	}
}

// area is memory with room around the buffers that are used.
type area struct {
	m     Memory
	whole mem.Buffer
}

// guard is what the room holds.
const guard = 0xa5

func newArea(m Memory, n int) (*area, error) {
	b, err := m.Alloc(n)
	if err != nil {
		return nil, err
	}
	return &area{m, b}, nil
}

func (a *area) free() { a.m.Free(a.whole) }

// put returns the buffer at off that holds data, between guards.
func (a *area) put(off int, data []byte) (mem.Buffer, error) {
	all := bytes.Repeat([]byte{guard}, a.whole.Len())
	copy(all[off:], data)
	return a.whole.Slice(off, len(data)), a.m.Write(a.whole, all)
}

// check returns what is wrong where the buffer at off should hold want.
func (a *area) check(off int, want []byte) error {
	got := make([]byte, a.whole.Len())
	if err := a.m.Read(got, a.whole); err != nil {
		return err
	}
	for i, v := range got {
		switch inside := i >= off && i < off+len(want); {
		case !inside && v != guard:
			return fmt.Errorf("byte %d, outside the buffer [%d:%d], was written", i, off, off+len(want))
		case inside && v != want[i-off]:
			return fmt.Errorf("byte %d of %d is %#x, want %#x", i-off, len(want), v, want[i-off])
		}
	}
	return nil
}

// await waits until the operations with these tokens have ended, each once and
// no other.
func await(d nbc.Device, tokens ...nbc.Token) error {
	left := map[nbc.Token]bool{}
	for _, t := range tokens {
		left[t] = true
	}
	var done [7]nbc.Completion
	for end := time.Now().Add(within); len(left) > 0; {
		n, err := d.Poll(done[:])
		if err != nil {
			return err
		}
		for _, c := range done[:n] {
			if !left[c.Token] || c.Err != nil {
				return fmt.Errorf("token %d is reported with error %v; of %d operations %d are left", c.Token, c.Err, len(tokens), len(left))
			}
			delete(left, c.Token)
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d of %d operations have not ended within %v", len(left), len(tokens), within)
		}
		if n == 0 {
			time.Sleep(100 * time.Microsecond)
		}
	}
	return quiet(d)
}

// quiet returns an error where the device reports anything.
func quiet(d nbc.Device) error {
	var done [1]nbc.Completion
	for range 100 {
		if n, err := d.Poll(done[:]); n > 0 || err != nil {
			return fmt.Errorf("token %d is reported, error %v, with nothing under way", done[0].Token, err)
		}
	}
	return nil
}

// finish takes what a method returned, and waits where it is not done.
func finish(d nbc.Device, tok nbc.Token, done bool, err error) error {
	switch {
	case err != nil:
		return err
	case done:
		return quiet(d)
	}
	return await(d, tok)
}

// aliases are which buffers a reduction may share.
var aliases = []string{"apart", "dst is a", "dst is b", "a is b", "all one"}

// reduction is one reduction of n elements, at offsets of their own.
func reduction(s Subject, areas []*area, r *rand.Rand, dt mem.Datatype, op mem.Op, n int, alias string) error {
	size := dt.Size()
	var data [3][]byte
	var at [3]int
	var bufs [3]mem.Buffer
	for i := range areas {
		data[i], at[i] = make([]byte, n*size), 64+size*r.IntN(9)
		kernelstest.Fill(r, dt, data[i])
		var err error
		if bufs[i], err = areas[i].put(at[i], data[i]); err != nil {
			return err
		}
	}
	dst, a, b := 0, 1, 2
	switch alias {
	case "dst is a":
		dst = a
	case "dst is b":
		dst = b
	case "a is b":
		b = a
	case "all one":
		dst, b = a, a
	}
	want := make([]byte, n*size)
	kernelstest.Reduce(dt, op, want, data[a], data[b])
	tok := nbc.Token(r.Uint64())
	done, err := s.Device.Reduce(tok, dt, op, bufs[dst], bufs[a], bufs[b])
	if err := finish(s.Device, tok, done, err); err != nil {
		return err
	}
	data[dst] = want
	for i := range areas {
		if err := areas[i].check(at[i], data[i]); err != nil {
			return fmt.Errorf("buffer %d: %w", i, err)
		}
	}
	return nil
}

const mostBytes = 8 * 5000

func newAreas(s Subject, n, bytes int) ([]*area, error) {
	var areas []*area
	for range n {
		a, err := newArea(s.Memory, bytes+256)
		if err != nil {
			return areas, err
		}
		areas = append(areas, a)
	}
	return areas, nil
}

func freeAll(areas []*area) {
	for _, a := range areas {
		a.free()
	}
}

func reduce(s Subject) error {
	areas, err := newAreas(s, 3, mostBytes)
	defer freeAll(areas)
	if err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(1, 1))
	for _, dt := range mem.Datatypes {
		for _, op := range mem.OpsOf(dt) {
			lengths := []int{0, 1, 2, 3, 7, 31, 33, 64, 257, 1000, 4999}
			if op > mem.Max || dt > mem.Uint8 { // devices treat them as the others
				lengths = []int{1, 33, 1000}
			}
			for i, n := range lengths {
				alias := aliases[(i+int(op))%len(aliases)]
				if err := reduction(s, areas, r, dt, op, n, alias); err != nil {
					return fmt.Errorf("%v of %d %v, %s: %w", op, n, dt, alias, err)
				}
			}
		}
		for _, alias := range aliases {
			if err := reduction(s, areas, r, dt, mem.Sum, 100, alias); err != nil {
				return fmt.Errorf("sum of 100 %v, %s: %w", dt, alias, err)
			}
		}
	}
	return nil
}

// specials lets every special number meet every other.
func specials(s Subject) error {
	for _, dt := range mem.Datatypes {
		size, all := dt.Size(), kernelstest.Specials[dt]
		a, b := make([]byte, len(all)*len(all)*size), make([]byte, len(all)*len(all)*size)
		for i, x := range all {
			for j, y := range all {
				kernelstest.SetElement(size, a, i*len(all)+j, x)
				kernelstest.SetElement(size, b, i*len(all)+j, y)
			}
		}
		areas, err := newAreas(s, 3, len(a))
		if err != nil {
			return err
		}
		for _, op := range mem.OpsOf(dt) {
			want := make([]byte, len(a))
			kernelstest.Reduce(dt, op, want, a, b)
			x, errA := areas[0].put(0, a)
			y, errB := areas[1].put(0, b)
			dst, errD := areas[2].put(0, make([]byte, len(a)))
			if err := errors.Join(errA, errB, errD); err != nil {
				return err
			}
			done, err := s.Device.Reduce(1, dt, op, dst, x, y)
			if err := errors.Join(finish(s.Device, 1, done, err), areas[2].check(0, want)); err != nil {
				return fmt.Errorf("%v of %v: %w", op, dt, err)
			}
		}
		freeAll(areas)
	}
	return nil
}

func divide(s Subject) error {
	areas, err := newAreas(s, 2, 8*100)
	defer freeAll(areas)
	if err != nil {
		return err
	}
	for _, dt := range mem.Datatypes {
		divisors := []float64{1, 2, 3, 7, 64}
		if dt.Float() {
			divisors = append(divisors, 1.5)
		}
		for _, by := range divisors {
			for _, inPlace := range []bool{false, true} {
				if err := division(s, areas, dt, by, inPlace); err != nil {
					return fmt.Errorf("division of %v by %v, in place: %v: %w", dt, by, inPlace, err)
				}
			}
		}
	}
	return nil
}

// division divides what is finite; a NaN keeps what payload it has.
func division(s Subject, areas []*area, dt mem.Datatype, by float64, inPlace bool) error {
	size := dt.Size()
	var data, want []byte
	for i := range 100 {
		x := uint64(i * i * 7919)
		switch dt {
		case mem.Float32:
			x = uint64(math.Float32bits(float32(i*i) - 1000.25))
		case mem.Float64:
			x = math.Float64bits(float64(i*i) - 1000.25)
		case mem.Float16:
			x = uint64(kernelstest.NearestF16(float32(i*i) - 1000.25))
		case mem.BFloat16:
			x = uint64(kernelstest.NearestBF16(float32(i*i) - 1000.25))
		case mem.Int8, mem.Int16, mem.Int32, mem.Int64:
			x = uint64(int64(i*i) - 1000)
		}
		data, want = append(data, make([]byte, size)...), append(want, make([]byte, size)...)
		kernelstest.SetElement(size, data, i, x)
		kernelstest.SetElement(size, want, i, kernelstest.Divide(dt, kernelstest.Element(size, data, i), by))
	}
	src, err := areas[0].put(size, data)
	if err != nil {
		return err
	}
	dst, at := src, areas[0]
	if !inPlace {
		at = areas[1]
		if dst, err = at.put(size, make([]byte, len(data))); err != nil {
			return err
		}
	}
	done, err := s.Device.Divide(3, dt, dst, src, by)
	if err := errors.Join(finish(s.Device, 3, done, err), at.check(size, want)); err != nil || inPlace {
		return err
	}
	return areas[0].check(size, data)
}

func copies(s Subject) error {
	areas, err := newAreas(s, 2, mostBytes)
	defer freeAll(areas)
	if err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(2, 1))
	for _, n := range []int{0, 1, 3, 64, 4097, mostBytes} {
		data := make([]byte, n)
		kernelstest.Fill(r, mem.Uint8, data)
		src, errA := areas[0].put(r.IntN(64), data)
		at := r.IntN(64)
		dst, errB := areas[1].put(at, make([]byte, n))
		if err := errors.Join(errA, errB); err != nil {
			return err
		}
		done, err := s.Device.Copy(4, dst, src)
		if err := errors.Join(finish(s.Device, 4, done, err), areas[1].check(at, data)); err != nil {
			return fmt.Errorf("copy of %d bytes: %w", n, err)
		}
	}
	return nil
}

// counts is an area of n times 64 elements, of which each is 1.
func counts(s Subject, n int) (*area, mem.Buffer, error) {
	a, err := newArea(s.Memory, 8*64*n)
	if err != nil {
		return nil, mem.Buffer{}, err
	}
	data := make([]byte, 8*64*n)
	for i := range 64 * n {
		data[8*i] = 1
	}
	b, err := a.put(0, data)
	return a, b, err
}

// begin doubles each 64 elements in place, n times, and returns what is not done
// yet.
func begin(d nbc.Device, b mem.Buffer, n int) (left []nbc.Token, err error) {
	for i := range n {
		part := b.Slice(8*64*i, 8*64)
		done, err := d.Reduce(nbc.Token(1000+i), mem.Int64, mem.Sum, part, part, part)
		if err != nil {
			return left, err
		}
		if !done {
			left = append(left, nbc.Token(1000+i))
		}
	}
	return left, nil
}

// many begins a number of operations before it asks for the end of any.
func many(s Subject) error {
	const n = 300
	a, b, err := counts(s, n)
	if err != nil {
		return err
	}
	defer a.free()
	left, err := begin(s.Device, b, n)
	if err := errors.Join(err, await(s.Device, left...)); err != nil {
		return err
	}
	want := make([]byte, b.Len())
	for i := range 64 * n {
		want[8*i] = 2
	}
	return a.check(0, want)
}

// refusals asks for what cannot be done. Nothing begins, and the device works on.
func refusals(s Subject) error {
	a, b, err := counts(s, 1)
	if err != nil {
		return err
	}
	defer a.free()
	d, half := s.Device, b.Slice(0, 256)
	elsewhere := mem.At(b.Pointer(), b.Len(), mem.Host)
	if b.Space() == mem.Host {
		elsewhere = mem.At(b.Pointer(), b.Len(), mem.CUDA)
	}
	for name, try := range map[string]func() (bool, error){
		"a reduction of unequal lengths":    func() (bool, error) { return d.Reduce(5, mem.Int64, mem.Sum, b, b, half) },
		"a reduction into a shorter buffer": func() (bool, error) { return d.Reduce(5, mem.Int64, mem.Sum, half, b, b) },
		"a reduction of half an element": func() (bool, error) {
			return d.Reduce(5, mem.Int64, mem.Sum, b.Slice(0, 4), b.Slice(0, 4), b.Slice(0, 4))
		},
		"an unknown datatype": func() (bool, error) { return d.Reduce(5, 99, mem.Sum, b, b, b) },
		"an unknown operator": func() (bool, error) { return d.Reduce(5, mem.Int64, 99, b, b, b) },
		"a partial overlap":   func() (bool, error) { return d.Reduce(5, mem.Int64, mem.Sum, half, b.Slice(8, 256), half) },
		"two kinds of memory": func() (bool, error) { return d.Reduce(5, mem.Int64, mem.Sum, b, b, elsewhere) },
		"other memory": func() (bool, error) {
			if s.Both {
				return false, errors.New("not other memory")
			}
			return d.Reduce(5, mem.Int64, mem.Sum, elsewhere, elsewhere, elsewhere)
		},
		"division by 0":        func() (bool, error) { return d.Divide(5, mem.Int64, b, b, 0) },
		"division by NaN":      func() (bool, error) { return d.Divide(5, mem.Float64, b, b, math.NaN()) },
		"an integer by 1.5":    func() (bool, error) { return d.Divide(5, mem.Int64, b, b, 1.5) },
		"a byte by 256":        func() (bool, error) { return d.Divide(5, mem.Uint8, b, b, 256) },
		"half a division":      func() (bool, error) { return d.Divide(5, mem.Int64, half, b, 2) },
		"a copy that is short": func() (bool, error) { return d.Copy(5, half, b) },
	} {
		if _, err := try(); err == nil {
			return fmt.Errorf("%s was accepted", name)
		}
		if err := quiet(d); err != nil {
			return fmt.Errorf("after %s: %w", name, err)
		}
	}
	want := make([]byte, b.Len())
	for i := range 64 {
		want[8*i] = 1
	}
	return errors.Join(a.check(0, want), many(s))
}

// drain begins operations and forgets them: after Drain nothing is reported and
// nothing written.
func drain(s Subject) error {
	const n = 300
	a, b, err := counts(s, n)
	if err != nil {
		return err
	}
	defer a.free()
	if _, err := begin(s.Device, b, n); err != nil {
		return err
	}
	s.Device.Drain()
	other := bytes.Repeat([]byte{7}, b.Len())
	if err := s.Memory.Write(b, other); err != nil {
		return err
	}
	if err := quiet(s.Device); err != nil {
		return fmt.Errorf("after Drain: %w", err)
	}
	time.Sleep(time.Millisecond) // a stream that goes on would write within it, or later: then the next cases fail
	return errors.Join(a.check(0, other), many(s))
}

// anotherThread uses the device from a second thread, where it allows that, and
// from the first one again.
func anotherThread(s Subject) error {
	m, ok := s.Device.(nbc.ThreadMigrator)
	if !ok {
		return nil
	}
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if !m.Migrate() {
			result <- nil
			return
		}
		result <- many(s)
	}()
	if err := <-result; err != nil {
		return fmt.Errorf("on another thread: %w", err)
	}
	if !m.Migrate() {
		return errors.New("the device does not come back to its first thread")
	}
	return many(s)
}
