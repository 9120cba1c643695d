//go:build cuda && cgo && linux && (amd64 || arm64)

package cuda

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/scaffe/scaffe/kernels/cuda/internal/driver"
	"github.com/scaffe/scaffe/mem"
)

// allocation is what Alloc returned.
type allocation struct {
	d      *Device
	id     uint64 // which no other one of this process ever has
	memory mem.Buffer
	handle *Handle  // nil: not exported yet
	shares int      // of Share, that Unshare has not ended
	freed  []func() // to be called by Free
	dying  bool     // Free was called
}

// allocations are all of this process, whichever Device of which GPU returned them: programs and
// transports open a GPU each for itself.
var allocations struct {
	sync.RWMutex
	byAddress []*allocation
	dying     map[uint64]*allocation // that others still have open
	last      uint64
}

// search returns where the allocation that begins at p, or before it, is in the order of addresses.
func search(p uint64) (int, bool) {
	i, found := slices.BinarySearchFunc(allocations.byAddress, p, func(a *allocation, p uint64) int {
		switch at := address(a.memory); {
		case at < p:
			return -1
		case at > p:
			return 1
		}
		return 0
	})
	if !found {
		i--
	}
	return i, found
}

// dyingWithin is for how long Alloc waits for memory that was freed and that other processes have still open.
const dyingWithin = 250 * time.Millisecond

// Alloc returns n bytes of the GPU's memory, whose contents are undefined.
func (d *Device) Alloc(n int) (mem.Buffer, error) {
	if n == 0 {
		return mem.Buffer{}, nil
	}
	if n < 0 {
		return mem.Buffer{}, d.wrap("allocate", fmt.Errorf("%d bytes", n))
	}
	p, err := d.c.Alloc(n)
	for end := time.Now().Add(dyingWithin); errors.Is(err, driver.OutOfMemory) && dying() > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
		p, err = d.c.Alloc(n)
	}
	if errors.Is(err, driver.OutOfMemory) {
		if left, all, e := d.c.Memory(); e == nil {
			err = fmt.Errorf("%w: %d bytes of %d are free", err, left, all)
		}
		if n := dying(); n > 0 {
			err = fmt.Errorf("%w, and %d that were freed are still open in other processes", err, n)
		}
	}
	if err != nil {
		return mem.Buffer{}, d.wrap(fmt.Sprintf("allocate %d bytes", n), err)
	}
	b := mem.At(p, n, mem.CUDA)
	allocations.Lock()
	defer allocations.Unlock()
	allocations.last++
	i, _ := search(address(b))
	allocations.byAddress = slices.Insert(allocations.byAddress, i+1, &allocation{d: d, id: allocations.last, memory: b})
	return b, nil
}

// dying returns how many bytes were freed that are still shared.
func dying() (n int) {
	allocations.RLock()
	defer allocations.RUnlock()
	for _, a := range allocations.dying {
		n += a.memory.Len()
	}
	return n
}

// Free gives back what Alloc returned, with nothing under way that touches it. Memory that is shared stays until
// Unshare.
func (d *Device) Free(b mem.Buffer) error {
	if b.Len() == 0 {
		return nil
	}
	allocations.Lock()
	var freed []func()
	if i, found := search(address(b)); found {
		a := allocations.byAddress[i]
		allocations.byAddress = slices.Delete(allocations.byAddress, i, i+1)
		if a.dying = a.shares > 0; a.dying {
			if allocations.dying == nil {
				allocations.dying = map[uint64]*allocation{}
			}
			allocations.dying[a.id] = a
			freed = a.freed
		}
	}
	allocations.Unlock()
	if freed == nil {
		return d.wrap("free", d.c.Free(b.Pointer()))
	}
	for _, f := range freed {
		f()
	}
	return nil
}

// Find returns the number of the allocation in which b lies, which no other one of this process ever has, and where b
// begins in it.
func (d *Device) Find(b mem.Buffer) (id uint64, at int, err error) {
	allocations.RLock()
	defer allocations.RUnlock()
	if a := holding(b); a != nil {
		return a.id, int(address(b) - address(a.memory)), nil
	}
	return 0, 0, d.wrap("find", fmt.Errorf("%d bytes at %#x in %v memory are no part of what Alloc returned", b.Len(), address(b), b.Space()))
}

// holding returns the allocation in which b lies, or nil.
func holding(b mem.Buffer) *allocation {
	i, _ := search(address(b))
	if i < 0 || b.Space() != mem.CUDA {
		return nil
	}
	a := allocations.byAddress[i]
	if end := address(a.memory) + uint64(a.memory.Len()); address(b) >= end || uint64(b.Len()) > end-address(b) {
		return nil
	}
	return a
}

