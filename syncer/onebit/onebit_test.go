package onebit

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
	"github.com/scaffe/scaffe/kernels/factors"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/syncer"
	"github.com/scaffe/scaffe/syncer/coordinator"
	"github.com/scaffe/scaffe/syncer/sfb"
)

// layers of a bucket: one with fewer stripes than ranks, one that is stored the other way.
func layers() (all []sfb.Matrix, elements int) {
	at := 3
	for k, s := range []factors.Shape{{Out: 30, In: 141}, {Out: 200, In: 7, Transposed: true}, {Out: 9, In: 20}} {
		m := sfb.Matrix{Name: fmt.Sprintf("fc%d", k), Shape: s, Weights: schedule.Range{Off: at, Len: s.Out * s.In}}
		at = m.Weights.End() + 5
		if k != 1 {
			m.Bias = schedule.Range{Off: at, Len: s.Out}
			at = m.Bias.End() + 2
		}
		all = append(all, m)
	}
	return all, at
}

// gradients are those of a rank in an iteration.
func gradients(diff []float32, rank, iter int) {
	r := rand.New(rand.NewPCG(uint64(rank), uint64(iter)))
	for i := range diff {
		diff[i] = float32(r.NormFloat64())
	}
}

// iterations moves gradients, and returns after each what every rank has, and at last what
// all of them have left out.
func iterations(t *testing.T, ranks int, seed uint64, iters int) (sums [][][]float32, left []float64) {
	t.Helper()
	sums = make([][][]float32, ranks)
	lefts := make([][]float64, ranks)
	collectivestest.Late(t, ranks, seed, func(c *collectives.Comm) error {
		ms, n := layers()
		b := syncer.Bucket{Name: "fcs", Data: mem.Of(make([]float32, n)), Diff: mem.Of(make([]float32, n))}
		s, err := New(c, b, ms)
		if err != nil {
			return err
		}
		defer s.Close()
		diff := mem.Float32s(b.Diff)
		for iter := range iters {
			gradients(diff, c.Rank(), iter)
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
			sums[c.Rank()] = append(sums[c.Rank()], slices.Clone(diff))
		}
		own := make([]float64, n)
		for k, x := range s.Residuals() {
			if x.Range != ms[k].Weights || x.Rows*x.Cols != x.Len {
				return fmt.Errorf("layer %d: the residual is of %v, %d×%d", k, x.Range, x.Rows, x.Cols)
			}
			for i, d := range x.Gradient {
				own[x.Off+i] += float64(d)
			}
			for i, d := range x.Sum {
				own[x.Off+i/x.Columns.Len*x.Cols+x.Columns.Off+i%x.Columns.Len] += float64(d)
			}
		}
		lefts[c.Rank()] = own
		return nil
	})
	left = make([]float64, len(lefts[0]))
	for _, own := range lefts {
		for i, d := range own {
			left[i] += d
		}
	}
	return sums, left
}

// Seide et al., error feedback: what was handed out and what all have left out are together
// what was put in, over any number of iterations. Every rank has the same bits, whoever is late.
// Biases are exact, but for the order of additions.
func TestNothingIsLost(t *testing.T) {
	const iters = 12
	ms, n := layers()
	for _, ranks := range []int{1, 2, 5} {
		sums, left := iterations(t, ranks, 0, iters)
		all, out := make([]float64, n), make([]float64, n)
		own := make([]float32, n)
		for iter := range iters {
			for r := range ranks {
				gradients(own, r, iter)
				for i, x := range own {
					all[i] += float64(x)
				}
			}
			for i, x := range sums[0][iter] {
				out[i] += float64(x)
			}
		}
		for k, m := range ms {
			for i := m.Weights.Off; i < m.Weights.End(); i++ {
				if math.Abs(out[i]+left[i]-all[i]) > 1e-3 {
					t.Fatalf("%d ranks, layer %d: element %d: %v handed out and %v left, of %v", ranks, k, i, out[i], left[i], all[i])
				}
			}
			for i := m.Bias.Off; i < m.Bias.End(); i++ {
				if math.Abs(out[i]-all[i]) > 1e-4 {
					t.Fatalf("%d ranks, layer %d: bias %d is %v, not %v", ranks, k, i, out[i], all[i])
				}
			}
			values := map[float32]bool{} // of a column, in an iteration
			rows, cols := m.Shape.Out, m.Shape.In
			if m.Shape.Transposed {
				rows, cols = cols, rows
			}
			for row := range rows {
				values[sums[0][iters-1][m.Weights.Off+row*cols+cols-1]] = true
			}
			if len(values) > 2 {
				t.Errorf("%d ranks, layer %d: a column has %d values", ranks, k, len(values))
			}
		}
		for _, seed := range []uint64{0, 7, 8} {
			again, _ := iterations(t, ranks, seed, iters)
			for r := range ranks {
				for iter := range iters {
					for _, m := range ms {
						if !slices.Equal(again[r][iter][m.Weights.Off:m.Weights.End()], sums[0][iter][m.Weights.Off:m.Weights.End()]) {
							t.Fatalf("%d ranks, seed %d: rank %d has other bits of layer %s in iteration %d", ranks, seed, r, m.Name, iter)
						}
					}
				}
			}
		}
	}
}

