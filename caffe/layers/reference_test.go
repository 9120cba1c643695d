package layers

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/scaffe/scaffe/caffe/blob"
)

// This file is the dumb twin of the heavy layers: their definitions as loops
// over float64, sharing nothing with the code they check.

// array is a four-axis array; reads outside are zero, adds there are lost.
type array struct {
	n, c, h, w int
	v          []float64
}

func newArray(n, c, h, w int) *array { return &array{n, c, h, w, make([]float64, n*c*h*w)} }

func arrayOf(b *blob.Blob, x []float32) *array {
	a := newArray(b.Dim(0), b.Dim(1), b.Dim(2), b.Dim(3))
	for i, v := range x {
		a.v[i] = float64(v)
	}
	return a
}

func (a *array) index(n, c, h, w int) int {
	if c < 0 || c >= a.c || h < 0 || h >= a.h || w < 0 || w >= a.w {
		return -1
	}
	return ((n*a.c+c)*a.h+h)*a.w + w
}

func (a *array) at(n, c, h, w int) float64 {
	if i := a.index(n, c, h, w); i >= 0 {
		return a.v[i]
	}
	return 0
}

func (a *array) add(n, c, h, w int, v float64) {
	if i := a.index(n, c, h, w); i >= 0 {
		a.v[i] += v
	}
}

func (a *array) each(visit func(n, c, h, w int)) {
	for n := range a.n {
		for c := range a.c {
			for h := range a.h {
				for w := range a.w {
					visit(n, c, h, w)
				}
			}
		}
	}
}

// geometry is a convolution or pooling window.
type geometry struct{ kh, kw, ph, pw, sh, sw, dh, dw, group int }

// refConv returns y, and the gradients for dy.
func refConv(g geometry, x, w *array, bias []float64, dyOf func(y *array) *array) (y, dx, dw *array, db []float64) {
	extent := func(n, k, p, s, d int) int { return (n+2*p-d*(k-1)-1)/s + 1 }
	y = newArray(x.n, w.n, extent(x.h, g.kh, g.ph, g.sh, g.dh), extent(x.w, g.kw, g.pw, g.sw, g.dw))
	dx, dw, db = newArray(x.n, x.c, x.h, x.w), newArray(w.n, w.c, w.h, w.w), make([]float64, w.n)
	terms := func(visit func(n, o, i, j, c, kc, kh, kw, h, w int)) {
		y.each(func(n, o, i, j int) {
			w.each(func(wo, kc, kh, kw int) {
				if wo == o {
					c := o/(y.c/g.group)*w.c + kc
					visit(n, o, i, j, c, kc, kh, kw, i*g.sh-g.ph+kh*g.dh, j*g.sw-g.pw+kw*g.dw)
				}
			})
		})
	}
	terms(func(n, o, i, j, c, kc, kh, kw, h, v int) { y.add(n, o, i, j, x.at(n, c, h, v)*w.at(o, kc, kh, kw)) })
	if bias != nil {
		y.each(func(n, o, i, j int) { y.add(n, o, i, j, bias[o]) })
	}
	dy := dyOf(y)
	terms(func(n, o, i, j, c, kc, kh, kw, h, v int) {
		d := dy.at(n, o, i, j)
		dx.add(n, c, h, v, d*w.at(o, kc, kh, kw))
		dw.add(o, kc, kh, kw, d*x.at(n, c, h, v))
	})
	dy.each(func(n, o, i, j int) { db[o] += dy.at(n, o, i, j) })
	return y, dx, dw, db
}

