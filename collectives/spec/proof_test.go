package spec_test

import (
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/check"
	"github.com/scaffe/scaffe/schedule/check/checktest"
)

// Proofs leave much garbage and keep little: with GOGC=400 they take 1.25 times as long.
func TestMain(m *testing.M) {
	debug.SetGCPercent(1600)
	os.Exit(m.Run())
}

// plan builds the schedules of all ranks of one node, with elements of one byte.
func plan(t testing.TB, v schedule.Collective, s spec.Spec, size, root, count int) []*schedule.Schedule {
	t.Helper()
	return planOn(t, v, s, size, root, count, nil)
}

// planOn is plan for ranks on the given nodes.
func planOn(t testing.TB, v schedule.Collective, s spec.Spec, size, root, count int, nodes []int) []*schedule.Schedule {
	t.Helper()
	return planCall(t, spec.Call{Collective: v, Size: size, Root: root, Count: count, ElemSize: 1, Nodes: nodes}, s)
}

// planCall builds the schedules of all ranks of a call.
func planCall(t testing.TB, c spec.Call, s spec.Spec) []*schedule.Schedule {
	t.Helper()
	all := make([]*schedule.Schedule, c.Size)
	for rank := range c.Size {
		c.Rank = rank
		one, err := spec.Build(c, s)
		if err != nil {
			t.Fatal(err)
		}
		all[rank] = one
	}
	return all
}

// provenSpecs are one, two and three levels: every chain size from 1 to 16
// under every other algorithm, and chunks that differ between levels.
func provenSpecs() []string {
	specs := []string{"linear,chunk=3", "chain,chunk=3", "binomial,chunk=3"}
	for k := 1; k <= 16; k++ {
		specs = append(specs,
			fmt.Sprintf("chain:%d,chunk=3/binomial,chunk=3", k),
			fmt.Sprintf("chain:%d,chunk=3/chain,chunk=3", k))
	}
	specs = append(specs,
		"chain:8/binomial", "chain:3,chunk=3/linear,chunk=3",
		"binomial:4,chunk=3/chain,chunk=3", "linear:5,chunk=3/binomial,chunk=3", "binomial:6,chunk=3/linear",
		"chain:4,chunk=2/binomial,chunk=5", "chain:5,chunk=6/chain,chunk=2", "linear:3/chain,chunk=4")
	for _, k := range []int{1, 2, 3, 4, 7, 16} {
		specs = append(specs,
			fmt.Sprintf("chain:%d,chunk=3/chain:4,chunk=3/binomial,chunk=3", k),
			fmt.Sprintf("chain:2,chunk=4/chain:%d,chunk=3/chain,chunk=2", k))
	}
	return append(specs,
		"binomial:3,chunk=3/chain:3,chunk=3/binomial,chunk=3",
		"linear:2,chunk=3/binomial:2,chunk=3/chain,chunk=3",
		"chain:2,chunk=3/chain:2,chunk=3/chain:2,chunk=3/binomial,chunk=3")
}

// provenCounts are none, one, prime numbers, and what neither a chunk nor the
// ranks divide: up to six chunks of three.
var provenCounts = []int{0, 1, 7, 12, 17}

// Every spec is proved right for all ranks together: 1 to 33 ranks, every root
// up to 9 ranks and several beyond, every count, all collectives. Roots other than 0
// take turns with the counts; beyond 17 ranks the first root does, too, and one other.
func TestEverySpecIsProved(t *testing.T) {
	for _, text := range provenSpecs() {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			s, err := spec.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			for size := 1; size <= 33; size++ {
				roots := checktest.Roots(size)
				if size > 17 {
					roots = []int{0, roots[1+size%(len(roots)-1)]}
				}
				for turn, root := range roots {
					counts := provenCounts
					if root > 0 || size > 17 {
						counts = []int{provenCounts[(turn+size)%len(provenCounts)], 17}
					}
					for _, count := range counts {
						for _, v := range schedule.Collectives {
							if s.Serves(v) != nil || v.ByRank() && !v.Rooted() && root > 0 {
								continue // it has none, and its data go all ways anyway
							}
							if err := check.Prove(v, plan(t, v, s, size, root, count), root); err != nil {
								t.Fatalf("%s over %d ranks, root %d, count %d: %v", v, size, root, count, err)
							}
						}
					}
				}
			}
		})
	}
}