// Poseidon, section 5.4, compares with 1-bit quantisation: a bit for a value, two values for a
// column, by the engine's count. An even number of stripes for each rank, without a bias.
func TestPoseidon_BytesOfQuantisedGradients(t *testing.T) {
	const ranks, side = 4, 256
	l := coordinator.Layer{Name: "fc", Type: coordinator.FC, Rows: side, Cols: side, Params: []coordinator.Range{{Len: side * side}}}
	all := coordinator.Places{All: true}
	book, err := coordinator.New(coordinator.Config{Nodes: make([]int, ranks), Batch: make([]int, ranks), Workers: all, Servers: all, Layers: []coordinator.Layer{l}})
	if err != nil {
		t.Fatal(err)
	}
	want, _ := book.Values(&l, coordinator.OneBit)
	collectivestest.Late(t, ranks, 0, func(c *collectives.Comm) error {
		b := syncer.Bucket{Diff: mem.Of(make([]float32, side*side))}
		s, err := New(c, b, []sfb.Matrix{{Shape: factors.Shape{Out: side, In: side}, Weights: schedule.Range{Len: side * side}}})
		if err != nil {
			return err
		}
		defer s.Close()
		before := c.Payload()
		if err := s.Push(); err != nil {
			return err
		}
		if _, err := s.Pushed(context.Background()); err != nil {
			return err
		}
		after := c.Payload()
		moved := nbc.Payload{Sent: after.Sent - before.Sent, Received: after.Received - before.Received}
		if got := float64(moved.Sent+moved.Received) / 4; got != want || moved != s.Payload() {
			return fmt.Errorf("%v values, by the formula %v; %v, by the syncer %v", got, want, moved, s.Payload())
		}
		return nil
	})
}

// Stripes are all of the columns, and as even as words of bits allow.
func TestStripes(t *testing.T) {
	for _, k := range []struct{ cols, ranks int }{{1, 1}, {4096, 8}, {141, 5}, {31, 3}, {1000, 7}} {
		at, most, least := 0, 0, k.cols
		for _, s := range Stripes(k.cols, k.ranks) {
			if s.Off != at || s.Off%stripeCols != 0 && s.Len > 0 {
				t.Errorf("%+v: stripe %v", k, s)
			}
			at, most, least = s.End(), max(most, s.Len), min(least, s.Len)
		}
		if at != k.cols || most-least > 2*stripeCols-1 {
			t.Errorf("%+v: stripes %v", k, Stripes(k.cols, k.ranks))
		}
	}
}

// What does not fit is refused, with the layer's name.
func TestMistakes(t *testing.T) {
	collectivestest.Late(t, 2, 0, func(c *collectives.Comm) error {
		ms, n := layers()
		for want, change := range map[string]func(m *sfb.Matrix){
			`layer "fc0": weights at`: func(m *sfb.Matrix) { m.Weights.Off = -1 },
			"are not of 31×141":       func(m *sfb.Matrix) { m.Shape.Out++ },
			"is not of 30 outputs":    func(m *sfb.Matrix) { m.Bias.Len-- },
		} {
			m := ms[0]
			change(&m)
			if _, err := New(c, syncer.Bucket{Diff: mem.Of(make([]float32, n))}, []sfb.Matrix{m}); err == nil || !strings.Contains(err.Error(), want) {
				return fmt.Errorf("%v, want %q", err, want)
			}
		}
		return nil
	})
}
