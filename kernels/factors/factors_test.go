package factors

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/scaffe/scaffe/kernels/blas"
	"github.com/scaffe/scaffe/kernels/dnn"
	"github.com/scaffe/scaffe/kernels/vec"
)

// batch is the factors of several parts and passes, by part and pass.
type batch struct {
	shape  Shape
	rows   []int
	passes int
	u, v   [][][]float32
}

// draw makes factors whose products mostly cancel, or with bias mostly do not.
func draw(s Shape, rows []int, passes int, shift float32) *batch {
	r := rand.New(rand.NewPCG(uint64(s.Out), uint64(s.In)))
	random := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64()) + shift
		}
		return x
	}
	b := &batch{shape: s, rows: rows, passes: passes}
	for _, n := range rows {
		var u, v [][]float32
		for range passes {
			u, v = append(u, random(n*s.Out)), append(v, random(n*s.In))
		}
		b.u, b.v = append(b.u, u), append(b.v, v)
	}
	return b
}

// rebuilt puts the factors in that order of the parts and rebuilds from them,
// into memory that held something else.
func (b *batch) rebuilt(t testing.TB, order []int) (weights, bias []float32) {
	t.Helper()
	s, err := NewStack(b.shape, b.rows, b.passes)
	if err != nil {
		t.Fatal(err)
	}
	stacked := make([]float32, s.Len())
	nan := func(x []float32) []float32 {
		for i := range x {
			x[i] = float32(math.NaN())
		}
		return x
	}
	nan(stacked)
	for _, i := range order {
		for pass := range b.passes {
			s.Put(stacked, i, pass, b.u[i][pass], b.v[i][pass])
		}
	}
	weights, bias = nan(make([]float32, b.shape.Out*b.shape.In)), nan(make([]float32, b.shape.Out))
	if err := s.Rebuild(stacked, weights, bias); err != nil {
		t.Fatal(err)
	}
	return weights, bias
}

// exact returns the gradients in float64.
func (b *batch) exact() (weights, bias []float64) {
	s := b.shape
	weights, bias = make([]float64, s.Out*s.In), make([]float64, s.Out)
	for i, n := range b.rows {
		for pass := range b.passes {
			for k := range n {
				for o, du := range b.u[i][pass][k*s.Out:][:s.Out] {
					bias[o] += float64(du)
					for in, x := range b.v[i][pass][k*s.In:][:s.In] {
						at := o*s.In + in
						if s.Transposed {
							at = in*s.Out + o
						}
						weights[at] += float64(du) * float64(x)
					}
				}
			}
		}
	}
	return weights, bias
}

// summed returns the gradients as they are without factors: every part computes
// its own, as layers do, and they are added.
func (b *batch) summed(t testing.TB) (weights, bias []float32) {
	t.Helper()
	s := b.shape
	weights, bias = make([]float32, s.Out*s.In), make([]float32, s.Out)
	for i, n := range b.rows {
		w, sum := make([]float32, len(weights)), make([]float32, len(bias))
		ones := make([]float32, n)
		for k := range ones {
			ones[k] = 1
		}
		for pass := range b.passes {
			u := b.u[i][pass]
			rows, cols, left, right := s.Out, s.In, u, b.v[i][pass]
			if s.Transposed {
				rows, cols, left, right = cols, rows, right, left
			}
			if err := dnn.Product(true, false, rows, cols, n, left, rows, right, cols, 1, w, cols); err != nil {
				t.Fatal(err)
			}
			blas.Gemv(true, n, s.Out, 1, u, s.Out, ones, 1, sum)
		}
		vec.Add(weights, weights, w)
		vec.Add(bias, bias, sum)
	}
	return weights, bias
}

// off returns the root of the mean of the squared errors, and the largest error.
func off(got []float32, want []float64) (rms, most float64) {
	for i, x := range got {
		d := math.Abs(float64(x) - want[i])
		rms += d * d
		most = max(most, d)
	}
	return math.Sqrt(rms / float64(len(got))), most
}

