package schedule

// Builder builds the schedule of one rank op by op. Dependencies follow from
// the ranges the ops touch (see the package comment); messages are numbered
// in the order in which they are added, per peer and direction.
//
// A Builder is a view of a schedule: Sub returns another view of the same schedule,
// in which ranks and buffers have other names, so that an algorithm written for
// ranks 0..P-1 reducing In to Out serves as one level of a larger collective, as on
// a sub-communicator.
type Builder struct {
	plan  *plan
	ranks []int  // name in this view -> rank of the schedule; nil: the same
	names [2]Ref // where In and Out of this view lie
}

// plan is what all views of one schedule share.
type plan struct {
	Schedule
	hazards  [3]hazards // of In, and of Out unless they lie apart; of Scratch; of Out that lies apart
	sent     map[int]int
	received map[int]int
}

// usualOps is room for the ops that many schedules have.
const usualOps = 64

// NewBuilder returns a builder for rank of size, with buffers of count
// elements.
func NewBuilder(rank, size, count int) *Builder {
	return &Builder{
		plan: &plan{
			Schedule: Schedule{Rank: rank, Size: size, Count: count, Ops: make([]Op, 0, usualOps)},
			sent:     map[int]int{},
			received: map[int]int{},
		},
		names: [2]Ref{In.At(Range{0, count}), Out.At(Range{0, count})},
	}
}

// Sub returns a view in which this view's rank ranks[i] is called i, and the
// equally long ranges in and out of this view's buffers are called In and Out.
func (b *Builder) Sub(ranks []int, in, out Ref) *Builder {
	mapped := make([]int, len(ranks))
	for i, r := range ranks {
		mapped[i] = b.rank(r)
	}
	return &Builder{plan: b.plan, ranks: mapped, names: [2]Ref{b.ref(in), b.ref(out)}}
}

// Apart says that In and Out are never the same memory, so that ops on the one do not wait for those
// on the other. It comes before all ops.
func (b *Builder) Apart() { b.plan.Apart = true }

// MayBeOne reports whether In and Out of this view may be the same memory.
func (b *Builder) MayBeOne() bool {
	return b.plan.Memory(b.names[In].Buf) == b.plan.Memory(b.names[Out].Buf)
}

// Reserve returns n fresh elements of Scratch.
func (b *Builder) Reserve(n int) Ref {
	r := Scratch.At(Range{b.plan.Scratch, n})
	b.plan.Scratch += n
	return r
}

// Send adds: send src to rank to.
func (b *Builder) Send(to int, src Ref) {
	to = b.rank(to)
	b.add(Op{Kind: Send, Peer: to, Msg: next(b.plan.sent, to), Src: b.ref(src)})
}

// Recv adds: receive from rank from into dst.
func (b *Builder) Recv(from int, dst Ref) {
	from = b.rank(from)
	b.add(Op{Kind: Recv, Peer: from, Msg: next(b.plan.received, from), Dst: b.ref(dst)})
}

// RecvReduce adds: receive m from rank from and store dst = m ⊕ src.
func (b *Builder) RecvReduce(from int, src, dst Ref) {
	from = b.rank(from)
	b.add(Op{Kind: RecvReduce, Peer: from, Msg: next(b.plan.received, from), Src: b.ref(src), Dst: b.ref(dst)})
}

// Copy adds: dst = src. Copying a range onto itself adds nothing.
func (b *Builder) Copy(src, dst Ref) {
	if src, dst = b.ref(src), b.ref(dst); src != dst {
		b.add(Op{Kind: Copy, Peer: -1, Src: src, Dst: dst})
	}
}

// Scale adds: dst = src over the execution's divisor.
func (b *Builder) Scale(src, dst Ref) {
	b.add(Op{Kind: Scale, Peer: -1, Src: b.ref(src), Dst: b.ref(dst)})
}

// Add adds: dst = with ⊕ src.
func (b *Builder) Add(with, src, dst Ref) {
	b.add(Op{Kind: Add, Peer: -1, Src: b.ref(src), With: b.ref(with), Dst: b.ref(dst)})
}

