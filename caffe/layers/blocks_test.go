package layers

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/scaffe/scaffe/caffe/blob"
)

// The gradient cases are small. Here are shapes that fill the vectors of
// package kernels, several blocks of channels and several pieces, against the
// definitions in float64.

var blockShapes = [][]int{{3, 70, 5, 5}, {2, 3, 100, 100}, {4, 2, 29}, {40, 67}}

// largeCase sets a layer up on normal values around mean and runs both passes.
func largeCase(t *testing.T, typ, body string, inPlace bool, mean float64, tops int, shapes ...[]int) (l Layer, x, dy []float64, bottom, top []*blob.Blob) {
	t.Helper()
	r := rand.New(rand.NewPCG(3, 5))
	for _, s := range shapes {
		b := blob.New(s...)
		normal(b.Data(), mean, 1, r)
		bottom = append(bottom, b)
	}
	x = float64s(bottom[0].Data())
	top = newTops(tops)
	if inPlace {
		top[0] = bottom[0]
	}
	l = newLayer(t, typ, body, Env{Rand: r})
	setup(t, l, bottom, top)
	forward(t, l, bottom, top)
	for _, b := range top {
		normal(b.Diff(), 0.5, 1, r)
	}
	return l, x, float64s(top[0].Diff()), bottom, top
}

func backward(t *testing.T, l Layer, bottom, top []*blob.Blob) {
	t.Helper()
	if err := l.Backward(top, takeGradient(l, bottom), bottom); err != nil {
		t.Fatal(err)
	}
}

// near fails where got is farther from want than tolerance·(1+|want|).
func near(t *testing.T, what string, got []float32, want []float64, tolerance float64) {
	t.Helper()
	for i, w := range want {
		if !(math.Abs(float64(got[i])-w) <= tolerance*(1+math.Abs(w))) {
			t.Errorf("%s: element %d of %d is %v, want %v", what, i, len(want), got[i], w)
			return
		}
	}
}

// channelsOf calls f with the elements of each channel of a blob of that shape.
func channelsOf(shape []int, f func(c int, elements []int)) {
	dim := 1
	for _, d := range shape[2:] {
		dim *= d
	}
	for c := range shape[1] {
		var elements []int
		for o := range shape[0] {
			for k := range dim {
				elements = append(elements, (o*shape[1]+c)*dim+k)
			}
		}
		f(c, elements)
	}
}

// Also far from 0, where the difference of the mean square and the squared
// mean has no digits left in float32.
func TestBatchNormIsTheDefinition(t *testing.T) {
	for _, shape := range blockShapes {
		for _, inPlace := range []bool{false, true} {
			for _, mean := range []float64{0, 5000} {
				l, x, dy, bottom, top := largeCase(t, "BatchNorm", "", inPlace, mean, 1, shape)
				y, dx := make([]float64, len(x)), make([]float64, len(x))
				channelsOf(shape, func(_ int, elements []int) {
					n, sum, squares, sumDy, sumDyY := float64(len(elements)), 0.0, 0.0, 0.0, 0.0
					for _, i := range elements {
						sum += x[i]
					}
					for _, i := range elements {
						squares += (x[i] - sum/n) * (x[i] - sum/n)
					}
					inv := 1 / math.Sqrt(squares/n+1e-5)
					for _, i := range elements {
						y[i] = (x[i] - sum/n) * inv
						sumDy, sumDyY = sumDy+dy[i], sumDyY+dy[i]*y[i]
					}
					for _, i := range elements {
						dx[i] = (dy[i] - sumDy/n - sumDyY/n*y[i]) * inv
					}
				})
				what := fmt.Sprintf("%v, in place %v, around %v", shape, inPlace, mean)
				tolerance := 1e-5 + mean*2e-7 // the mean is rounded to a float32
				near(t, what+": y", top[0].Data(), y, tolerance)
				backward(t, l, bottom, top)
				near(t, what+": dx", bottom[0].Diff(), dx, tolerance)
			}
		}
	}
}

