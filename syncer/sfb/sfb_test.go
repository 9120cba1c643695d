package sfb_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/collectivestest"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/kernels/factors"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/syncer"
	"github.com/scaffe/scaffe/syncer/sfb"
)

// kind is a matrix of the bucket that is tested, and how many rows a rank has.
type kind struct {
	shape factors.Shape
	bias  bool
	rows  func(rank int) int
}

var kinds = []kind{
	{factors.Shape{Out: 30, In: 41}, true, func(int) int { return 4 }},
	{factors.Shape{Out: 140, In: 7, Transposed: true}, false, func(r int) int { return 3 - r%2 }}, // unequal parts of a batch
	{factors.Shape{Out: 5, In: 530}, true, func(r int) int { return (r + 1) % 3 }},                // some without any sample
}

const passes = 2

// factor is element i of rank's u (0) or v (1) of a pass of matrix m.
func factor(m, rank, pass, which, iter, i int) float32 {
	r := rand.New(rand.NewPCG(uint64(m*1000+rank*100+pass*10+which), uint64(iter*1_000_000+i)))
	return float32(r.NormFloat64())
}

// bucket describes the kinds to the ranks, one after the other with gaps between.
func bucket(c *collectives.Comm, iter *int) (b syncer.Bucket, matrices []sfb.Matrix, err error) {
	at := 3
	for k, x := range kinds {
		m := sfb.Matrix{Name: fmt.Sprintf("fc%d", k), Shape: x.shape, Passes: passes}
		for r := range c.Size() {
			m.Rows = append(m.Rows, x.rows(r))
		}
		m.Weights = schedule.Range{Off: at, Len: x.shape.Out * x.shape.In}
		at = m.Weights.End() + 5
		if x.bias {
			m.Bias = schedule.Range{Off: at, Len: x.shape.Out}
			at = m.Bias.End() + 2
		}
		m.Put = func(s *factors.Stack, stacked []float32, part, pass int) {
			var f [2][]float32
			for which, n := range [2]int{x.shape.Out, x.shape.In} {
				for i := range n * x.rows(part) {
					f[which] = append(f[which], factor(k, part, pass, which, *iter, i))
				}
			}
			s.Put(stacked, part, pass, f[0], f[1])
		}
		matrices = append(matrices, m)
	}
	b = syncer.Bucket{Name: "fc0…fc2"}
	if b.Data, err = c.Alloc(4 * at); err == nil {
		b.Diff, err = c.Alloc(4 * at)
	}
	return b, matrices, err
}

// exact is the gradients of the kinds in float64, as they lie in the bucket.
func exact(ranks, iter int, matrices []sfb.Matrix, count int) []float64 {
	sum := make([]float64, count)
	for k, m := range matrices {
		s := m.Shape
		for r := range ranks {
			for pass := range passes {
				for row := range m.Rows[r] {
					for o := range s.Out {
						u := float64(factor(k, r, pass, 0, iter, row*s.Out+o))
						if m.Bias.Len > 0 {
							sum[m.Bias.Off+o] += u
						}
						for in := range s.In {
							at := o*s.In + in
							if s.Transposed {
								at = in*s.Out + o
							}
							sum[m.Weights.Off+at] += u * float64(factor(k, r, pass, 1, iter, row*s.In+in))
						}
					}
				}
			}
		}
	}
	return sum
}

