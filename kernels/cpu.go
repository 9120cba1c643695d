package kernels

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"github.com/scaffe/scaffe/mem"
)

// EnvPath is the environment variable that chooses the path of NewCPU by name.
const EnvPath = "SCAFFE_KERNELS"

// HasAVX2 reports whether the AVX2 loops of this package and of those below it
// run: where the processor has AVX2 (and F16C), unless the environment variable
// EnvPath names the portable ones.
func HasAVX2() bool {
	_, lacks := nativePath()
	return lacks == "" && os.Getenv(EnvPath) != portable.name
}

// CPU combines and copies buffers in host memory, on the calling goroutine. It
// holds no state: any number of goroutines may use it at once.
type CPU struct {
	path path
}

// loop combines n bytes, whole elements, at a and b into dst.
type loop func(dst, a, b unsafe.Pointer, n int)

// loops are a path's loops for every datatype and operator that combines it.
type loops [mem.NumDatatypes][mem.NumOps]loop

// Operands is how many buffers are combined in one pass. A pass that reads several that
// lie in memory keeps it busier than one after the other does.
const Operands = 8

// addresses are those of buffers to combine, or to store in; nil after the last one.
type addresses [Operands]unsafe.Pointer

// addressesOf returns those of the buffers, Operands at most.
func addressesOf(buffers []mem.Buffer) (all addresses) {
	for i, b := range buffers {
		all[i] = b.Pointer()
	}
	return all
}

// after returns the addresses n bytes further on, before the buffers' ends.
func (o addresses) after(n int) addresses {
	for i, p := range o {
		if p == nil {
			break
		}
		o[i] = unsafe.Add(p, n)
	}
	return o
}

// has reports whether p is one of them.
func (o *addresses) has(p unsafe.Pointer) bool {
	for _, q := range o {
		if p == q {
			return true
		}
	}
	return false
}

// reduceScalar combines n bytes of from at every place, the first, which may be among those, last.
func (o *addresses) reduceScalar(f loop, from addresses, n int) {
	for i := Operands - 1; i >= 0; i-- {
		if o[i] != nil {
			reduceScalar(f, o[i], from, n)
		}
	}
}

// copyPortable copies n bytes to every place.
func (o *addresses) copyPortable(from unsafe.Pointer, n int) {
	for _, p := range o {
		if p != nil {
			copyPortable(p, from, n)
		}
	}
}

// path is one implementation of all reductions and copies.
type path struct {
	name string
	// reduce combines n > 0 bytes; where around is set it stores around the caches, if
	// it can.
	reduce func(dt mem.Datatype, op mem.Op, dst unsafe.Pointer, from addresses, n int, around bool)
	// spread combines n > 0 bytes, and stores them around the caches at all places, of which only the first may be among
	// the operands, in one pass; false where it cannot. It may be nil.
	spread func(dt mem.Datatype, op mem.Op, to, from addresses, n int) bool
	// copy copies n > 0 bytes; dst and src may overlap.
	copy func(dst, src unsafe.Pointer, n int)
}

var portable = path{name: "portable", reduce: reducePortable, copy: copyPortable}

// NewCPU returns the device for host memory with the fastest path that this
// processor has, or the one that the environment variable EnvPath names.
func NewCPU() (*CPU, error) { return newCPU(os.Getenv(EnvPath)) }

// NewCPUPath is NewCPU with the path named, whatever the environment says: for
// programs that compare them.
func NewCPUPath(name string) (*CPU, error) { return newCPU(name) }

// newCPU chooses the path by name, the best for the empty name.
func newCPU(name string) (*CPU, error) {
	native, lacks := nativePath()
	switch {
	case name == "" && lacks == "":
		return &CPU{native}, nil
	case name == "" || name == portable.name:
		return &CPU{portable}, nil
	case name != "avx2":
		return nil, fmt.Errorf("kernels: %s=%q is not a path: use portable or avx2, or unset it", EnvPath, name)
	case lacks != "":
		return nil, fmt.Errorf("kernels: %s=%s: %s: use portable, or unset it", EnvPath, name, lacks)
	}
	return &CPU{native}, nil
}

