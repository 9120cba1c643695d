package coordinator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/schedule"
)

// vgg is the end of a net, with shared weights.
func vgg() []Layer {
	layers := []Layer{
		{Name: "conv1/3x3", Type: "Convolution", Params: []Range{{Off: 0, Len: 1728}, {Off: 1728, Len: 64}}},
		{Name: "fc6", Type: FC, Rows: 512, Cols: 1024, Params: []Range{{Off: 1792, Len: 512 * 1024}, {Off: 1792 + 512*1024, Len: 512}}},
		{Name: "twin", Type: FC, Rows: 64, Cols: 64, Refuses: `parameter "w" is shared with layer "twin2"`},
		{Name: "old", Type: FC},
	}
	layers[2].Params = []Range{{Off: layers[1].Params[1].End(), Len: 4096}}
	layers[3].Params = []Range{{Off: layers[2].Params[0].End(), Len: 100}}
	return layers
}

func TestParseAsked(t *testing.T) {
	for text, want := range map[string]string{
		"auto": "auto", "ps": "ps", "fc6=sfb": "auto,fc6=sfb", "conv*=allreduce, poseidon": "poseidon,conv*=allreduce",
		"auto,fc6=sfb,conv*=allreduce": "auto,fc6=sfb,conv*=allreduce",
	} {
		if a, err := ParseAsked(text); err != nil || a.String() != want {
			t.Errorf("%q: %v %v, want %v", text, a, err, want)
		}
	}
	for text, want := range map[string]string{
		"":          `unknown scheme ""`,
		"sgd":       `unknown scheme "sgd": want auto, poseidon, reduce, allreduce, ps, sfb, adam, onebit or dgc`,
		"fc6=tree":  `unknown scheme "tree"`,
		"=ps":       "want LAYER=SCHEME",
		"ps,reduce": "ps and reduce are both for the whole net",
		"fc6=ps=ps": `unknown scheme "ps=ps"`,
	} {
		if _, err := ParseAsked(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	for pattern, want := range map[string]bool{
		"conv1/3x3": true, "conv*": true, "*": true, "*3x3": true, "conv?/3x3": true, "c*/*3": true, "conv": false, "?": false, "": false, "conv*x": false,
	} {
		if match(pattern, "conv1/3x3") != want {
			t.Errorf("%q is not %v", pattern, want)
		}
	}
}

// predicted is a predictor of a table.
func predicted(ms map[Scheme]int) Predictor {
	return func(_ *Layer, s Scheme) (Prediction, error) {
		return Prediction{Time: time.Duration(ms[s]) * time.Millisecond, Spec: "spec"}, nil
	}
}

func TestChoose(t *testing.T) {
	predict := predicted(map[Scheme]int{Reduce: 30, Allreduce: 20, PS: 10, SFB: 5, Adam: 2, OneBit: 1, DGC: 1})
	for text, want := range map[string]string{
		"auto":                    "ps sfb ps ps",
		"poseidon":                "ps sfb ps ps",
		"sfb":                     "ps sfb ps ps",
		"onebit":                  "ps onebit ps ps",
		"reduce,fc6=auto":         "reduce sfb reduce reduce",
		"auto,fc*=ps,*6=reduce":   "ps reduce ps ps",
		"adam,conv*=allreduce":    "allreduce adam ps ps",
		"conv1/3x3=ps,poseidon":   "ps sfb ps ps",
		"allreduce,fc6=sfb,o*=ps": "allreduce sfb allreduce ps",
	} {
		a, err := ParseAsked(text)
		if err != nil {
			t.Fatal(err)
		}
		b := book(t, 4, 8, vgg()...)
		audit, err := b.Choose(a, predict)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		served := map[int]bool{}
		again, err := b.Choose(audit.Chosen(), nil) // of what was chosen
		if err != nil {
			t.Fatalf("%s: %v: %v", text, audit.Chosen(), err)
		}
		for i, r := range audit.Rows {
			got = append(got, r.Choice.String())
			if again.Rows[i].Choice != r.Choice {
				t.Errorf("%s: %v gives layer %s %v", text, audit.Chosen(), r.Layer.Name, again.Rows[i].Choice)
			}
			served[i] = r.Choice.Served()
			if r.Reason == "" || r.RunnerUp == r.Choice || r.RunnerUp.FactorsOnly() && r.Layer.noFactors() != "" {
				t.Errorf("%s: %+v", text, r)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", text, got, want)
		}
		for _, p := range b.Pairs {
			if !served[p.Layer] {
				t.Errorf("%s: layer %d has pairs", text, p.Layer)
			}
			if audit.Rows[p.Layer].Choice == Adam && p.Len < b.Layers[p.Layer].Elements() {
				t.Errorf("%s: layer %d, which has one server, is cut: %v", text, p.Layer, p.Range)
			}
		}
	}
}

// Choices repeat: equally fast schemes are taken in a fixed order.
// What serves all layers needs no choice; nothing asked for is auto, which a lone rank has no choice by.
func TestAskedForAll(t *testing.T) {
	for text, want := range map[string]bool{"reduce": true, "allreduce": true, "ps": true, "sfb": false, "auto": false, "poseidon": false, "ps,fc6=ps": false} {
		a, err := ParseAsked(text)
		if err != nil {
			t.Fatal(err)
		}
		if s, one := a.One(); one != want || s != a.Default {
			t.Errorf("%s: %v %v", text, s, one)
		}
		if got := a.Or(PS).String(); got != a.String() {
			t.Errorf("%s or ps: %s", text, got)
		}
	}
	var none *Asked
	if a, b := none.Or(Auto).String(), none.Or(SFB).String(); a != "auto" || b != "sfb" {
		t.Error(a, b)
	}
}

func TestScalePair(t *testing.T) {
	for _, c := range []struct {
		bytes  int
		factor float64
		want   int
	}{{2 << 20, 1, 2 << 20}, {2 << 20, 0.25, 512 << 10}, {2 << 20, 0.01, 20 << 10}, {2 << 20, 1e-9, 4 << 10}} {
		if got := ScalePair(c.bytes, c.factor); got != c.want || checkPair(got) != nil {
			t.Errorf("%d × %v: %d, want %d", c.bytes, c.factor, got, c.want)
		}
	}
}

func TestChooseTies(t *testing.T) {
	audit, err := book(t, 4, 8, vgg()...).Choose(Asked{}, predicted(nil))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range audit.Rows {
		if r.Choice != Allreduce || r.RunnerUp != Reduce {
			t.Errorf("%s: %v, then %v", r.Layer.Name, r.Choice, r.RunnerUp)
		}
	}
}

func TestChooseRefuses(t *testing.T) {
	failing := func(*Layer, Scheme) (Prediction, error) { return Prediction{}, errors.New("no network") }
	for text, c := range map[string]struct {
		predict Predictor
		want    string
	}{
		"fc9=ps":        {nil, "scheme fc9=ps: no layer with parameters has such a name; there are conv1/3x3, fc6, twin, old"},
		"conv1/3x3=sfb": {nil, `layer "conv1/3x3" (Convolution) cannot: only InnerProduct layers have sufficient factors`},
		"*=sfb":         {nil, `layer "conv1/3x3" (Convolution) cannot`},
		"ps,twin=adam":  {nil, `layer "twin" (InnerProduct) cannot: parameter "w" is shared with layer "twin2"`},
		"ps,old=onebit": {nil, "the shape of its weights is not known"},
		"auto":          {nil, "auto needs predictions"},
		"ps,fc6=auto":   {failing, `layer "conv1/3x3": no network`},
	} {
		a, err := ParseAsked(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := book(t, 4, 8, vgg()...).Choose(a, c.predict); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", text, err, c.want)
		}
	}
}

func TestPlaces(t *testing.T) {
	nodes := []int{0, 0, 1, 1, 2, 2, 3, 3}
	for text, want := range map[string]string{
		"all": "[0 1 2 3 4 5 6 7]", "count:1": "[0]", "count:2": "[0 4]", "count:3": "[0 2 4]", "count:4": "[0 2 4 6]",
		"count:5": "[0 1 2 4 6]", "count:6": "[0 1 2 4 5 6]", "count:8": "[0 1 2 3 4 5 6 7]", "4, 0": "[0 4]",
		"count:9": "9 servers of 8 ranks: want at most as many", "0,8": "rank 8 of the servers: there are 8 ranks, from 0 to 7",
		"0,0": "rank 0 twice", "count:0": "want all, count:4 or ranks such as 0,4", "": "want all", "x": "want all", "-1": "want all",
	} {
		p, err := ParsePlaces(text)
		var got []int
		if err == nil {
			if again, err := ParsePlaces(p.String()); err != nil || again.String() != p.String() {
				t.Errorf("%q is written as %v", text, p)
			}
			got, err = p.Of("servers", nodes)
		}
		if said := fmt.Sprint(got, err); !strings.Contains(said, want) {
			t.Errorf("%q: %s, want %s", text, said, want)
		}
	}
	if got := spread(3, []int{0, 0, 0, 1, 0}); !slices.Equal(got, []int{0, 1, 3}) {
		t.Errorf("uneven nodes: %v", got)
	}
}

func TestNewRefuses(t *testing.T) {
	all := Places{All: true}
	good := func() Config {
		return Config{Nodes: []int{0, 1}, Workers: all, Servers: all, Batch: []int{1, 1}, Layers: vgg()}
	}
	for want, spoil := range map[string]func(c *Config){
		"pair size 2K: want a multiple of 4K":      func(c *Config) { c.Pair = 2048 },
		"pair size 6K: want a multiple of 4K":      func(c *Config) { c.Pair = 6 << 10 },
		"3 servers of 2 ranks":                     func(c *Config) { c.Servers = Places{Count: 3} },
		"at least one worker and one server":       func(c *Config) { c.Workers = Places{} },
		"rank 1 is neither a worker nor a server":  func(c *Config) { c.Workers, c.Servers = Places{Ranks: []int{0}}, Places{Ranks: []int{0}} },
		"1 batches of 2 ranks":                     func(c *Config) { c.Batch = []int{1} },
		`layer "fc6": parameter at`:                func(c *Config) { c.Layers[1].Params[1].Off = 5 },
		`layer "fc6": weights of 512x1023 do not`:  func(c *Config) { c.Layers[1].Cols = 1023 },
		`layer "old" has no parameters`:            func(c *Config) { c.Layers[3].Params = nil },
		`layer "fc6": rows of the factors of 1 ra`: func(c *Config) { c.Layers[1].Factors = []int{3} },
	} {
		c := good()
		spoil(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := New(good()); err != nil {
		t.Error(err)
	}
}

// Books that differ have other digests where they differ, and the entry is named.
func TestDiffers(t *testing.T) {
	mine := book(t, 4, 8, vgg()...)
	same := mine.Digests()
	differ := func(other *Book) int {
		digests := other.Digests()
		return slices.IndexFunc(same, func(d uint64) bool {
			i := slices.Index(same, d)
			return i >= len(digests) || digests[i] != d
		})
	}
	wide := vgg()
	wide[1].Rows, wide[1].Cols = 1024, 512
	for _, c := range []struct {
		entry int
		want  string
	}{
		{differ(book(t, 4, 8, wide...)), `differ in layer "fc6": rank 2 another; here it is InnerProduct 512x1024`},
		{differ(book(t, 4, 9, vgg()...)), "differ in batch: rank 2 another; here it is [8 8 8 8]"},
		{len(same) - 1, "differ in pair 4: rank 2 another; here it is "},
		{len(same), fmt.Sprintf("differ in how many entries they have: rank 2 another; here it is %d (", len(same))},
	} {
		if err := mine.Differs(c.entry, "rank 2 another"); !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
	if i := differ(book(t, 4, 8, vgg()...)); i >= 0 {
		t.Errorf("equal books differ in entry %d", i)
	}
}

// Ranks that only serve or only work: the busiest of them counts.
func TestValuesByRole(t *testing.T) {
	c := Config{
		Nodes: spec.NodesOf(5, 1), Workers: Places{Ranks: []int{1, 2, 3, 4}}, Servers: Places{Ranks: []int{0}},
		Batch: []int{0, 8, 8, 7, 7}, Layers: []Layer{fc("fc", 100, 50)},
	}
	b, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	for s, want := range map[Scheme]float64{
		PS: 2 * 4 * 5000, SFB: 2 * 8 * 3 * 150, Adam: 4*5000 + 4*8*150, Reduce: 4 * 5000, Allreduce: 3 * 5000, OneBit: 3 * (5000./32 + 100), DGC: 4 * 5 * 3,
	} {
		if got, ok := b.Values(&b.Layers[0], s); !ok || got != want {
			t.Errorf("%v: %v, want %v", s, got, want)
		}
	}
	b.Layers[0].Factors = []int{0, 3, 3, 3, 4} // rows that are not samples
	if got, _ := b.Values(&b.Layers[0], SFB); got != 2*4*3*150 {
		t.Errorf("sfb of 4 rows: %v", got)
	}
}

// A rank alone moves nothing.
func TestOneRank(t *testing.T) {
	b := book(t, 1, 8, vgg()...)
	n := Network{Book: b, Selector: selection.Default()}
	audit, err := b.Choose(Asked{}, n.Predict)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range audit.Rows {
		for _, o := range r.Outlooks {
			if o.Bytes != 0 && o.Serves && o.Scheme != Reduce || o.Time != 0 {
				t.Errorf("%s: %+v", r.Layer.Name, o)
			}
		}
	}
}

// The network's predictions follow what Table 1 says where bandwidth is all, and
// what the product adds.
func TestNetwork(t *testing.T) {
	s := selection.Default()
	predict := func(nodes, ppn, k int, product time.Duration, scheme Scheme) Prediction {
		layers := []Layer{fc("fc", 4096, 4096)}
		ranks := nodes * ppn
		b, err := New(Config{Nodes: spec.NodesOf(nodes, ppn), Workers: Places{All: true}, Servers: Places{All: true}, Batch: slices.Repeat([]int{k}, ranks), Layers: layers})
		if err != nil {
			t.Fatal(err)
		}
		n := Network{Book: b, Selector: s, Product: func(*Layer) time.Duration { return product }}
		p, err := n.Predict(&b.Layers[0], scheme)
		if err != nil || p.Spec == "" {
			t.Fatal(p, err)
		}
		return p
	}
	wire := func(scheme Scheme) float64 { // one way
		b := book(t, 8, 32, fc("fc", 4096, 4096))
		values, _ := b.Values(&b.Layers[0], scheme)
		return values / 2 * 4 / s.Model.Inter.Bandwidth
	}
	for _, scheme := range []Scheme{PS, SFB, Allreduce, OneBit} {
		if got, want := predict(8, 1, 32, 0, scheme).Time.Seconds(), wire(scheme); got < want || got > 1.25*want+1e-3 {
			t.Errorf("%v: %v s, %v on the wire", scheme, got, want)
		}
	}
	alone := s.Model
	s.Model.Carry, s.Model.Cores, s.Model.Hosted = 1e9, 2, 8 // all eight nodes share a machine, which carries no more than 125 MB/s to each and from it
	for _, scheme := range []Scheme{PS, SFB, OneBit} {
		want := wire(scheme) * s.Model.Inter.Bandwidth / 125e6
		if got := predict(8, 1, 32, 0, scheme).Time.Seconds(); got < want || got > 1.25*want+1e-3 {
			t.Errorf("%v: %v s, of which two cores need %v for all nodes' bytes", scheme, got, want)
		}
	}
	s.Model = alone
	if plain, more := predict(8, 1, 32, 0, SFB).Time, predict(8, 1, 32, time.Second, SFB).Time; more != plain+time.Second {
		t.Errorf("sfb %v, with a second of products %v", plain, more)
	}
	if small, large := predict(4, 2, 1, 0, SFB), predict(4, 2, 4096, 0, SFB); small.Spec != "linear" || large.Spec != "ring" {
		t.Errorf("factors over nodes of two ranks: %v and %v", small, large)
	}
	if p := predict(4, 2, 32, 0, PS); p.Spec != "linear/linear" {
		t.Errorf("servers on nodes of two ranks: %v", p)
	}
	if one, two := predict(1, 4, 32, 0, PS), predict(1, 8, 32, 0, PS); one.Time <= 0 || two.Time <= one.Time {
		t.Errorf("servers on one node: %v and %v", one, two)
	}
	if p := predict(8, 1, 32, 0, Reduce); p.Time <= predict(8, 1, 32, 0, Allreduce).Time || p.Spec == "" {
		t.Errorf("reduce: %v", p)
	}
	if p := predict(8, 1, 32, 0, Adam); p.Time.Seconds() < 7*4*4096*4096/s.Model.Inter.Bandwidth {
		t.Errorf("adam: %v", p)
	}
	layers := []Layer{fc("fc", 4096, 4096)} // of 7 workers, whose server only serves
	b, err := New(Config{Nodes: spec.NodesOf(8, 1), Workers: Places{Ranks: []int{1, 2, 3, 4, 5, 6, 7}}, Servers: Places{Ranks: []int{0}}, Batch: slices.Repeat([]int{32}, 8), Layers: layers})
	if err != nil {
		t.Fatal(err)
	}
	n := Network{Book: b, Selector: s}
	if p, err := n.Predict(&b.Layers[0], Adam); err != nil || p.Time != predict(8, 1, 32, 0, Adam).Time {
		t.Errorf("adam with a server apart: %v, %v", p, err)
	}
}

// Collectives are predicted, and chosen from, as they are asked to be done; the servers keep
// their own way.
func TestNetworkAsAsked(t *testing.T) {
	for _, c := range []struct {
		asked, reduce, allreduce, sfb string // "" where the scheme cannot be had so
		library                       bool
	}{
		{asked: "chain:4/binomial", reduce: "chain:4/binomial", allreduce: "chain:4/binomial", sfb: "chain:4/binomial"},
		{asked: "ring", allreduce: "ring", sfb: "ring"},
		{asked: "mpi"},
		{asked: "mpi", reduce: "mpi", allreduce: "mpi", sfb: "mpi", library: true},
	} {
		b := book(t, 8, 32, fc("fc", 512, 512))
		asked, err := spec.Parse(c.asked)
		if err != nil {
			t.Fatal(err)
		}
		n := Network{Book: b, Selector: selection.Default(), Spec: asked, Library: c.library}
		audit, err := b.Choose(Asked{}, n.Predict)
		if err != nil {
			t.Fatal(err)
		}
		row := &audit.Rows[0]
		for s, want := range map[Scheme]string{Reduce: c.reduce, Allreduce: c.allreduce, SFB: c.sfb, PS: "linear"} {
			o := row.Of(s)
			if o.Serves != (want != "") || o.Spec != want || o.Serves != (o.Time > 0) {
				t.Errorf("%s: %v: %+v, want %q", c.asked, s, o, want)
			}
			noted := slices.ContainsFunc(audit.Notes, func(line string) bool {
				return strings.HasPrefix(line, "# "+s.String()+" cannot be had: ") && strings.Contains(line, "spec "+c.asked)
			})
			if noted != (want == "") {
				t.Errorf("%s: %v: notes %q", c.asked, s, audit.Notes)
			}
		}
		if o := row.Of(row.Choice); !o.Serves {
			t.Errorf("%s: %v was chosen", c.asked, row.Choice)
		}
	}
	b := book(t, 8, 32, fc("fc", 512, 512))
	n := Network{Book: b, Selector: selection.Default(), Spec: spec.Spec{Levels: []spec.Level{{Algorithm: "linear"}}}}
	p, err := n.Predict(&b.Layers[0], Reduce)
	if want := selection.Predict(schedule.Reduce, 4*512*512, n.Spec, n.Layout(), n.Selector.Model, selection.Registered) +
		selection.Predict(schedule.Bcast, 4*512*512, n.Spec, n.Layout(), n.Selector.Model, selection.Registered); err != nil || math.Abs(p.Time.Seconds()-want) > 1e-8 {
		t.Errorf("reduce by linear: %v, want %v s: %v", p, want, err)
	}
}

// What a server's pairs are is what it is predicted by: one that has all of a layer receives it from all others, and
// sends it to them.
func TestNetworkOfUnevenShares(t *testing.T) {
	for _, c := range []struct{ rows, most int }{ // 4096 bytes a row, pairs of 2 MiB
		{512, 512}, {513, 512}, {4 * 512, 512}, {5 * 512, 2 * 512}, {8 * 512, 2 * 512},
	} {
		b := book(t, 4, 32, fc("fc", c.rows, 1024))
		n := Network{Book: b, Selector: selection.Default()}
		p, err := n.Predict(&b.Layers[0], PS)
		if err != nil {
			t.Fatal(err)
		}
		if want := 2 * 3 * 4096 * float64(c.most) / n.Selector.Model.Inter.Bandwidth; p.Time.Seconds() < want || p.Time.Seconds() > 1.1*want {
			t.Errorf("%d rows: %v, on the wire %v s", c.rows, p.Time, want)
		}
	}
}

// A bucket is predicted as one layer of all its parameters, with the specs that serve it; one
// that goes by factors, layer by layer.
func TestNetworkOfBuckets(t *testing.T) {
	b := book(t, 8, 32, Layer{Name: "conv", Type: "Convolution", Params: []Range{{Len: 500}, {Off: 512, Len: 100}}},
		fcAt("fc6", 1024, 512, 400), fcAt("fc7", 1024+512*400, 300, 512))
	n := Network{Book: b, Selector: selection.Default()}
	layers := []*Layer{&b.Layers[1], &b.Layers[2]}
	all := Layer{Params: []Range{{Len: 512*400 + 300*512}}}
	for _, s := range Schemes() {
		got, err := n.Bucket(layers, s, nil)
		if err != nil {
			t.Fatal(err)
		}
		values, want := 0.0, time.Duration(0)
		for _, l := range map[bool][]*Layer{true: layers, false: {&all}}[s.FactorsOnly()] {
			p, err := n.Predict(l, s)
			v, _ := b.Values(l, s)
			if values, want = values+v, want+p.Time; err != nil || want == 0 {
				t.Fatal(err)
			}
		}
		if got.Bytes != 4*values || got.Time != want || got.Scheme != s || got.Spec == "" {
			t.Errorf("%v: %+v, want %v values, %v", s, got, values, want)
		}
	}
	chain, err := spec.Parse("chain,chunk=64K")
	if err != nil {
		t.Fatal(err)
	}
	linear, err := spec.Parse("linear")
	if err != nil {
		t.Fatal(err)
	}
	got, err := n.Bucket(layers, Reduce, []spec.Spec{chain, linear})
	down := selection.Predict(schedule.Reduce, 4*all.Elements(), chain, n.Layout(), n.Selector.Model, selection.Registered)
	up := selection.Predict(schedule.Bcast, 4*all.Elements(), linear, n.Layout(), n.Selector.Model, selection.Registered)
	if err != nil || got.Spec != chain.String()+", linear" || got.Time != seconds(down)+seconds(up) {
		t.Errorf("by chain and linear: %+v, %v", got, err)
	}
	if _, err := n.Bucket([]*Layer{&b.Layers[0]}, SFB, nil); err == nil || !strings.Contains(err.Error(), "sfb: only InnerProduct layers") {
		t.Errorf("factors of a convolution: %v", err)
	}
}

// fcAt is an inner product whose weights begin at an element.
func fcAt(name string, off, rows, cols int) Layer {
	return Layer{Name: name, Type: FC, Rows: rows, Cols: cols, Params: []Range{{Off: off, Len: rows * cols}}}
}

// The audit in all formats; JSON has the whole book.
func TestAuditIsWritten(t *testing.T) {
	audit, err := book(t, 4, 8, vgg()...).Choose(Asked{Default: Poseidon}, predicted(map[Scheme]int{SFB: 3}))
	if err != nil {
		t.Fatal(err)
	}
	out := map[report.Format]string{}
	for _, f := range []report.Format{report.Text, report.CSV, report.JSON} {
		var b bytes.Buffer
		if err := audit.Write(&b, f); err != nil {
			t.Fatal(err)
		}
		out[f] = b.String()
	}
	for _, want := range []string{"512x1024", "Algorithm 1: 2K(P1−1)(M+N) = 73728 ≤ 1.573 M", "# poseidon: ", "ms alone"} {
		if !strings.Contains(out[report.Text], want) {
			t.Errorf("no %q in\n%s", want, out[report.Text])
		}
	}
	if lines := strings.Split(out[report.CSV], "\n"); len(lines) != 6 || !strings.HasPrefix(lines[0], "scheme,n_worker,n_server,n_node,batchsize,pair_bytes,layer,type,shape,parameters,reduce_bytes,reduce_ms") {
		t.Errorf("csv: %q", lines)
	}
	var doc struct {
		Scheme  string
		Batch   []int
		Servers []int
		Rows    []map[string]any
		Layers  []struct{ Elements []int }
		Pairs   []struct{ Offset, Elements, Server int }
	}
	if err := json.Unmarshal([]byte(out[report.JSON]), &doc); err != nil {
		t.Fatal(err)
	}
	if doc.Scheme != "poseidon" || len(doc.Batch) != 4 || len(doc.Servers) != 4 || len(doc.Rows) != 4 || doc.Rows[1]["choice"] != "sfb" ||
		doc.Rows[0]["sfb_bytes"] != nil || doc.Layers[1].Elements[1] != 512 || len(doc.Pairs) != 3 {
		t.Errorf("%s", out[report.JSON])
	}
}

// The lines of a log are those of the text: a row a layer says what each scheme costs, what
// was chosen, what else could have been, and why.
func TestAuditText(t *testing.T) {
	audit, err := book(t, 8, 32, fc("fc7", 4096, 4096), Layer{Name: "conv1", Type: "Convolution", Params: []Range{{Off: 1 << 24, Len: 500}}}).
		Choose(Asked{Default: Poseidon}, predicted(map[Scheme]int{SFB: 3, PS: 5, Reduce: 6, Allreduce: 7}))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := audit.Write(&b, report.Text); err != nil {
		t.Fatal(err)
	}
	lines := audit.Text()
	if got := strings.Join(lines, "\n") + "\n"; got != b.String() {
		t.Errorf("%s\nwant\n%s", got, &b)
	}
	for i, want := range map[int]string{
		2: "fc7 4096x4096 16777216 268.4 6.000 234.9 7.000 234.9 5.000 14.68 3.000 sfb spec ps Algorithm 1: 2K(P1−1)(M+N) = 3.67 M ≤ 58.72 M = 2MN(P1+P2−2)/P2",
		3: "conv1 - 500 0.008 6.000 0.007 7.000 0.007 5.000 - - ps spec reduce Algorithm 1: only InnerProduct layers have sufficient factors",
	} {
		if got := strings.Join(strings.Fields(lines[i]), " "); got != want {
			t.Errorf("line %d is %q, want %q", i, got, want)
		}
	}
}

// Phases add up to what a bucket takes, and no port is busy for longer.
func TestPhases(t *testing.T) {
	for _, nodes := range [][]int{{0}, {0, 0, 0}, {0, 1, 2, 3}, {0, 0, 1, 1}} {
		b, err := New(Config{Nodes: nodes, Workers: Places{All: true}, Servers: Places{All: true}, Batch: slices.Repeat([]int{8}, len(nodes)), Layers: vgg()[:2], Pair: 64 << 10})
		if err != nil {
			t.Fatal(err)
		}
		product := 5 * time.Millisecond
		n := Network{Book: b, Selector: selection.Default(), Product: func(*Layer) time.Duration { return product }}
		fc := []*Layer{&b.Layers[1]}
		for _, s := range []Scheme{Reduce, Allreduce, PS, SFB, Adam, OneBit, DGC} {
			p, err := n.Phases(fc, s)
			if err != nil {
				t.Fatal(err)
			}
			whole, err := n.Bucket(fc, s, nil)
			if err != nil {
				t.Fatal(err)
			}
			if len(nodes) > 1 && (s == SFB || s == Adam) {
				whole.Time -= product
			}
			if got := p.Push + p.Pull; got != whole.Time || (got > 0) != (len(nodes) > 1) {
				t.Errorf("%v on %v: %+v, want %v", s, nodes, p, whole.Time)
			}
			if p.PushPort > p.Push || p.PullPort > p.Pull || p.PushPort < 0 || p.Pull < 0 {
				t.Errorf("%v on %v: %+v", s, nodes, p)
			}
			if served := p.Pull > 0; len(nodes) > 1 && served == s.Replicated() {
				t.Errorf("%v on %v: %+v", s, nodes, p)
			}
		}
	}
}

// A whole buffer passes the busiest port in every round of recursive doubling and of a tree, once each way in a chain, that of a node in its middle, and parts
// of it in a ring.
func TestPhasesKeepThePortBusy(t *testing.T) {
	nodes := 8
	b := book(t, nodes, 8, fc("fc", 4096, 4096))
	for _, c := range []struct {
		algorithm string
		scheme    Scheme
		want      float64 // buffers
	}{
		{"doubling", Allreduce, 3},
		{"ring", Allreduce, 2 * 7. / 8},
		{"binomial", Allreduce, 3},
		{"binomial", Reduce, 2 * 3},
		{"chain", Reduce, 2},
		{"linear", Reduce, 2 * 7},
	} {
		n := Network{Book: b, Selector: selection.Default(), Spec: spec.Spec{Levels: []spec.Level{{Algorithm: c.algorithm}}}}
		p, err := n.Phases([]*Layer{&b.Layers[0]}, c.scheme)
		if err != nil {
			t.Fatal(err)
		}
		got := (p.PushPort + p.PullPort).Seconds() * n.Selector.Model.Inter.Bandwidth / (4 * 4096 * 4096)
		if math.Abs(got-c.want) > 1e-3 {
			t.Errorf("%v by %s over %d nodes: %v times the buffer, want %v", c.scheme, c.algorithm, nodes, got, c.want)
		}
	}
}

// Gradients pass the ports of workers one way, and of servers that do not work the other: a worker's once, and a server's as often as there
// are workers for each.
func TestPhasesOfServersApart(t *testing.T) {
	for servers, want := range map[int]float64{4: 1, 2: 2} {
		c := Config{
			Layers: []Layer{fc("fc", 4096, 4096)}, Nodes: spec.NodesOf(4+servers, 1), Batch: make([]int, 4+servers),
			Workers: Places{Ranks: []int{0, 1, 2, 3}}, Servers: Places{Ranks: []int{4, 5, 6, 7}[:servers]},
		}
		b, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		n := Network{Book: b, Selector: selection.Default()}
		p, err := n.Phases([]*Layer{&b.Layers[0]}, PS)
		if got := p.PushPort.Seconds() * n.Selector.Model.Inter.Bandwidth / (4 * 4096 * 4096); err != nil || !p.OneWay || p.PullPort != p.PushPort || math.Abs(got-want) > 1e-3 {
			t.Errorf("%d servers: %+v, %v buffers, want %v (%v)", servers, p, got, want, err)
		}
	}
	beside := Network{Book: book(t, 8, 8, fc("fc", 4096, 4096)), Selector: selection.Default()}
	if p, err := beside.Phases([]*Layer{&beside.Book.Layers[0]}, PS); err != nil || p.OneWay {
		t.Errorf("servers that work: %+v, %v", p, err)
	}
}

// What is forgotten changes no prediction.
func TestForget(t *testing.T) {
	b, err := New(Config{
		Layers: []Layer{{Name: "fc", Type: "InnerProduct", Params: []Range{{Len: 3 << 20}}}}, Nodes: spec.NodesOf(4, 1),
		Workers: Places{All: true}, Servers: Places{All: true}, Batch: []int{32, 32, 32, 32},
	})
	if err != nil {
		t.Fatal(err)
	}
	n := Network{Book: b, Selector: selection.Default()}
	var took []time.Duration
	for range 2 {
		by, err := n.Collective(schedule.Reduce, 6<<20, spec.Spec{Levels: []spec.Level{{Algorithm: "chain", Chunk: 128 << 10}}})
		if err != nil {
			t.Fatal(err)
		}
		took = append(took, by)
		if n.batch == nil {
			t.Error("nothing is kept")
		}
		if n.Forget(); n.batch != nil {
			t.Error("schedules are kept")
		}
	}
	if took[0] != took[1] {
		t.Errorf("predicted: %v, and %v after that was forgotten", took[0], took[1])
	}
}

// What one network has found, another that shares it has not to find again, and predicts the same.
func TestShare(t *testing.T) {
	b, err := New(Config{
		Layers: []Layer{{Name: "conv", Type: "Convolution", Params: []Range{{Len: 5000}}}, {Name: "fc", Type: "InnerProduct", Params: []Range{{Off: 5000, Len: 3 << 20}}}}, Nodes: spec.NodesOf(4, 1),
		Workers: Places{All: true}, Servers: Places{All: true}, Batch: []int{32, 32, 32, 32},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := selection.Default()
	predict := func(n *Network) (times []time.Duration) {
		do, take := n.Ahead(3, []int{1 << 20})
		for _, part := range do {
			part()
		}
		take()
		for i := range b.Layers {
			p, err := n.Predict(&b.Layers[i], Reduce)
			if err != nil {
				t.Fatal(err)
			}
			times = append(times, p.Time)
		}
		return times
	}
	first, second, alone := Network{Book: b, Selector: s}, Network{Book: b, Selector: s}, Network{Book: b, Selector: s}
	second.Share(&first)
	want := predict(&alone)
	if got := predict(&second); !slices.Equal(got, want) {
		t.Errorf("predicted %v, alone %v", got, want)
	}
	if do, _ := first.Ahead(3, []int{1 << 20}); len(do) != 0 {
		t.Errorf("%d parts are left to find", len(do))
	}
	if got := predict(&first); !slices.Equal(got, want) {
		t.Errorf("predicted %v, alone %v", got, want)
	}
}
