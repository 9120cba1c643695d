package net

import (
	"fmt"

	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/layers"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/mem"
)

// Memory is how much host memory nets may take. A net asks before it allocates:
// a prototxt may ask for more than there is, and a Go program that runs out of
// memory ends with a stack trace. It counts what a net cannot do without, the
// parameters and the blobs between layers; what layers need besides is less.
type Memory struct{ limit, used int64 }

// NewMemory returns the limit of so many bytes; below 0 there is none.
func NewMemory(limit int64) *Memory { return &Memory{limit: limit} }

// AvailableMemory returns the limit of what this process can still allocate; see
// mem.Available. There is no limit where that is not known.
func AvailableMemory() *Memory {
	limit, err := mem.Available()
	if err != nil {
		limit = -1
	}
	return NewMemory(limit)
}

// MemoryError says that a net does not fit into memory.
type MemoryError struct {
	// For is what the memory is for, such as "its parameters".
	For string
	// Wanted is how many bytes were asked for, Left how many were left of Limit.
	Wanted, Left, Limit int64
}

// Error says how much is wanted, how much there is, and what to do.
func (e *MemoryError) Error() string {
	return fmt.Sprintf("%s %s of memory (%d bytes), and %s of the %s available are left: make the layer or the batch smaller, or use more nodes",
		e.For, size(e.Wanted), e.Wanted, size(e.Left), size(e.Limit))
}

// size prints bytes roughly.
func size(bytes int64) string {
	for _, u := range []struct {
		shift uint
		name  string
	}{{40, "TiB"}, {30, "GiB"}, {20, "MiB"}, {10, "KiB"}} {
		if bytes >= 1<<u.shift {
			return fmt.Sprintf("%.1f %s", float64(bytes)/float64(int64(1)<<u.shift), u.name)
		}
	}
	return fmt.Sprintf("%d bytes", bytes)
}

// fits says whether so many bytes are left for something.
func (m *Memory) fits(what string, bytes int64) error {
	if m.limit >= 0 && bytes > m.limit-m.used {
		return &MemoryError{For: what, Wanted: bytes, Left: m.limit - m.used, Limit: m.limit}
	}
	return nil
}

// take takes them.
func (m *Memory) take(what string, bytes int64) error {
	if err := m.fits(what, bytes); err != nil {
		return err
	}
	m.used += bytes
	return nil
}

// give returns bytes.
func (m *Memory) give(bytes int64) { m.used -= bytes }

// room is what layers are told of the memory.
type room struct{ b *builder }

// Params takes a layer's parameters: their first values, and in a net for
// training, which is packed, the packed values and gradients.
func (r room) Params(bytes int64) error {
	if r.b.opts.Phase == proto.Phase_TRAIN {
		bytes *= 3
	}
	return r.b.memory.take("its parameters need", bytes)
}

// Fits says whether a top may be filled before takeBlobs counts it.
func (r room) Fits(bytes int64) error { return r.b.memory.fits("it needs", bytes) }

// takeBlobs asks for the values and the gradients of all blobs between layers.
func (b *builder) takeBlobs() error {
	if b.opts.GPU != nil { // which says itself when it has no more
		return nil
	}
	data, diff := map[*blob.Blob]bool{}, map[*blob.Blob]bool{}
	for _, nd := range b.nodes {
		shares, views := false, false
		if l, ok := nd.layer.(layers.Sharer); ok {
			shares, views = l.SharesMemory()
		}
		need := int64(0)
		if l, ok := nd.layer.(layers.Bufferer); ok {
			need += l.Buffered()
		}
		bytes := func(bl *blob.Blob) int64 { return int64(mem.Float32.Bytes(bl.Count())) }
		for _, t := range nd.top {
			if !data[t] && !shares {
				need += bytes(t)
			}
			data[t] = true
		}
		if nd.backward {
			for i, bottom := range nd.bottom {
				if nd.propagate[i] && !diff[bottom] && !views {
					need += bytes(bottom)
				}
				diff[bottom] = true
			}
		}
		if err := b.memory.take("its tops and the gradients of its bottoms need", need); err != nil {
			return nd.wrap(err)
		}
	}
	return nil
}