// rebuilt has ranks exchange factors for some iterations, and returns what each has
// in Diff after each of them.
func rebuilt(t *testing.T, ranks int, seed uint64, text string, iters int) (got [][]float32, matrices []sfb.Matrix) {
	t.Helper()
	var opts []collectives.Option
	if text != "" {
		s, err := spec.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		opts = append(opts, collectives.With(s))
	}
	got = make([][]float32, ranks)
	all := make([][]sfb.Matrix, ranks)
	collectivestest.Late(t, ranks, seed, func(c *collectives.Comm) error {
		iter := 0
		b, ms, err := bucket(c, &iter)
		if err != nil {
			return err
		}
		s, err := sfb.New(c, b, ms, opts...)
		if err != nil {
			return err
		}
		defer s.Close()
		all[c.Rank()] = ms
		for iter = range iters {
			for pass := range passes {
				for i := range ms {
					s.Put(len(ms)-1-i, pass)
				}
			}
			if err := s.Push(); err != nil {
				return err
			}
			for i := range s.Parts() {
				part, err := s.Pushed(context.Background())
				if err == nil && part != len(ms)-1-i {
					err = fmt.Errorf("part %d arrives as number %d", part, i)
				}
				if err == nil {
					err = errors.Join(s.Pull(part), s.Pulled(context.Background()))
				}
				if err != nil {
					return err
				}
			}
			got[c.Rank()] = append(got[c.Rank()], mem.Float32s(b.Diff)...)
		}
		return nil
	})
	return got, all[0]
}

// Section 3.2: every worker gets all others' factors and rebuilds the gradient
// of the whole batch itself. All of them have it with equal bits, whatever the order
// in which messages arrive and the algorithm that brings them; parts of the batch may be
// unequal.
func TestPoseidon_EveryWorkerRebuildsTheSameGradient(t *testing.T) {
	const iters = 3
	for _, ranks := range []int{1, 2, 3, 5} {
		want, matrices := rebuilt(t, ranks, 0, "linear", iters)
		for iter := range iters {
			count := len(want[0]) / iters
			sum := exact(ranks, iter, matrices, count)
			for i, x := range want[0][iter*count:][:count] {
				if math.Abs(float64(x)-sum[i]) > 1e-5*(math.Abs(sum[i])+10) {
					t.Fatalf("%d ranks, iteration %d: element %d is %v, not %v", ranks, iter, i, x, sum[i])
				}
			}
		}
		for _, text := range []string{"", "linear", "ring", "direct", "doubling"} {
			for _, seed := range []uint64{0, 7, 8} {
				got, _ := rebuilt(t, ranks, seed, text, iters)
				for r := range got {
					if !slices.Equal(got[r], want[0]) {
						t.Errorf("%d ranks, %q, seed %d: rank %d has other bits", ranks, text, seed, r)
					}
				}
			}
		}
	}
}

// Whoever only wants to know how long it takes may do something else than multiply.
func TestRebuildInPlaceOfTheProduct(t *testing.T) {
	collectivestest.Late(t, 2, 0, func(c *collectives.Comm) error {
		iter := 1
		b, matrices, err := bucket(c, &iter)
		if err != nil {
			return err
		}
		wrong := errors.New("wrong")
		matrices[1].Rebuild = func(s *factors.Stack, stacked, weights, bias []float32) error {
			if len(stacked) != s.Len() || len(weights) != s.Out*s.In || bias != nil {
				return wrong
			}
			for i := range weights {
				weights[i] = 7
			}
			return nil
		}
		s, err := sfb.New(c, b, matrices)
		if err != nil {
			return err
		}
		defer s.Close()
		for i := range matrices {
			for pass := range passes {
				s.Put(i, pass)
			}
		}
		if err := s.Push(); err != nil {
			return err
		}
		for range matrices {
			if _, err := s.Pushed(context.Background()); err != nil {
				return err
			}
		}
		diff := mem.Float32s(b.Diff)
		for i, m := range matrices {
			for at := m.Weights.Off; at < m.Weights.End(); at++ {
				if (diff[at] == 7) != (i == 1) {
					return fmt.Errorf("%s: element %d is %v", m.Name, at, diff[at])
				}
			}
		}
		return nil
	})
}

