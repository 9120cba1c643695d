package mem

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Space is the memory a Buffer lies in.
type Space uint8

const (
	// Host is memory that the CPU addresses, private to this process or not.
	Host Space = iota
	// CUDA is memory of a CUDA device; only that device's streams touch it.
	CUDA
)

// String returns "host" or "cuda".
func (s Space) String() string {
	switch s {
	case Host:
		return "host"
	case CUDA:
		return "cuda"
	}
	return fmt.Sprintf("space(%d)", uint8(s))
}

// Buffer names a contiguous range of bytes in one Space.
//
// The zero Buffer is empty and valid. A Buffer made by Alloc lies outside the
// Go heap, so its address may be held by C code (an MPI request in flight)
// without pinning; one made by Of lies wherever the slice does, and must
// be pinned by code that hands it to C for longer than one call.
type Buffer struct {
	base  unsafe.Pointer
	bytes int
	space Space
	heap  bool // lies in the Go heap
}

// Alignment is the alignment in bytes of every Buffer made by Alloc: a page,
// hence more than any cache line or vector register asks for.
const Alignment = 4096

// TryAlloc returns n zeroed bytes of host memory outside the Go heap. They must
// be given back with Free.
func TryAlloc(n int) (Buffer, error) {
	b, err := TryMalloc(n)
	if err == nil && n >= 2<<20 {
		_ = unix.Madvise(Bytes(b), unix.MADV_HUGEPAGE) // an optimization; refusal is harmless
	}
	return b, err
}

// TryMalloc is TryAlloc of memory with pages as those of malloc, which most programs' buffers have: huge ones only where
// the system gives them unasked.
func TryMalloc(n int) (Buffer, error) {
	if n == 0 {
		return Buffer{}, nil
	}
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return Buffer{}, fmt.Errorf("mem: cannot allocate %d bytes: %w", n, err)
	}
	return Buffer{base: unsafe.Pointer(unsafe.SliceData(b)), bytes: n}, nil
}

// Alloc is TryAlloc for a few bytes, or for tests: it panics where the system is
// out of memory, as make does. What a user may ask for in any size is allocated
// by TryAlloc.
func Alloc(n int) Buffer {
	b, err := TryAlloc(n)
	if err != nil {
		panic(err.Error())
	}
	return b
}

// Free gives the memory of a Buffer made by Alloc back. Every Slice of it is
// invalid afterwards. Freeing the empty Buffer does nothing.
func (b Buffer) Free() {
	if b.bytes == 0 || b.heap || b.space != Host {
		return
	}
	_ = unix.MunmapPtr(b.base, uintptr(b.bytes))
}

// Number is an element type that Of and View accept: the Go types in which
// the Datatypes are stored (Float16 and BFloat16 as their bits, uint16).
type Number interface {
	~float32 | ~float64 | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~int8 | ~int16 | ~int32 | ~int64
}

// Of names the elements of s, which stay where they are.
func Of[T Number](s []T) Buffer {
	if len(s) == 0 {
		return Buffer{}
	}
	return Buffer{
		base:  unsafe.Pointer(unsafe.SliceData(s)),
		bytes: len(s) * int(unsafe.Sizeof(s[0])),
		heap:  true,
	}
}

// At names n bytes at p in space s: memory that somebody else allocated and
// keeps alive, such as a shared window or a device allocation.
func At(p unsafe.Pointer, n int, s Space) Buffer {
	if n == 0 {
		return Buffer{}
	}
	return Buffer{base: p, bytes: n, space: s}
}

// Len returns the length in bytes.
func (b Buffer) Len() int { return b.bytes }

// Space returns the memory the buffer lies in.
func (b Buffer) Space() Space { return b.space }

// OnGoHeap reports whether the bytes may lie in the Go heap, where C code may
// hold their address only while they are pinned.
func (b Buffer) OnGoHeap() bool { return b.heap }

// Pointer returns the address of the first byte, nil for an empty buffer.
func (b Buffer) Pointer() unsafe.Pointer { return b.base }

// Slice names n bytes of b from byte off on. It panics where b does not hold
// them, as slicing a slice does.
func (b Buffer) Slice(off, n int) Buffer {
	if off < 0 || n < 0 || off > b.bytes-n {
		panic(fmt.Sprintf("mem: slice [%d:%d] of a buffer of %d bytes", off, off+n, b.bytes))
	}
	if n == 0 {
		return Buffer{}
	}
	b.base = unsafe.Add(b.base, off)
	b.bytes = n
	return b
}

// Same reports whether a and b name the same bytes.
func (b Buffer) Same(o Buffer) bool { return b.base == o.base && b.bytes == o.bytes }

// Overlaps reports whether a and b share a byte.
func (b Buffer) Overlaps(o Buffer) bool {
	if b.bytes == 0 || o.bytes == 0 || b.space != o.space {
		return false
	}
	p, q := uintptr(b.base), uintptr(o.base)
	return p < q+uintptr(o.bytes) && q < p+uintptr(b.bytes)
}

// View returns the buffer's bytes as elements of type T; bytes at the end
// that do not fill an element are left out. It panics for a buffer that the
// CPU cannot address.
func View[T Number](b Buffer) []T {
	if b.space != Host {
		panic(fmt.Sprintf("mem: the CPU cannot address %s memory", b.space))
	}
	var t T
	n := b.bytes / int(unsafe.Sizeof(t))
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(b.base), n)
}

// Float32s is View[float32].
func Float32s(b Buffer) []float32 { return View[float32](b) }

// Bytes is View[uint8].
func Bytes(b Buffer) []byte { return View[uint8](b) }

// Rewrite writes to every cache line of b and changes a bit of each, so that the lines lie where a thread leaves them that has just
// computed b: in its core's caches, as far as they hold them, and in no other's. Benchmarks do so before a call. It
// panics for a buffer that the CPU cannot address.
func Rewrite(b Buffer) {
	const line = 64
	bytes := Bytes(b)
	for i := 0; i < len(bytes); i += line {
		bytes[i] ^= 1
	}
}
