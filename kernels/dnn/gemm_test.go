package dnn

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestGemmIsTheDefinition(t *testing.T) {
	if !Available {
		if err := Gemm(false, false, 1, 1, 1, 1, []float32{1}, 1, []float32{1}, 1, 0, []float32{1}, 1); err != ErrUnsupported {
			t.Errorf("without oneDNN: %v, want ErrUnsupported", err)
		}
		return
	}
	rapid.Check(t, func(rt *rapid.T) {
		dim := rapid.OneOf(rapid.IntRange(1, 20), rapid.IntRange(90, 140))
		m, n, k := dim.Draw(rt, "m"), dim.Draw(rt, "n"), dim.Draw(rt, "k")
		tA, tB := rapid.Bool().Draw(rt, "transA"), rapid.Bool().Draw(rt, "transB")
		beta := float32(rapid.IntRange(0, 2).Draw(rt, "beta"))
		gap := rapid.IntRange(0, 3)
		r := rand.New(rand.NewPCG(uint64(m), uint64(n)))
		a := newMatrix(r, tA, m, k, gap.Draw(rt, "gapA"))
		b := newMatrix(r, tB, k, n, gap.Draw(rt, "gapB"))
		c := newMatrix(r, false, m, n, gap.Draw(rt, "gapC"))
		got := slices.Clone(c.v)
		if beta == 0 {
			got[0] = float32(math.NaN()) // must be overwritten
		}
		if err := Gemm(tA, tB, m, n, k, -0.5, a.v, a.ld, b.v, b.ld, beta, got, c.ld); err != nil {
			rt.Fatal(err)
		}
		for i := range m {
			for j := range n {
				want := float64(beta) * float64(c.at(i, j))
				for l := range k {
					want -= 0.5 * float64(a.at(i, l)) * float64(b.at(l, j))
				}
				if d := math.Abs(float64(got[i*c.ld+j]) - want); !(d <= 1e-4) {
					rt.Fatalf("element %d, %d is %v, want %v", i, j, got[i*c.ld+j], want)
				}
			}
		}
	})
}

// matrix is op(v), where op transposes what is stored or not.
type matrix struct {
	v     []float32
	ld    int
	trans bool
}

func newMatrix(r *rand.Rand, trans bool, rows, cols, gap int) matrix {
	if trans {
		rows, cols = cols, rows
	}
	m := matrix{make([]float32, rows*(cols+gap)), cols + gap, trans}
	for i := range m.v {
		m.v[i] = float32(r.NormFloat64())
	}
	return m
}

func (m matrix) at(i, j int) float32 {
	if m.trans {
		i, j = j, i
	}
	return m.v[i*m.ld+j]
}

func TestGemmRefusesWhatDoesNotFit(t *testing.T) {
	if !Available {
		t.Skip("built without the tag onednn")
	}
	v := make([]float32, 6)
	for _, c := range []struct {
		transA          bool
		m, n, k         int
		lda, ldb, ldc   int
		lenA, lenB, len int
	}{
		{false, 2, 2, 3, 3, 2, 2, 5, 6, 4}, // a too short
		{false, 2, 2, 3, 2, 2, 2, 6, 6, 4}, // a's rows overlap
		{true, 2, 2, 3, 1, 2, 2, 6, 6, 4},  // the same, transposed
		{false, 2, 2, 3, 3, 2, 2, 6, 5, 4}, // b
		{false, 2, 2, 3, 3, 2, 2, 6, 6, 3}, // c
		{false, 0, 2, 3, 3, 2, 2, 6, 6, 4}, // nothing
	} {
		if err := Gemm(c.transA, false, c.m, c.n, c.k, 1, v[:c.lenA], c.lda, v[:c.lenB], c.ldb, 0, make([]float32, 6)[:c.len], c.ldc); err == nil {
			t.Errorf("%+v: no error", c)
		}
	}
}

func TestGemmAllocatesNothingAndRepeats(t *testing.T) {
	if !Available {
		t.Skip("built without the tag onednn")
	}
	r := rand.New(rand.NewPCG(1, 2))
	a, b := newMatrix(r, false, 130, 300, 0), newMatrix(r, false, 300, 90, 0)
	c := make([]float32, 130*90)
	run := func() {
		if err := Gemm(false, false, 130, 90, 300, 1, a.v, a.ld, b.v, b.ld, 0, c, 90); err != nil {
			t.Fatal(err)
		}
	}
	run()
	first := slices.Clone(c)
	if got := testing.AllocsPerRun(10, run); got != 0 {
		t.Errorf("%v allocations a call, want 0", got)
	}
	if !slices.Equal(c, first) {
		t.Error("another run gives other bits")
	}
}
