package vec

import "math"

// Update is one update of parameters w by their gradients g: a solver's rule,
// in one pass over memory. Each rule first makes the gradient
//
//	d = Scale·g + Decay·w        or, with L1,    d = Scale·g + Decay·sign(w)
//
// All slices of a call are as long as w, and lie apart.
type Update struct {
	Scale float32 // what the gradient is multiplied with before anything else
	Decay float32 // the weight of the regularisation
	Rate  float32 // the learning rate
	L1    bool    // regularise by the sum of |w| instead of that of w²/2
	Clear bool    // set g to 0 in the same pass
}

// The rules of Update.
const (
	ruleSGD = iota
	ruleNesterov
	ruleAdaGrad
	ruleRMSProp
	ruleAdaDelta
	ruleAdam
	updateRules
)

// factors are what a rule multiplies with or adds, named p to t in the
// generated loops.
type factors [5]float32

// updateLoop is a generated loop over n elements.
type updateLoop func(w, g, h, u *float32, n int, scale, decay, rate, p, q, r, s, t float32)

// SGD is h = Rate·d + momentum·h; w −= h.
func (o Update) SGD(momentum float32, w, g, h []float32) {
	o.run(ruleSGD, factors{momentum}, w, g, h, nil)
}

// Nesterov is h' = Rate·d + momentum·h; w −= (1+momentum)·h' − momentum·h.
func (o Update) Nesterov(momentum float32, w, g, h []float32) {
	o.run(ruleNesterov, factors{momentum, 1 + momentum}, w, g, h, nil)
}

// AdaGrad is h += d²; w −= Rate·d/(√h + delta).
func (o Update) AdaGrad(delta float32, w, g, h []float32) {
	o.run(ruleAdaGrad, factors{delta}, w, g, h, nil)
}

// RMSProp is h = (1−decay)·d² + decay·h; w −= Rate·d/(√h + delta).
func (o Update) RMSProp(decay, delta float32, w, g, h []float32) {
	o.run(ruleRMSProp, factors{decay, 1 - decay, delta}, w, g, h, nil)
}

// AdaDelta is h = (1−momentum)·d² + momentum·h; v = d·√((u+delta)/(h+delta));
// u = (1−momentum)·v² + momentum·u; w −= Rate·v.
func (o Update) AdaDelta(momentum, delta float32, w, g, h, u []float32) {
	o.run(ruleAdaDelta, factors{momentum, 1 - momentum, delta}, w, g, h, u)
}

// Adam is h = (1−beta1)·d + beta1·h; u = (1−beta2)·d² + beta2·u;
// w −= Rate·h/(√u + delta). Rate has the corrections of the bias in it.
func (o Update) Adam(beta1, beta2, delta float32, w, g, h, u []float32) {
	o.run(ruleAdam, factors{beta1, 1 - beta1, beta2, 1 - beta2, delta}, w, g, h, u)
}

func (o Update) run(rule int, f factors, w, g, h, u []float32) {
	g, h = g[:len(w)], h[:len(w)]
	if u != nil || rule >= ruleAdaDelta {
		u = u[:len(w)]
	}
	if !useAVX2 {
		o.runPortable(rule, f, w, g, h, u)
		return
	}
	loop := avx2Updates[rule][index(o.L1)][index(o.Clear)]
	for at := 0; at < len(w); at += vectorPiece / 4 {
		n := min(vectorPiece/4, len(w)-at)
		loop(&w[at], &g[at], &h[at], place(u, at), n, o.Scale, o.Decay, o.Rate, f[0], f[1], f[2], f[3], f[4])
	}
}

func index(b bool) int {
	if b {
		return 1
	}
	return 0
}

// runPortable clears the gradients of a piece while they are in the cache.
func (o Update) runPortable(rule int, f factors, w, g, h, u []float32) {
	for len(w) > 0 {
		n := min(len(w), 4096)
		var v []float32
		if u != nil {
			v, u = u[:n], u[n:]
		}
		portableUpdates[rule](o, f, w[:n], g[:n], h[:n], v)
		if o.Clear {
			clear(g[:n])
		}
		w, g, h = w[n:], g[n:], h[n:]
	}
}

// gradient is d. The conversions here and below forbid fused multiply-adds,
// so that every processor computes the same bits.
func (o Update) gradient(w, g float32) float32 {
	g = float32(g * o.Scale)
	if o.L1 {
		return g + float32(o.Decay*sign(w))
	}
	return g + float32(o.Decay*w)
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

// portableUpdates are the rules in plain Go.
var portableUpdates = [updateRules]func(o Update, f factors, w, g, h, u []float32){
	ruleSGD: func(o Update, f factors, w, g, h, _ []float32) {
		g, h = g[:len(w)], h[:len(w)]
		m := f[0]
		for i, x := range w {
			v := float32(o.Rate*o.gradient(x, g[i])) + float32(m*h[i])
			h[i] = v
			w[i] = x - v
		}
	},
	ruleNesterov: func(o Update, f factors, w, g, h, _ []float32) {
		g, h = g[:len(w)], h[:len(w)]
		m, m1 := f[0], f[1]
		for i, x := range w {
			old := float32(m * h[i])
			v := float32(o.Rate*o.gradient(x, g[i])) + old
			h[i] = v
			w[i] = x - (float32(m1*v) - old)
		}
	},
	ruleAdaGrad: func(o Update, f factors, w, g, h, _ []float32) {
		g, h = g[:len(w)], h[:len(w)]
		delta := f[0]
		for i, x := range w {
			d := o.gradient(x, g[i])
			v := h[i] + float32(d*d)
			h[i] = v
			w[i] = x - float32(o.Rate*(d/(sqrt(v)+delta)))
		}
	},
	ruleRMSProp: func(o Update, f factors, w, g, h, _ []float32) {
		g, h = g[:len(w)], h[:len(w)]
		rho, rho1, delta := f[0], f[1], f[2]
		for i, x := range w {
			d := o.gradient(x, g[i])
			v := float32(rho1*float32(d*d)) + float32(rho*h[i])
			h[i] = v
			w[i] = x - float32(o.Rate*(d/(sqrt(v)+delta)))
		}
	},
	ruleAdaDelta: func(o Update, f factors, w, g, h, u []float32) {
		g, h, u = g[:len(w)], h[:len(w)], u[:len(w)]
		m, m1, delta := f[0], f[1], f[2]
		for i, x := range w {
			d := o.gradient(x, g[i])
			second := float32(m1*float32(d*d)) + float32(m*h[i])
			v := float32(d * sqrt((u[i]+delta)/(second+delta)))
			h[i] = second
			u[i] = float32(m1*float32(v*v)) + float32(m*u[i])
			w[i] = x - float32(o.Rate*v)
		}
	},
	ruleAdam: func(o Update, f factors, w, g, h, u []float32) {
		g, h, u = g[:len(w)], h[:len(w)], u[:len(w)]
		b1, c1, b2, c2, delta := f[0], f[1], f[2], f[3], f[4]
		for i, x := range w {
			d := o.gradient(x, g[i])
			first := float32(c1*d) + float32(b1*h[i])
			second := float32(c2*float32(d*d)) + float32(b2*u[i])
			h[i], u[i] = first, second
			w[i] = x - float32(o.Rate*(first/(sqrt(second)+delta)))
		}
	},
}