// refPool returns y, the mask (MAX) and dx for dy; it follows the loops of
// Caffe's pooling_layer.cpp, extents included.
func refPool(g geometry, max, ceil bool, x *array, dyOf func(y *array) *array) (y, mask, dx *array) {
	extent := func(n, k, p, s int) int {
		e := float64(n+2*p-k) / float64(s)
		out := int(math.Floor(e)) + 1
		if ceil {
			out = int(math.Ceil(e)) + 1
		}
		if (out-1)*s >= n+p {
			out--
		}
		return out
	}
	y = newArray(x.n, x.c, extent(x.h, g.kh, g.ph, g.sh), extent(x.w, g.kw, g.pw, g.sw))
	mask, dx = newArray(y.n, y.c, y.h, y.w), newArray(x.n, x.c, x.h, x.w)
	window := func(i, j int) (h0, h1, w0, w1, size int) {
		h0, w0 = i*g.sh-g.ph, j*g.sw-g.pw
		h1, w1 = min(h0+g.kh, x.h+g.ph), min(w0+g.kw, x.w+g.pw)
		size = (h1 - h0) * (w1 - w0)
		if h0 < 0 {
			h0 = 0
		}
		if w0 < 0 {
			w0 = 0
		}
		return h0, min(h1, x.h), w0, min(w1, x.w), size
	}
	y.each(func(n, c, i, j int) {
		h0, h1, w0, w1, size := window(i, j)
		best, at, sum := math.Inf(-1), -1, 0.0
		for h := h0; h < h1; h++ {
			for w := w0; w < w1; w++ {
				v := x.at(n, c, h, w)
				sum += v
				if v > best {
					best, at = v, h*x.w+w
				}
			}
		}
		if max {
			y.add(n, c, i, j, best)
			mask.add(n, c, i, j, float64(at))
		} else {
			y.add(n, c, i, j, sum/float64(size))
		}
	})
	dy := dyOf(y)
	dy.each(func(n, c, i, j int) {
		d := dy.at(n, c, i, j)
		if max {
			at := int(mask.at(n, c, i, j))
			dx.add(n, c, at/x.w, at%x.w, d)
			return
		}
		h0, h1, w0, w1, size := window(i, j)
		for h := h0; h < h1; h++ {
			for w := w0; w < w1; w++ {
				dx.add(n, c, h, w, d/float64(size))
			}
		}
	})
	return y, mask, dx
}

// refInner returns y = x·wᵀ + bias for x [m, k] and w [n, k], and the
// gradients for dy.
func refInner(x, w *array, bias []float64, dyOf func(y *array) *array) (y, dx, dw *array, db []float64) {
	y, dx, dw = newArray(x.n, w.n, 1, 1), newArray(x.n, x.c, 1, 1), newArray(w.n, w.c, 1, 1)
	db = make([]float64, w.n)
	y.each(func(m, n, _, _ int) {
		for k := range x.c {
			y.add(m, n, 0, 0, x.at(m, k, 0, 0)*w.at(n, k, 0, 0))
		}
		if bias != nil {
			y.add(m, n, 0, 0, bias[n])
		}
	})
	dy := dyOf(y)
	dy.each(func(m, n, _, _ int) {
		d := dy.at(m, n, 0, 0)
		db[n] += d
		for k := range x.c {
			dx.add(m, k, 0, 0, d*w.at(n, k, 0, 0))
			dw.add(n, k, 0, 0, d*x.at(m, k, 0, 0))
		}
	})
	return y, dx, dw, db
}

// refLRN returns y and dx for dy. within: neighbors in the plane, else
// channels.
func refLRN(size int, alpha, beta, k float64, within bool, x *array, dyOf func(y *array) *array) (y, dx *array) {
	half := size / 2
	// near visits the neighbors of an element, itself included.
	near := func(n, c, h, w int, visit func(n, c, h, w int)) {
		for i := -half; i <= half; i++ {
			if !within {
				visit(n, c+i, h, w)
				continue
			}
			for j := -half; j <= half; j++ {
				visit(n, c, h+i, w+j)
			}
		}
	}
	weight := alpha / float64(size)
	if within {
		weight = alpha / float64(size*size)
	}
	y, dx = newArray(x.n, x.c, x.h, x.w), newArray(x.n, x.c, x.h, x.w)
	scale := newArray(x.n, x.c, x.h, x.w)
	x.each(func(n, c, h, w int) {
		s := k
		near(n, c, h, w, func(n, c, h, w int) { s += weight * x.at(n, c, h, w) * x.at(n, c, h, w) })
		scale.add(n, c, h, w, s)
		y.add(n, c, h, w, x.at(n, c, h, w)*math.Pow(s, -beta))
	})
	dy := dyOf(y)
	x.each(func(n, c, h, w int) {
		d, v, s := dy.at(n, c, h, w), x.at(n, c, h, w), scale.at(n, c, h, w)
		dx.add(n, c, h, w, d*math.Pow(s, -beta))
		near(n, c, h, w, func(n, c, h, w int) {
			dx.add(n, c, h, w, -d*v*beta*math.Pow(s, -beta-1)*2*weight*x.at(n, c, h, w))
		})
	})
	return y, dx
}

