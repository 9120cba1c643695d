package solver

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/caffe/proto"
)

// reference is one scalar parameter under one solver type, in float64,
// written from the papers the types come from (and Caffe's documentation of
// its variants), independently of rule.go: the step is v(t+1), applied as
// w -= v.
type reference struct {
	typ                          string
	lr, m, m2, rho, delta, decay float64
	l1                           bool
	w                            float64
	hist, hist2                  float64
}

func (r *reference) step(g float64, t int) {
	if r.l1 {
		if r.w != 0 {
			g += r.decay * r.w / math.Abs(r.w)
		}
	} else {
		g += r.decay * r.w
	}
	var v float64
	switch r.typ {
	case "SGD": // V = mu V + a g
		r.hist = r.m*r.hist + r.lr*g
		v = r.hist
	case "Nesterov": // Sutskever 2013, in the variables at the look-ahead point
		before := r.hist
		r.hist = r.m*r.hist + r.lr*g
		v = r.hist + r.m*(r.hist-before)
	case "AdaGrad": // Duchi 2011
		r.hist += g * g
		v = r.lr * g / (math.Sqrt(r.hist) + r.delta)
	case "RMSProp": // Tieleman and Hinton 2012
		r.hist = r.rho*r.hist + (1-r.rho)*g*g
		v = r.lr * g / (math.Sqrt(r.hist) + r.delta)
	case "AdaDelta": // Zeiler 2012, algorithm 1
		r.hist = r.m*r.hist + (1-r.m)*g*g
		u := math.Sqrt(r.hist2+r.delta) / math.Sqrt(r.hist+r.delta) * g
		r.hist2 = r.m*r.hist2 + (1-r.m)*u*u
		v = r.lr * u
	case "Adam": // Kingma and Ba 2015, with the bias corrections joined to the rate
		r.hist = r.m*r.hist + (1-r.m)*g
		r.hist2 = r.m2*r.hist2 + (1-r.m2)*g*g
		fix := math.Sqrt(1-math.Pow(r.m2, float64(t))) / (1 - math.Pow(r.m, float64(t)))
		v = r.lr * fix * r.hist / (math.Sqrt(r.hist2) + r.delta)
	}
	r.w -= v
}

func TestRulesAgainstReference(t *testing.T) {
	const n, steps = 37, 12
	for _, text := range []string{
		`type: "SGD"`,
		`type: "SGD" momentum: 0.9 weight_decay: 0.05`,
		`type: "SGD" momentum: 0.9 weight_decay: 0.05 regularization_type: "L1"`,
		`type: "Nesterov" momentum: 0.9 weight_decay: 0.01`,
		`type: "AdaGrad" weight_decay: 0.01 delta: 0.001`,
		`type: "RMSProp" rms_decay: 0.9 delta: 0.01 weight_decay: 0.02 regularization_type: "L1"`,
		`type: "AdaDelta" momentum: 0.95 delta: 1e-4`,
		`type: "Adam" momentum: 0.9 momentum2: 0.99 delta: 1e-6 weight_decay: 0.01`,
	} {
		p := parse(t, text)
		r, err := NewRule(p)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		w, g := make([]float32, n), make([]float32, n)
		hist := [][]float32{make([]float32, n), make([]float32, n)}[:r.Histories()]
		refs := make([]reference, n)
		const rate, decayMult, scale = 0.1, 0.5, 0.25
		for i := range refs {
			w[i] = float32(math.Sin(float64(i)))
			refs[i] = reference{
				typ: p.GetType(), lr: rate, m: float64(p.GetMomentum()), m2: float64(p.GetMomentum2()),
				rho: float64(p.GetRmsDecay()), delta: float64(p.GetDelta()),
				decay: float64(p.GetWeightDecay()) * decayMult, l1: p.GetRegularizationType() == "L1", w: float64(w[i]),
			}
		}
		for iter := range steps {
			for i := range g {
				g[i] = float32(math.Cos(float64(i*7 + iter*3)))
				refs[i].step(float64(g[i])*scale, iter+1)
			}
			s := Step{Iter: iter, Rate: rate, Decay: r.WeightDecay() * decayMult, Scale: scale}
			// Two ranges instead of one: a rule is elementwise. The gradient
			// of the second is cleared.
			first := slices.Clone(g)
			for _, c := range [][2]int{{0, 11}, {11, n}} {
				var h [][]float32
				for _, x := range hist {
					h = append(h, x[c[0]:c[1]])
				}
				s.Clear = c[0] > 0
				r.Update(s, w[c[0]:c[1]], g[c[0]:c[1]], h)
			}
			clear(first[11:])
			if !slices.Equal(g, first) {
				t.Fatalf("%s: step %d left the gradient %v, want %v", text, iter, g, first)
			}
			for i := range w {
				if math.Abs(float64(w[i])-refs[i].w) > 2e-5*(1+math.Abs(refs[i].w)) {
					t.Fatalf("%s: step %d, element %d is %v, the reference has %v", text, iter, i, w[i], refs[i].w)
				}
			}
		}
	}
}

func TestNewRuleErrors(t *testing.T) {
	for text, want := range map[string]string{
		`type: "Adamax"`:                `unknown solver type "Adamax": use one of SGD, Nesterov, AdaGrad, RMSProp, AdaDelta, Adam`,
		`type: "AdaGrad" momentum: 0.9`: "solver type AdaGrad takes none",
		`type: "RMSProp" momentum: 0.9`: "solver type RMSProp takes none",
		`type: "RMSProp" rms_decay: 1`:  "rms_decay is 1",
		`type: "Adam" momentum: 1`:      "momentum is 1",
		`type: "Adam" momentum2: 1.5`:   "momentum2 is 1.5",
		`regularization_type: "L3"`:     `unknown regularization_type "L3"`,
		`type: "SGD" solver_type: ADAM`: "both type and solver_type",
	} {
		if _, err := NewRule(parse(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", text, err, want)
		}
	}
	for old, name := range map[proto.SolverParameter_SolverType]string{
		proto.SolverParameter_NESTEROV: "Nesterov", proto.SolverParameter_ADAM: "Adam", proto.SolverParameter_SGD: "SGD",
	} {
		r, err := NewRule(&proto.SolverParameter{SolverType: &old})
		if err != nil || r.Name() != name {
			t.Errorf("solver_type %v: rule %v, error %v", old, r, err)
		}
	}
}

func TestUpdateAllocatesNothing(t *testing.T) {
	r, err := NewRule(parse(t, `type: "Adam" momentum: 0.9`))
	if err != nil {
		t.Fatal(err)
	}
	w, g := make([]float32, 64), make([]float32, 64)
	hist := [][]float32{make([]float32, 64), make([]float32, 64)}
	if n := testing.AllocsPerRun(10, func() { r.Update(Step{Rate: 0.1, Scale: 1}, w, g, hist) }); n != 0 {
		t.Errorf("Update allocates %v times", n)
	}
}

// BenchmarkUpdate counts every slice once as it is read and once as it is
// written, the gradient's clearing included, over parameters that no cache holds.
func BenchmarkUpdate(b *testing.B) {
	const n = 16 << 20
	w, g := make([]float32, n), make([]float32, n)
	hist := [][]float32{make([]float32, n), make([]float32, n)}
	for _, k := range rules {
		r, err := NewRule(&proto.SolverParameter{Type: &k.name})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(k.name, func(b *testing.B) {
			b.SetBytes(int64(4 * n * (4 + 2*k.histories)))
			for b.Loop() {
				r.Update(Step{Rate: 0.1, Decay: 0.1, Scale: 1, Clear: true}, w, g, hist)
			}
		})
	}
}