// The parts are the matrices, and together all of the bucket.
func TestParts(t *testing.T) {
	collectivestest.Late(t, 2, 0, func(c *collectives.Comm) error {
		iter := 0
		b, ms, err := bucket(c, &iter)
		if err != nil {
			return err
		}
		s, err := sfb.New(c, b, ms)
		if err != nil {
			return err
		}
		defer s.Close()
		at := 0
		for i, p := range s.Parts() {
			if p.Off != at || !p.Updates || i > 0 && p.Off != ms[i].Weights.Off {
				return fmt.Errorf("part %d is %+v", i, p)
			}
			at = p.End()
		}
		if at != b.Diff.Len()/4 || len(s.Parts()) != len(ms) {
			return fmt.Errorf("%d parts up to %d", len(s.Parts()), at)
		}
		for want, change := range map[string]func(m *sfb.Matrix){
			"rows of the factors of 1 ranks": func(m *sfb.Matrix) { m.Rows = []int{1} },
			"are not of 31×41":               func(m *sfb.Matrix) { m.Shape.Out++ },
			"is not of 30 outputs":           func(m *sfb.Matrix) { m.Bias.Off = m.Weights.Off },
			"want weights of at least 1×1":   func(m *sfb.Matrix) { m.Passes = 0 },
			`layer "fc0"`:                    func(m *sfb.Matrix) { m.Weights.Off = -1 },
		} {
			m := ms[0]
			change(&m)
			if _, err := sfb.New(c, b, []sfb.Matrix{m}); err == nil || !strings.Contains(err.Error(), want) {
				return fmt.Errorf("%v, want %q", err, want)
			}
		}
		return nil
	})
}

// Ranks whose products differ are named, for the layers of that shape alone.
func TestCompare(t *testing.T) {
	collectivestest.Late(t, 4, 0, func(c *collectives.Comm) error {
		iter := 0
		_, ms, err := bucket(c, &iter)
		if err != nil {
			return err
		}
		errs, err := sfb.Compare(context.Background(), c, append(ms, ms...))
		if err == nil {
			err = errors.Join(errs...)
		}
		if err != nil {
			return err
		}
		if c.Rank() == 2 { // as if it had another processor: other sums
			ms[1].Rows = []int{5, 5, 5, 5}
		}
		errs, err = sfb.Compare(context.Background(), c, append(ms, ms[1]))
		if err != nil {
			return err
		}
		for i, want := range []string{"", "products of 140×7 with other bits: ranks 0, 1, 3 have one, rank 2 another", "", "rank 2 another"} {
			if got := fmt.Sprint(errs[i]); want == "" && errs[i] != nil || !strings.Contains(got, want) {
				return fmt.Errorf("layer %d: %v, want %q", i, errs[i], want)
			}
		}
		if c.Rank() == 1 {
			ms[0].Passes = 0
		}
		if _, err = sfb.Compare(context.Background(), c, ms); err == nil || !strings.Contains(err.Error(), "want weights of at least 1×1") {
			return fmt.Errorf("wrong on rank 1: %v", err)
		}
		return nil
	})
}

// An iteration allocates nothing.
func TestNothingIsAllocated(t *testing.T) {
	collectivestest.Late(t, 1, 0, func(c *collectives.Comm) error {
		u, v := make([]float32, 40), make([]float32, 60)
		m := sfb.Matrix{
			Shape: factors.Shape{Out: 10, In: 15}, Rows: []int{4}, Passes: 1, Weights: schedule.Range{Len: 150},
			Put: func(s *factors.Stack, stacked []float32, part, pass int) { s.Put(stacked, part, pass, u, v) },
		}
		s, err := sfb.New(c, syncer.Bucket{Diff: mem.Of(make([]float32, 150))}, []sfb.Matrix{m})
		if err != nil {
			return err
		}
		defer s.Close()
		if n := testing.AllocsPerRun(10, func() {
			s.Put(0, 0)
			if err := s.Push(); err != nil {
				t.Error(err)
			}
			if _, err := s.Pushed(context.Background()); err != nil {
				t.Error(err)
			}
		}); n != 0 {
			return fmt.Errorf("%v allocations", n)
		}
		return nil
	})
}
