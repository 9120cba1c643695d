package solver

import (
	"slices"

	"github.com/scaffe/scaffe/caffe/gpu"
	"github.com/scaffe/scaffe/caffe/net"
	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/mem"
)

// What follows is for a solver on a GPU (Options.GPU). Parameters, gradients and history lie there, and so the updates are
// made there, unless UpdateOnHost says otherwise.

// onGPU is a solver's part of its GPU.
type onGPU struct {
	*gpu.Device        // nil: the update is the host's
	sums        bool   // gradients are summed on the host: SumsOnHost
	beside      bool   // UpdateBeside
	bad         *found // what lookForNotFinite and updates beside find
	history     []*gpu.Memory
	fetch       []*gpu.Memory // of squares
}

// found is the first gradient that is NaN or infinite, as the GPU tells.
type found struct {
	where  *gpu.Memory // two float64: see kernel not_finite
	looked bool        // at all gradients, since the last backward pass
	of     int         // the iteration whose updates have gone by that, or noIteration
}

// noIteration is the number of none.
const noIteration = -1

// UpdateOnHost has the updates be made on the host, in the packed buffers' host side, where others see to it that gradients are
// there before, and that the GPU takes the parameters after it.
func (s *Solver) UpdateOnHost() {
	if s.gpu.Device == nil {
		return
	}
	for _, h := range s.gpu.history {
		s.history = append(s.history, slices.Clone(mem.Float32s(h.Host())))
	}
	s.gpu = onGPU{}
}

// SumsOnHost says that the gradients that updates are made by are those on the host's side of the packed buffers, where others
// have summed them, and not the GPU's own.
func (s *Solver) SumsOnHost() { s.gpu.sums = true }

// UpdateBeside has the updates be made on the GPU beside the passes, on the stream of updates, by gradients that others have
// summed there. Apply and ClearGradients only begin what they do, part by part, and wait for nothing; who reads the parameters in a
// pass, or what updates remember, calls the device's Join before it. A gradient that is NaN or infinite is not found
// before the update: the next iteration ends with it, or CheckGradients.
func (s *Solver) UpdateBeside() {
	s.gpu.beside, s.gpu.bad = true, &found{where: s.gpu.NewMemory(2 * 8)}
}

// CheckGradients returns a *NotFiniteError where an update that was made beside the passes, since the last call, was by a gradient
// that is NaN or infinite. It waits for the updates.
func (s *Solver) CheckGradients() error {
	if !s.gpu.beside {
		return s.net.Err()
	}
	s.gpu.Join()
	return s.foundBeside()
}

// foundBeside is CheckGradients of the updates that the passes have joined.
func (s *Solver) foundBeside() error {
	b := s.gpu.bad
	if s.opts.SkipNotFinite { // who looks before each update
		return nil
	}
	s.gpu.FetchResult(b.where)
	if err := s.net.Err(); err != nil {
		return err
	}
	where := mem.View[float64](b.where.HostRead())
	if where[0] == 0 {
		return nil
	}
	return s.Update(max(s.iter-1, 0)).NotFinite(int(where[0])-1, float32(where[1]))
}

// askForFound begins to bring to the host what updates beside the passes have found.
func (s *Solver) askForFound() {
	if s.gpu.beside {
		s.gpu.bad.where.Prefetch()
	}
}

// fork has what updates begin from now on wait for the passes.
func (s *Solver) fork() {
	if s.gpu.beside {
		s.gpu.Fork()
	}
}

// lookForNotFinite begins to look for gradients that are NaN or infinite, where the last backward pass has left them.
func (s *Solver) lookForNotFinite() {
	if s.gpu.Device == nil || s.gpu.sums || s.gpu.beside {
		return
	}
	s.look()
}

// look is lookForNotFinite, wherever the gradients come from.
func (s *Solver) look() {
	d := s.gpu.Device
	if s.gpu.bad == nil {
		s.gpu.bad = &found{where: d.NewMemory(2 * 8)}
	}
	b := s.gpu.bad
	b.where.Clear()
	for i := range s.net.Learnable() {
		if p := &s.net.Learnable()[i]; p.LRMult != 0 {
			d.Launch(cuda.NotFinite, p.Blob.Count(), []mem.Buffer{b.where.Change(), p.Blob.ReadDiff()}, int64(p.Offset))
		}
	}
	b.where.Prefetch()
	b.looked, b.of = true, noIteration
}

// awaitPass waits once for all that is to be known of the last pass.
func (s *Solver) awaitPass() error {
	if s.gpu.beside {
		return s.foundBeside()
	}
	if b := s.gpu.bad; b != nil && b.looked {
		s.gpu.FetchResult(b.where)
	}
	return nil
}

// notFiniteOn is FirstNotFinite of gradients on the GPU: what lookForNotFinite has found, if it lies in the part.
func (s *Solver) notFiniteOn(lo, hi int) (element int, value float32, is bool) {
	b := s.gpu.bad
	if b == nil || !b.looked {
		s.look()
		b = s.gpu.bad
	}
	b.looked = b.looked && !s.gpu.beside
	s.gpu.FetchResult(b.where)
	where := mem.View[float64](b.where.HostRead())
	element = int(where[0]) - 1
	return element, float32(where[1]), element >= lo && element < hi
}