// layouts are where ranks may be: filled node by node, dealt out in turn, and
// unequal numbers to a node.
func layouts(size int) map[string][]int {
	blocks, dealt, unequal := make([]int, size), make([]int, size), make([]int, size)
	for r := range size {
		blocks[r], dealt[r] = r/3, r%3
		unequal[r] = []int{0, 1, 1, 1, 2, 0, 3, 3}[r%8] + 4*(r/8)
	}
	return map[string][]int{"blocks of 3": blocks, "dealt to 3": dealt, "unequal": unequal}
}

// Specs that know nodes are proved for every layout, 1 to 33 ranks.
func TestEveryNodeSpecIsProved(t *testing.T) {
	for _, text := range []string{
		"direct/chain,chunk=3", "direct,chunk=5/binomial,chunk=3", "direct,chunk=7/ring,chunk=2", "direct,chunk=6",
		"ring,chunk=2", "chain:node,chunk=3/ring", "chain:node,chunk=2/chain:2,chunk=3/binomial", "direct/chain:2,chunk=3/chain,chunk=4",
		"chain:4,chunk=3/ring,chunk=2", "binomial:node/direct,chunk=5", "doubling", "doubling,chunk=3", "direct/doubling", "binomial:node/doubling,chunk=4",
		"halving", "halving,chunk=2", "direct,chunk=7/halving,chunk=2", "chain:4,chunk=3/halving,chunk=2",
		"scatter", "direct,chunk=5/scatter,chunk=7", "chain:4,chunk=3/scatter",
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			s, err := spec.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			served := slices.DeleteFunc(slices.Clone(schedule.Collectives), func(v schedule.Collective) bool { return s.Serves(v) != nil })
			for size := 1; size <= 33; size++ {
				for layout, nodes := range layouts(size) {
					for turn, root := range checktest.Roots(size) {
						count := []int{17, 1, 12, 0, 40}[(turn+size)%5]
						for _, v := range served {
							if v.ByRank() && !v.Rooted() && root > 0 {
								continue
							}
							if err := check.Prove(v, planOn(t, v, s, size, root, count, nodes), root); err != nil {
								t.Fatalf("%s over %d ranks (%s), root %d, count %d: %v", v, size, layout, root, count, err)
							}
						}
					}
				}
			}
		})
	}
}

// Likewise allreduces in which some ranks have buffers that lie apart, or all.
func TestAllreducesOfBuffersApartAreProved(t *testing.T) {
	for _, text := range []string{
		"linear", "chain,chunk=3", "binomial,chunk=3", "direct,chunk=6", "ring,chunk=2", "doubling", "doubling,chunk=3", "chain:3,chunk=3/binomial,chunk=3",
		"direct,chunk=7/ring,chunk=2", "direct/doubling", "binomial:node/doubling,chunk=4",
		"halving", "halving,chunk=2", "direct,chunk=7/halving,chunk=2", "chain:4,chunk=3/halving,chunk=2",
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			s, err := spec.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			for size := 1; size <= 20; size++ {
				for layout, nodes := range layouts(size) {
					for _, some := range []bool{false, true} {
						c := spec.Call{Collective: schedule.Allreduce, Size: size, Count: []int{17, 1, 12, 40}[size%4], ElemSize: 1, Nodes: nodes, Scaled: size%5 == 4}
						all := planCall(t, c, s)
						c.Apart = true
						for rank, apart := range planCall(t, c, s) {
							if !some || rank%2 == 0 {
								all[rank] = apart
							}
						}
						if err := check.Prove(c.Collective, all, 0); err != nil {
							t.Fatalf("%d ranks (%s), only some apart: %v: %v", size, layout, some, err)
						}
					}
				}
			}
		})
	}
}