// Name returns the name of the path in use: avx2 or portable.
func (c *CPU) Name() string { return c.path.name }

// Close does nothing; it is there because other devices hold resources.
func (c *CPU) Close() error { return nil }

// Reduce makes dst[i] = a[i] ⊕ b[i] for elements of type dt. The three are
// equally long host buffers of whole elements; dst may be a or b (or both),
// but not overlap them in part. The package comment says what ⊕ is bit by bit.
func (c *CPU) Reduce(dt mem.Datatype, op mem.Op, dst, a, b mem.Buffer) error {
	if err := CheckReduce(mem.Host, dt, op, dst, a, b); err != nil {
		return fmt.Errorf("kernels: reduce %v of %v: %w", op, dt, err)
	}
	switch n := dst.Len(); {
	case n == 0:
	case n < fewBytes: // what every path does with them, without what it does for more
		portableLoops[dt][op](dst.Pointer(), a.Pointer(), b.Pointer(), n)
	default:
		c.path.reduce(dt, op, dst.Pointer(), addresses{a.Pointer(), b.Pointer()}, n, false)
	}
	return nil
}

// fewBytes fill no vector of any path.
const fewBytes = 32

// ReduceAll makes dst[i] = ((from[0][i] ⊕ from[1][i]) ⊕ from[2][i]) …, with the bits that
// Reduce of two after the other has, in one pass for each Operands of them. There are at
// least two; dst may be the first or the second. Where around is set the result is
// part of more than the caches hold and not needed soon: it is stored around them, if
// the path can and dst is none of the operands.
func (c *CPU) ReduceAll(dt mem.Datatype, op mem.Op, dst mem.Buffer, from []mem.Buffer, around bool) error {
	if err := CheckReduceAll(mem.Host, dt, op, dst, from); err != nil {
		return fmt.Errorf("kernels: reduce %v of %d buffers of %v: %w", op, len(from), dt, err)
	}
	if dst.Len() == 0 {
		return nil
	}
	var all addresses
	n := 0
	for i, b := range from {
		all[n] = b.Pointer()
		if n++; n == Operands || i == len(from)-1 {
			c.path.reduce(dt, op, dst.Pointer(), all, dst.Len(), around && len(from) <= Operands)
			all, n = addresses{dst.Pointer()}, 1
		}
	}
	return nil
}

// Copy makes dst = src. The two are equally long host buffers; where they
// overlap, dst holds afterwards what src held before.
func (c *CPU) Copy(dst, src mem.Buffer) error {
	if err := checkCopy(mem.Host, dst, src); err != nil {
		return fmt.Errorf("kernels: copy: %w", err)
	}
	if dst.Len() > 0 && !dst.Same(src) {
		c.path.copy(dst.Pointer(), src.Pointer(), dst.Len())
	}
	return nil
}

// CheckReduce returns what stands against a reduction on a device that combines buffers in one space:
// what every device refuses.
func CheckReduce(in mem.Space, dt mem.Datatype, op mem.Op, dst, a, b mem.Buffer) error {
	switch {
	case !dt.Valid():
		return fmt.Errorf("unknown datatype: use one of %v", mem.Datatypes)
	case !op.Valid():
		return fmt.Errorf("unknown operator: use one of %v", mem.Ops)
	case !op.Combines(dt):
		return fmt.Errorf("the operator is one of integers: use one of %v", mem.OpsOf(dt))
	case dst.Len() != a.Len() || dst.Len() != b.Len():
		return fmt.Errorf("dst, a and b hold %d, %d and %d bytes: they must be equally long", dst.Len(), a.Len(), b.Len())
	case dst.Len()%dt.Size() != 0:
		return fmt.Errorf("%d bytes are not whole elements of %d bytes", dst.Len(), dt.Size())
	case !within(in, dst) || !within(in, a) || !within(in, b):
		return fmt.Errorf("dst, a and b lie in %v, %v and %v memory: all must be in %v memory", dst.Space(), a.Space(), b.Space(), in)
	case overlapsInPart(dst, a) || overlapsInPart(dst, b):
		return errors.New("dst partly overlaps an operand: want the same buffer or a separate one")
	}
	return nil
}

