package check

import "github.com/scaffe/scaffe/schedule"

// races checks that a rank's conflicting ops are ordered.
//
// Ops are taken in program order, which dependencies never contradict, so of
// two ops the later one has to wait for the earlier. It suffices to look at
// the last writer of an element and its readers since: if those pairs are in
// order, then so, by transitivity, are all others.
func races(s *schedule.Schedule) error {
	r := racing{s: s, past: closure(s), words: (len(s.Ops) + 63) / 64}
	for i := range s.Ops {
		o := &s.Ops[i]
		for _, src := range o.Sources(nil) {
			if o.Writes() && s.Memory(src.Buf) == s.Memory(o.Dst.Buf) && src.Off != o.Dst.Off && src.Overlaps(o.Dst.Range) {
				return failOp(Race, s, i, "%s and %s overlap without being the same elements (in and out may be the same memory)", src, o.Dst)
			}
			if err := r.read(i, src); err != nil {
				return err
			}
		}
		if o.Writes() {
			if err := r.write(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// closure returns for each op the set of all ops before it, directly or not:
// one row of bits an op.
func closure(s *schedule.Schedule) []uint64 {
	words := (len(s.Ops) + 63) / 64
	past := make([]uint64, words*len(s.Ops))
	for i := range s.Ops {
		row := past[i*words : (i+1)*words]
		for _, d := range s.Ops[i].Deps {
			for w, bits := range past[d*words : d*words+d/64+1] {
				row[w] |= bits
			}
			row[d/64] |= 1 << (d % 64)
		}
	}
	return past
}

type racing struct {
	s     *schedule.Schedule
	past  []uint64
	words int
	mem   [3]memory[history]
}

// history is the accesses to a cell since its last write, that included.
type history struct {
	writer  int32 // -1: none
	readers []int32
}

func (r *racing) read(i int, src schedule.Ref) error {
	cells := r.mem[r.s.Memory(src.Buf)].fill(src.Off, src.End(), history{writer: -1})
	for k := range cells {
		h := &cells[k].is
		if err := r.ordered(i, h.writer, "read", "writes", src.Buf, cells[k].off, cells[k].end); err != nil {
			return err
		}
		n := len(h.readers)
		h.readers = append(h.readers[:n:n], int32(i)) // cells cut apart share their past
	}
	return nil
}

func (r *racing) write(i int) error {
	dst := r.s.Ops[i].Dst
	cells := r.mem[r.s.Memory(dst.Buf)].fill(dst.Off, dst.End(), history{writer: -1})
	for k := range cells {
		h, off, end := &cells[k].is, cells[k].off, cells[k].end
		if err := r.ordered(i, h.writer, "write", "writes", dst.Buf, off, end); err != nil {
			return err
		}
		for _, reader := range h.readers {
			if err := r.ordered(i, reader, "write", "reads", dst.Buf, off, end); err != nil {
				return err
			}
		}
		*h = history{writer: int32(i)}
	}
	return nil
}

// ordered reports an error unless op i waits for op before.
func (r *racing) ordered(i int, before int32, does, did string, b schedule.Buffer, off, end int) error {
	if before < 0 || int(before) == i || r.past[i*r.words+int(before)/64]>>(before%64)&1 == 1 {
		return nil
	}
	what := b.At(schedule.Range{Off: off, Len: end - off})
	return failOp(Race, r.s, i, "its %s of %s does not wait for op %d (%s), which %s the same memory", does, what, before, &r.s.Ops[before], did)
}
