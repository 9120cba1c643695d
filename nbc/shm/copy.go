//go:build linux && (amd64 || arm64)

package shm

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/mem"
)

// copyChunk is how much a rank copies before it looks around again.
const copyChunk = 1 << 20

// enqueue lets Poll copy the message of o, which has met the other side.
func (t *Transport) enqueue(o *op) { t.work = append(t.work, o) }

// labor copies one chunk's worth of what there is to copy; of messages to be added as
// many as stay in the cache until they are.
func (t *Transport) labor() {
	borrowed := 0
	for budget := copyChunk; budget > 0 && t.worked < len(t.work); {
		o := t.work[t.worked]
		n, ended, err := t.piece(o, budget)
		budget -= n
		if o.borrows {
			borrowed += n
			budget = min(budget, t.askRoom-borrowed)
		}
		if ended || n == 0 {
			t.worked++
		}
		if ended {
			t.copied(o, err)
		}
	}
	if t.worked == len(t.work) || t.worked > 64 {
		t.work, t.worked = t.work[:copy(t.work, t.work[t.worked:])], 0
	}
}

// piece copies the next part of o, of some most bytes. It returns how many, and
// whether the message has been copied or cannot be.
func (t *Transport) piece(o *op, most int) (n int, ended bool, err error) {
	if o.claim != nil {
		return t.copyPieces(o, most)
	}
	n = min(most, o.n-o.copied)
	err = t.copy(o, o.copied, n)
	o.copied += n
	return n, err != nil || o.copied == o.n, err
}

// unlist takes o, which has ended, out of what there is to copy.
func (t *Transport) unlist(o *op) {
	if i := slices.Index(t.work[t.worked:], o); i >= 0 {
		t.work = slices.Delete(t.work, t.worked+i, t.worked+i+1)
	}
}

// copied ends o on both sides.
func (t *Transport) copied(o *op, err error) {
	how := well
	if err != nil {
		how = failed
		if errors.Is(err, unix.ESRCH) {
			err = t.gone(o.peer)
		}
	}
	t.answer(o.peer, o.other.id, o.n, how)
	t.end(o, err)
}

// putting reports whether the memory of the peer's receive id is being written
// to.
func (t *Transport) putting(p *peer, id uint64) bool {
	return slices.ContainsFunc(t.work[t.worked:], func(o *op) bool {
		return o.sending && o.peer == p && o.other.id == id
	})
}

// copy copies n bytes of o between the two ranks.
func (t *Transport) copy(o *op, at, n int) error {
	mine := o.buf.Slice(at, n)
	if o.other.place == private {
		return t.vm(o.peer, uintptr(o.other.addr)+uintptr(at), mine, o.sending)
	}
	all, ok := o.peer.at(&o.other)
	if !ok {
		return fmt.Errorf("shm: rank %d tells of memory beyond its own", o.peer.rank)
	}
	theirs := all.Slice(at, n)
	if o.sending {
		mine, theirs = theirs, mine
	}
	kernels.Move(mine, theirs, o.total >= kernels.StreamFrom)
	return nil
}

// vm copies between mine and the peer's private memory at the address given.
func (t *Transport) vm(p *peer, at uintptr, mine mem.Buffer, write bool) error {
	for mine.Len() > 0 {
		n, err := t.iov.transfer(p.pid, mine, at, write)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			verb := "reading from"
			if write {
				verb = "writing to"
			}
			return fmt.Errorf("shm: %s the memory of rank %d: %w", verb, p.rank, err)
		}
		mine = mine.Slice(n, mine.Len()-n)
		at += uintptr(n)
	}
	return nil
}

// vectors are arguments of process_vm_readv, kept so that none is allocated.
type vectors struct {
	local  [1]unix.Iovec
	remote [1]unix.RemoteIovec
}

// transfer reads or writes the memory of a process at the address given, and
// returns how many bytes it moved.
func (v *vectors) transfer(pid int, mine mem.Buffer, at uintptr, write bool) (int, error) {
	v.local[0].Base = (*byte)(mine.Pointer())
	v.local[0].SetLen(mine.Len())
	v.remote[0] = unix.RemoteIovec{Base: at, Len: mine.Len()}
	defer func() { v.local[0].Base = nil }()
	if write {
		return unix.ProcessVMWritev(pid, v.local[:], v.remote[:], 0)
	}
	return unix.ProcessVMReadv(pid, v.local[:], v.remote[:], 0)
}

// canRead reports whether the memory of a process, in which want lies at the
// address given, can be read.
func (v *vectors) canRead(pid int, at uintptr, want uint64) bool {
	var got uint64
	n, err := v.transfer(pid, mem.At(unsafe.Pointer(&got), 8, mem.Host), at, false)
	return err == nil && n == 8 && got == want
}
