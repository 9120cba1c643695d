package solver

import (
	"math"
	"strings"

	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/kernels/vec"
	"github.com/scaffe/scaffe/mem"
)

// Rule is how a solver type turns a gradient into a change of the parameters:
// Caffe's SGDSolver and its kin, Normalize, Regularize, ComputeUpdateValue,
// Net::Update and, where asked, ClearParamDiffs in one pass over memory. It
// works on any range of the parameters, elementwise, so that a worker that holds a
// part of them (a parameter server's shard) can update that part alone.
type Rule struct {
	name      string
	histories int
	update    func(r *Rule, o vec.Update, iter int, w, g, h1, h2 []float32)
	onGPU     func(r *Rule, s *cuda.Stream, o vec.Update, iter int, w, g, h1, h2 mem.Buffer) error

	momentum, momentum2, rmsDecay, delta float32
	l1                                   bool
	weightDecay                          float32
}

// Step is what one update of one parameter needs besides its numbers.
type Step struct {
	Iter  int     // the iteration, counted from 0 (Adam's t is Iter+1)
	Rate  float32 // learning rate × lr_mult
	Decay float32 // weight_decay × decay_mult
	Scale float32 // what the gradient is multiplied with before anything else: clipping and 1/iter_size
	Clear bool    // set the gradient to 0 in the same pass over memory
}

// rules are the solver types. Those with noMomentum refuse a momentum, as
// Caffe's do.
var rules = []struct {
	name       string
	old        proto.SolverParameter_SolverType
	histories  int
	noMomentum bool
	update     func(r *Rule, o vec.Update, iter int, w, g, h1, h2 []float32)
	onGPU      func(r *Rule, s *cuda.Stream, o vec.Update, iter int, w, g, h1, h2 mem.Buffer) error
}{
	{"SGD", proto.SolverParameter_SGD, 1, false, (*Rule).sgd, (*Rule).sgdOn},
	{"Nesterov", proto.SolverParameter_NESTEROV, 1, false, (*Rule).nesterov, (*Rule).nesterovOn},
	{"AdaGrad", proto.SolverParameter_ADAGRAD, 1, true, (*Rule).adaGrad, (*Rule).adaGradOn},
	{"RMSProp", proto.SolverParameter_RMSPROP, 1, true, (*Rule).rmsProp, (*Rule).rmsPropOn},
	{"AdaDelta", proto.SolverParameter_ADADELTA, 2, false, (*Rule).adaDelta, (*Rule).adaDeltaOn},
	{"Adam", proto.SolverParameter_ADAM, 2, false, (*Rule).adam, (*Rule).adamOn},
}

// NewRule returns the rule of p's type (or of the older solver_type), with
// p's momentum, momentum2, rms_decay, delta, weight_decay and
// regularization_type.
func NewRule(p *proto.SolverParameter) (*Rule, error) {
	r := &Rule{
		momentum: p.GetMomentum(), momentum2: p.GetMomentum2(), rmsDecay: p.GetRmsDecay(),
		delta: p.GetDelta(), weightDecay: p.GetWeightDecay(),
	}
	switch p.GetRegularizationType() {
	case "L2":
	case "L1":
		r.l1 = true
	default:
		return nil, fieldError("regularization_type", "unknown regularization_type %q: use L1 or L2", p.GetRegularizationType())
	}
	if p.Type != nil && p.SolverType != nil {
		return nil, fieldError("solver_type", "both type and solver_type are set: keep type")
	}
	var names []string
	for _, k := range rules {
		names = append(names, k.name)
		if p.SolverType != nil && p.GetSolverType() != k.old || p.SolverType == nil && p.GetType() != k.name {
			continue
		}
		if k.noMomentum && p.GetMomentum() != 0 {
			return nil, fieldError("momentum", "momentum is %v: solver type %s takes none", p.GetMomentum(), k.name)
		}
		r.name, r.histories, r.update, r.onGPU = k.name, k.histories, k.update, k.onGPU
		return r, r.check()
	}
	return nil, fieldError("type", "unknown solver type %q: use one of %s", p.GetType(), strings.Join(names, ", "))
}

// check refuses numbers with which the rule divides by zero or diverges.
func (r *Rule) check() error {
	if r.name == "RMSProp" && (r.rmsDecay < 0 || r.rmsDecay >= 1) {
		return fieldError("rms_decay", "rms_decay is %v: it must lie in [0, 1)", r.rmsDecay)
	}
	if r.name == "Adam" && (r.momentum < 0 || r.momentum >= 1) {
		return fieldError("momentum", "momentum is %v: Adam needs it in [0, 1)", r.momentum)
	}
	if r.name == "Adam" && (r.momentum2 < 0 || r.momentum2 >= 1) {
		return fieldError("momentum2", "momentum2 is %v: Adam needs it in [0, 1)", r.momentum2)
	}
	return nil
}