// Allgathers of unequal parts are proved for every layout, 1 to 33 ranks.
func TestEveryAllgatherIsProved(t *testing.T) {
	proveParts(t, schedule.Allgather, []string{
		"linear", "ring,chunk=2", "direct,chunk=3", "doubling", "doubling,chunk=2", "chain,chunk=2", "binomial", "chain:4/binomial",
		"direct/ring,chunk=2", "direct,chunk=3/linear", "direct/doubling", "binomial:node/ring", "chain:node,chunk=1/doubling,chunk=2",
		"linear:3/ring", "direct/chain:2/ring,chunk=3", "chain:2/direct:2/linear:2/ring",
	})
}

// Likewise reduce-scatters, whose contributions may be scaled first.
func TestEveryReduceScatterIsProved(t *testing.T) {
	proveParts(t, schedule.ReduceScatter, []string{
		"linear", "ring,chunk=2", "direct,chunk=3", "chain,chunk=2", "binomial", "chain:4/binomial", "direct/ring,chunk=2", "direct,chunk=3/linear",
		"direct/direct", "binomial:node/ring", "chain:node,chunk=1/binomial,chunk=2", "linear:3/ring", "direct/chain:2/ring,chunk=3",
		"chain:2/direct:2/linear:2/ring",
	})
}

// Likewise gathers and scatters, whose data go along trees of all ranks, to and from every root.
func TestEveryGatherAndScatterIsProved(t *testing.T) {
	for _, v := range []schedule.Collective{schedule.Gather, schedule.Scatter} {
		t.Run(v.String(), func(t *testing.T) {
			proveParts(t, v, []string{"linear", "linear,chunk=2", "binomial", "binomial,chunk=1", "binomial,chunk=3"})
		})
	}
}

// proveParts proves specs for all counts and layouts, and, of a reduction, scaled too.
func proveParts(t *testing.T, v schedule.Collective, texts []string) {
	for _, text := range texts {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			s, err := spec.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			for size := 1; size <= 33; size++ {
				for _, counts := range checktest.Counts(size) {
					c := spec.Call{Collective: v, Size: size, Count: 17, ElemSize: 1, Counts: counts, Scaled: v.Reduces() && size%2 == 1}
					if v.Rooted() {
						c.Root = (size + len(counts)) / 2 % size
					}
					if counts != nil {
						c.Count = 0
						for _, n := range counts {
							c.Count += n
						}
					}
					for layout, nodes := range layouts(size) {
						c.Nodes = nodes
						if err := check.Prove(c.Collective, planCall(t, c, s), c.Root, counts...); err != nil {
							t.Fatalf("%d ranks (%s), counts %v: %v", size, layout, counts, err)
						}
					}
				}
			}
		})
	}
}

// TestPartsLeaveNodesOnce: with direct below, every node sends the sums of the others' parts
// once, and by its leader.
func TestPartsLeaveNodesOnce(t *testing.T) {
	const size = 9
	nodes := layouts(size)["dealt to 3"]
	c := spec.Call{Collective: schedule.ReduceScatter, Size: size, ElemSize: 1, Nodes: nodes, Counts: []int{4, 0, 2, 5, 1, 3, 7, 2, 2}}
	of := map[int]int{} // elements, by node
	for rank, n := range c.Counts {
		c.Count += n
		of[nodes[rank]] += n
	}
	for _, text := range []string{"direct/ring", "direct/linear", "binomial:node/ring"} {
		s, err := spec.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		for rank, p := range planCall(t, c, s) {
			got, want := 0, 0
			for i := range p.Ops {
				if op := &p.Ops[i]; op.Kind == schedule.Send && nodes[op.Peer] != nodes[rank] {
					got += op.Len()
				}
			}
			if rank < 3 { // its node's first
				want = c.Count - of[nodes[rank]]
			}
			if got != want {
				t.Errorf("%s: rank %d sends %d elements to other nodes, not %d", text, rank, got, want)
			}
		}
	}
}

