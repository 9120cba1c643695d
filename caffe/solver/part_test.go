package solver

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/kernels/vec"
	"github.com/scaffe/scaffe/mem"
)

// parted has parameters of more than one block, one that does not learn, and
// gaps between them.
const parted = `net_param {
  layer { name: "data" type: "DummyData" top: "data" dummy_data_param { shape { dim: 2 dim: 30 } } }
  layer { name: "wide" type: "InnerProduct" bottom: "data" top: "wide" inner_product_param { num_output: 71 weight_filler { type: "xavier" } } }
  layer { name: "still" type: "InnerProduct" bottom: "wide" top: "still" param { lr_mult: 0 } param { lr_mult: 2 decay_mult: 0 }
    inner_product_param { num_output: 33 weight_filler { type: "xavier" } } }
  layer { name: "last" type: "InnerProduct" bottom: "still" top: "last" inner_product_param { num_output: 32 weight_filler { type: "xavier" } } }
  layer { name: "loss" type: "EuclideanLoss" bottom: "last" bottom: "last" top: "loss" }
}
base_lr: 0.01 lr_policy: "fixed" weight_decay: 0.001 iter_size: 2 `

// partedSolver has gradients, and zeros in the gaps and where nothing learns.
func partedSolver(t testing.TB, fields string) *Solver {
	t.Helper()
	f, err := proto.ParseSolver("solver.prototxt", []byte(parted+fields))
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, f, Options{})
	r := rand.New(rand.NewPCG(1, 2))
	for _, p := range s.Net().Learnable() {
		for i := range p.Blob.Diff() {
			if p.LRMult != 0 {
				p.Blob.Diff()[i] = float32(r.NormFloat64())
			}
		}
	}
	return s
}

// However the packed buffers are cut, and in whatever order the parts are
// updated, parameters, gradients and histories have the same bits.
func TestPartsOfAnUpdate(t *testing.T) {
	for _, rule := range []string{`type: "SGD" momentum: 0.9`, `type: "Adam" momentum: 0.9`} {
		rapid.Check(t, func(rt *rapid.T) {
			whole, cut := partedSolver(t, rule), partedSolver(t, rule)
			n := whole.Net().PackedCount()
			at := append(rapid.SliceOfN(rapid.IntRange(0, n), 0, 8).Draw(rt, "cuts"), 0, n)
			slices.Sort(at)
			parts := rapid.Permutation(slices.Collect(func(yield func([2]int) bool) {
				for i := range len(at) - 1 {
					if !yield([2]int{at[i], at[i+1]}) {
						return
					}
				}
			})).Draw(rt, "order")
			if err := whole.Update(3).Apply(0, n); err != nil {
				rt.Fatal(err)
			}
			for _, p := range parts {
				u := cut.Update(3)
				if err := errors.Join(u.Check(p[0], p[1]), u.Apply(p[0], p[1])); err != nil {
					rt.Fatal(err)
				}
			}
			all := func(s *Solver) [][]float32 {
				data, diff := s.Net().Packed()
				return append([][]float32{mem.Float32s(data), mem.Float32s(diff)}, s.History()...)
			}
			for i, got := range all(cut) {
				if !slices.Equal(got, all(whole)[i]) {
					rt.Fatalf("cut at %v: buffer %d is another", at, i)
				}
			}
		})
	}
}

