package coordinator

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/internal/report"
)

// TestP3_ParametersAreCutIntoSlices: "the size of the parameter slices" bounds what moves as one (P3, section 4.2): in KV
// pairs, and alike where there are none. Not cut, all of a bucket is one.
func TestP3_ParametersAreCutIntoSlices(t *testing.T) {
	layers := vgg()
	c := Config{Nodes: spec.NodesOf(4, 1), Workers: Places{All: true}, Servers: Places{All: true}, Batch: make([]int, 4), Layers: layers}
	lens := func(slice Slice) (all []int) {
		c.Slice = slice
		b, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		b.Deal([][]int{{0, 1}, {2}, {3}}) // the first two share a bucket
		for _, p := range b.Pairs {
			all = append(all, p.Len)
		}
		return all
	}
	// 1,728 and 64 elements, 524,288 and 512, then 4,096 and 100. A slice ends at a multiple of 1,024 from the start
	// of the parameter that it ends in.
	for slice, want := range map[Slice][]int{
		LayerSlice: {526_592, 4096, 100},
		200_000:    {1792 + 193*1024, 195 * 1024, (512-193-195)*1024 + 512, 4096, 100},
		AutoSlice:  {1792 + 510*1024, 2*1024 + 512, 4096, 100},
	} {
		if got := lens(slice); !slices.Equal(got, want) {
			t.Errorf("slices of %v: %v, want %v", slice, got, want)
		}
	}
	params := slices.Concat(layers[0].Params, layers[1].Params)
	var cuts []int
	for _, r := range Slice(200_000).Cut(params) {
		cuts = append(cuts, r.Len)
	}
	if !slices.Equal(cuts, lens(200_000)[:len(cuts)]) {
		t.Errorf("what is no pair is cut into %v", cuts)
	}
	c.Slice = 1000
	if _, err := New(c); err == nil || !strings.Contains(err.Error(), "slice of 1000 elements: want at least 1024") {
		t.Errorf("slices of 1000: %v", err)
	}
}

// Which part of each bucket a server has tells how busy its port is by it: of slices all have as much, of whole layers one has all. Where
// servers work it is not asked, and the book's own pairs stay.
func TestShares(t *testing.T) {
	c := Config{Nodes: spec.NodesOf(4, 1), Workers: Places{Ranks: []int{0, 1}}, Servers: Places{Ranks: []int{2, 3}}, Batch: make([]int, 4), Layers: vgg()}
	buckets := [][]int{{0, 1}, {2}}
	for slice, want := range map[Slice]string{LayerSlice: "[[1 0] [0 1]]", Cut: "[[0.5 0.5] [0.5 0.5]]"} {
		c.Slice = slice
		b, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		before := slices.Clone(b.Pairs)
		if got := fmt.Sprintf("%.2g", b.Shares(buckets)); got != want {
			t.Errorf("slices of %v: shares of %s, want %s", slice, got, want)
		}
		if !slices.Equal(b.Pairs, before) {
			t.Errorf("slices of %v: the book has other pairs now", slice)
		}
	}
	c.Workers, c.Servers = Places{All: true}, Places{All: true}
	b, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if got := b.Shares(buckets); got != nil {
		t.Errorf("servers that work have shares of %v", got)
	}
}