// CopyAll adds: Out = In, the reduction of a lone rank. Where the two are one range, or
// have no elements, it adds nothing.
func (b *Builder) CopyAll() {
	if whole := (Range{Len: b.names[In].Len}); whole.Len > 0 {
		b.Copy(In.At(whole), Out.At(whole))
	}
}

// CopyPart adds that the rank's own part goes from In to Out, chunk by chunk.
// Other ranks' parts are never copied: they arrive where they belong.
func (b *Builder) CopyPart(p Params) {
	for _, c := range p.PartChunks(p.Rank) {
		b.Copy(In.At(c), Out.At(c))
	}
}

// CopyBlock adds that the rank's own block of an Alltoall goes to Out, chunk by chunk.
func (b *Builder) CopyBlock(p Params) {
	for _, c := range p.Block(p.Rank).Chunks(p.Chunk) {
		b.Copy(In.At(c), Out.At(c))
	}
}

// GatherParts adds that everyone's part goes to the root's Out.
func (b *Builder) GatherParts(p Params) {
	if p.Rank != p.Root {
		for _, c := range p.PartChunks(p.Rank) {
			b.Send(p.Root, In.At(c))
		}
		return
	}
	b.CopyPart(p)
	for i := 1; i < p.Size; i++ {
		from := (p.Root + i) % p.Size
		for _, c := range p.PartChunks(from) {
			b.Recv(from, Out.At(c))
		}
	}
}

// ScatterParts adds that everyone's part of the root's In goes to that rank's Out.
func (b *Builder) ScatterParts(p Params) {
	if p.Rank != p.Root {
		for _, c := range p.PartChunks(p.Rank) {
			b.Recv(p.Root, Out.At(c))
		}
		return
	}
	for i := 1; i < p.Size; i++ {
		to := (p.Root + i) % p.Size
		for _, c := range p.PartChunks(to) {
			b.Send(to, In.At(c))
		}
	}
	b.CopyPart(p)
}

// Schedule returns what was built. The builder must not be used afterwards.
func (b *Builder) Schedule() *Schedule { return &b.plan.Schedule }

func (b *Builder) add(op Op) {
	id := len(b.plan.Ops)
	var reads [2]Ref
	for _, src := range op.Sources(reads[:0]) {
		op.Deps = b.hazards(src).read(src.Range, id, op.Deps)
	}
	if op.Writes() {
		op.Deps = b.hazards(op.Dst).write(op.Dst.Range, id, op.Deps)
	}
	b.plan.Ops = append(b.plan.Ops, op)
}

// hazards returns the access history of r's buffer. In and Out have one in
// common where they may be the same memory.
func (b *Builder) hazards(r Ref) *hazards { return &b.plan.hazards[b.plan.Memory(r.Buf)] }

func (b *Builder) rank(name int) int {
	if b.ranks == nil {
		return name
	}
	return b.ranks[name]
}

// ref translates a range of the view's buffers into one of the schedule's.
func (b *Builder) ref(r Ref) Ref {
	if r.Buf == Scratch {
		return r // reserved from the schedule itself
	}
	base := b.names[r.Buf]
	return base.Buf.At(Range{base.Off + r.Off, r.Len})
}

func next(count map[int]int, peer int) int {
	n := count[peer]
	count[peer]++
	return n
}

// SlotRing is a ring of equally long slots in Scratch, for partial results on
// their way through a rank. Reusing a slot waits, by the hazard rule, until
// its last contents have been sent.
type SlotRing struct {
	at    Ref
	slots int
	size  int
}

// SlotRing reserves slots of size elements each, never more of them than are
// needed for n uses.
func (b *Builder) SlotRing(slots, size, n int) SlotRing {
	slots = min(slots, n)
	return SlotRing{at: b.Reserve(slots * size), slots: slots, size: size}
}

// Slot returns the first n elements of the slot for the i-th use.
func (r SlotRing) Slot(i, n int) Ref {
	return Scratch.At(Range{r.at.Off + i%r.slots*r.size, n})
}
