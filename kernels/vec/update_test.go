package vec

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// updateCalls are the rules. What they compute is tested in caffe/solver,
// against the papers.
var updateCalls = map[string]func(o Update, w, g, h, u []float32){
	"SGD":      func(o Update, w, g, h, _ []float32) { o.SGD(0.9, w, g, h) },
	"Nesterov": func(o Update, w, g, h, _ []float32) { o.Nesterov(0.9, w, g, h) },
	"AdaGrad":  func(o Update, w, g, h, _ []float32) { o.AdaGrad(1e-8, w, g, h) },
	"RMSProp":  func(o Update, w, g, h, _ []float32) { o.RMSProp(0.98, 1e-8, w, g, h) },
	"AdaDelta": func(o Update, w, g, h, u []float32) { o.AdaDelta(0.95, 1e-6, w, g, h, u) },
	"Adam":     func(o Update, w, g, h, u []float32) { o.Adam(0.9, 0.999, 1e-8, w, g, h, u) },
}

func TestUpdatePathsAgree(t *testing.T) {
	for name, f := range updateCalls {
		for _, n := range vectorLengths {
			for k := range 8 {
				if n > vectorPiece && k != 3 {
					continue // long enough once
				}
				o := Update{Scale: 0.37, Decay: 0.0005, Rate: 0.01, L1: k&1 != 0, Clear: k&2 != 0}
				run := func() []float32 {
					r := rand.New(rand.NewPCG(uint64(n), 5))
					special := k&4 != 0
					w, g, h, u := vectorOf(r, n, special), vectorOf(r, n, special), vectorOf(r, n, special), vectorOf(r, n, special)
					if !special { // what is under a root is not below 0
						Mul(h, h, h)
						Mul(u, u, u)
					}
					for range 2 {
						f(o, w, g, h, u)
					}
					return append(append(append(append([]float32{}, w...), g...), h...), u...)
				}
				slow, fast := bothPaths(t, run)
				sameBits(t, fmt.Sprintf("%s %+v of %d", name, o, n), fast, slow)
			}
		}
	}
}

// Clear changes nothing but the gradient, which is 0 afterwards; without it
// the gradient stays.
func TestUpdateClears(t *testing.T) {
	onPaths(t, func(t *testing.T) {
		for name, f := range updateCalls {
			for _, l1 := range []bool{false, true} {
				const n = 4096 + 21
				r := rand.New(rand.NewPCG(6, 7))
				w, g, h, u := vectorOf(r, n, false), vectorOf(r, n, false), make([]float32, n), make([]float32, n)
				w2, g2, h2, u2 := append([]float32{}, w...), append([]float32{}, g...), make([]float32, n), make([]float32, n)
				o := Update{Scale: 1, Decay: 0.1, Rate: 0.1, L1: l1}
				f(o, w, g, h, u)
				o.Clear = true
				f(o, w2, g2, h2, u2)
				sameBits(t, name+" w", w2, w)
				sameBits(t, name+" h", h2, h)
				sameBits(t, name+" u", u2, u)
				sameBits(t, name+" cleared", g2, make([]float32, n))
				if g[0] == 0 || g[n-1] == 0 || w[0] == 0 || h[n-1] == 0 {
					t.Errorf("%s: the gradient is %v, the history %v: nothing was computed", name, g[0], h[n-1])
				}
			}
		}
	})
}