// A worker that holds some parts remembers of them what one that holds all does, and nothing
// else.
func TestHoldSomeParts(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		whole, some := partedSolver(t, `type: "Adam" momentum: 0.9`), partedSolver(t, `type: "Adam" momentum: 0.9`)
		n := whole.Net().PackedCount()
		at := rapid.SliceOfNDistinct(rapid.IntRange(0, n), 0, 8, func(i int) int { return i }).Draw(rt, "ends")
		slices.Sort(at)
		var parts [][2]int
		held := 0
		for i := 0; i+1 < len(at); i += 2 {
			parts = append(parts, [2]int{at[i], at[i+1]})
			held += at[i+1] - at[i]
		}
		some.Hold(parts)
		if err := whole.Update(3).Apply(0, n); err != nil {
			rt.Fatal(err)
		}
		for _, p := range parts {
			if err := some.Update(3).Apply(p[0], p[1]); err != nil {
				rt.Fatal(err)
			}
		}
		for k, h := range some.History() {
			if len(h) != held {
				rt.Errorf("it remembers %d elements of %d held", len(h), held)
			}
			for _, p := range parts {
				middle := (p[0] + p[1]) / 2
				if !slices.Equal(some.Remembered(k, middle, p[1]), whole.History()[k][middle:p[1]]) || !slices.Equal(some.Remembered(k, p[0], p[1]), whole.Remembered(k, p[0], p[1])) {
					rt.Errorf("history %d of %v is another", k, p)
				}
			}
		}
		if err := some.checkParams(); err != nil {
			rt.Error(err)
		}
		if len(parts) == 0 {
			return
		}
		p := parts[len(parts)-1]
		some.Remembered(1, p[0], p[1])[0] = float32(math.Inf(1))
		e := &NotFiniteError{}
		if err := some.checkParams(); !errors.As(err, &e) || !math.IsInf(float64(e.Value), 1) {
			rt.Errorf("%v", err)
		}
	})
}

// A gradient that is not finite is found by the part that has it, and by no other.
func TestPartWithNaN(t *testing.T) {
	s := partedSolver(t, `type: "SGD"`)
	p := s.Net().Learnable()[0]
	at := p.Offset + 1500
	p.Blob.Diff()[1500] = float32(math.NaN())
	n := s.Net().PackedCount()
	u := s.Update(0)
	for _, part := range [][2]int{{0, at}, {at + 1, n}, {at, at}} {
		if err := u.Check(part[0], part[1]); err != nil {
			t.Errorf("%v: %v", part, err)
		}
		if err := u.Apply(part[0], part[1]); err != nil {
			t.Errorf("%v: %v", part, err)
		}
	}
	e := &NotFiniteError{}
	if err := u.Check(at, at+1); !errors.As(err, &e) || e.Gradient != p.Name {
		t.Errorf("Check: %v", err)
	}
	if err := u.Apply(at, at+1); !errors.As(err, &e) || e.Gradient != p.Name {
		t.Errorf("Apply: %v", err)
	}
	s.ClearGradients(at, at+1)
	if err := u.Check(0, n); err != nil {
		t.Errorf("after ClearGradients: %v", err)
	}
}

// The norm of clip_gradients depends on no shard: workers that each sum the
// squares of their parts, cut between parameters or at multiples of NormBlock,
// have together the sums of one worker with all of them.
func TestNormDependsOnNoShard(t *testing.T) {
	s := partedSolver(t, `type: "SGD" clip_gradients: 1`)
	n, blocks := s.Net().PackedCount(), s.NormBlocks()
	var ends []int // where parts may begin and end
	for _, p := range s.Net().Learnable() {
		for k := 0; k < p.Blob.Count(); k += NormBlock {
			ends = append(ends, p.Offset+k)
		}
	}
	if len(ends) != blocks || blocks != 3+1+3+1+2+1 {
		t.Fatalf("%d blocks, %d places to cut", blocks, len(ends))
	}
	whole := make([]float64, blocks)
	s.Squares(0, n, whole)
	for k, at := range append(ends[:blocks:blocks], n)[:blocks] {
		_, diff := s.Net().Packed()
		end := append(ends[:blocks:blocks], n)[k+1]
		if want := vec.SumSquares(mem.Float32s(diff)[at:end]); math.Abs(want-whole[k]) > 1e-12*want { // gaps are zeros
			t.Errorf("block %d: %v, not %v", k, whole[k], want)
		}
	}
	scale := s.Update(0).Clip().scale
	rapid.Check(t, func(rt *rapid.T) {
		sum := make([]float64, blocks) // over two workers
		at := append(rapid.SliceOfN(rapid.SampledFrom(ends), 0, 6).Draw(rt, "cuts"), 0, n)
		slices.Sort(at)
		parts := [2][]float64{make([]float64, blocks), make([]float64, blocks)}
		for i := range len(at) - 1 {
			s.Squares(at[i], at[i+1], parts[rapid.IntRange(0, 1).Draw(rt, "worker")])
		}
		for k := range sum {
			sum[k] = parts[0][k] + parts[1][k]
		}
		if !slices.Equal(sum, whole) || s.Update(0).ClipBy(sum).scale != scale {
			rt.Fatalf("cut at %v: %v, not %v", at, sum, whole)
		}
	})
}

