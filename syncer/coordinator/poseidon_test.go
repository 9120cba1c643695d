package coordinator

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/scaffe/scaffe/collectives/spec"
)

// fc is a layer of m×n weights without a bias.
func fc(name string, m, n int) Layer {
	return Layer{Name: name, Type: FC, Rows: m, Cols: n, Params: []Range{{Len: m * n}}}
}

// book is that of p ranks, one a node, that all work and serve, with batches of k.
func book(t testing.TB, p, k int, layers ...Layer) *Book {
	t.Helper()
	b, err := New(Config{Nodes: spec.NodesOf(p, 1), Workers: Places{All: true}, Servers: Places{All: true}, Batch: slices.Repeat([]int{k}, p), Layers: layers})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Section 3.2, Table 1 and the example below it: a layer of 4096×4096, batches
// of 32, 8 workers and 8 servers. Values in and out of a node.
func TestPoseidon_Table1(t *testing.T) {
	const m, n, k, p1, p2 = 4096, 4096, 32, 8, 8
	ps, sfb, adam := PSCost(m*n, p1, p2), SFBCost(m, n, k, p1), AdamCost(m*n, m, n, k, p1)
	for _, c := range []struct {
		what      string
		got, want float64
		millions  string // as the paper rounds
	}{
		{"ps, worker", ps.Worker, 2 * m * n, "33.6"},
		{"ps, server", ps.Server, 2 * p1 * m * n / p2, "33.6"},
		{"ps, both", ps.Both, 58_720_256, "58.7"},
		{"sfb", sfb.Both, 3_670_016, "3.7"},
		{"adam, worker", adam.Worker, 17_039_360, "17.0"},
		{"adam, server", adam.Server, 8 * 17_039_360, "136.3"},
		{"adam, both", adam.Both, 119_275_520, "119.3"},
	} {
		if c.got != c.want || fmt.Sprintf("%.1f", c.got/1e6) != c.millions {
			t.Errorf("%s: %.0f, want %.0f (%s M)", c.what, c.got, c.want, c.millions)
		}
	}
	b := book(t, 8, k, fc("fc7", m, n))
	for s, want := range map[Scheme]float64{PS: 58_720_256, SFB: 3_670_016, Adam: 119_275_520} {
		if got, ok := b.Values(&b.Layers[0], s); !ok || got != want {
			t.Errorf("%v: %v %v, want %v", s, got, ok, want)
		}
	}
}

// Section 4.1, Algorithm 1: of that layer the costs are equal at K = 512, which
// is sfb, since the condition is ≤.
func TestPoseidon_Algorithm1(t *testing.T) {
	for k, want := range map[int]Scheme{1: SFB, 32: SFB, 512: SFB, 513: PS, 4096: PS} {
		b := book(t, 8, k, fc("fc7", 4096, 4096), Layer{Name: "conv", Type: "Convolution", Params: []Range{{Off: 4096 * 4096, Len: 9}}})
		if got, err := b.BestScheme("fc7"); err != nil || got != want {
			t.Errorf("K = %d: %v %v, want %v", k, got, err, want)
		}
		if got, _ := b.BestScheme("conv"); got != PS {
			t.Errorf("a convolution: %v", got)
		}
	}
	if _, err := book(t, 2, 1).BestScheme("fc9"); err == nil {
		t.Error("an unknown layer is no error")
	}
	rapid.Check(t, func(rt *rapid.T) {
		in := func(hi int, name string) int { return rapid.IntRange(1, hi).Draw(rt, name) }
		m, n, k, p1, p2 := in(1<<14, "m"), in(1<<14, "n"), in(1<<10, "k"), in(64, "p1"), in(64, "p2")
		sfb, ps := SFBCost(m, n, k, p1).Both, PSCost(m*n, p1, p2).Both
		if math.Abs(sfb-ps) > 1e-9*ps && algorithm1(m, n, k, p1, p2) != (sfb < ps) {
			rt.Fatalf("%v sfb, %v ps", sfb, ps)
		}
	})
	if !algorithm1(1<<36, 1, 1, 1<<20, 1<<20) == algorithm1(1, 1<<36, 1, 1<<20, 1<<20) {
		t.Error("large extents overflow")
	}
}

// TestPoseidon_TensorFlowDealsTensors: "each tensor (instead of a KV pair) in the model is assigned
// to a PS shard" (section 5.1), in turn, so that one server has the largest of them whole.
func TestPoseidon_TensorFlowDealsTensors(t *testing.T) {
	all := Places{All: true}
	b, err := New(Config{Nodes: spec.NodesOf(2, 1), Workers: all, Servers: all, Batch: make([]int, 2), Layers: vgg(), Placement: PlaceTensor})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range b.Pairs {
		got = append(got, fmt.Sprintf("%d%v%d", p.Layer, p.Range, p.Server))
	}
	want := "0[0:1728]0 0[1728:1792]1 1[1792:526080]0 1[526080:526592]1 2[526592:530688]0 3[530688:530788]1"
	if text := strings.Join(got, " "); text != want {
		t.Errorf("pairs %s, want %s", text, want)
	}
	if e := b.Entries(); e[4].Value != "a parameter" {
		t.Errorf("%+v", e[4])
	}
	b.Deal([][]int{{0, 1}})
	if len(b.Pairs) != 4 {
		t.Errorf("%d pairs of two layers", len(b.Pairs))
	}
}

// Section 4.1: KV pairs of a small fixed size divide the parameters as equally as
// possible over the servers.
func TestPoseidon_PairsAreDealtEvenly(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := func(lo, hi int, name string) int { return rapid.IntRange(lo, hi).Draw(rt, name) }
		var layers []Layer
		off := 0
		starts := map[int]bool{} // of parameters
		for i := range in(1, 8, "layers") {
			l := Layer{Name: fmt.Sprint(i), Type: "Convolution"}
			for range in(1, 2, "params") {
				n := in(1, 20000, "elements")
				l.Params = append(l.Params, Range{Off: off, Len: n})
				starts[off] = true
				off += (n + 15) / 16 * 16
			}
			layers = append(layers, l)
		}
		ranks, pair := in(1, 9, "ranks"), 4096*in(1, 4, "pair")
		c := Config{
			Nodes: spec.NodesOf(ranks, 1), Workers: Places{All: true}, Servers: Places{Count: in(1, ranks, "servers")},
			Batch: make([]int, ranks), Layers: layers, Pair: pair,
		}
		b, err := New(c)
		if err != nil {
			rt.Fatal(err)
		}
		if rapid.Bool().Draw(rt, "one bucket") {
			b.Deal([][]int{first(len(layers))})
		}
		held, elements := map[int]int{}, map[int]int{}
		at, in2 := 0, func(at int) (int, Range) { // the parameter that an element lies in
			for i := range layers {
				for _, p := range layers[i].Params {
					if p.Off <= at && at < p.End() {
						return i, p
					}
				}
			}
			return -1, Range{}
		}
		for _, p := range b.Pairs {
			layer, param := in2(p.Off)
			if p.Off < at || p.Off-at >= 16 || 4*p.Len > pair || p.Len < 1 || layer != p.Layer {
				rt.Fatalf("pair %+v after %d, in layer %d", p, at, layer)
			}
			if !starts[p.Off] && (p.Off-param.Off)%Cut != 0 {
				rt.Fatalf("pair %+v is cut at %d of its parameter", p, p.Off-param.Off)
			}
			at = p.End()
			held[p.Server]++
			elements[p.Server] += p.Len
		}
		last := layers[len(layers)-1].Params
		if at != last[len(last)-1].End() {
			rt.Fatalf("the pairs end at %d", at)
		}
		least, most, fewest, largest := len(b.Pairs), 0, off, 0
		for _, s := range b.Servers {
			least, most = min(least, held[s]), max(most, held[s])
			fewest, largest = min(fewest, elements[s]), max(largest, elements[s])
		}
		if most-least > 1 || 4*(largest-fewest) > pair {
			rt.Fatalf("servers hold %v, %v elements", held, elements)
		}
	})
}

// Section 3.2: 4096×4096 in pairs of 2 MB over 8 servers is even, so that the
// formula of Table 1 is exact.
func TestPoseidon_PairsOfTheExample(t *testing.T) {
	b := book(t, 8, 32, fc("fc7", 4096, 4096))
	held := map[int]int{}
	for _, p := range b.Pairs {
		held[p.Server] += p.Len
	}
	for r := range 8 {
		if held[r] != 4096*4096/8 {
			t.Errorf("rank %d holds %d elements", r, held[r])
		}
	}
	if len(b.Pairs) != 32 {
		t.Errorf("%d pairs", len(b.Pairs))
	}
}

// Table 2: Query returns properties by name; Algorithm 1 asks for these.
func TestPoseidon_Query(t *testing.T) {
	b := book(t, 4, 32, fc("fc6", 8, 4))
	got, err := b.Query("n_worker", "n_server", "batchsize", "fc6")
	if err != nil {
		t.Fatal(err)
	}
	if got[0] != 4 || got[1] != 4 || got[2] != 32 || got[3].(*Layer).Rows != 8 {
		t.Errorf("%v", got)
	}
	if _, err := b.Query("n_workers"); err == nil {
		t.Error("an unknown property is no error")
	}
}
