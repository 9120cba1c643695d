package nn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// special are values that order and arithmetic may get wrong.
var special = []float32{
	0, float32(math.Copysign(0, -1)), 1, -1, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()),
	math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32, math.MaxFloat32, -math.MaxFloat32, math.Float32frombits(0xffc00000),
}

// numbers returns n numbers, many of them equal and some special.
func numbers(r *rand.Rand, n int, odd bool) []float32 {
	x := make([]float32, n)
	for i := range x {
		switch r.IntN(8) {
		case 0:
			if odd {
				x[i] = special[r.IntN(len(special))]
			}
		case 1, 2, 3:
			x[i] = float32(r.IntN(3) - 1)
		default:
			x[i] = float32(r.NormFloat64())
		}
	}
	return x
}

// positive returns n scales.
func positive(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = 0.5 + float32(r.Float64())*4
	}
	return x
}

type failer interface {
	Fatalf(format string, args ...any)
}

// sameBits fails unless got is want, NaNs being all alike.
func sameBits(t failer, what string, got, want []float32) {
	for i := range want {
		if math.IsNaN(float64(got[i])) && math.IsNaN(float64(want[i])) {
			continue
		}
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: element %d of %d is %v (%#x), want %v (%#x)", what, i, len(want),
				got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
		}
	}
}

func TestReLUEqualsPortable(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.OneOf(rapid.IntRange(0, 40), rapid.Just(pieceMost+13)).Draw(rt, "n")
		r := rand.New(rand.NewPCG(uint64(n), 1))
		x, dy := numbers(r, n, true), numbers(r, n, true)
		got, want := make([]float32, n), make([]float32, n)
		ReLU(got, x)
		reluPortable(want, x)
		sameBits(rt, "y", got, want)
		for i, v := range x {
			if !math.IsNaN(float64(v)) && want[i] != max(v, 0) {
				rt.Fatalf("ReLU of %v is %v", v, want[i])
			}
		}
		ReLUGradient(got, dy, x)
		reluGradientPortable(want, dy, x)
		sameBits(rt, "dx", got, want)
		for i, v := range x {
			if v <= 0 && want[i] != 0 || v > 0 && want[i] != dy[i] && !math.IsNaN(float64(dy[i])) {
				rt.Fatalf("gradient %v at %v is %v", dy[i], v, want[i])
			}
		}
	})
}

func TestLRNEqualsPortable(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.OneOf(rapid.IntRange(0, 40), rapid.Just(pieceMost+13)).Draw(rt, "n")
		r := rand.New(rand.NewPCG(uint64(n), 1))
		x, in, out, y, dy := numbers(r, n, false), numbers(r, n, false), numbers(r, n, false), numbers(r, n, false), numbers(r, n, false)
		start := positive(r, n)
		// both runs f on its own results and accumulator.
		both := func(what string, f, portable func(a, b, acc []float32)) {
			var res [2][3][]float32
			for i, g := range []func(a, b, acc []float32){f, portable} {
				res[i] = [3][]float32{make([]float32, n), make([]float32, n), append([]float32(nil), start...)}
				g(res[i][0], res[i][1], res[i][2])
			}
			for i, part := range []string{" first", " second", " acc"} {
				sameBits(rt, what+part, res[0][i], res[1][i])
			}
		}
		both("LRN",
			func(a, b, acc []float32) { LRN(a, b, x, in, out, acc, 1, 0.25) },
			func(a, b, acc []float32) { lrnPortable(a, b, x, in, out, acc, 1, 0.25) })
		both("LRNRatio",
			func(a, _, acc []float32) { LRNRatio(a, acc, y, dy, start) },
			func(a, _, acc []float32) { lrnRatioPortable(a, acc, y, dy, start) })
		both("LRNGradient",
			func(a, _, acc []float32) { LRNGradient(a, x, dy, start, out, acc, 0.125) },
			func(a, _, acc []float32) { lrnGradientPortable(a, x, dy, start, out, acc, 0.125) })
	})
}

func TestLRNIsTheDefinition(t *testing.T) {
	x, in, out, acc := []float32{3, -2}, []float32{1, 2}, []float32{2, 0}, []float32{5, 1}
	y, scale := make([]float32, 2), make([]float32, 2)
	LRN(y, scale, x, in, out, acc, 1, 0.5)
	for i, want := range []struct{ scale, y, acc float64 }{{4, 3 / math.Pow(4, 0.75), 2}, {3.5, -2 / math.Pow(3.5, 0.75), 5}} {
		if math.Abs(float64(scale[i])-want.scale) > 1e-6 || math.Abs(float64(y[i])-want.y) > 1e-6 || float64(acc[i]) != want.acc {
			t.Errorf("place %d: scale %v, y %v, acc %v, want %v", i, scale[i], y[i], acc[i], want)
		}
	}
}

// windows lays out what pooling does along an axis.
func windows(n, kernel, pad, stride int) (s []Span) {
	for lo := -pad; lo < n; lo += stride {
		if hi := min(lo+kernel, n); hi > max(lo, 0) {
			s = append(s, Span{max(lo, 0), hi})
		}
		if lo+kernel >= n+pad {
			break
		}
	}
	return s
}

