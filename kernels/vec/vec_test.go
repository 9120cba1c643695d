package vec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/scaffe/scaffe/kernels"
)

// onPaths runs f with the portable loops, then with AVX2 where there is any.
func onPaths(t *testing.T, f func(t *testing.T)) {
	before := useAVX2
	defer func() { useAVX2 = before }()
	useAVX2 = false
	t.Run("portable", f)
	if useAVX2 = kernels.HasAVX2(); useAVX2 {
		t.Run("avx2", f)
	}
}

// bothPaths returns what f makes on the portable and on the AVX2 path.
func bothPaths[T any](t *testing.T, f func() T) (slow, fast T) {
	t.Helper()
	if !kernels.HasAVX2() {
		t.Skip("this processor has no AVX2: there is one path only")
	}
	before := useAVX2
	defer func() { useAVX2 = before }()
	useAVX2 = false
	slow = f()
	useAVX2 = true
	return slow, f()
}

// sameBits compares but takes any NaN for another: which payload is handed on
// depends on the order of operands that a compiler chose.
func sameBits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		g, w := got[i], want[i]
		if math.Float32bits(g) != math.Float32bits(w) && (g == g || w == w) {
			t.Fatalf("%s: element %d of %d is %v (%#x), want %v (%#x)", what, i, len(want), g, math.Float32bits(g), w, math.Float32bits(w))
		}
	}
}

var special = []float32{
	0, float32(math.Copysign(0, -1)), 1, -1, math.MaxFloat32, -math.MaxFloat32, 1e-45, -1e-45, 0x1p-126, -0x1p-127,
	float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), 88.73, -87.4, -103.9, -104.1, 0.625, -0.625, 0.6249999,
}

// vectorOf returns n numbers of many sizes, at an odd place in memory, with
// specials among them.
func vectorOf(r *rand.Rand, n int, specials bool) []float32 {
	x := make([]float32, n+3)[3:]
	for i := range x {
		x[i] = float32(r.NormFloat64() * math.Exp2(float64(r.IntN(12)-6)))
		if specials && r.IntN(4) == 0 {
			x[i] = special[r.IntN(len(special))]
		}
	}
	return x
}

// vectorLengths fill wide loops, narrow loops and single elements.
var vectorLengths = []int{0, 1, 3, 7, 8, 9, 15, 16, 31, 32, 33, 49, 63, 64, 100, 1037, vectorPiece + 45}

// elementwiseCalls are all elementwise functions, called on a dst that may be
// an operand.
var elementwiseCalls = map[string]func(dst, keep, a, b []float32){
	"Add":           func(d, _, a, b []float32) { Add(d, a, b) },
	"Mul":           func(d, _, a, b []float32) { Mul(d, a, b) },
	"Scale":         func(d, _, a, _ []float32) { Scale(d, -1.7, a) },
	"Scale by 1":    func(d, _, a, _ []float32) { Scale(d, 1, a) },
	"AddScaled":     func(d, _, a, _ []float32) { AddScaled(d, 0.3, a) },
	"AddMul":        func(d, _, a, b []float32) { AddMul(d, a, b) },
	"Affine":        func(d, _, a, _ []float32) { Affine(d, 1.1, a, -0.7) },
	"AffineKeep":    func(d, k, a, _ []float32) { AffineKeep(d, k, 1.1, a, -0.7) },
	"Normalize":     func(d, _, a, _ []float32) { Normalize(d, a, 0.3, 1.3) },
	"NormalizeBoth": func(d, k, a, _ []float32) { NormalizeBoth(d, k, a, 0.3, 1.3) },
	"NormalizeGrad": func(d, _, a, b []float32) { NormalizeGrad(d, a, b, 0.1, 0.7, 1.3) },
	"SigmoidGrad":   func(d, _, a, b []float32) { SigmoidGrad(d, a, b) },
	"TanhGrad":      func(d, _, a, b []float32) { TanhGrad(d, a, b) },
	"TakeGreater":   func(d, k, a, _ []float32) { TakeGreater(d, k, a, 3) },
	"Where":         func(d, _, a, b []float32) { Where(d, a, b, -1) },
	"Exp":           func(d, _, a, _ []float32) { Exp(d, a, 0) },
	"Exp shifted":   func(d, _, a, _ []float32) { Exp(d, a, 1.5) },
	"Sigmoid":       func(d, _, a, _ []float32) { Sigmoid(d, a) },
	"Tanh":          func(d, _, a, _ []float32) { Tanh(d, a) },
}

