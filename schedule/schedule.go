package schedule

import (
	"fmt"
	"slices"
)

// Kind is what an op does.
type Kind uint8

const (
	// Send sends Src to Peer.
	Send Kind = iota
	// Recv receives a message from Peer into Dst.
	Recv
	// RecvReduce receives a message m from Peer and stores Dst = m ⊕ Src.
	RecvReduce
	// Copy stores Dst = Src.
	Copy
	// Scale stores Dst = Src over a divisor that the execution is given: what
	// every rank does to its contribution to an average whose sum would not fit.
	Scale
	// Add stores Dst = With ⊕ Src: the rank's own contribution in the middle of others'.
	Add
)

// Buffer names one of a rank's three buffers.
type Buffer uint8

const (
	// In is the rank's contribution. A schedule never writes it. Of an Allgather it
	// is the rank's part, at the place that it has in Out: the rest is not there.
	In Buffer = iota
	// Out is the result, Count elements. It may be the same memory as In
	// (MPI_IN_PLACE): every schedule orders its ops as if it were, unless the two lie Apart. Of a ReduceScatter it
	// is the rank's part, at the place that it has in In: the rest is not there.
	Out
	// Scratch is memory of Schedule.Scratch elements, private to the
	// execution, with undefined contents at the start.
	Scratch
)

// Range is Len elements from Off on.
type Range struct{ Off, Len int }

// End returns the first element past the range.
func (r Range) End() int { return r.Off + r.Len }

// Chunks cuts the range into ranges of size elements, the last one shorter where
// size does not divide the length; 0 means the whole range in one. There are none
// where the range is empty.
func (r Range) Chunks(size int) []Range {
	if r.Len <= 0 {
		return nil
	}
	if size <= 0 || size > r.Len {
		size = r.Len
	}
	chunks := make([]Range, 0, (r.Len+size-1)/size)
	for off := r.Off; off < r.End(); off += size {
		chunks = append(chunks, Range{Off: off, Len: min(size, r.End()-off)})
	}
	return chunks
}

// Part returns part k of n of the range, which are as long but for an element.
func (r Range) Part(k, n int) Range {
	from, to := r.Len*k/n, r.Len*(k+1)/n
	return Range{Off: r.Off + from, Len: to - from}
}

// Overlaps reports whether r and o share an element.
func (r Range) Overlaps(o Range) bool {
	return r.Len > 0 && o.Len > 0 && r.Off < o.End() && o.Off < r.End()
}

// Ref is a range of a named buffer.
type Ref struct {
	Buf Buffer
	Range
}

// At returns the range c of buffer b.
func (b Buffer) At(c Range) Ref { return Ref{Buf: b, Range: c} }

// Op is one operation of a rank. Which fields count depends on Kind.
type Op struct {
	Kind Kind
	// Peer is the rank sent to or received from.
	Peer int
	// Msg numbers the messages from one rank to another within a schedule,
	// from 0. Both ends number alike, so (sender, receiver, Msg) is the
	// message's identity; no call order is involved.
	Msg int
	// Src is read by Send, Copy, Scale, Add, and RecvReduce (the local operand).
	Src Ref
	// With is read by Add, in the place of RecvReduce's message.
	With Ref
	// Dst is written by Recv, RecvReduce, Copy, Scale and Add.
	Dst Ref
	// Deps are the ops that must have completed before this one starts:
	// indices into Schedule.Ops, all smaller than this op's own.
	Deps []int
}

// Reads reports whether the op reads Src.
func (o *Op) Reads() bool { return o.Kind != Recv }

// Sources appends what the op reads to refs.
func (o *Op) Sources(refs []Ref) []Ref {
	if o.Reads() {
		refs = append(refs, o.Src)
	}
	if o.Kind == Add {
		refs = append(refs, o.With)
	}
	return refs
}

// Writes reports whether the op writes Dst.
func (o *Op) Writes() bool { return o.Kind != Send }

// Local reports whether the op takes part in no message.
func (o *Op) Local() bool { return o.Kind == Copy || o.Kind == Scale || o.Kind == Add }

// Receives reports whether the op takes a message from Peer.
func (o *Op) Receives() bool { return o.Kind == Recv || o.Kind == RecvReduce }

// Adds reports whether the op adds to Src.
func (o *Op) Adds() bool { return o.Kind == RecvReduce || o.Kind == Add }

// Len returns how many elements the op moves.
func (o *Op) Len() int {
	if o.Kind == Send {
		return o.Src.Len
	}
	return o.Dst.Len
}

// Schedule is what one rank does in one collective.
type Schedule struct {
	Rank, Size int
	// Count is the length of In and Out in elements.
	Count int
	// Scratch is the length of Scratch in elements.
	Scratch int
	// Apart says that In and Out are never the same memory. Otherwise they may be.
	Apart bool
	Ops   []Op
}

// Memory numbers the memories that a buffer may lie in: In's, which Out shares unless they lie apart,
// is 0, Scratch's 1, that of an Out that lies apart 2.
func (s *Schedule) Memory(b Buffer) int {
	switch {
	case b == Scratch:
		return 1
	case b == Out && s.Apart:
		return 2
	}
	return 0
}

// Remap returns the schedule for the communicator in which this schedule's
// rank i is called ranks[i], of size ranks. Its ops' dependencies are shared
// with s.
func (s *Schedule) Remap(ranks []int, size int) (*Schedule, error) {
	if len(ranks) != s.Size {
		return nil, fmt.Errorf("schedule: remap of %d ranks given %d names", s.Size, len(ranks))
	}
	seen := make(map[int]bool, len(ranks))
	for i, r := range ranks {
		if r < 0 || r >= size || seen[r] {
			return nil, fmt.Errorf("schedule: remap of rank %d to %d, which is taken or not in [0,%d)", i, r, size)
		}
		seen[r] = true
	}
	if s.Rank < 0 || s.Rank >= s.Size {
		return nil, fmt.Errorf("schedule: remap of the schedule of rank %d of %d", s.Rank, s.Size)
	}
	m := *s
	m.Rank, m.Size = ranks[s.Rank], size
	m.Ops = slices.Clone(s.Ops)
	for i := range m.Ops {
		if m.Ops[i].Local() {
			continue
		}
		peer := m.Ops[i].Peer
		if peer < 0 || peer >= s.Size {
			return nil, fmt.Errorf("schedule: remap of op %d, whose peer %d is not in [0,%d)", i, peer, s.Size)
		}
		m.Ops[i].Peer = ranks[peer]
	}
	return &m, nil
}