func TestScaleIsTheDefinition(t *testing.T) {
	for _, shape := range blockShapes {
		for _, inPlace := range []bool{false, true} {
			l, x, dy, bottom, top := largeCase(t, "Scale",
				`scale_param { bias_term: true filler { type: "gaussian" } bias_filler { type: "gaussian" } }`, inPlace, 1, 1, shape)
			f, b := float64s(l.Params()[0].Data()), float64s(l.Params()[1].Data())
			y, dx := make([]float64, len(x)), make([]float64, len(x))
			df, db := make([]float64, len(f)), make([]float64, len(f))
			channelsOf(shape, func(c int, elements []int) {
				for _, i := range elements {
					y[i], dx[i] = f[c]*x[i]+b[c], f[c]*dy[i]
					df[c] += dy[i] * x[i]
					db[c] += dy[i]
				}
			})
			what := fmt.Sprintf("%v, in place %v", shape, inPlace)
			near(t, what+": y", top[0].Data(), y, 1e-5)
			backward(t, l, bottom, top)
			near(t, what+": dx", bottom[0].Diff(), dx, 1e-5)
			near(t, what+": factors", l.Params()[0].Diff(), df, 1e-5)
			near(t, what+": bias", l.Params()[1].Diff(), db, 1e-5)
		}
	}
}

func TestSoftmaxIsTheDefinition(t *testing.T) {
	for _, c := range []struct {
		body  string
		shape []int
		inner int
	}{{"", []int{3, 1000}, 1}, {"", []int{2, 21, 9, 9}, 81}} {
		l, x, dy, bottom, top := largeCase(t, "Softmax", c.body, false, 100, 1, c.shape)
		y, dx := make([]float64, len(x)), make([]float64, len(x))
		channels := c.shape[1]
		for o := range c.shape[0] {
			for k := range c.inner {
				at := func(ch int) int { return (o*channels+ch)*c.inner + k }
				total, dot := 0.0, 0.0
				for ch := range channels {
					total += math.Exp(x[at(ch)] - 100)
				}
				for ch := range channels {
					y[at(ch)] = math.Exp(x[at(ch)]-100) / total
					dot += y[at(ch)] * dy[at(ch)]
				}
				for ch := range channels {
					dx[at(ch)] = (dy[at(ch)] - dot) * y[at(ch)]
				}
			}
		}
		near(t, "y", top[0].Data(), y, 1e-6)
		backward(t, l, bottom, top)
		near(t, "dx", bottom[0].Diff(), dx, 1e-6)
	}
}

// Sums and products of several blobs, over several pieces.
func TestPiecesMeet(t *testing.T) {
	shape := []int{3, pieceLength + 37}
	for body, f := range map[string]func(a, b, c float64) float64{
		"": func(a, b, c float64) float64 { return a + b + c },
		"eltwise_param { coeff: 2 coeff: -1 coeff: 0.5 }": func(a, b, c float64) float64 { return 2*a - b + c/2 },
		"eltwise_param { operation: PROD }":               func(a, b, c float64) float64 { return a * b * c },
		"eltwise_param { operation: MAX }":                func(a, b, c float64) float64 { return max(a, b, c) },
	} {
		l, _, dy, bottom, top := largeCase(t, "Eltwise", body, false, 0, 1, shape, shape, shape)
		y, dx := make([]float64, len(dy)), make([]float64, len(dy))
		for i := range y {
			a, b, c := float64(bottom[0].Data()[i]), float64(bottom[1].Data()[i]), float64(bottom[2].Data()[i])
			y[i] = f(a, b, c)
			const h = 1e-6
			dx[i] = dy[i] * (f(a+h, b, c) - f(a-h, b, c)) / (2 * h)
		}
		near(t, body+": y", top[0].Data(), y, 1e-5)
		backward(t, l, bottom, top)
		near(t, body+": dx of bottom 0", bottom[0].Diff(), dx, 1e-4)
	}
	l, _, _, bottom, top := largeCase(t, "Split", "", false, 0, 4, shape)
	backward(t, l, bottom, top)
	want := make([]float64, bottom[0].Count())
	for _, b := range top {
		for i, d := range b.Diff() {
			want[i] += float64(d)
		}
	}
	near(t, "Split: dx", bottom[0].Diff(), want, 1e-6)
}