func TestVectorPathsAgree(t *testing.T) {
	for name, f := range elementwiseCalls {
		for _, n := range vectorLengths {
			for _, inPlace := range []bool{false, true} {
				if n > vectorPiece && (inPlace || name != "AffineKeep" && name != "NormalizeGrad") {
					continue // those two use all operands
				}
				run := func() []float32 {
					r := rand.New(rand.NewPCG(uint64(n), 1))
					a, b, all := vectorOf(r, n, true), vectorOf(r, n, true), vectorOf(r, 2*n+2, false)
					dst, keep := all[:n], all[n+1:2*n+1]
					if inPlace {
						dst = a
					}
					f(dst, keep, a, b)
					return append(append(append([]float32{}, dst...), all...), a...)
				}
				slow, fast := bothPaths(t, run)
				sameBits(t, fmt.Sprintf("%s of %d, in place %v", name, n, inPlace), fast, slow)
			}
		}
	}
}

// Values of every function, from its definition in float64.
func TestVectorValues(t *testing.T) {
	want := map[string]func(d, a, b float64) float64{
		"Add":           func(_, a, b float64) float64 { return a + b },
		"Mul":           func(_, a, b float64) float64 { return a * b },
		"Scale":         func(_, a, _ float64) float64 { return -1.7 * a },
		"Scale by 1":    func(_, a, _ float64) float64 { return a },
		"AddScaled":     func(d, a, _ float64) float64 { return d + 0.3*a },
		"AddMul":        func(d, a, b float64) float64 { return d + a*b },
		"Affine":        func(_, a, _ float64) float64 { return 1.1*a - 0.7 },
		"AffineKeep":    func(_, a, _ float64) float64 { return 1.1*a - 0.7 },
		"Normalize":     func(_, a, _ float64) float64 { return (a - 0.3) * 1.3 },
		"NormalizeBoth": func(_, a, _ float64) float64 { return (a - 0.3) * 1.3 },
		"NormalizeGrad": func(_, a, b float64) float64 { return (a - 0.1 - 0.7*b) * 1.3 },
		"SigmoidGrad":   func(_, a, b float64) float64 { return a * b * (1 - b) },
		"TanhGrad":      func(_, a, b float64) float64 { return a * (1 - b*b) },
		"TakeGreater":   func(d, a, _ float64) float64 { return max(d, a) },
		"Where": func(_, a, b float64) float64 {
			if b != -1 {
				return 0
			}
			return a
		},
		"Exp":         func(_, a, _ float64) float64 { return math.Exp(a) },
		"Exp shifted": func(_, a, _ float64) float64 { return math.Exp(a - 1.5) },
		"Sigmoid":     func(_, a, _ float64) float64 { return 1 / (1 + math.Exp(-a)) },
		"Tanh":        func(_, a, _ float64) float64 { return math.Tanh(a) },
	}
	onPaths(t, func(t *testing.T) {
		for name, f := range elementwiseCalls {
			const n = 77
			r := rand.New(rand.NewPCG(3, 4))
			random := func() []float32 {
				x := make([]float32, n)
				for i := range x {
					x[i] = float32(r.NormFloat64())
				}
				return x
			}
			dst, keep, a, b := random(), random(), random(), random()
			b[3], b[50] = -1, -1 // for Where
			old := append([]float32{}, dst...)
			f(dst, keep, a, b)
			for i := range dst {
				w := want[name](float64(old[i]), float64(a[i]), float64(b[i]))
				if math.Abs(float64(dst[i])-w) > 2e-6*(1+math.Abs(w)) {
					t.Errorf("%s: element %d is %v, want %v", name, i, dst[i], w)
					break
				}
			}
			switch name {
			case "AffineKeep":
				sameBits(t, "kept", keep, a)
			case "NormalizeBoth":
				sameBits(t, "both", keep, dst)
			case "TakeGreater":
				for i := range dst {
					if (keep[i] == 3) != (a[i] > old[i]) {
						t.Errorf("TakeGreater: %v over %v is marked %v", a[i], old[i], keep[i])
					}
				}
			}
		}
	})
}

