package solver

import (
	"math"
	"testing"
)

// Lin et al., section 3.2: gradients that have their momentum already are applied as they are, at the iteration's rate, beside
// the momentum of the weight decay, in float64. Without decay nothing is remembered.
func TestCorrectedGradients(t *testing.T) {
	for _, text := range []string{`type: "SGD" momentum: 0.9`, `type: "SGD" momentum: 0.9 regularization_type: "L1"`} {
		r, err := NewRule(parse(t, text))
		if err != nil {
			t.Fatal(err)
		}
		for _, decay := range []float32{0, 0.5} {
			const rate, scale = 0.1, 0.25
			data, diff, hist := []float32{2, -3}, make([]float32, 2), []float32{0, 0}
			w, h := []float64{2, -3}, []float64{0, 0}
			for iter := range 5 {
				for i := range diff {
					g := float64(iter+1) * []float64{1, -2}[i]
					diff[i] = float32(g)
					d := float64(decay) * w[i]
					if r.l1 {
						d = float64(decay) * math.Copysign(1, w[i])
					}
					h[i] = 0.9*h[i] + rate*d
					w[i] -= h[i] + rate*scale*g
				}
				r.updateCorrected(Step{Iter: iter, Rate: rate, Decay: decay, Scale: scale, Clear: true}, data, diff, [][]float32{hist})
				for i := range w {
					if math.Abs(float64(data[i])-w[i]) > 1e-5 || math.Abs(float64(hist[i])-h[i]) > 1e-5 || diff[i] != 0 {
						t.Fatalf("%s, decay %v, iteration %d: %v with a history of %v, not %v and %v; gradients %v", text, decay, iter, data, hist, w, h, diff)
					}
				}
			}
			if decay == 0 && (hist[0] != 0 || hist[1] != 0) {
				t.Errorf("%s: something is remembered: %v", text, hist)
			}
		}
	}
}
