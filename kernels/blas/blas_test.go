package blas

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// each runs a test with every implementation that there is.
func each(t *testing.T, test func(t *testing.T)) {
	all := []library{new(pure)}
	if Optimized() {
		all = append(all, chosen())
	}
	before := chosen
	defer func() { chosen = before }()
	for _, l := range all {
		l.setThreads(1)
		chosen = func() library { return l }
		t.Run(l.name(), test)
	}
}

// atOpening is how many threads OpenBLAS had when it was opened for one.
var atOpening = func() int {
	if l := openBLAS(1); l != nil {
		return l.threads()
	}
	return 1
}()

// Whatever the number of cores, and whatever is asked of other programs that this one starts.
func TestOpensWithTheThreadsAskedFor(t *testing.T) {
	if atOpening != 1 {
		t.Errorf("%d threads, want 1", atOpening)
	}
	for _, before := range []string{"", "7"} {
		if t.Setenv(threadsEnv, before); before == "" {
			os.Unsetenv(threadsEnv)
		}
		openBLAS(1)
		if after, set := os.LookupEnv(threadsEnv); after != before || set != (before != "") {
			t.Errorf("%s=%q has become %q", threadsEnv, before, after)
		}
	}
}

func TestMatricesBeyondTheirSlices(t *testing.T) {
	each(t, func(t *testing.T) {
		x := make([]float32, 12)
		for name, f := range map[string]func(){
			"few elements":   func() { Gemm(false, false, 3, 4, 5, 1, x, 5, make([]float32, 20), 4, 0, x, 4) },
			"rows too close": func() { Gemm(false, true, 3, 3, 4, 1, x, 4, x, 3, 0, x, 3) },
			"a vector":       func() { Gemv(false, 3, 4, 1, x, 4, x[:3], 0, x) },
			"its matrix":     func() { Gemv(true, 4, 4, 1, x, 4, x, 0, x) },
			"a short sum":    func() { Axpy(1, x, x[:11]) },
		} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s: no panic", name)
					}
				}()
				f()
			}()
		}
	})
}

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

func TestGemmIsTheDefinition(t *testing.T) { each(t, gemmIsTheDefinition) }

func gemmIsTheDefinition(t *testing.T) {
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
	Axpy(2, []float32{3, -4}, y)
	if y[0] != 2 || y[1] != -12 {
		t.Errorf("Axpy: %v, want [2 -12]", y)
	}
	Axpy(1, nil, nil)
}

func TestOneThreadAllocatesNothingAndRepeats(t *testing.T) {
	each(t, oneThreadAllocatesNothingAndRepeats)
}

func oneThreadAllocatesNothingAndRepeats(t *testing.T) {
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