// run sets a layer up on random bottoms, runs both passes on random top
// gradients, and returns it with its blobs.
func run(t failer, typ, body string, r *rand.Rand, tops int, shapes ...[]int) (l Layer, bottom, top []*blob.Blob) {
	l, bottom, top, err := trySetup(typ, body, Env{Rand: r}, tops, shapes...)
	if err != nil {
		t.Fatalf("%s %s on %v: %v", typ, body, shapes, err)
	}
	noise := func(x []float32) {
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
	}
	propagate := make([]bool, len(bottom))
	for i, b := range bottom {
		noise(b.Data())
		noise(b.Diff()) // to be overwritten
		propagate[i] = true
	}
	for _, p := range l.Params() {
		noise(p.Data())
		clear(p.Diff())
	}
	if err := l.Forward(bottom, top); err != nil {
		t.Fatalf("Forward: %v", err)
	}
	for _, b := range top {
		noise(b.Diff())
	}
	if err := l.Backward(top, propagate, bottom); err != nil {
		t.Fatalf("Backward: %v", err)
	}
	return l, bottom, top
}

// failer is what *testing.T and *rapid.T have in common here.
type failer interface {
	Fatalf(format string, args ...any)
}

var _ failer = (*testing.T)(nil)

// close fails unless got is want within 1e-5 of their largest magnitude.
func closeTo(t failer, what string, got []float32, want []float64) {
	if len(got) != len(want) {
		t.Fatalf("%s has %d elements, want %d", what, len(got), len(want))
	}
	largest := 1.0
	for _, v := range want {
		largest = math.Max(largest, math.Abs(v))
	}
	for i, v := range got {
		if d := math.Abs(float64(v) - want[i]); !(d <= 1e-5*largest) {
			t.Fatalf("%s: element %d is %v, want %v", what, i, v, want[i])
		}
	}
}

// given returns the dyOf that takes the gradients of blob b and fails where
// the reference's extents differ.
func given(t failer, b *blob.Blob) func(y *array) *array {
	return func(y *array) *array {
		dy := arrayOf(b, b.Diff())
		if dy.n != y.n || dy.c != y.c || dy.h != y.h || dy.w != y.w {
			t.Fatalf("top shape is %v, want %v", b.Shape(), []int{y.n, y.c, y.h, y.w})
		}
		return dy
	}
}

func float64s(x []float32) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}

// checkConv compares the layer with refConv.
func checkConv(t failer, r *rand.Rand, g geometry, numOutput int, bias bool, shape ...int) {
	body := fmt.Sprintf(`convolution_param { num_output: %d kernel_h: %d kernel_w: %d pad_h: %d pad_w: %d stride_h: %d stride_w: %d dilation: %d dilation: %d group: %d bias_term: %t }`,
		numOutput, g.kh, g.kw, g.ph, g.pw, g.sh, g.sw, g.dh, g.dw, g.group, bias)
	l, bottom, top := run(t, "Convolution", body, r, 1, shape)
	w := l.Params()[0]
	var b []float64
	if bias {
		b = float64s(l.Params()[1].Data())
	}
	y, dx, dw, db := refConv(g, arrayOf(bottom[0], bottom[0].Data()), arrayOf(w, w.Data()), b, given(t, top[0]))
	what := fmt.Sprintf("%s on %v: ", body, shape)
	closeTo(t, what+"top", top[0].Data(), y.v)
	closeTo(t, what+"bottom gradient", bottom[0].Diff(), dx.v)
	closeTo(t, what+"weight gradient", w.Diff(), dw.v)
	if bias {
		closeTo(t, what+"bias gradient", l.Params()[1].Diff(), db)
	}
}
