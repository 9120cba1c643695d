package collectives_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/scaffe/scaffe/collectives"
	ct "github.com/scaffe/scaffe/collectives/collectivestest"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/inproc"
)

// TestLinearAddsInRankOrder: a linear reduction adds in0 ⊕ in1 ⊕ in2 …, each node's ranks
// first where a level is, in the order of the nodes' lowest ranks: whoever is the root,
// in place or not, executed alone (few bytes) or by the loop.
func TestLinearAddsInRankOrder(t *testing.T) {
	for _, k := range []struct {
		spec  string
		nodes []int
	}{
		{"linear", []int{0}},
		{"linear", []int{0, 0}},
		{"linear,chunk=1K", []int{0, 0, 0, 0, 0}},
		{"linear", []int{0, 1, 2, 0}},
		{"linear:node/linear", []int{0, 0, 1, 1}},
		{"linear:node/linear", []int{0, 1, 0, 1, 2}},
		{"linear:node,chunk=1K/linear,chunk=1K", []int{1, 0, 0, 1, 1, 2}},
	} {
		sp := parse(t, k.spec)
		for _, count := range []int{5, 3000} {
			n := len(k.nodes)
			value := func(rank, i int) float32 {
				return float32(math.Sin(float64(rank*count+i)) * math.Pow(10, float64((rank*3+i)%7)))
			}
			want := make([]float32, count)
			for i := range want {
				want[i] = inOrder(k.nodes, len(sp.Levels) == 1, func(r int) float32 { return value(r, i) })
			}
			for how, open := range map[string]func(rank int) func() (nbc.Transport, error){
				"by the loop": under(n, k.nodes, 0, none), // faulty's ranks cannot change threads
				"alone":       inproc.NewWorld(n, inproc.Options{Nodes: k.nodes}).Open,
			} {
				errs := ct.World(n, open, nbc.Options{Deadline: 10 * time.Minute}, func(c *collectives.Comm, _ *nbc.Engine) error {
					for root := range n {
						for _, inPlace := range []bool{false, true} {
							in, out := make([]float32, count), make([]float32, count)
							if inPlace {
								out = in
							}
							for i := range in {
								in[i] = value(c.Rank(), i)
							}
							if err := c.Reduce(context.Background(), mem.Of(in), mem.Of(out), mem.Float32, mem.Sum, root, collectives.With(sp)); err != nil {
								return err
							}
							for i := range out {
								if c.Rank() == root && out[i] != want[i] {
									return fmt.Errorf("root %d, in place %v: element %d is %v, in rank order %v", root, inPlace, i, out[i], want[i])
								}
							}
						}
					}
					return nil
				})
				for _, err := range errs {
					if err != nil {
						t.Errorf("%s over nodes %v, %s, %d elements: %v", k.spec, k.nodes, how, count, err)
					}
				}
			}
		}
	}
}

// inOrder adds the values of ranks in their order; unless flat, those of each node first.
func inOrder(nodes []int, flat bool, value func(rank int) float32) float32 {
	sums := map[int]float32{}
	var order []int // nodes by their lowest ranks
	for r, node := range nodes {
		if flat {
			node = 0
		}
		if sum, seen := sums[node]; seen {
			sums[node] = sum + value(r)
		} else {
			sums[node], order = value(r), append(order, node)
		}
	}
	total := sums[order[0]]
	for _, node := range order[1:] {
		total += sums[node]
	}
	return total
}
