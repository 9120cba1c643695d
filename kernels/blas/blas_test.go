package blas

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// gemm64 is the reference implementation: the definition, in float64.
func gemm64(tA, tB bool, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) []float64 {
	out := make([]float64, len(c))
	for i, v := range c {
		out[i] = float64(v)
	}
	at := func(x []float32, ld int, t bool, i, j int) float64 {
		if t {
			i, j = j, i
		}
		return float64(x[i*ld+j])
	}
	for i := range m {
		for j := range n {
			sum := 0.0
			for l := range k {
				sum += at(a, lda, tA, i, l) * at(b, ldb, tB, l, j)
			}
			old := 0.0
			if beta != 0 {
				old = float64(beta) * out[i*ldc+j]
			}
			out[i*ldc+j] = float64(alpha)*sum + old
		}
	}
	return out
}

func random(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

func TestGemmIsTheDefinition(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dim := rapid.OneOf(rapid.IntRange(0, 5), rapid.IntRange(60, 270))
		m, n, k := dim.Draw(rt, "m"), dim.Draw(rt, "n"), rapid.IntRange(0, 70).Draw(rt, "k")
		tA, tB := rapid.Bool().Draw(rt, "transA"), rapid.Bool().Draw(rt, "transB")
		gap := rapid.IntRange(0, 3)
		ra, ca, rb, cb := m, k, k, n
		if tA {
			ra, ca = ca, ra
		}
		if tB {
			rb, cb = cb, rb
		}
		lda, ldb, ldc := max(1, ca+gap.Draw(rt, "lda")), max(1, cb+gap.Draw(rt, "ldb")), max(1, n+gap.Draw(rt, "ldc"))
		alpha := rapid.SampledFrom([]float32{1, -0.5}).Draw(rt, "alpha")
		beta := rapid.SampledFrom([]float32{0, 1, 2}).Draw(rt, "beta")
		r := rand.New(rand.NewPCG(uint64(m), uint64(n)))
		a, b, c := random(r, ra*lda), random(r, rb*ldb), random(r, m*ldc)
		if beta == 0 && m*n > 0 {
			c[0] = float32(math.NaN()) // must be overwritten
		}
		want := gemm64(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
		Gemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
		for i := range c {
			if d := math.Abs(float64(c[i]) - want[i]); !(d <= 1e-4) {
				rt.Fatalf("element %d: %v, want %v", i, c[i], want[i])
			}
		}
	})
}

func TestVectors(t *testing.T) {
	a := []float32{1, 2, 3, 4, 5, 6} // 2×3
	nan := float32(math.NaN())
	y := []float32{nan, nan}
	Gemv(false, 2, 3, 2, a, 3, []float32{1, 0, -1}, 0, y)
	if y[0] != -4 || y[1] != -4 {
		t.Errorf("Gemv: %v, want [-4 -4]", y)
	}
	z := []float32{1, 1, 1}
	Gemv(true, 2, 3, 1, a, 3, []float32{1, 1}, 1, z)
	if z[0] != 6 || z[1] != 8 || z[2] != 10 {
		t.Errorf("Gemv transposed: %v, want [6 8 10]", z)
	}
	Gemv(true, 0, 3, 1, nil, 3, nil, 0, z)
	if z[0] != 0 || z[1] != 0 || z[2] != 0 {
		t.Errorf("Gemv without terms: %v, want zeros", z)
	}
	x := []float32{3, -4}
	if d := Dot(x, []float32{2, 1}); d != 2 {
		t.Errorf("Dot: %v, want 2", d)
	}
	if s, n := Asum(x), Nrm2(x); s != 7 || n != 5 {
		t.Errorf("Asum %v, Nrm2 %v, want 7 and 5", s, n)
	}
	Axpy(2, x, y)
	Scal(0.5, y)
	if y[0] != 1 || y[1] != -6 {
		t.Errorf("Axpy, Scal: %v, want [1 -6]", y)
	}
	Axpy(1, nil, nil)
	Scal(1, nil)
	if Dot(nil, nil) != 0 || Asum(nil) != 0 || Nrm2(nil) != 0 {
		t.Error("empty vectors have a sum")
	}
}

func TestOneThreadAllocatesNothingAndRepeats(t *testing.T) {
	SetThreads(1)
	if n := Threads(); n != 1 {
		t.Fatalf("Threads() = %d after SetThreads(1)", n)
	}
	r := rand.New(rand.NewPCG(1, 2))
	const m, n, k = 130, 300, 90
	a, b, c := random(r, m*k), random(r, k*n), make([]float32, m*n)
	run := func() { Gemm(false, false, m, n, k, 1, a, k, b, n, 0, c, n) }
	run()
	first := append([]float32(nil), c...)
	if got := testing.AllocsPerRun(10, run); got != 0 {
		t.Errorf("%v allocations a call, want 0", got)
	}
	for i := range c {
		if c[i] != first[i] {
			t.Fatalf("element %d differs between two runs: %v and %v", i, c[i], first[i])
		}
	}
	SetThreads(2)
	run()
	for i := range c {
		if math.Abs(float64(c[i]-first[i])) > 1e-4 {
			t.Fatalf("element %d with two threads: %v, with one %v", i, c[i], first[i])
		}
	}
	SetThreads(1)
}

func TestName(t *testing.T) {
	if n := Name(); !strings.HasPrefix(n, "OpenBLAS ") && n != "gonum (pure Go)" {
		t.Errorf("Name() = %q", n)
	}
}

func ExampleGemm() {
	a := []float32{1, 2, 3, 4, 5, 6} // 2×3
	c := make([]float32, 2*2)
	Gemm(false, true, 2, 2, 3, 1, a, 3, a, 3, 0, c, 2) // c = a·aᵀ
	fmt.Println(c)
	// Output: [14 32 32 77]
}

// BenchmarkGemm reports GFLOPS: a square product, and the shapes of the
// convolutions of CIFAR-10 quick.
func BenchmarkGemm(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, s := range [][3]int{{512, 512, 512}, {32, 256, 800}, {32, 2048, 160}, {32, 160, 2048}, {160, 2048, 32}, {64, 64, 800}, {32, 1024, 75}} {
		m, n, k := s[0], s[1], s[2]
		for _, tr := range []string{"NN", "NT", "TN"} {
			tA, tB := tr[0] == 'T', tr[1] == 'T'
			lda, ldb := k, n
			if tA {
				lda = m
			}
			if tB {
				ldb = k
			}
			x, y, z := random(r, m*k), random(r, k*n), make([]float32, m*n)
			b.Run(fmt.Sprintf("%dx%dx%d/%s", m, n, k, tr), func(b *testing.B) {
				for b.Loop() {
					Gemm(tA, tB, m, n, k, 1, x, lda, y, ldb, 1, z, n)
				}
				b.ReportMetric(2*float64(m*n*k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOPS")
			})
		}
	}
}