// ulps returns how many units in the last place of a float32 lie between got
// and want.
func ulps(got float32, want float64) float64 {
	if nearest := float32(want); got == nearest || got != got && want != want {
		return 0
	}
	_, e := math.Frexp(want)
	unit := math.Ldexp(1, max(e-24, -149))
	return math.Abs(float64(got)-want) / unit
}

// Every 4099th float32, and all near the edges.
func TestExponentialsAreAccurate(t *testing.T) {
	var xs []float32
	for bits := uint64(0); bits < 1<<32; bits += 4099 {
		xs = append(xs, math.Float32frombits(uint32(bits)))
	}
	for _, edge := range []float32{88.72284, -87.33655, -103.97208, 0.625, -0.625, 0.34657, 44.36142} {
		for d := -2000; d <= 2000; d++ {
			xs = append(xs, math.Float32frombits(math.Float32bits(edge)+uint32(d)))
		}
	}
	y := make([]float32, len(xs))
	for _, c := range []struct {
		name  string
		f     func()
		exact func(float64) float64
		limit float64
	}{
		{"exp", func() { Exp(y, xs, 0) }, math.Exp, 1.1},
		{"sigmoid", func() { Sigmoid(y, xs) }, func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }, 2},
		{"tanh", func() { Tanh(y, xs) }, math.Tanh, 2},
	} {
		c.f()
		worst, at := 0.0, float32(0)
		for i, x := range xs {
			want := c.exact(float64(x))
			if c.name == "exp" && want > math.MaxFloat32 && math.IsInf(float64(y[i]), 1) {
				continue
			}
			if u := ulps(y[i], want); !(u <= worst) {
				worst, at = u, x
			}
		}
		t.Logf("%s: at most %.3f ulp, at %v", c.name, worst, at)
		if !(worst <= c.limit) {
			t.Errorf("%s is wrong by %v units in the last place at %v", c.name, worst, at)
		}
	}
}

func TestVectorsAllocateNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	d, k, a, b := vectorOf(r, 100, false), vectorOf(r, 100, false), vectorOf(r, 100, false), vectorOf(r, 100, false)
	onPaths(t, func(t *testing.T) {
		for name, f := range updateCalls {
			if n := testing.AllocsPerRun(5, func() { f(Update{Clear: true}, d, k, a, b) }); n != 0 {
				t.Errorf("%s allocates %v times", name, n)
			}
		}
		for name, f := range elementwiseCalls {
			if n := testing.AllocsPerRun(5, func() { f(d, k, a, b) }); n != 0 {
				t.Errorf("%s allocates %v times", name, n)
			}
		}
		var sink float64
		if n := testing.AllocsPerRun(5, func() {
			var l, m Lanes
			AddMoments(&l, &m, a, a[0])
			AddSumDot(&l, &m, a, b)
			sink += Sum(a) + SumSquares(a) + Dot(a, b) + l.Total() + m.Total() + float64(Max(a)) + float64(FirstNotFinite(a))
		}); n != 0 {
			t.Errorf("sums allocate %v times", n)
		}
	})
}