// Alike returns the datatype whose elements op combines as it does dt's, bit by bit, the same for all that are
// alike: a sum of signed integers has the bits of one of unsigned integers, and to a bitwise operator all are bytes.
// Paths and devices need no more loops than there are of these.
func Alike(dt mem.Datatype, op mem.Op) mem.Datatype {
	switch {
	case dt.Float() || op == mem.Min || op == mem.Max:
		return dt
	case op == mem.BitAnd || op == mem.BitOr || op == mem.BitXor:
		return mem.Uint8
	}
	switch dt {
	case mem.Int8:
		return mem.Uint8
	case mem.Int16:
		return mem.Uint16
	case mem.Uint32:
		return mem.Int32
	case mem.Uint64:
		return mem.Int64
	}
	return dt
}

// CheckReduceAll is CheckReduce for two operands or more: dst may be the first or the second.
func CheckReduceAll(in mem.Space, dt mem.Datatype, op mem.Op, dst mem.Buffer, from []mem.Buffer) error {
	if len(from) < 2 {
		return errors.New("want two or more operands")
	}
	for i, b := range from[1:] {
		if err := CheckReduce(in, dt, op, dst, from[0], b); err != nil {
			return err
		}
		if i > 0 && dst.Overlaps(b) {
			return fmt.Errorf("dst is operand %d: want one of the first two, or a separate one", i+1)
		}
	}
	return nil
}

// within reports whether b lies in a space; empty buffers lie anywhere.
func within(in mem.Space, b mem.Buffer) bool { return b.Space() == in || b.Len() == 0 }

func checkCopy(in mem.Space, dst, src mem.Buffer) error {
	switch {
	case dst.Len() != src.Len():
		return fmt.Errorf("dst and src hold %d and %d bytes: they must be equally long", dst.Len(), src.Len())
	case !within(in, dst) || !within(in, src):
		return fmt.Errorf("dst and src lie in %v and %v memory: both must be in %v memory", dst.Space(), src.Space(), in)
	}
	return nil
}

func overlapsInPart(p, q mem.Buffer) bool { return p.Overlaps(q) && !p.Same(q) }

// ReduceTo is ReduceAll to several equally long buffers that lie apart from each other, in one pass where it stores around the
// caches, which they have to be aligned alike for; otherwise piece by piece: while the result is in the core's cache it is copied to all of them. Only the first of
// them may be one of the first two operands.
func (c *CPU) ReduceTo(dt mem.Datatype, op mem.Op, to, from []mem.Buffer, around bool) error {
	for _, dst := range to {
		if err := CheckReduceAll(mem.Host, dt, op, dst, from); err != nil {
			return fmt.Errorf("kernels: reduce %v of %d buffers of %v: %w", op, len(from), dt, err)
		}
	}
	if len(from) > Operands {
		return c.reduceThenCopy(dt, op, to, from, around)
	}
	all, n := addressesOf(from), to[0].Len()
	if around && n > 0 && len(to) <= Operands && c.path.spread != nil && c.path.spread(dt, op, addressesOf(to), all, n) {
		return nil
	}
	for at := 0; at < n; at += spreadBytes {
		size, sum := min(spreadBytes, n-at), unsafe.Add(to[0].Pointer(), at)
		c.path.reduce(dt, op, sum, all.after(at), size, false)
		for _, dst := range to[1:] {
			copyPortable(unsafe.Add(dst.Pointer(), at), sum, size)
		}
	}
	return nil
}

// reduceThenCopy is ReduceTo of more operands than a pass has.
func (c *CPU) reduceThenCopy(dt mem.Datatype, op mem.Op, to, from []mem.Buffer, around bool) error {
	if err := c.ReduceAll(dt, op, to[0], from, false); err != nil {
		return err
	}
	MoveTo(to[1:], to[0], around)
	return nil
}