func count(n int) []int {
	var all []int
	for i := range n {
		all = append(all, i)
	}
	return all
}

// Poseidon, section 3.2: the gradient that sufficient factors stand for is that
// of the whole batch. Its errors are at most 1.5 times those of adding the
// matrices that the parts would have sent.
func TestPoseidon_FactorsAreTheGradient(t *testing.T) {
	for _, c := range []struct {
		shape  Shape
		rows   []int
		passes int
		shift  float32
	}{
		{Shape{64, 96, false}, []int{32, 32, 32, 32, 32, 32, 32, 32}, 1, 0},
		{Shape{64, 96, false}, []int{32, 32, 32, 32, 32, 32, 32, 32}, 1, 0.5},
		{Shape{64, 96, true}, []int{32, 32, 32, 32}, 1, 0.5},
		{Shape{150, 530, false}, []int{4, 4, 4, 4}, 1, 0},
		{Shape{530, 150, true}, []int{8, 7, 7}, 1, 0.5},
		{Shape{64, 64, false}, slices.Repeat([]int{16}, 16), 1, 0},
		{Shape{64, 64, false}, []int{16, 16, 15, 15}, 4, 0},
		{Shape{64, 64, false}, []int{16, 0, 16, 16}, 4, 0.5},
		{Shape{40, 50, false}, []int{512, 512}, 1, 0.5},
	} {
		b := draw(c.shape, c.rows, c.passes, c.shift)
		weights, bias := b.rebuilt(t, count(len(c.rows)))
		wantWeights, wantBias := b.exact()
		sumWeights, sumBias := b.summed(t)
		for _, x := range []struct {
			name     string
			got, sum []float32
			want     []float64
		}{{"weights", weights, sumWeights, wantWeights}, {"bias", bias, sumBias, wantBias}} {
			rms, most := off(x.got, x.want)
			sumRMS, sumMost := off(x.sum, x.want)
			if rms > 1.5*sumRMS || most > 1.5*sumMost {
				t.Errorf("%+v, %s: error %.3g (at most %.3g), of the matrices' sum %.3g (%.3g)", c, x.name, rms, most, sumRMS, sumMost)
			}
		}
	}
}

// Any shape, parts without rows included, and equal bits in whatever order the
// parts arrive.
func TestStack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := func(lo, hi int, name string) int { return rapid.IntRange(lo, hi).Draw(rt, name) }
		s := Shape{in(1, 300, "out"), in(1, 600, "in"), rapid.Bool().Draw(rt, "transposed")}
		rows := rapid.SliceOfN(rapid.IntRange(0, 5), 0, 4).Draw(rt, "rows")
		b := draw(s, rows, in(1, 2, "passes"), 0)
		parts := count(len(rows))
		weights, bias := b.rebuilt(t, parts)
		again, bias2 := b.rebuilt(t, rapid.Permutation(parts).Draw(rt, "order"))
		if !slices.Equal(weights, again) || !slices.Equal(bias, bias2) {
			rt.Fatal("another order of arrival gives other bits")
		}
		wantWeights, wantBias := b.exact()
		_, most := off(weights, wantWeights)
		_, mostBias := off(bias, wantBias)
		if !(most < 1e-4) || !(mostBias < 1e-4) {
			rt.Fatalf("errors %v and %v", most, mostBias)
		}
	})
}

