package check

import "github.com/scaffe/scaffe/schedule"

// form checks what can be seen op by op.
func form(all []*schedule.Schedule, g goal) error {
	if err := shape(all); err != nil {
		return err
	}
	if g.root < 0 || g.root >= len(all) {
		return fail(Malformed, -1, "root %d is not one of %d ranks", g.root, len(all))
	}
	for _, s := range all {
		switch g.Collective {
		case schedule.Allreduce: // as the call says
		default:
			if s.Apart != (g.Collective == schedule.Alltoall) {
				return fail(Malformed, s.Rank, "whether in and out lie apart is said wrongly: they do in an alltoall, and may in an allreduce")
			}
		}
		if err := foreign(s, g); err != nil {
			return err
		}
	}
	return nil
}

// foreign checks that a rank uses no more of Out than it has.
func foreign(s *schedule.Schedule, g goal) error {
	own := g.out(s.Rank, s.Count)
	if g.has(s.Rank) && own.Len == s.Count {
		return nil
	}
	var refs []schedule.Ref
	for i := range s.Ops {
		o := &s.Ops[i]
		refs = o.Sources(refs[:0])
		if o.Writes() {
			refs = append(refs, o.Dst)
		}
		for _, r := range refs {
			switch {
			case r.Buf != schedule.Out:
			case !g.has(s.Rank):
				return failOp(ForeignOut, s, i, "only the root, rank %d, has an out in a %s", g.root, g.Collective)
			case r.Len > 0 && (r.Off < own.Off || r.End() > own.End()):
				return failOp(ForeignOut, s, i, "%s is not within the rank's part, %s", r, schedule.Out.At(own))
			}
		}
	}
	return nil
}

// shape checks the part of the form that holds for every collective.
func shape(all []*schedule.Schedule) error {
	if len(all) == 0 {
		return fail(Malformed, -1, "no schedules")
	}
	for r, s := range all {
		switch {
		case s == nil:
			return fail(Malformed, r, "no schedule")
		case s.Rank != r:
			return fail(Malformed, r, "the schedule in this place is that of rank %d", s.Rank)
		case s.Size != len(all):
			return fail(Malformed, r, "its schedule is for %d ranks, but there are %d", s.Size, len(all))
		case s.Count != all[0].Count:
			return fail(Malformed, r, "its count is %d, that of rank 0 is %d", s.Count, all[0].Count)
		case s.Count < 0 || s.Scratch < 0:
			return fail(Malformed, r, "count %d, scratch %d: less than nothing", s.Count, s.Scratch)
		}
		for i := range s.Ops {
			if err := shapeOp(s, i); err != nil {
				return err
			}
		}
	}
	return nil
}

func shapeOp(s *schedule.Schedule, i int) error {
	o := &s.Ops[i]
	if o.Kind > schedule.Add {
		return failOp(Malformed, s, i, "no such kind of op")
	}
	if !o.Local() {
		if o.Peer < 0 || o.Peer >= s.Size {
			return failOp(WrongPeer, s, i, "rank %d is not in [0,%d)", o.Peer, s.Size)
		}
		if o.Peer == s.Rank {
			return failOp(WrongPeer, s, i, "a message from a rank to itself")
		}
	}
	for _, src := range o.Sources(nil) {
		if !within(s, src) {
			return failOp(OutOfBounds, s, i, "%s is not within %s[0:%d]", src, src.Buf, length(s, src.Buf))
		}
		if o.Writes() && src.Len != o.Dst.Len {
			return failOp(LengthMismatch, s, i, "%d elements from %s into %d of %s", src.Len, src, o.Dst.Len, o.Dst)
		}
	}
	if o.Writes() {
		if !within(s, o.Dst) {
			return failOp(OutOfBounds, s, i, "%s is not within %s[0:%d]", o.Dst, o.Dst.Buf, length(s, o.Dst.Buf))
		}
		if o.Dst.Buf == schedule.In {
			return failOp(WriteToIn, s, i, "in is the rank's contribution, not ours to overwrite")
		}
	}
	for _, d := range o.Deps {
		if d < 0 || d >= i {
			return failOp(BadDependency, s, i, "it waits for op %d, which is not before it", d)
		}
	}
	return nil
}

func within(s *schedule.Schedule, r schedule.Ref) bool {
	n := length(s, r.Buf)
	return r.Off >= 0 && r.Len >= 0 && r.Off <= n && r.Len <= n-r.Off
}

// length returns the elements of a buffer, -1 for one that does not exist.
func length(s *schedule.Schedule, b schedule.Buffer) int {
	switch b {
	case schedule.In, schedule.Out:
		return s.Count
	case schedule.Scratch:
		return s.Scratch
	}
	return -1
}