// Share exports an allocation by its number. Until Unshare is called for it as often, Free calls freed, which is not to wait for anything,
// and leaves the memory to those who have opened it.
func (d *Device) Share(id uint64, freed func()) (Handle, error) {
	allocations.Lock()
	defer allocations.Unlock()
	i := slices.IndexFunc(allocations.byAddress, func(a *allocation) bool { return a.id == id })
	if i < 0 {
		return Handle{}, d.wrap("share", fmt.Errorf("there is no allocation %d", id))
	}
	a := allocations.byAddress[i]
	if a.handle == nil {
		h, err := d.Export(a.memory)
		if err != nil {
			return h, err
		}
		a.handle = &h
	}
	a.shares++
	a.freed = append(a.freed, freed)
	return *a.handle, nil
}

// Unshare ends a Share of memory that was freed, which nobody has open any more. Where the driver refuses to free it
// all is as before.
func (d *Device) Unshare(id uint64) error {
	allocations.Lock()
	a := allocations.dying[id]
	last := false
	if a != nil {
		a.shares--
		if last = a.shares == 0; last {
			delete(allocations.dying, id)
		}
	}
	allocations.Unlock()
	switch {
	case a == nil:
		return d.wrap("free", fmt.Errorf("allocation %d is not shared, or was not freed", id))
	case !last:
		return nil
	}
	err := a.d.c.Free(a.memory.Pointer())
	if err != nil { // it is still there
		allocations.Lock()
		a.shares++
		allocations.dying[id] = a
		allocations.Unlock()
	}
	return a.d.wrap("free", err)
}

// Handle names memory of a GPU to other processes of the node; its bytes may be sent.
type Handle struct {
	Memory driver.Handle
	Bytes  int64
}

// Export names what Alloc returned, as a whole, to other processes. It must stay until they have closed it.
func (d *Device) Export(b mem.Buffer) (Handle, error) {
	if b.Space() != mem.CUDA || b.Len() == 0 {
		return Handle{}, d.wrap("export", fmt.Errorf("a buffer of %d bytes in %v memory: want one of Alloc", b.Len(), b.Space()))
	}
	h, err := d.c.Export(b.Pointer())
	if err != nil {
		return Handle{}, d.wrap(fmt.Sprintf("export %d bytes", b.Len()), err)
	}
	return Handle{h, int64(b.Len())}, nil
}

// Import makes another process's memory usable on this GPU, until CloseImport. Streams of the two processes do not
// know each other: who wrote says when it has been done.
func (d *Device) Import(h Handle) (mem.Buffer, error) {
	if h.Bytes <= 0 {
		return mem.Buffer{}, d.wrap("import", fmt.Errorf("%d bytes: want what Export returned", h.Bytes))
	}
	p, err := d.c.Import(h.Memory)
	if err != nil {
		return mem.Buffer{}, d.wrap(fmt.Sprintf("import %d bytes of another process (containers may forbid it)", h.Bytes), err)
	}
	return mem.At(p, int(h.Bytes), mem.CUDA), nil
}

// CloseImport gives up what Import returned, with nothing under way that touches it.
func (d *Device) CloseImport(b mem.Buffer) error {
	return d.wrap("close imported memory", d.c.CloseImport(b.Pointer()))
}

// Reach makes another GPU's memory of this process usable by this one's kernels, by its number. It may be called
// again.
func (d *Device) Reach(index int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if index == d.Index || slices.Contains(d.reached, index) {
		return nil
	}
	what := fmt.Sprintf("reach the memory of cuda:%d", index)
	switch can, err := driver.CanReach(d.Index, index); {
	case err != nil:
		return d.wrap(what, err)
	case !can:
		return d.wrap(what, errors.New("the two have no peer access"))
	}
	c, err := driver.Retain(index)
	if err != nil {
		return d.wrap(what, err)
	}
	if err := d.c.Reach(c); err != nil {
		return d.wrap(what, errors.Join(err, driver.Release(index)))
	}
	d.reached = append(d.reached, index)
	return nil
}

// CanReach reports whether the kernels of one GPU can use the memory of another one.
func CanReach(index, other int) (bool, error) { return driver.CanReach(index, other) }

// MPS reports whether the processes that share a GPU do so through an MPS server, and whether the driver says.
func MPS(index int) (on, known bool) { return driver.MPS(index) }
