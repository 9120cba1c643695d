package onebit_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/scaffe/scaffe/kernels/onebit"
	"github.com/scaffe/scaffe/kernels/vec"
	"github.com/scaffe/scaffe/mem"
)

// random fills x with numbers of both signs, seldom 0.
func random(x []float32, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 3))
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
}

// Against float64, element by element: the bits are signs, what they stand for are the means
// of a column's elements of either sign, and the residual is what is left. Columns outside of
// the range stay as they are.
func TestQuantiseAgainstAReference(t *testing.T) {
	for _, k := range []struct{ rows, cols, from, to int }{
		{1, 1, 0, 1}, {7, 5, 1, 4}, {40, 96, 32, 96}, {33, 100, 64, 100}, {3, 70, 0, 70}, {5, 9, 4, 4}, {500, 33, 0, 33},
	} {
		m, err := onebit.New(k.rows, k.cols)
		if err != nil {
			t.Fatal(err)
		}
		values, residual := make([]float32, k.rows*k.cols), make([]float32, k.rows*k.cols)
		random(values, 1)
		random(residual, 2)
		if k.rows > 5 && k.to > k.from { // columns of one sign
			for r := range k.rows {
				values[r*k.cols+k.from], residual[r*k.cols+k.from] = 1+float32(r), 0.5
			}
		}
		before := slices.Clone(residual)
		codes := make([]int32, m.Words(k.from, k.to))
		m.Quantise(codes, k.from, k.to, values, residual)
		out := slices.Repeat([]float32{77}, len(values))
		m.Unquantise(out, k.from, k.to, codes)
		sum := slices.Clone(values)
		m.Add(sum, k.from, k.to, codes)
		for j := range k.cols {
			var mean, n [2]float64
			for r := range k.rows {
				i := r*k.cols + j
				which := 0
				if values[i]+before[i] < 0 {
					which = 1
				}
				mean[which] += float64(values[i] + before[i])
				n[which]++
			}
			for r := range k.rows {
				i := r*k.cols + j
				if j < k.from || j >= k.to {
					if out[i] != 77 || residual[i] != before[i] || sum[i] != values[i] {
						t.Fatalf("%+v: element %d,%d was written", k, r, j)
					}
					continue
				}
				which := 0
				if values[i]+before[i] < 0 {
					which = 1
				}
				want := mean[which] / n[which]
				left := float64(values[i]+before[i]) - want
				tolerance := 1e-6 * (1 + math.Abs(want)) * math.Sqrt(float64(k.rows))
				if math.Abs(float64(out[i])-want) > tolerance || math.Abs(float64(residual[i])-left) > tolerance || sum[i] != values[i]+out[i] {
					t.Fatalf("%+v: element %d,%d stands for %v with a residual of %v, not %v and %v", k, r, j, out[i], residual[i], want, left)
				}
			}
		}
	}
	if _, err := onebit.New(0, 3); err == nil {
		t.Error("no rows are no error")
	}
}

// A column that is not finite says so to whoever gets it, and spoils nothing that is kept.
func TestWhatIsNotFiniteIsNotKept(t *testing.T) {
	const rows, cols = 6, 40
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
		m, err := onebit.New(rows, cols)
		if err != nil {
			t.Fatal(err)
		}
		values, residual := make([]float32, rows*cols), make([]float32, rows*cols)
		random(values, 4)
		random(residual, 5)
		good, before := slices.Clone(residual), slices.Clone(residual)
		codes, out := make([]int32, m.Words(0, cols)), make([]float32, rows*cols)
		m.Quantise(codes, 0, cols, values, good)
		values[2*cols+35] = bad
		m.Quantise(codes, 0, cols, values, residual)
		m.Unquantise(out, 0, cols, codes)
		for i := range residual {
			want := good[i]
			if i%cols == 35 {
				want = before[i]
			}
			if residual[i] != want || (i%cols == 35) != math.IsNaN(float64(out[i])) {
				t.Fatalf("%v: element %d has the residual %v, not %v, and stands for %v", bad, i, residual[i], want, out[i])
			}
		}
	}
}

// What is left out comes later: the sums of what was sent and of what there was differ by
// what is left.
func TestErrorFeedback(t *testing.T) {
	const rows, cols, steps = 20, 45, 50
	m, err := onebit.New(rows, cols)
	if err != nil {
		t.Fatal(err)
	}
	values, residual, sent := make([]float32, rows*cols), make([]float32, rows*cols), make([]float32, rows*cols)
	all, codes := make([]float64, rows*cols), make([]int32, m.Words(0, cols))
	for step := range steps {
		random(values, uint64(step))
		m.Quantise(codes, 0, cols, values, residual)
		m.Add(sent, 0, cols, codes)
		for i, x := range values {
			all[i] += float64(x)
		}
	}
	for i := range all {
		if math.Abs(float64(sent[i])+float64(residual[i])-all[i]) > 1e-4 {
			t.Fatalf("element %d: %v was sent, %v is left, of %v", i, sent[i], residual[i], all[i])
		}
	}
}

// Of a matrix whose columns are one owner's, or those of eight.
func BenchmarkQuantise(b *testing.B)      { benchmark(b, true, 1) }
func BenchmarkQuantise8Ways(b *testing.B) { benchmark(b, true, 8) }
func BenchmarkAdd(b *testing.B)           { benchmark(b, false, 1) }
func BenchmarkAdd8Ways(b *testing.B)      { benchmark(b, false, 8) }

// BenchmarkMemory is what moving as much memory as Add takes: values that are read and written.
func BenchmarkMemory(b *testing.B) {
	values := mem.Float32s(mem.Alloc(mem.Float32.Bytes(side * side)))
	random(values, 1)
	b.SetBytes(4 * side * side)
	for b.Loop() {
		vec.Affine(values, 1, values, 0)
	}
}

const side = 4096

func benchmark(b *testing.B, quantise bool, owners int) {
	m, err := onebit.New(side, side)
	if err != nil {
		b.Fatal(err)
	}
	buffer := func() []float32 { return mem.Float32s(mem.Alloc(mem.Float32.Bytes(side * side))) } // large pages
	values, residual, codes := buffer(), buffer(), make([]int32, m.Words(0, side))
	random(values, 1)
	m.Quantise(codes, 0, side, values, residual)
	b.SetBytes(4 * side * side)
	for b.Loop() {
		for from := 0; from < side; from += side / owners {
			if quantise {
				m.Quantise(codes, from, from+side/owners, values, residual)
			} else {
				m.Add(values, from, from+side/owners, codes)
			}
		}
	}
}

func ExampleMatrix() {
	m, _ := onebit.New(4, 1)
	residual, codes, out := make([]float32, 4), make([]int32, m.Words(0, 1)), make([]float32, 4)
	for range 2 {
		m.Quantise(codes, 0, 1, []float32{1, 3, -2, -4}, residual)
		m.Unquantise(out, 0, 1, codes)
		fmt.Println(out, residual)
	}
	// Output:
	// [2 2 -3 -3] [-1 1 1 -1]
	// [2 2 -3 -3] [-2 2 2 -2]
}