func TestClipScale(t *testing.T) {
	for _, c := range []struct {
		limit float32
		sums  []float64
		want  float32
	}{
		{-1, []float64{900, 1600}, 1},
		{50, []float64{900, 1600}, 1},
		{5, []float64{900, 1600}, 0.1},
		{0, []float64{9}, 0},
		{1, nil, 1},
	} {
		if got := ClipScale(c.limit, c.sums); math.Abs(float64(got-c.want)) > 1e-7 {
			t.Errorf("ClipScale(%v, %v) = %v, want %v", c.limit, c.sums, got, c.want)
		}
	}
}

func BenchmarkClip(b *testing.B) {
	f, err := proto.ParseSolver("solver.prototxt", []byte(`net_param {
  layer { name: "data" type: "DummyData" top: "data" dummy_data_param { shape { dim: 1 dim: 4096 } } }
  layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 4096 } }
  layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "ip" top: "loss" } } base_lr: 1 lr_policy: "fixed" clip_gradients: 1`))
	if err != nil {
		b.Fatal(err)
	}
	s := start(b, f, Options{})
	b.SetBytes(int64(mem.Float32.Bytes(s.Net().PackedCount())))
	for b.Loop() {
		if u := s.Update(0).Clip(); u.scale != 1 {
			b.Fatal(u.scale)
		}
	}
}

// TestUpdateOfAShare: a worker's own update is a step of the rule by the mean gradient of its part of the
// batch, with its share of the learning rate: W ← W − s·η·(g/s + λW) for plain SGD, where g is what it adds to the
// gradient of the whole batch.
func TestUpdateOfAShare(t *testing.T) {
	s := partedSolver(t, "")
	data, diff := s.Net().Packed()
	w, g := slices.Clone(mem.Float32s(data)), slices.Clone(mem.Float32s(diff))
	const share, rate, decay = 0.25, 0.01, 0.001
	if err := s.Update(3).Of(share, 0).Apply(0, s.Net().PackedCount()); err != nil {
		t.Fatal(err)
	}
	moved := 0
	for _, p := range s.Net().Learnable() {
		for i, got := range p.Blob.Data() {
			was := float64(w[p.Offset+i])
			mean := float64(g[p.Offset+i]) / 2 / share // of two passes
			want := was - share*rate*float64(p.LRMult)*(mean+decay*float64(p.DecayMult)*was)
			if math.Abs(float64(got)-want) > 1e-6 {
				t.Fatalf("an element of %v becomes %v, want %v", was, got, want)
			}
			if got != w[p.Offset+i] {
				moved++
			}
		}
	}
	if moved == 0 {
		t.Error("nothing has moved")
	}
	// Adam's first step does not depend on the gradient's size; its count of steps is that of Of.
	s = partedSolver(t, `type: "Adam" momentum: 0.9`)
	data, _ = s.Net().Packed()
	w = slices.Clone(mem.Float32s(data))
	if err := s.Update(100).Of(share, 0).Apply(0, s.Net().PackedCount()); err != nil {
		t.Fatal(err)
	}
	at := s.Net().Learnable()[0]
	for i, got := range at.Blob.Data() {
		if step := math.Abs(float64(got - w[at.Offset+i])); math.Abs(step-share*rate) > 1e-5 {
			t.Fatalf("Adam's first step is %v, want %v", step, share*rate)
		}
	}
}
