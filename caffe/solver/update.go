package solver

import (
	"fmt"
	"math"

	"github.com/scaffe/scaffe/mem"
)

// ApplyUpdate changes all parameters by their gradients, with the rate of the
// current iteration.
func (s *Solver) ApplyUpdate() {
	s.makeHistory()
	dataBuf, diffBuf := s.net.Packed()
	data, diff := mem.Float32s(dataBuf), mem.Float32s(diffBuf)
	scale := ClipScale(s.param.GetClipGradients(), diff) / float32(s.param.GetIterSize())
	rate := s.Rate()
	var hist [2][]float32
	for _, p := range s.net.Learnable() {
		if p.LRMult == 0 {
			continue
		}
		lo, hi := p.Offset, p.Offset+p.Blob.Count()
		for k, h := range s.history {
			hist[k] = h[lo:hi]
		}
		s.rule.Update(Step{
			Iter: s.iter, Rate: rate * p.LRMult, Decay: s.rule.WeightDecay() * p.DecayMult, Scale: scale,
		}, data[lo:hi], diff[lo:hi], hist[:len(s.history)])
	}
}

// makeHistory allocates the history. Workers that never update need none.
func (s *Solver) makeHistory() {
	for len(s.history) < s.rule.Histories() {
		s.history = append(s.history, make([]float32, s.net.PackedCount()))
	}
}

// History returns the rule's memory, each slice laid out as the packed
// parameters are.
func (s *Solver) History() [][]float32 {
	s.makeHistory()
	return s.history
}

// NotFiniteError is why training ends when the loss is NaN or infinite.
type NotFiniteError struct {
	Iter       int
	Loss       float32
	Layer, Top string // the first output that is not finite, "" if none is on this worker
}

// Error says where the numbers went wrong and what usually helps.
func (e *NotFiniteError) Error() string {
	where := "every layer output of this worker is finite"
	if e.Layer != "" {
		where = fmt.Sprintf("the first layer output that is not finite is %q of layer %q", e.Top, e.Layer)
	}
	return fmt.Sprintf("iteration %d: the loss is %v; %s: lower base_lr, set clip_gradients, or look at the data", e.Iter, e.Loss, where)
}

// checkLoss refuses a loss that is not finite, before it spoils parameters.
func (s *Solver) checkLoss(loss float32) error {
	if f := float64(loss); !math.IsNaN(f) && !math.IsInf(f, 0) {
		return nil
	}
	e := &NotFiniteError{Iter: s.iter, Loss: loss}
	e.Layer, e.Top, _ = s.net.NotFinite()
	return e
}

// smoother averages the last losses as Caffe's UpdateSmoothedLoss does.
type smoother struct {
	window int
	losses []float32
	next   int
	value  float32
}

func (m *smoother) reset() { m.losses, m.next, m.value = m.losses[:0], 0, 0 }

func (m *smoother) add(loss float32) {
	if len(m.losses) < m.window {
		m.losses = append(m.losses, loss)
		n := float32(len(m.losses))
		m.value = (m.value*(n-1) + loss) / n
		return
	}
	m.value += (loss - m.losses[m.next]) / float32(m.window)
	m.losses[m.next] = loss
	m.next = (m.next + 1) % m.window
}