// A digest is that of the layout, and sees every bit of what it is of.
func TestDigest(t *testing.T) {
	seen := map[uint64]string{}
	for _, s := range []Shape{{3, 4, false}, {3, 4, true}, {130, 515, false}, {257, 1, false}, {1, 1025, true}} {
		for _, rows := range [][]int{{2, 3}, {3, 2}, {5}, {0, 5, 1}} {
			for _, passes := range []int{1, 2} {
				name := fmt.Sprint(s, rows, passes)
				var digests [2]uint64
				for i := range digests {
					stack, err := NewStack(s, rows, passes)
					if err != nil {
						t.Fatal(err)
					}
					if digests[i], err = stack.Digest(); err != nil {
						t.Fatal(err)
					}
				}
				if digests[0] != digests[1] {
					t.Errorf("%s: digests %x and %x", name, digests[0], digests[1])
				}
				if other, found := seen[digests[0]]; found {
					t.Errorf("%s and %s have one digest", name, other)
				}
				seen[digests[0]] = name
			}
		}
	}
	values := make([]float32, 5)
	zeros := Digest(values)
	for i := range values {
		values[i] = float32(math.Copysign(0, -1)) // another sign bit
		if Digest(values) == zeros {
			t.Errorf("element %d does not count", i)
		}
		values[i] = 0
	}
}

func TestStackLayout(t *testing.T) {
	s, err := NewStack(Shape{Out: 2, In: 3}, []int{2, 0, 1}, 2)
	if err != nil {
		t.Fatal(err)
	}
	var parts []string
	for i := range 3 {
		off, n := s.Part(i)
		parts = append(parts, fmt.Sprint(off, n))
	}
	if got := fmt.Sprint(s.Len(), parts); got != "30 [0 20 20 0 20 10]" {
		t.Error(got)
	}
	x := make([]float32, s.Len())
	s.Put(x, 0, 1, []float32{1, 2, 3, 4}, []float32{5, 6, 7, 8, 9, 10})
	if want := []float32{1, 2, 5, 6, 7, 3, 4, 8, 9, 10}; !slices.Equal(x[10:20], want) {
		t.Errorf("%v, want %v", x[10:20], want)
	}
	weights := make([]float32, 6)
	if n := testing.AllocsPerRun(5, func() {
		if err := s.Rebuild(x, weights, nil); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("Rebuild allocates %v times", n)
	}
	for _, err := range []error{
		s.Rebuild(x[1:], make([]float32, 6), nil), s.Rebuild(x, make([]float32, 5), nil), s.Rebuild(x, make([]float32, 6), make([]float32, 3)),
	} {
		if err == nil {
			t.Error("slices of another length are no error")
		}
	}
	for _, c := range []struct {
		Shape
		rows   []int
		passes int
	}{{Shape{0, 1, false}, nil, 1}, {Shape{1, 0, false}, nil, 1}, {Shape{1, 1, false}, []int{-1}, 1}, {Shape{1, 1, false}, nil, 0}} {
		if _, err := NewStack(c.Shape, c.rows, c.passes); err == nil {
			t.Errorf("%+v is no error", c)
		}
	}
}

// BenchmarkRebuild is eight parts of 32 rows beside the plain product of as many
// rows, for a matrix of 4096×4096.
func BenchmarkRebuild(b *testing.B) {
	shape := Shape{Out: 4096, In: 4096}
	for _, rows := range []int{4, 32} {
		s, err := NewStack(shape, slices.Repeat([]int{rows}, 8), 1)
		if err != nil {
			b.Fatal(err)
		}
		x := make([]float32, s.Len())
		for i := range x {
			x[i] = float32(i%17) - 8
		}
		w := make([]float32, shape.Out*shape.In)
		rate := func(b *testing.B) {
			b.ReportMetric(2*8*float64(rows)*float64(len(w))*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOPS")
		}
		b.Run(fmt.Sprintf("%d rows", rows), func(b *testing.B) {
			for b.Loop() {
				if err := s.Rebuild(x, w, nil); err != nil {
					b.Fatal(err)
				}
			}
			rate(b)
		})
		b.Run(fmt.Sprintf("%d rows, plain product", rows), func(b *testing.B) {
			for b.Loop() {
				blas.Gemm(true, false, shape.Out, shape.In, 8*rows, 1, x, s.Row(), x[shape.Out:], s.Row(), 0, w, shape.In)
			}
			rate(b)
		})
	}
}
