//go:build linux && (amd64 || arm64)

package shm

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sort"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/scaffe/scaffe/mem"
)

const (
	page     = mem.Alignment
	hugePage = 2 << 20
)

// span is a range of a heap: offset and length in bytes.
type span struct{ off, n int }

// heap hands out ranges of the own memfd: first fit, neighbours joined again.
type heap struct {
	mu   sync.Mutex
	area []byte // the whole mapping, control area included
	fd   int
	at   int // where the heap begins in it

	free   []span // by offset
	used   map[int]int
	closed bool

	idle [64][]mem.Buffer // by class; the transport's goroutine alone uses it
}

// openHeap makes a memfd of the layout given and maps it.
func openHeap(a area, opts Options) (*heap, error) {
	if opts.forbidHeap {
		return nil, errors.New("shm: forbidden by a test")
	}
	fd, err := unix.MemfdCreate("scaffe", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("shm: memfd_create: %w", err)
	}
	if err := unix.Ftruncate(fd, int64(a.size)); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("shm: a memory file of %d bytes: %w", a.size, err)
	}
	b, err := mapArea(fd, a)
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return &heap{
		area: b, fd: fd, at: a.heap,
		free: []span{{0, a.size - a.heap}}, used: map[int]int{},
	}, nil
}

func mapArea(fd int, a area) ([]byte, error) {
	b, err := unix.Mmap(fd, 0, a.size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("shm: mapping %d bytes: %w", a.size, err)
	}
	// Optimisations; refusal is harmless.
	_ = unix.Madvise(b, unix.MADV_DONTDUMP)
	_ = unix.Madvise(b[a.heap:], unix.MADV_HUGEPAGE)
	return b, nil
}

func (h *heap) base() unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(h.area)) }

// alloc returns n > 0 zeroed bytes, at a page's start, or at a huge page's
// where that can matter.
func (h *heap) alloc(n int) (mem.Buffer, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return mem.Buffer{}, ErrClosed
	}
	align := page
	if n >= hugePage {
		align = hugePage
	}
	for i, s := range h.free {
		off := roundUp(s.off, align)
		size := roundUp(n, page)
		if off+size > s.off+s.n {
			continue
		}
		var rest []span
		if off > s.off {
			rest = append(rest, span{s.off, off - s.off})
		}
		if end := off + size; end < s.off+s.n {
			rest = append(rest, span{end, s.off + s.n - end})
		}
		h.free = slices.Replace(h.free, i, i+1, rest...)
		h.used[off] = size
		return mem.At(unsafe.Add(h.base(), h.at+off), n, mem.Host), nil
	}
	return mem.Buffer{}, fmt.Errorf("shm: no room for %d bytes among %d of registered memory: allow more address space (ulimit -v) or register less", n, len(h.area)-h.at)
}

// release takes back what alloc returned, whose pages go back to the system.
func (h *heap) release(b mem.Buffer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	off, ok := h.find(b)
	if !ok || h.used[off] == 0 {
		return
	}
	n := h.used[off]
	delete(h.used, off)
	at := int64(h.at + off)
	if unix.Fallocate(h.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, int64(n)) != nil {
		clear(h.area[at:][:n]) // the next one is promised zeroes
	}
	i := sort.Search(len(h.free), func(i int) bool { return h.free[i].off > off })
	h.free = slices.Insert(h.free, i, span{off, n})
	h.join(i)
	h.join(i - 1)
	h.unmap()
}

// join joins free ranges i and i+1 where they touch.
func (h *heap) join(i int) {
	if i >= 0 && i+1 < len(h.free) && h.free[i].off+h.free[i].n == h.free[i+1].off {
		h.free[i].n += h.free[i+1].n
		h.free = slices.Delete(h.free, i+1, i+2)
	}
}

// close gives everything back, once nobody uses any of it.
func (h *heap) close() {
	for class, idle := range h.idle {
		for _, b := range idle {
			h.release(b)
		}
		h.idle[class] = nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	h.unmap()
}

func (h *heap) unmap() {
	if !h.closed || len(h.used) > 0 || h.area == nil {
		return
	}
	_ = unix.Munmap(h.area)
	_ = unix.Close(h.fd)
	h.area = nil
}

// find returns where in the heap b lies, false where it does not.
func (h *heap) find(b mem.Buffer) (off int, ok bool) {
	if len(h.area) == 0 {
		return 0, false
	}
	start := uintptr(h.base()) + uintptr(h.at)
	p := uintptr(b.Pointer())
	if p < start || p-start+uintptr(b.Len()) > uintptr(len(h.area)-h.at) {
		return 0, false
	}
	return int(p - start), true
}

// Staging memory of the transport's own is taken in powers of two and kept.

func class(n int) int { return bits.Len(uint(max(n, page) - 1)) }

func (h *heap) stage(n int) (mem.Buffer, error) {
	k := class(n)
	if idle := h.idle[k]; len(idle) > 0 {
		h.idle[k] = idle[:len(idle)-1]
		return idle[len(idle)-1].Slice(0, n), nil
	}
	b, err := h.alloc(1 << k)
	if err != nil {
		return mem.Buffer{}, err
	}
	return b.Slice(0, n), nil
}

func (h *heap) unstage(b mem.Buffer) {
	if b.Len() > 0 {
		k := class(b.Len())
		h.idle[k] = append(h.idle[k], mem.At(b.Pointer(), 1<<k, mem.Host))
	}
}