// TestP3_Placements: slices are "assigned to a P3Server in a round robin fashion" (section 4.2); KVStore gives layers under a
// million parameters whole to servers by chance, and divides others equally among all (section 4.1). Even shares of slices are round-robin, too:
// in turn where slices are equal, and where they are not no server ever has a slice more than another.
func TestP3_Placements(t *testing.T) {
	layers := vgg()
	end := layers[3].Params[0].End()
	layers = append(layers, Layer{Name: "fc7", Type: FC, Rows: 1024, Cols: 1024, Params: []Range{{Off: end, Len: 1 << 20}, {Off: end + 1<<20, Len: 1024}}})
	c := Config{Nodes: spec.NodesOf(3, 1), Workers: Places{All: true}, Servers: Places{All: true}, Batch: make([]int, 3), Layers: layers}
	deal := func(p Placement, seed int64, buckets [][]int) *Book {
		c.Placement, c.Seed = p, seed
		b, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		b.Deal(buckets)
		return b
	}
	each := [][]int{{0}, {1}, {2}, {3}, {4}}
	c.Slice = 50_000
	for _, placement := range []Placement{PlaceRoundRobin, PlaceEven} {
		for i, p := range deal(placement, 0, [][]int{{2}}).Pairs { // fc6
			if p.Server != i%3 {
				t.Errorf("%v: slice %d goes to server %d of 3", placement, i, p.Server)
			}
		}
		var held [3]int
		for i, p := range deal(placement, 0, each).Pairs {
			held[p.Server] += p.Len
			if most, least := slices.Max(held[:]), slices.Min(held[:]); most-least > 50_000 {
				t.Errorf("%v: after slice %d servers have %v", placement, i, held)
			}
		}
	}
	drawn := map[string]bool{}
	for seed := range int64(20) {
		b := deal(PlaceKVStore, seed, each)
		together := deal(PlaceKVStore, seed, [][]int{{0, 1, 2, 3, 4}})
		if !slices.Equal(b.Pairs, together.Pairs) {
			t.Errorf("seed %d: %v apart, %v in one bucket", seed, b.Pairs, together.Pairs)
		}
		if again := deal(PlaceKVStore, seed, each); !slices.Equal(again.Pairs, b.Pairs) {
			t.Errorf("seed %d: %v, then %v", seed, b.Pairs, again.Pairs)
		}
		var lens []int
		var servers []int
		for _, p := range b.Pairs {
			lens, servers = append(lens, p.Len), append(servers, p.Server)
		}
		drawn[fmt.Sprint(servers)] = true
		const third = 341 * 1024
		if want := []int{1728, 64, 512 * 1024, 512, 4096, 100, third, third, 1<<20 - 2*third, 1024}; !slices.Equal(lens, want) || !slices.Equal(servers[6:9], []int{0, 1, 2}) {
			t.Errorf("seed %d: pairs of %v at %v, want %v, the last but four at 0, 1 and 2", seed, lens, servers, want)
		}
	}
	if len(drawn) < 10 {
		t.Errorf("20 seeds draw %d placements", len(drawn))
	}
	for i, name := range Placements() {
		if p, err := ParsePlacement(name); err != nil || int(p) != i || p.String() != name {
			t.Errorf("%q is %v, %v", name, p, err)
		}
	}
	if _, err := ParsePlacement("odd"); err == nil || !strings.Contains(err.Error(), `unknown placement "odd": want even, round-robin, kvstore or tensor`) {
		t.Error(err)
	}
}

func TestParseSlice(t *testing.T) {
	for text, want := range map[string]Slice{"auto": AutoSlice, "layer": LayerSlice, "50000": 50_000, "1024": Cut} {
		if got, err := ParseSlice(text); err != nil || got != want || got.String() != text {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "1023", "2M", "layers", "99999999999"} {
		if _, err := ParseSlice(text); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("invalid slice %q: want at least 1024 elements, such as 50000", text)) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if s, small, layer := Slice(50_000).Scale(0.5), Slice(2000).Scale(0.01), LayerSlice.Scale(0.5); s != 25_000 || small != Cut || layer != LayerSlice {
		t.Errorf("scaled to %v, %v and %v", s, small, layer)
	}
}

// The audit says what is cut, and what is not.
func TestAuditSaysWhatIsCut(t *testing.T) {
	c := Config{Nodes: spec.NodesOf(2, 1), Workers: Places{All: true}, Servers: Places{All: true}, Batch: []int{1, 1}, Layers: vgg()}
	for slice, want := range map[Slice]string{
		50_000:     "# slices of at most 50000 elements, cut at multiples of 1024: ps (its pairs), reduce and allreduce; factors (sfb, adam) and quantised gradients (onebit) are not cut, nor is what dgc selects from",
		LayerSlice: "pairs of a bucket",
		AutoSlice:  "pairs of 2M",
	} {
		c.Slice = slice
		b, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		a, err := b.Choose(Asked{Default: PS}, predicted(nil))
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := a.Write(&out, report.Text); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("slices of %v: %v\n%s\nwant %s", slice, err, out.String(), want)
		}
	}
}

