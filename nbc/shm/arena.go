//go:build linux && (amd64 || arm64)

package shm

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"slices"
	"sort"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/scaffe/scaffe/mem"
)

const (
	page     = mem.Alignment
	hugePage = 2 << 20
)

// span is a range of an arena: offset and length in bytes.
type span struct{ off, n int }

// arena hands out ranges of this rank's memfd: first fit, adjacent free ranges joined.
type arena struct {
	mu      sync.Mutex
	mapping []byte // the whole mapping, control area included
	fd      int
	at      int  // where the arena begins in it
	huge    bool // it gets huge pages

	free   []span // by offset
	used   map[int]int
	closed bool

	idle [64][]mem.Buffer // by class; the transport's goroutine alone uses it
}

// openArena makes a memfd of the layout given and maps it.
func openArena(l layout, opts Options) (*arena, error) {
	if opts.forbidArena {
		return nil, errors.New("shm: forbidden by a test")
	}
	fd, err := unix.MemfdCreate("scaffe", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("shm: memfd_create: %w", err)
	}
	if err := unix.Ftruncate(fd, int64(l.size)); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("shm: a memory file of %d bytes: %w", l.size, err)
	}
	b, err := mapFile(fd, l)
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return &arena{
		mapping: b, fd: fd, at: l.arena, huge: wantsHuge(),
		free: []span{{0, l.size - l.arena}}, used: map[int]int{},
	}, nil
}

// mapFile maps a memfd of the layout given at the start of a huge page, without which
// its huge pages would be mapped as small ones.
func mapFile(fd int, l layout) ([]byte, error) {
	room, err := unix.MmapPtr(-1, 0, nil, uintptr(l.size+hugePage), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("shm: address space for %d bytes: %w", l.size, err)
	}
	before := uintptr(-uintptr(room) & (hugePage - 1))
	at, err := unix.MmapPtr(fd, 0, unsafe.Add(room, before), uintptr(l.size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE|unix.MAP_FIXED)
	if err != nil {
		_ = unix.MunmapPtr(room, uintptr(l.size+hugePage))
		return nil, fmt.Errorf("shm: mapping %d bytes: %w", l.size, err)
	}
	if before > 0 {
		_ = unix.MunmapPtr(room, before)
	}
	_ = unix.MunmapPtr(unsafe.Add(at, l.size), hugePage-before)
	b := unsafe.Slice((*byte)(at), l.size)
	// Optimisations; refusal is harmless.
	_ = unix.Madvise(b, unix.MADV_DONTDUMP)
	_ = unix.Madvise(b[l.arena:], unix.MADV_HUGEPAGE)
	return b, nil
}

func unmapFile(b []byte) {
	_ = unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b)))
}

// wantsHuge reports whether the system uses huge pages for who asks for them.
func wantsHuge() bool {
	setting, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")
	return err == nil && !strings.Contains(string(setting), "[never]")
}

// makeHuge makes the whole huge pages of b, which is new, out of one piece of memory each,
// and present. Where the system's setting for shared memory says never, as it often does,
// they would else be small ones, each of which is a fault, and copies from one to the next
// wait for the page tables. Refusal is harmless. Linux 6.18 refuses it where nothing of a
// huge page is there yet: so each is touched before.
func (a *arena) makeHuge(b mem.Buffer) {
	n := b.Len() &^ (hugePage - 1)
	if !a.huge || n == 0 {
		return
	}
	whole := mem.Bytes(b.Slice(0, n))
	for i := 0; i < n; i += hugePage {
		whole[i] = 0
	}
	_ = unix.Madvise(whole, unix.MADV_COLLAPSE)
}

func (a *arena) base() unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(a.mapping)) }

// alloc returns n > 0 zeroed bytes, at a page's start, or at a huge page's
// where that can matter.
func (a *arena) alloc(n int) (mem.Buffer, error) {
	b, err := a.take(n)
	if err == nil {
		a.makeHuge(b)
	}
	return b, err
}

// take finds the range for alloc.
func (a *arena) take(n int) (mem.Buffer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return mem.Buffer{}, ErrClosed
	}
	align := page
	if n >= hugePage {
		align = hugePage
	}
	for i, s := range a.free {
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
		a.free = slices.Replace(a.free, i, i+1, rest...)
		a.used[off] = size
		return mem.At(unsafe.Add(a.base(), a.at+off), n, mem.Host), nil
	}
	return mem.Buffer{}, fmt.Errorf("shm: no room for %d bytes among %d of registered memory: allow more address space (ulimit -v) or register less", n, len(a.mapping)-a.at)
}

// release takes back what alloc returned, whose pages go back to the system.
func (a *arena) release(b mem.Buffer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	off, ok := a.find(b)
	if !ok || a.used[off] == 0 {
		return
	}
	n := a.used[off]
	delete(a.used, off)
	at := int64(a.at + off)
	if unix.Fallocate(a.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, int64(n)) != nil {
		clear(a.mapping[at:][:n]) // the next one is promised zeroes
	}
	i := sort.Search(len(a.free), func(i int) bool { return a.free[i].off > off })
	a.free = slices.Insert(a.free, i, span{off, n})
	a.join(i)
	a.join(i - 1)
	a.unmap()
}

// join joins free ranges i and i+1 where they touch.
func (a *arena) join(i int) {
	if i >= 0 && i+1 < len(a.free) && a.free[i].off+a.free[i].n == a.free[i+1].off {
		a.free[i].n += a.free[i+1].n
		a.free = slices.Delete(a.free, i+1, i+2)
	}
}

// close gives everything back, once none of it is in use.
func (a *arena) close() {
	for class, idle := range a.idle {
		for _, b := range idle {
			a.release(b)
		}
		a.idle[class] = nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	a.unmap()
}

func (a *arena) unmap() {
	if !a.closed || len(a.used) > 0 || a.mapping == nil {
		return
	}
	unmapFile(a.mapping)
	_ = unix.Close(a.fd)
	a.mapping = nil
}

// find returns where in the arena b lies, false where it does not.
func (a *arena) find(b mem.Buffer) (off int, ok bool) {
	if len(a.mapping) == 0 {
		return 0, false
	}
	start := uintptr(a.base()) + uintptr(a.at)
	p := uintptr(b.Pointer())
	if p < start || p-start+uintptr(b.Len()) > uintptr(len(a.mapping)-a.at) {
		return 0, false
	}
	return int(p - start), true
}

// Staging memory of the transport's own is taken in powers of two and kept.

func class(n int) int { return bits.Len(uint(max(n, page) - 1)) }

func (a *arena) stage(n int) (mem.Buffer, error) {
	k := class(n)
	if idle := a.idle[k]; len(idle) > 0 {
		a.idle[k] = idle[:len(idle)-1]
		return idle[len(idle)-1].Slice(0, n), nil
	}
	b, err := a.alloc(1 << k)
	if err != nil {
		return mem.Buffer{}, err
	}
	return b.Slice(0, n), nil
}

func (a *arena) unstage(b mem.Buffer) {
	if b.Len() > 0 {
		k := class(b.Len())
		a.idle[k] = append(a.idle[k], mem.At(b.Pointer(), 1<<k, mem.Host))
	}
}
