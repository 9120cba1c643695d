package adam_test

import (
	"context"
	"errors"
	"fmt"
	"math"
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
	"github.com/scaffe/scaffe/syncer/adam"
	"github.com/scaffe/scaffe/syncer/coordinator"
	"github.com/scaffe/scaffe/syncer/sfb"
)

const passes = 2

// kinds are the layers of the bucket that is tested; parts of the batch are unequal.
var kinds = []struct {
	factors.Shape
	bias bool
}{{factors.Shape{Out: 30, In: 41}, true}, {factors.Shape{Out: 140, In: 7, Transposed: true}, false}, {factors.Shape{Out: 5, In: 530}, true}}

func rowsOf(ranks int) (rows []int) {
	for r := range ranks {
		rows = append(rows, (r+2)%3+r/2)
	}
	return rows
}

// fill makes the factors of a rank in a pass of an iteration.
func fill(s *factors.Stack, stacked []float32, part, layer, rank, pass, iter, rows int) {
	u, v := make([]float32, rows*s.Out), make([]float32, rows*s.In)
	for i := range u {
		u[i] = float32(math.Sin(float64(i + 7*rank + 31*pass + 101*iter + layer)))
	}
	for i := range v {
		v[i] = float32(math.Cos(float64(3*i + 5*rank + 17*pass + 57*iter + layer)))
	}
	s.Put(stacked, part, pass, u, v)
}

// matrices describes the kinds, which lie one after the other with gaps between.
func matrices(worker, workers int, iter *int) (all []sfb.Matrix, elements int) {
	at := 3
	for k, x := range kinds {
		m := sfb.Matrix{Name: fmt.Sprintf("fc%d", k), Shape: x.Shape, Passes: passes, Rows: rowsOf(workers)}
		m.Weights = schedule.Range{Off: at, Len: x.Out * x.In}
		at = m.Weights.End() + 5
		if x.bias {
			m.Bias = schedule.Range{Off: at, Len: x.Out}
			at = m.Bias.End() + 2
		}
		m.Put = func(s *factors.Stack, stacked []float32, part, pass int) {
			fill(s, stacked, part, k, worker, pass, *iter, m.Rows[worker])
		}
		all = append(all, m)
	}
	return all, at
}

// trained is what every rank's parameters are after some iterations of plain descent, where the
// first ranks only serve, so many of them.
func trained(t *testing.T, apart, workers int, seed uint64, servers []int) [][]float32 {
	t.Helper()
	got := make([][]float32, apart+workers)
	collectivestest.Late(t, apart+workers, seed, func(c *collectives.Comm) error {
		iter := 0
		ms, n := matrices(c.Rank()-apart, workers, &iter)
		var served []adam.Matrix
		for i, m := range ms {
			served = append(served, adam.Matrix{Matrix: m, Server: servers[i] % len(got)})
		}
		var work, serve []int
		for r := range got {
			if r >= apart {
				work = append(work, r)
			}
			serve = append(serve, r)
		}
		team, err := syncer.NewTeam(context.Background(), c, work, serve)
		if err != nil {
			return err
		}
		defer team.Close()
		data, diff := make([]float32, n), make([]float32, n)
		s, err := adam.New(team, syncer.Bucket{Name: "fc0…fc2", Data: mem.Of(data), Diff: mem.Of(diff)}, served)
		if err != nil {
			return err
		}
		defer s.Close()
		for iter = range 3 {
			for pass := range passes {
				for i := range ms {
					s.Put(len(ms)-1-i, pass)
				}
			}
			if err := s.Push(); err != nil {
				return err
			}
			for range s.Parts() {
				part, err := s.Pushed(context.Background())
				if err != nil {
					return err
				}
				p := s.Parts()[part]
				of := slices.IndexFunc(served, func(m adam.Matrix) bool { return p.Off <= m.Weights.Off && m.Weights.Off < p.End() })
				if p.Updates != (c.Rank() == served[of].Server) || !p.Updates && c.Rank() < apart {
					return fmt.Errorf("part %d is updated here: %v", part, p.Updates)
				}
				for i := p.Off; i < p.End() && p.Updates; i++ {
					data[i] -= diff[i]
				}
				if err := s.Pull(part); err != nil {
					return err
				}
			}
			if err := s.Pulled(context.Background()); err != nil {
				return err
			}
		}
		got[c.Rank()] = data
		return nil
	})
	return got
}

// stackedSum is what trained comes to, by one product of all factors in the order of ranks.
func stackedSum(t *testing.T, ranks int) []float32 {
	t.Helper()
	var data []float32
	collectivestest.Late(t, 1, 0, func(*collectives.Comm) error {
		iter := 0
		ms, n := matrices(0, ranks, &iter)
		data = make([]float32, n)
		for k, m := range ms {
			s, err := factors.NewStack(m.Shape, rowsOf(ranks), passes)
			if err != nil {
				return err
			}
			stacked, w := make([]float32, s.Len()), make([]float32, m.Weights.Len)
			var bias []float32
			if m.Bias.Len > 0 {
				bias = make([]float32, m.Bias.Len)
			}
			for iter = range 3 {
				for r, rows := range rowsOf(ranks) {
					for pass := range passes {
						fill(s, stacked, r, k, r, pass, iter, rows)
					}
				}
				if err := s.Rebuild(stacked, w, bias); err != nil {
					return err
				}
				for i, x := range w {
					data[m.Weights.Off+i] -= x
				}
				for i, x := range bias {
					data[m.Bias.Off+i] -= x
				}
			}
		}
		return nil
	})
	return data
}

