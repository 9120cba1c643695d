package lending

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

// note says where a message lies.
type note struct {
	path    Path
	message uint32
	bytes   int64          // of the message
	at      uint64         // its address; with IPC, where it begins in the allocation
	share   uint64         // IPC: the allocation's number
	name    nbc.SharedName // and its name
}

// noteBytes is how many bytes a note has.
const noteBytes = 4 + 4 + 8 + 8 + 8 + 8 + 64

var order = binary.LittleEndian

func (n *note) write(b []byte) {
	order.PutUint32(b[0:], uint32(n.path))
	order.PutUint32(b[4:], n.message)
	order.PutUint64(b[8:], uint64(n.bytes))
	order.PutUint64(b[16:], n.at)
	order.PutUint64(b[24:], n.share)
	order.PutUint64(b[32:], uint64(n.name.Bytes))
	copy(b[40:], n.name.Handle[:])
}

func (n *note) read(b []byte) {
	n.path = Path(order.Uint32(b[0:]))
	n.message = order.Uint32(b[4:])
	n.bytes = int64(order.Uint64(b[8:]))
	n.at = order.Uint64(b[16:])
	n.share = order.Uint64(b[24:])
	n.name.Bytes = int64(order.Uint64(b[32:]))
	copy(n.name.Handle[:], b[40:])
}

// share is an allocation of this rank's GPU of which others were told.
type share struct {
	name nbc.SharedName
	to   map[int]bool // the ranks
	left int          // which have not closed it, once it was freed
}

// key names an allocation of another process.
type key struct {
	rank  int
	share uint64
}

// name adds to a note how rank to finds src.
func (t *Transport) name(n *note, to int, src mem.Buffer) error {
	id, at, err := t.shares.Find(src)
	if err != nil {
		return err
	}
	s := t.told[id]
	if s == nil {
		name, err := t.shares.Share(id, func() { t.hasBeenFreed(id) })
		if err != nil {
			return err
		}
		s = &share{name: name, to: map[int]bool{}}
		t.told[id] = s
	}
	s.to[to] = true
	n.at, n.share, n.name = uint64(at), id, s.name
	return nil
}

// locate returns where the message of a note from a rank lies.
func (t *Transport) locate(from int, n *note) (mem.Buffer, error) {
	switch {
	case n.path != t.paths[from]:
		return mem.Buffer{}, fmt.Errorf("lending: rank %d sends by the path %v, and rank %d receives by %v: all ranks must set the same paths", from, n.path, t.Rank(), t.paths[from])
	case n.path == Pointer:
		return mem.At(unsafe.Add(unsafe.Pointer(nil), int(n.at)), int(n.bytes), t.space), nil // no memory of Go's
	}
	if err := t.listen(from); err != nil {
		return mem.Buffer{}, err
	}
	k := key{from, n.share}
	whole, open := t.opened[k]
	if !open {
		var err error
		if whole, err = t.shares.Open(n.name); err != nil {
			return mem.Buffer{}, fmt.Errorf("lending: memory of rank %d: %w: SCAFFE_CUDA_PATH=staging does without", from, err)
		}
		t.opened[k] = whole
	}
	if n.at > uint64(whole.Len()) || n.bytes > int64(whole.Len())-int64(n.at) {
		return mem.Buffer{}, fmt.Errorf("lending: rank %d tells of %d bytes from byte %d on, of %d", from, n.bytes, n.at, whole.Len())
	}
	return whole.Slice(int(n.at), int(n.bytes)), nil
}

// listen posts the receive of notes of what a rank has freed, unless there is one.
func (t *Transport) listen(from int) error {
	if t.hears[from] {
		return nil
	}
	o, err := t.add(listens, 0, from, freedTag, 0)
	if err != nil {
		return err
	}
	t.hears[from] = true
	return t.inner.Recv(o.token(partNote), from, freedTag, o.note)
}

// freedTag is that of notes of what was freed.
var freedTag = nbc.Tag{Comm: comm, Message: 1}

// close closes memory that its owner has freed, says so, and listens on. A failure ends the engine.
func (t *Transport) close(o *op, n *note) {
	k := key{o.peer, n.share}
	if b, open := t.opened[k]; open {
		delete(t.opened, k)
		if err := t.shares.CloseOpened(b); err != nil {
			t.end(o, err)
			return
		}
	}
	if err := t.answer(o); err != nil {
		t.end(o, err)
		return
	}
	t.hears[o.peer] = false
	t.failed = errors.Join(t.failed, t.listen(o.peer))
	t.drop(o)
}

// hasBeenFreed is told by whoever frees an allocation.
func (t *Transport) hasBeenFreed(id uint64) {
	t.mu.Lock()
	closed := t.closed
	t.freed = append(t.freed, id)
	t.mu.Unlock()
	if !closed {
		t.hasFreed.Store(true)
		t.inner.Wake()
	}
}

// tellFreed tells those who were told of allocations that these were freed.
func (t *Transport) tellFreed() error {
	t.hasFreed.Store(false)
	t.mu.Lock()
	freed := t.freed
	t.freed = nil
	t.mu.Unlock()
	for _, id := range freed {
		s := t.told[id]
		s.left = len(s.to)
		for to := range s.to {
			o, err := t.add(frees, 0, to, freedTag, 0)
			if err != nil {
				return err
			}
			o.share = id
			if err := t.tell(o, &note{path: IPC, share: id}, freedTag); err != nil {
				return err
			}
		}
	}
	return nil
}

// hasClosed counts that one rank has closed an allocation, which is given back with the last.
func (t *Transport) hasClosed(id uint64) error {
	s := t.told[id]
	if s.left--; s.left > 0 {
		return nil
	}
	delete(t.told, id)
	return t.shares.Unshare(id)
}