// TestPartsEnterNodesOnce: with direct below, every node receives the parts of the
// others once, and by its leader.
func TestPartsEnterNodesOnce(t *testing.T) {
	const size = 9
	nodes := layouts(size)["dealt to 3"]
	c := spec.Call{Collective: schedule.Allgather, Size: size, ElemSize: 1, Nodes: nodes, Counts: []int{4, 0, 2, 5, 1, 3, 7, 2, 2}}
	of := map[int]int{} // elements, by node
	for rank, n := range c.Counts {
		c.Count += n
		of[nodes[rank]] += n
	}
	for _, text := range []string{"direct/ring", "direct/linear", "direct/doubling", "binomial:node/ring"} {
		s, err := spec.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		for rank, p := range planCall(t, c, s) {
			got := 0
			for i := range p.Ops {
				if op := &p.Ops[i]; op.Receives() && nodes[op.Peer] != nodes[rank] {
					got += op.Len()
				}
			}
			want := 0
			if rank < 3 { // its node's first
				want = c.Count - of[nodes[rank]]
			}
			if got != want {
				t.Errorf("%s: rank %d receives %d elements of other nodes, not %d", text, rank, got, want)
			}
		}
	}
}

// TestNodesAreCrossedOnce: with direct below, each node but the root's sends
// the buffer once to another node and receives none.
func TestNodesAreCrossedOnce(t *testing.T) {
	s, err := spec.Parse("direct/chain,chunk=4")
	if err != nil {
		t.Fatal(err)
	}
	const size, count = 9, 24
	nodes := layouts(size)["dealt to 3"]
	for root := range size {
		sent := map[int]int{}
		for rank, p := range planOn(t, schedule.Reduce, s, size, root, count, nodes) {
			for i := range p.Ops {
				if op := &p.Ops[i]; op.Kind == schedule.Send && nodes[op.Peer] != nodes[rank] {
					sent[nodes[rank]] += op.Len()
				}
			}
		}
		for node := range 3 {
			want := count
			if node == nodes[root] {
				want = 0
			}
			if sent[node] != want {
				t.Errorf("root %d: node %d sends %d elements to others, not %d", root, node, sent[node], want)
			}
		}
	}
}

// TestLargeCounts: 3·2^31 elements, 48 GiB of doubles, on three nodes. The
// arithmetic is proved; nothing is allocated.
func TestLargeCounts(t *testing.T) {
	const size, count = 6, 3 << 31
	nodes := []int{0, 0, 1, 1, 2, 2}
	for text, v := range map[string]schedule.Collective{
		"chain,chunk=1G": schedule.Reduce, "direct,chunk=1G/binomial,chunk=512M": schedule.Bcast, "direct,chunk=2G/ring,chunk=300M": schedule.Allreduce,
	} {
		s, err := spec.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := check.Prove(v, planOn(t, v, s, size, 4, count, nodes), 4); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Golden files of composed specs; -rewrite writes them anew.
func TestGolden(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var text string
			d.ScanArgs(t, "spec", &text)
			s, err := spec.Parse(text)
			if err != nil {
				return err.Error() + "\n"
			}
			v, err := schedule.ParseCollective(d.Cmd)
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			p, counts := checktest.Scan(t, d)
			c := spec.Call{Collective: v, Size: p.Size, Root: p.Root, Count: p.Count, ElemSize: 1, Counts: counts}
			for _, arg := range d.CmdArgs {
				for i := range arg.Vals {
					if arg.Key == "nodes" {
						var n int
						arg.Scan(t, i, &n)
						c.Nodes = append(c.Nodes, n)
					}
				}
			}
			return checktest.Text(v, planCall(t, c, s), p.Root, counts...)
		})
	})
}

// stepsOf returns how many steps a reduction of n chunks takes.
func stepsOf(t *testing.T, text string, size, n int) int {
	t.Helper()
	s, err := spec.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	steps, err := check.Steps(plan(t, schedule.Reduce, s, size, 0, n))
	if err != nil {
		t.Fatal(err)
	}
	return steps
}