// Name returns the solver type as in solver.prototxt: SGD, Nesterov, AdaGrad,
// RMSProp, AdaDelta or Adam.
func (r *Rule) Name() string { return r.name }

// Histories returns how many numbers the rule remembers per parameter element:
// 1, or 2 for AdaDelta and Adam.
func (r *Rule) Histories() int { return r.histories }

// WeightDecay returns the weight_decay that a parameter's decay_mult multiplies.
func (r *Rule) WeightDecay() float32 { return r.weightDecay }

// Update changes the parameters data by the gradient diff and brings the
// histories up to date; all have one length, and hist holds Histories slices.
// diff is only read, unless s says to clear it. It allocates nothing, and gives
// the same bits whatever the processor and however the parameters are divided
// into ranges.
func (r *Rule) Update(s Step, data, diff []float32, hist [][]float32) {
	n := len(data)
	var h2 []float32
	if r.histories > 1 {
		h2 = hist[1][:n]
	}
	r.update(r, r.step(s), s.Iter, data, diff[:n], hist[0][:n], h2)
}

func (r *Rule) step(s Step) vec.Update {
	return vec.Update{Scale: s.Scale, Decay: s.Decay, Rate: s.Rate, L1: r.l1, Clear: s.Clear}
}

// updateCorrected is Update of SGD with gradients that have their momentum already: h = momentum·h + Rate·decay, and
// w -= h + Rate·Scale·g.
func (r *Rule) updateCorrected(s Step, data, diff []float32, hist [][]float32) {
	decay := s
	decay.Scale, decay.Clear = 0, false
	r.Update(decay, data, diff, hist)
	rate := float32(s.Rate * s.Scale)
	for i, g := range diff { // float32: one rounding for each operation, on every processor
		data[i] -= float32(rate * g)
	}
	if s.Clear {
		clear(diff)
	}
}

// The updates: vec.Update says what each of them computes.

func (r *Rule) sgd(o vec.Update, _ int, w, g, h, _ []float32) { o.SGD(r.momentum, w, g, h) }

func (r *Rule) nesterov(o vec.Update, _ int, w, g, h, _ []float32) {
	o.Nesterov(r.momentum, w, g, h)
}

func (r *Rule) adaGrad(o vec.Update, _ int, w, g, h, _ []float32) { o.AdaGrad(r.delta, w, g, h) }

func (r *Rule) rmsProp(o vec.Update, _ int, w, g, h, _ []float32) {
	o.RMSProp(r.rmsDecay, r.delta, w, g, h)
}

func (r *Rule) adaDelta(o vec.Update, _ int, w, g, h, u []float32) {
	o.AdaDelta(r.momentum, r.delta, w, g, h, u)
}

// corrected joins Adam's corrections of the bias to the rate: √(1−β₂ᵗ)/(1−β₁ᵗ).
func (r *Rule) corrected(o vec.Update, iter int) vec.Update {
	t := float64(iter + 1)
	o.Rate *= float32(math.Sqrt(1-math.Pow(float64(r.momentum2), t)) / (1 - math.Pow(float64(r.momentum), t)))
	return o
}

func (r *Rule) adam(o vec.Update, iter int, w, g, h, u []float32) {
	o = r.corrected(o, iter)
	o.Adam(r.momentum, r.momentum2, r.delta, w, g, h, u)
}

// The same on a GPU, with the same bits.

func (r *Rule) sgdOn(s *cuda.Stream, o vec.Update, _ int, w, g, h, _ mem.Buffer) error {
	return s.SGD(o, r.momentum, w, g, h)
}

func (r *Rule) nesterovOn(s *cuda.Stream, o vec.Update, _ int, w, g, h, _ mem.Buffer) error {
	return s.Nesterov(o, r.momentum, w, g, h)
}

func (r *Rule) adaGradOn(s *cuda.Stream, o vec.Update, _ int, w, g, h, _ mem.Buffer) error {
	return s.AdaGrad(o, r.delta, w, g, h)
}

func (r *Rule) rmsPropOn(s *cuda.Stream, o vec.Update, _ int, w, g, h, _ mem.Buffer) error {
	return s.RMSProp(o, r.rmsDecay, r.delta, w, g, h)
}

func (r *Rule) adaDeltaOn(s *cuda.Stream, o vec.Update, _ int, w, g, h, u mem.Buffer) error {
	return s.AdaDelta(o, r.momentum, r.delta, w, g, h, u)
}

func (r *Rule) adamOn(s *cuda.Stream, o vec.Update, iter int, w, g, h, u mem.Buffer) error {
	return s.Adam(r.corrected(o, iter), r.momentum, r.momentum2, r.delta, w, g, h, u)
}