// maximum is the definition: the first of the greatest.
func maximum(src []float32, width int, r, c Span) (v float32, at int) {
	less := func(a, b float32) bool { // NaNs by their sign
		nan := func(x float32) float64 {
			switch {
			case x == x:
				return 0
			case math.Signbit(float64(x)):
				return -1
			}
			return 1
		}
		if nan(a) != 0 || nan(b) != 0 {
			return nan(a) < nan(b)
		}
		return a < b
	}
	at = r.Lo*width + c.Lo
	for y := r.Lo; y < r.Hi; y++ {
		for x := c.Lo; x < c.Hi; x++ {
			if less(src[at], src[y*width+x]) {
				at = y*width + x
			}
		}
	}
	return src[at], at
}

func TestMaxPoolIsTheDefinition(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := func(name string, lo, hi int) int { return rapid.IntRange(lo, hi).Draw(rt, name) }
		h, w := n("height", 1, 9), n("width", 1, 40)
		kernel, stride := n("kernel", 1, 5), n("stride", 1, 3)
		pad := n("pad", 0, kernel-1)
		rows, cols := windows(h, kernel, pad, stride), windows(w, kernel, pad, stride)
		r := rand.New(rand.NewPCG(uint64(h), uint64(w)))
		src := numbers(r, h*w, rapid.Bool().Draw(rt, "special"))
		p := NewMaxPool(rows, cols, h, w)
		dst, mask := make([]float32, len(rows)*len(cols)), make([]int32, len(rows)*len(cols))
		for pass := range 2 {
			p.Plane(dst, mask, src)
			for i, row := range rows {
				for j, col := range cols {
					o := i*len(cols) + j
					v, at := maximum(src, w, row, col)
					if v != v {
						at = int(mask[o]) // NaNs of one sign may differ in payload
						if src[at] == src[at] {
							rt.Fatalf("pass %d, output %d, %d: position %d is not a NaN", pass, i, j, at)
						}
					}
					if int(mask[o]) != at || dst[o] != v && v == v {
						rt.Fatalf("pass %d, output %d, %d: %v at %d, want %v at %d", pass, i, j, dst[o], mask[o], v, at)
					}
				}
			}
			clear(dst)
		}
	})
}

// TestMaxPoolEqualsPortable compares bits, those of zeros included.
func TestMaxPoolEqualsPortable(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	vectors := 0
	for _, c := range [][4]int{{32, 3, 0, 2}, {55, 3, 0, 2}, {13, 3, 0, 2}, {28, 3, 1, 1}, {27, 3, 1, 2}, {14, 2, 0, 2}, {8, 5, 2, 1}, {7, 3, 0, 2}, {20, 4, 1, 3}} {
		s := windows(c[0], c[1], c[2], c[3])
		p := NewMaxPool(s, s, c[0], c[0])
		if p.vector != nil {
			vectors++
		}
		q := *p
		q.vector, q.words = nil, make([]uint64, (c[0]+1)*c[0])
		src := numbers(r, c[0]*c[0], true)
		n := len(s) * len(s)
		got, want, at, wantAt := make([]float32, n), make([]float32, n), make([]int32, n), make([]int32, n)
		p.Plane(got, at, src)
		q.Plane(want, wantAt, src)
		sameBits(t, fmt.Sprint(c), got, want)
		for i := range at {
			if at[i] != wantAt[i] {
				t.Fatalf("%v: output %d at %d, want %d", c, i, at[i], wantAt[i])
			}
		}
	}
	if avx2 && vectors < 7 {
		t.Errorf("only %d of the shapes take the AVX2 loops", vectors)
	}
}

func TestNothingAllocates(t *testing.T) {
	const n = 32
	s := windows(n, 3, 0, 2)
	p := NewMaxPool(s, s, n, n)
	r := rand.New(rand.NewPCG(1, 2))
	x, y, z := positive(r, n*n), make([]float32, n*n), make([]float32, n*n)
	mask := make([]int32, len(s)*len(s))
	if got := testing.AllocsPerRun(10, func() {
		p.Plane(y, mask, x)
		ReLU(y, x)
		ReLUGradient(z, y, x)
		LRN(y, z, x, x, x, x[:], 1, 1)
		LRNRatio(y, z, x, x, x)
		LRNGradient(y, x, x, x, x, z, 1)
	}); got != 0 {
		t.Errorf("%v allocations, want 0", got)
	}
}

// BenchmarkMaxPool pools a plane of CIFAR-10 quick.
func BenchmarkMaxPool(b *testing.B) {
	const n = 32
	s := windows(n, 3, 0, 2)
	p := NewMaxPool(s, s, n, n)
	x := numbers(rand.New(rand.NewPCG(1, 2)), n*n, false)
	y, mask := make([]float32, len(s)*len(s)), make([]int32, len(s)*len(s))
	for b.Loop() {
		p.Plane(y, mask, x)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(n*n), "ns/value")
}