// What slices cost a rank in messages keeps it from all other messages, and where a machine has several nodes these share its
// cores.
func TestMessagesOfSlicesTakeCores(t *testing.T) {
	everyone := Places{All: true}
	b, err := New(Config{
		Nodes: spec.NodesOf(8, 1), Workers: everyone, Servers: everyone, Batch: slices.Repeat([]int{4}, 8), Slice: Cut,
		Layers: []Layer{{Name: "conv", Type: "Convolution", Params: []Range{{Len: 1 << 20}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for hosted, turns := range map[float64]float64{0: 1, 2: 1, 8: 4} {
		s := selection.Default()
		s.Model.Inter.Bandwidth, s.Model.Hosted, s.Model.Cores = 1e12, hosted, 2 // bytes take no time
		n := Network{Book: b, Selector: s}
		p, err := n.Phases([]*Layer{&b.Layers[0]}, PS)
		want := turns * (1 << 20 / Cut) * (s.Model.Op + s.Model.Packet)
		if err != nil || p.Parts != (1<<20/Cut+n.credit()-1)/n.credit() || math.Abs(p.PushPort.Seconds()/want-1) > 1e-6 || p.PullPort != p.PushPort || p.Push < p.PushPort {
			t.Errorf("%g nodes on a machine: %+v (%v), want %g s at a port", hosted, p, err, want)
		}
	}
}

// TestPairsThatTravelSideBySide are one round, and a layer whose update is given notice of comes back as a whole.
func TestPairsThatTravelSideBySide(t *testing.T) {
	everyone := Places{All: true}
	for _, c := range []struct {
		pull        Pull
		slice       Slice
		pair, parts int
	}{
		{PullBroadcast, 0, 1 << 18, 4}, // 16 pairs of 2^16 elements, one to each server at a time
		{PullBroadcast, 0, 1 << 20, 1},
		{PullBroadcast, 1 << 16, 0, (16 + DefaultCredit(4, 4) - 1) / DefaultCredit(4, 4)},
		{PullRequest, 0, 1 << 18, 1},
		{PullRequest, 1 << 16, 0, 1},
	} {
		b, err := New(Config{
			Nodes: spec.NodesOf(4, 1), Workers: everyone, Servers: everyone, Batch: slices.Repeat([]int{4}, 4), Slice: c.slice, Pair: c.pair, Pull: c.pull,
			Layers: []Layer{{Name: "fc", Type: "InnerProduct", Params: []Range{{Len: 1 << 20}}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		n := Network{Book: b, Selector: selection.Default()}
		if p, err := n.Phases([]*Layer{&b.Layers[0]}, PS); err != nil || p.Parts != c.parts {
			t.Errorf("pull by %v, slices of %v, pairs of %d bytes: %d parts (%v), want %d", c.pull, c.slice, c.pair, p.Parts, err, c.parts)
		}
	}
}

// TestDefaultCredit is one slice for each node that a rank sends to where these are few, so that what is urgent waits for little, half as many more to servers apart, and two where they are more and
// all ranks send to the few servers that have what is urgent.
func TestDefaultCredit(t *testing.T) {
	for _, c := range []struct{ nodes, working, want int }{
		{1, 1, 2},
		{2, 2, 2},
		{3, 3, 2},
		{4, 4, 3},
		{5, 5, 4},
		{6, 6, 10},
		{8, 8, 14},
		{16, 16, 30},
		{8, 4, 6},
		{6, 4, 6},
		{3, 1, 3},
		{4, 1, 5},
		{2, 1, 2},
		{12, 8, 16}, // servers apart
	} {
		if got := DefaultCredit(c.nodes, c.working); got != c.want {
			t.Errorf("%d of %d nodes work: a credit of %d, want %d", c.working, c.nodes, got, c.want)
		}
		if got := Credit(0, DefaultSlice, c.nodes, c.working); got != c.want {
			t.Errorf("%d of %d nodes work, none asked for: a credit of %d, want %d", c.working, c.nodes, got, c.want)
		}
	}
	for _, c := range []struct {
		slice Slice
		want  int
	}{{5000, 40_000}, {DefaultSlice, 400_000}, {1_000_000, 2 * spec.DefaultChunk}, {LayerSlice, 2 * spec.DefaultChunk}, {AutoSlice, 2 * spec.DefaultChunk}} {
		if got := c.slice.CreditBytes(2); got != c.want {
			t.Errorf("a credit of two slices of %v: %d bytes, want %d", c.slice, got, c.want)
		}
	}
}