// Section 3.2 of Poseidon: the workers push their factors to the server, which rebuilds the
// gradient, updates, and sends the matrix back. Everybody has the bits of one product of all
// factors in the order of ranks, whoever serves which layer, and whoever is late.
func TestPoseidon_AdamsServerRebuildsTheSum(t *testing.T) {
	for _, ranks := range []int{1, 2, 5} {
		want := stackedSum(t, ranks)
		for seed, servers := range [][]int{{0, 0, 0}, {1, 2, 3}, {4, 3, 4}} {
			for rank, got := range trained(t, 0, ranks, uint64(7*seed), servers) {
				if !slices.Equal(got, want) {
					t.Errorf("%d ranks, servers %v: rank %d has other bits", ranks, servers, rank)
				}
			}
		}
		// Of ranks that only serve the workers see nothing; they themselves have what they serve, and one
		// that serves nothing nothing.
		ms, _ := matrices(0, ranks, nil)
		for seed, servers := range [][]int{{0, 0, 0}, {1, 0, 1}, {0, 2, 1}} {
			for rank, got := range trained(t, 2, ranks, uint64(7*seed), servers) {
				for i, m := range ms {
					want := want[m.Weights.Off:m.Weights.End()]
					if rank < 2 && servers[i] != rank {
						want = make([]float32, len(want))
					}
					if !slices.Equal(got[m.Weights.Off:m.Weights.End()], want) {
						t.Errorf("%d workers behind 2 that only serve, servers %v: rank %d has other bits of layer %d", ranks, servers, rank, i)
					}
				}
			}
		}
	}
}

// Table 1 and the worked example of section 3.2: of a layer of 4096×4096, with 32 samples on each
// of 8 nodes, 119.3 million values pass the node that is its server and a worker, 17.0 each of
// the others, by the engine's count. The layer here has an 8th of its sides, and of its samples,
// for which all terms are a 64th.
func TestPoseidon_ValuesOfAdamsServer(t *testing.T) {
	const nodes, scale, side, k, server = 8, 64, 4096 / 8, 32 / 8, 3
	cost := coordinator.AdamCost(side*side, side, side, k, nodes)
	if scale*cost.Both != 119_275_520 || scale*cost.Worker != 17_039_360 {
		t.Errorf("the paper's example: %v", cost)
	}
	collectivestest.Late(t, nodes, 0, func(c *collectives.Comm) error {
		m := adam.Matrix{Matrix: sfb.Matrix{
			Shape: factors.Shape{Out: side, In: side}, Rows: slices.Repeat([]int{k}, nodes), Passes: 1, Weights: schedule.Range{Len: side * side},
		}, Server: server}
		b := syncer.Bucket{Data: mem.Of(make([]float32, side*side)), Diff: mem.Of(make([]float32, side*side))}
		s, err := adam.New(syncer.Everyone(c), b, []adam.Matrix{m})
		if err != nil {
			return err
		}
		defer s.Close()
		before := c.Payload()
		if err := s.Push(); err != nil {
			return err
		}
		part, err := s.Pushed(context.Background())
		if err != nil {
			return err
		}
		if err := errors.Join(s.Pull(part), s.Pulled(context.Background())); err != nil {
			return err
		}
		after := c.Payload()
		moved := nbc.Payload{Sent: after.Sent - before.Sent, Received: after.Received - before.Received}
		want := cost.Worker
		if c.Rank() == server {
			want = cost.Both
		}
		if got := float64(moved.Sent+moved.Received) / 4; got != want || moved != s.Payload() {
			return fmt.Errorf("%v values, by Table 1 %v; %v, by the syncer %v", got, want, moved, s.Payload())
		}
		return nil
	})
}

// What does not fit is refused, with the layer's name.
func TestMistakes(t *testing.T) {
	collectivestest.Late(t, 2, 0, func(c *collectives.Comm) error {
		iter := 0
		ms, n := matrices(c.Rank(), c.Size(), &iter)
		b := syncer.Bucket{Name: "fcs", Data: mem.Of(make([]float32, n)), Diff: mem.Of(make([]float32, n))}
		for want, change := range map[string]func(m *adam.Matrix){
			`layer "fc0" at rank 2: `:        func(m *adam.Matrix) { m.Server = 2 },
			"rows of the factors of 1 ranks": func(m *adam.Matrix) { m.Rows = []int{1} },
			"are not of 31×41":               func(m *adam.Matrix) { m.Shape.Out++ },
			"at least 1 pass":                func(m *adam.Matrix) { m.Passes = 0 },
		} {
			m := adam.Matrix{Matrix: ms[0]}
			change(&m)
			if _, err := adam.New(syncer.Everyone(c), b, []adam.Matrix{m}); err == nil || !strings.Contains(err.Error(), want) {
				return fmt.Errorf("%v, want %q", err, want)
			}
		}
		return nil
	})
}