// applyOn is Update.Apply on the GPU.
func (u Update) applyOn(lo, hi int) error {
	s := u.s
	s.makeHistory()
	if s.gpu.beside {
		return u.applyBeside(lo, hi)
	}
	if !s.gpu.sums {
		if b := s.gpu.bad; b != nil && b.of != noIteration && b.of != u.iter {
			b.looked = false
		}
		if i, value, is := s.notFiniteOn(0, s.net.PackedCount()); is { // wherever it lies: the others come to it
			return u.NotFinite(i, value)
		}
		s.gpu.bad.of = u.iter // whose other parts go by the same look
	}
	_, buf := s.net.Packed()
	diff := mem.Float32s(buf)
	err := s.each(lo, hi, func(p *net.Param, lo, hi int) error {
		from, n := mem.Float32.Bytes(lo-p.Offset), mem.Float32.Bytes(hi-lo)
		if p.LRMult == 0 {
			s.clearOn(p, lo, hi)
			return nil
		}
		if s.gpu.sums {
			if err := u.check(p, diff[lo:hi]); err != nil {
				return err
			}
			p.Blob.OnDiff().Upload(from, n)
		}
		w, g := p.Blob.ChangeData(), p.Blob.ChangeDiff()
		var h [2]mem.Buffer
		for k, m := range s.gpu.history {
			h[k] = m.Change()
		}
		if s.gpu.Err() != nil { // there may be no memory
			return nil
		}
		s.gpu.Do(func(stream *cuda.Stream) error { return u.begin(stream, p, lo, w.Slice(from, n), g.Slice(from, n), h) })
		return nil
	})
	if err == nil {
		err = s.gpu.Err()
	}
	return err
}

// begin begins the update of elements of a parameter from lo on: values w by gradients g, which it clears, and the history.
func (u Update) begin(stream *cuda.Stream, p *net.Param, lo int, w, g mem.Buffer, h [2]mem.Buffer) error {
	s := u.s
	for k := range s.gpu.history {
		h[k] = h[k].Slice(mem.Float32.Bytes(s.place(lo)), w.Len())
	}
	step := Step{Iter: u.step, Rate: u.rate * p.LRMult, Decay: s.rule.WeightDecay() * p.DecayMult, Scale: u.scale, Clear: true}
	return s.rule.onGPU(s.rule, stream, s.rule.step(step), step.Iter, w, g, h[0], h[1])
}

// applyBeside is applyOn beside the passes.
func (u Update) applyBeside(lo, hi int) error {
	s := u.s
	_ = s.each(lo, hi, func(p *net.Param, lo, hi int) error {
		if p.LRMult == 0 {
			s.clearOn(p, lo, hi)
			return nil
		}
		from, n := mem.Float32.Bytes(lo-p.Offset), mem.Float32.Bytes(hi-lo)
		w, g, where := p.Blob.OnData().Beside(), p.Blob.OnDiff().Beside(), s.gpu.bad.where.Beside()
		var h [2]mem.Buffer
		for k, m := range s.gpu.history {
			h[k] = m.Beside()
		}
		if s.gpu.Err() != nil { // there may be no memory
			return nil
		}
		s.gpu.Beside(func(stream *cuda.Stream) error {
			if !s.opts.SkipNotFinite {
				if err := stream.Launch(cuda.NotFinite, hi-lo, []mem.Buffer{where, g.Slice(from, n)}, int64(lo)); err != nil {
					return err
				}
			}
			return u.begin(stream, p, lo, w.Slice(from, n), g.Slice(from, n), h)
		})
		return nil
	})
	return s.gpu.Err()
}

// clearOn sets the gradients [lo, hi) of a parameter to 0 on the GPU.
func (s *Solver) clearOn(p *net.Param, lo, hi int) {
	if s.gpu.beside {
		g := p.Blob.OnDiff().Beside()
		if s.gpu.Err() == nil {
			part := g.Slice(mem.Float32.Bytes(lo-p.Offset), mem.Float32.Bytes(hi-lo))
			s.gpu.Beside(func(stream *cuda.Stream) error {
				return stream.Launch(cuda.Fill, hi-lo, []mem.Buffer{part}, cuda.Number(0))
			})
		}
		return
	}
	if lo == p.Offset && hi == p.Offset+p.Blob.Count() {
		p.Blob.ClearDiff()
		return
	}
	if g := p.Blob.ChangeDiff(); s.gpu.Err() == nil {
		part := g.Slice(mem.Float32.Bytes(lo-p.Offset), mem.Float32.Bytes(hi-lo))
		s.gpu.Launch(cuda.Fill, hi-lo, []mem.Buffer{part}, cuda.Number(0))
	}
}

// fetchGradients brings the gradients to the host, for what there is no kernel for: the sums of their squares.
func (s *Solver) fetchGradients() {
	if s.gpu.Device == nil || s.gpu.sums {
		return
	}
	if s.gpu.fetch == nil {
		for i := range s.net.Learnable() {
			s.gpu.fetch = append(s.gpu.fetch, s.net.Learnable()[i].Blob.OnDiff())
		}
	}
	s.gpu.Fetch(s.gpu.fetch...)
}

// historyOn is the history on the host's side, which counts from then on.
func (s *Solver) historyOn() (all [][]float32) {
	s.gpu.Join()
	s.gpu.Fetch(s.gpu.history...)
	for _, h := range s.gpu.history {
		all = append(all, mem.Float32s(h.Host()))
	}
	return all
}
