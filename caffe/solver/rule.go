package solver

import (
	"math"
	"strings"

	"github.com/scaffe/scaffe/caffe/proto"
)

// Rule is how a solver type turns a gradient into a change of the parameters:
// Caffe's SGDSolver and its kin, Normalize, Regularize, ComputeUpdateValue and
// Net::Update in one pass over memory. It works on any range of the
// parameters, elementwise, so that whoever holds a part of them (a parameter
// server's shard) can update that part alone.
type Rule struct {
	name      string
	histories int
	update    func(r *Rule, s Step, w, g, h1, h2 []float32)

	momentum, momentum2, rmsDecay, delta float32
	l1                                   bool
	weightDecay                          float32
}

// Step is what one update of one parameter needs beside its numbers.
type Step struct {
	Iter  int     // the iteration, counted from 0 (Adam's t is Iter+1)
	Rate  float32 // learning rate × lr_mult
	Decay float32 // weight_decay × decay_mult
	Scale float32 // what the gradient is multiplied with before anything else: clipping and 1/iter_size
}

// rules are the solver types. Those with noMomentum refuse a momentum, as
// Caffe's do.
var rules = []struct {
	name       string
	old        proto.SolverParameter_SolverType
	histories  int
	noMomentum bool
	update     func(r *Rule, s Step, w, g, h1, h2 []float32)
}{
	{"SGD", proto.SolverParameter_SGD, 1, false, (*Rule).sgd},
	{"Nesterov", proto.SolverParameter_NESTEROV, 1, false, (*Rule).nesterov},
	{"AdaGrad", proto.SolverParameter_ADAGRAD, 1, true, (*Rule).adaGrad},
	{"RMSProp", proto.SolverParameter_RMSPROP, 1, true, (*Rule).rmsProp},
	{"AdaDelta", proto.SolverParameter_ADADELTA, 2, false, (*Rule).adaDelta},
	{"Adam", proto.SolverParameter_ADAM, 2, false, (*Rule).adam},
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
		r.name, r.histories, r.update = k.name, k.histories, k.update
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
// diff is only read. It allocates nothing.
func (r *Rule) Update(s Step, data, diff []float32, hist [][]float32) {
	n := len(data)
	var h2 []float32
	if r.histories > 1 {
		h2 = hist[1][:n]
	}
	r.update(r, s, data, diff[:n], hist[0][:n], h2)
}

// gradient is element i's gradient after scaling and regularisation
// (Caffe's ClipGradients, Normalize and Regularize). The conversions here and
// below forbid fused multiply-adds, so that every architecture computes the
// same bits.
func gradient(s Step, l1 bool, w, g float32) float32 {
	g = float32(g * s.Scale)
	if l1 {
		return g + float32(s.Decay*sign(w))
	}
	return g + float32(s.Decay*w)
}

func sign(x float32) float32 {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return 0
}

func sqrt(x float32) float32 { return float32(math.Sqrt(float64(x))) }

// sgd: h = rate·g + m·h; w -= h.
func (r *Rule) sgd(s Step, w, g, h, _ []float32) {
	g, h = g[:len(w)], h[:len(w)]
	rate, m, l1 := s.Rate, r.momentum, r.l1
	for i, x := range w {
		v := float32(rate*gradient(s, l1, x, g[i])) + float32(m*h[i])
		h[i] = v
		w[i] = x - v
	}
}

// nesterov: h' = rate·g + m·h; w -= (1+m)·h' − m·h.
func (r *Rule) nesterov(s Step, w, g, h, _ []float32) {
	g, h = g[:len(w)], h[:len(w)]
	rate, m, m1, l1 := s.Rate, r.momentum, 1+r.momentum, r.l1
	for i, x := range w {
		old := float32(m * h[i])
		v := float32(rate*gradient(s, l1, x, g[i])) + old
		h[i] = v
		w[i] = x - (float32(m1*v) - old)
	}
}

// adaGrad: h += g²; w -= rate · g / (√h + δ).
func (r *Rule) adaGrad(s Step, w, g, h, _ []float32) {
	g, h = g[:len(w)], h[:len(w)]
	rate, delta, l1 := s.Rate, r.delta, r.l1
	for i, x := range w {
		d := gradient(s, l1, x, g[i])
		v := h[i] + float32(d*d)
		h[i] = v
		w[i] = x - float32(rate*(d/(sqrt(v)+delta)))
	}
}

// rmsProp: h = (1−ρ)·g² + ρ·h; w -= rate · g / (√h + δ), ρ being rms_decay.
func (r *Rule) rmsProp(s Step, w, g, h, _ []float32) {
	g, h = g[:len(w)], h[:len(w)]
	rate, delta, l1 := s.Rate, r.delta, r.l1
	rho, rho1 := r.rmsDecay, 1-r.rmsDecay
	for i, x := range w {
		d := gradient(s, l1, x, g[i])
		v := float32(rho1*float32(d*d)) + float32(rho*h[i])
		h[i] = v
		w[i] = x - float32(rate*(d/(sqrt(v)+delta)))
	}
}

// adaDelta: h = (1−m)·g² + m·h; u = g·√((u₂+δ)/(h+δ));
// u₂ = (1−m)·u² + m·u₂; w -= rate · u.
func (r *Rule) adaDelta(s Step, w, g, h, u2 []float32) {
	g, h, u2 = g[:len(w)], h[:len(w)], u2[:len(w)]
	rate, delta, l1 := s.Rate, r.delta, r.l1
	m, m1 := r.momentum, 1-r.momentum
	for i, x := range w {
		d := gradient(s, l1, x, g[i])
		v := float32(m1*float32(d*d)) + float32(m*h[i])
		u := float32(d * sqrt((u2[i]+delta)/(v+delta)))
		h[i] = v
		u2[i] = float32(m1*float32(u*u)) + float32(m*u2[i])
		w[i] = x - float32(rate*u)
	}
}

// adam: h = (1−β₁)·g + β₁·h; v = (1−β₂)·g² + β₂·v;
// w -= rate · √(1−β₂ᵗ)/(1−β₁ᵗ) · h / (√v + δ).
func (r *Rule) adam(s Step, w, g, h, v []float32) {
	g, h, v = g[:len(w)], h[:len(w)], v[:len(w)]
	t := float64(s.Iter + 1)
	b1, b2, delta, l1 := r.momentum, r.momentum2, r.delta, r.l1
	c1, c2 := 1-b1, 1-b2
	rate := s.Rate * float32(math.Sqrt(1-math.Pow(float64(b2), t))/(1-math.Pow(float64(b1), t)))
	for i, x := range w {
		d := gradient(s, l1, x, g[i])
		first := float32(c1*d) + float32(b1*h[i])
		second := float32(c2*float32(d*d)) + float32(b2*v[i])
		h[i], v[i] = first, second
		w[i] = x - float32(rate*(first/(sqrt(second)+delta)))
	}
}

// ClipScale returns what a gradient is multiplied with so that its L2 norm
// over all parameters is at most limit: Caffe's ClipGradients. It is 1 for a
// limit below 0 (no clipping). The norm is summed in float64, in order.
func ClipScale(limit float32, diff []float32) float32 {
	if limit < 0 {
		return 1
	}
	var sum float64
	for _, d := range diff {
		sum += float64(d) * float64(d)
	}
	if norm := float32(math.Sqrt(sum)); norm > limit {
		return limit / norm
	}
	return 1
}
