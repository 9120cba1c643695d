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

// loops are a path's loops for every datatype and operator.
type loops [7][4]loop

// path is one implementation of all reductions and copies.
type path struct {
	name string
	// reduce combines n > 0 bytes.
	reduce func(dt mem.Datatype, op mem.Op, dst, a, b unsafe.Pointer, n int)
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
	if err := checkReduce(dt, op, dst, a, b); err != nil {
		return fmt.Errorf("kernels: reduce %v of %v: %w", op, dt, err)
	}
	if dst.Len() > 0 {
		c.path.reduce(dt, op, dst.Pointer(), a.Pointer(), b.Pointer(), dst.Len())
	}
	return nil
}

// Copy makes dst = src. The two are equally long host buffers; where they
// overlap, dst holds afterwards what src held before.
func (c *CPU) Copy(dst, src mem.Buffer) error {
	if err := checkCopy(dst, src); err != nil {
		return fmt.Errorf("kernels: copy: %w", err)
	}
	if dst.Len() > 0 && !dst.Same(src) {
		c.path.copy(dst.Pointer(), src.Pointer(), dst.Len())
	}
	return nil
}

func checkReduce(dt mem.Datatype, op mem.Op, dst, a, b mem.Buffer) error {
	switch {
	case !dt.Valid():
		return fmt.Errorf("unknown datatype: use one of %v", mem.Datatypes)
	case !op.Valid():
		return fmt.Errorf("unknown operator: use one of %v", mem.Ops)
	case dst.Len() != a.Len() || dst.Len() != b.Len():
		return fmt.Errorf("dst, a and b hold %d, %d and %d bytes: they must be equally long", dst.Len(), a.Len(), b.Len())
	case dst.Len()%dt.Size() != 0:
		return fmt.Errorf("%d bytes are not whole elements of %d bytes", dst.Len(), dt.Size())
	case dst.Space() != mem.Host || a.Space() != mem.Host || b.Space() != mem.Host:
		return fmt.Errorf("dst, a and b lie in %v, %v and %v memory: the CPU needs all in host memory", dst.Space(), a.Space(), b.Space())
	case overlapsInPart(dst, a) || overlapsInPart(dst, b):
		return errors.New("dst partly overlaps an operand: want the same buffer or a separate one")
	}
	return nil
}

func checkCopy(dst, src mem.Buffer) error {
	switch {
	case dst.Len() != src.Len():
		return fmt.Errorf("dst and src hold %d and %d bytes: they must be equally long", dst.Len(), src.Len())
	case dst.Space() != mem.Host || src.Space() != mem.Host:
		return fmt.Errorf("dst and src lie in %v and %v memory: the CPU needs both in host memory", dst.Space(), src.Space())
	}
	return nil
}

func overlapsInPart(p, q mem.Buffer) bool { return p.Overlaps(q) && !p.Same(q) }
