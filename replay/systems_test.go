package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/internal/stats"
	"github.com/scaffe/scaffe/syncer/coordinator"
)

// All systems bring every gradient and every parameter, in turns on the same buffers.
func TestSystemsCheck(t *testing.T) {
	for _, ranks := range []int{1, 3} {
		res, err := replayed(t, ranks, Config{
			Profile: parsed(t, connected), Systems: systems, Bucket: 2000, Iterations: 3, Warmup: 1, Turn: 2, Check: true, Jitter: 0.5, Straggler: Straggler{0, 2},
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(res.Rows) != len(systems) || !res.Systems || res.Chosen != "" || res.Buckets != 0 {
			t.Errorf("%+v", res)
		}
		for i, r := range res.Rows {
			if r.System != systems[i].Name || r.Design != systems[i].Design.String() || r.Iterations != 3 || len(r.NodeBytes) != 1 || (r.NodeBytes[0] > 0) != (ranks > 1) {
				t.Errorf("%d ranks: %+v", ranks, r)
			}
			// Two iterations and one, in turns with the others'.
			if len(r.Turns) != 2 || !r.Turns[0].Begin.Before(r.Turns[0].End) || r.Turns[1].Begin.Before(r.Turns[0].End) {
				t.Errorf("%+v", r.Turns)
			}
			for _, other := range res.Rows[:i] {
				if a, b := r.Turns[0], other.Turns[0]; a.Begin.Before(b.End) && b.Begin.Before(a.End) {
					t.Errorf("%s and %s ran together: %v and %v", r.System, other.System, a, b)
				}
			}
		}
		var b bytes.Buffer
		var doc struct {
			Rows []struct {
				Turns []string `json:"turns_unix_ms"`
			}
		}
		if err := res.Write(&b, report.JSON); err != nil || json.Unmarshal(b.Bytes(), &doc) != nil {
			t.Fatal(err, b.String())
		}
		span := res.Rows[0].Turns[1]
		if want := fmt.Sprintf("%.3f-%.3f", float64(span.Begin.UnixMicro())/1e3, float64(span.End.UnixMicro())/1e3); len(doc.Rows[0].Turns) != 2 || doc.Rows[0].Turns[1] != want {
			t.Errorf("%v, want %s", doc.Rows[0].Turns, want)
		}
	}
}

// TestPoseidon_SystemsOfSection5: what each of the paper's systems is, in the values that it moves by
// Table 1 and in what its row says.
func TestPoseidon_SystemsOfSection5(t *testing.T) {
	const ranks, k = 4, 3
	p := parsed(t, fmt.Sprintf("batch %d\nlayer conv Convolution 0.1 0.1 4096\nlayer fc InnerProduct 0.1 0.2 64x128", k))
	some, err := ParseSystems("poseidon, caffe+wfbp,Caffe+PS,tensorflow,adam,auto")
	if err != nil {
		t.Fatal(err)
	}
	res, err := replayed(t, ranks, Config{Profile: p, Systems: some, Iterations: 1, Bucket: 1, Pair: 4 * coordinator.Cut, Ratio: 2})
	if err != nil {
		t.Fatal(err)
	}
	ps := coordinator.PSCost(4096+64*128, ranks, ranks).Both
	factors := coordinator.PSCost(4096, ranks, ranks).Both + coordinator.SFBCost(64, 128, k, ranks).Both
	server := coordinator.AdamCost(64*128, 64, 128, k, ranks) // of one rank, the others only work
	adam := coordinator.PSCost(4096, ranks, ranks).Both + (server.Both+(ranks-1)*server.Worker)/ranks
	for i, want := range []struct {
		schemes string
		values  float64
	}{{"ps,fc=sfb", factors}, {"ps", ps}, {"ps", ps}, {"ps", ps}, {"ps,fc=adam", adam}, {res.Rows[5].Schemes, res.Rows[5].NodeBytes[0] / 4 / ranks}} {
		r := res.Rows[i]
		if r.System != some[i].Name || r.Schemes != want.schemes || r.NodeBytes[0] != 4*ranks*want.values {
			t.Errorf("%+v, want %+v", r, want)
		}
		if products := r.Products > 0; products != (strings.Contains(r.Schemes, "sfb") || r.System == "adam") {
			t.Errorf("%+v", r)
		}
	}
	// One scale for all, that of ps.
	if ratio := res.Communication.Median / res.Compute; ratio < 1.999 || ratio > 2.001 {
		t.Errorf("ps takes %v of the computation", ratio)
	}
	var b bytes.Buffer
	var doc struct {
		Aggregate *string
		Target    *float64 `json:"target_ms"`
		Rows      []struct {
			System, Schemes string
			Bytes           []string `json:"node_bytes"`
			Met             *bool    `json:"target_met"`
			Stall, Speedup  *float64
		}
	}
	if err := res.Write(&b, report.JSON); err != nil || json.Unmarshal(b.Bytes(), &doc) != nil || len(doc.Rows) != len(some) ||
		doc.Aggregate != nil || doc.Target != nil || doc.Rows[0].Met != nil || doc.Rows[0].Stall == nil || doc.Rows[0].Speedup == nil ||
		!slices.Equal(doc.Rows[1].Bytes, []string{fmt.Sprintf("%.0f", 4*ranks*ps)}) {
		t.Errorf("%v\n%s", err, &b)
	}
	b.Reset()
	if err := res.Write(&b, report.Text); err != nil || !strings.Contains(b.String(), "\n# poseidon: WFBP, ps,fc=sfb\n") || strings.Contains(b.String(), "target") {
		t.Errorf("%v\n%s", err, &b)
	}
	if _, err := ParseSystems("poseidon,mxnet"); err == nil || !strings.Contains(err.Error(), `unknown system "mxnet": want caffe+ps, caffe+wfbp, poseidon, tensorflow, adam, cntk, kvstore, kvstore+slices, p3, dgc, auto,`) {
		t.Error(err)
	}
	if all, err := ParseSystems("all"); err != nil || len(all) != len(Systems()) {
		t.Error(all, err)
	}
	// A lone rank has nobody to move anything to.
	res, err = replayed(t, 1, Config{Profile: p, Systems: some[:1], Iterations: 1, Bucket: 1})
	if err != nil || res.Rows[0].NodeBytes[0] != 0 || res.Rows[0].Design != exchange.WFBP.String() {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestP3_SystemsOfSection5: what P3 is compared with, in where parameters lie and in what and when they move. KVStore
// divides parameters of a million elements and more evenly and draws the server of others (section 4.1), sends what comes first, and
// answers whoever asks (4.2); with slices, the servers take these in turn and broadcast them at once; P3 has priorities and credit besides. None
// joins layers.
func TestP3_SystemsOfSection5(t *testing.T) {
	all, err := ParseSystems("kvstore,kvstore+slices,p3")
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		place     coordinator.Placement
		pull      coordinator.Pull
		slice     coordinator.Slice
		credit    int
		firstCome bool
	}
	of := func(s System, c Config) (r row) {
		r.place, r.pull, r.slice, r.credit, r.firstCome = s.moves(&c, 4, 4)
		return r
	}
	for i, want := range [][3]row{
		{{coordinator.PlaceKVStore, coordinator.PullRequest, 0, 0, true}, {coordinator.PlaceKVStore, coordinator.PullRequest, 0, 0, true}, {coordinator.PlaceKVStore, coordinator.PullRequest, 0, 0, true}},
		{{coordinator.PlaceRoundRobin, coordinator.PullBroadcast, 50_000, 0, true}, {coordinator.PlaceRoundRobin, coordinator.PullBroadcast, 5000, 0, true}, {coordinator.PlaceRoundRobin, coordinator.PullBroadcast, 2000, 0, true}},
		{{coordinator.PlaceRoundRobin, coordinator.PullBroadcast, 50_000, 3, false}, {coordinator.PlaceRoundRobin, coordinator.PullBroadcast, 5000, 4, false}, {coordinator.PlaceRoundRobin, coordinator.PullBroadcast, 2000, 0, false}},
	} {
		s := all[i]
		got := [3]row{of(s, Config{}), of(s, Config{Slice: 5000, Credit: 4}), of(s, Config{SystemSlice: 2000, Credit: coordinator.NoCredit, Placement: coordinator.PlaceTensor})}
		if got != want || !s.ByLayer || s.Design != exchange.SCOBR || s.Scheme != exchange.PS {
			t.Errorf("%s: %+v, want %+v", s.Name, got, want)
		}
	}
	// What KVStore moves more is notices and questions.
	const ranks = 3
	p := parsed(t, "batch 3\nlayer conv Convolution 0.1 0.1 4096\nlayer fc InnerProduct 0.1 0.2 64x128")
	res, err := replayed(t, ranks, Config{Profile: p, Systems: all, Iterations: 2, Check: true, SystemSlice: 2048})
	if err != nil {
		t.Fatal(err)
	}
	least := 4 * ranks * coordinator.PSCost(4096+64*128, ranks, ranks).Both
	for _, r := range res.Rows {
		if more := r.NodeBytes[0] - least; r.Schemes != "ps" || r.System == "kvstore" && (more <= 0 || more > 1e3) || r.System != "kvstore" && more != 0 {
			t.Errorf("%+v moves %v bytes more than %v", r, more, least)
		}
	}
}

// TestSystemsOverTheFirst: a ratio to the first system is of pairs of turns, so that what slows all of a turn down alike does not count; its
// interval is there with six turns, and in every format.
func TestSystemsOverTheFirst(t *testing.T) {
	some, err := ParseSystems("reduce,allreduce")
	if err != nil {
		t.Fatal(err)
	}
	for _, turns := range []int{5, 6} {
		res, err := replayed(t, 2, Config{Profile: parsed(t, connected), Systems: some, Iterations: 2 * turns, Turn: 2})
		if err != nil {
			t.Fatal(err)
		}
		if first := res.Rows[0].OverFirst; first != (stats.Interval{Median: 1, Low: 1, High: 1, Certain: turns == 6}) {
			t.Errorf("%d turns: the first system over itself: %+v", turns, first)
		}
		if o := res.Rows[1].OverFirst; o.Low <= 0 || o.Low > o.Median || o.Median > o.High || o.Certain != (turns == 6) {
			t.Errorf("%d turns: %+v", turns, o)
		}
	}
	first, other := &way{turns: []float64{100, 200, 50, 100, 1000, 400}}, &way{turns: []float64{101, 202, 50.5, 102, 1020, 396}}
	want := stats.Interval{Median: 1.01, Low: 0.99, High: 1.02, Certain: true}
	if got := other.over(first); math.Abs(got.Median-want.Median)+math.Abs(got.Low-want.Low)+math.Abs(got.High-want.High) > 1e-9 || !got.Certain {
		t.Errorf("%+v, want %+v", got, want)
	}
	res := &Result{Systems: true, Rows: []Row{{System: "reduce", Iterations: 12, OverFirst: want}, {System: "reduce", Predicted: 1}}}
	var text, doc bytes.Buffer
	if err := errors.Join(res.Write(&text, report.Text), res.Write(&doc, report.JSON)); err != nil || !strings.Contains(text.String(), "1.010  0.990-1.020") {
		t.Errorf("%v\n%s", err, &text)
	}
	var all struct {
		Rows []struct {
			Over *float64 `json:"over_first"`
			Low  *float64 `json:"over_first_low"`
			High *float64 `json:"over_first_high"`
		}
	}
	if err := json.Unmarshal(doc.Bytes(), &all); err != nil || len(all.Rows) != 2 || *all.Rows[0].Over != 1.01 || *all.Rows[0].Low != 0.99 || *all.Rows[0].High != 1.02 || all.Rows[1].Over != nil || all.Rows[1].Low != nil {
		t.Errorf("%v\n%s", err, &doc)
	}
}

// Systems are predicted where they run and on other numbers of nodes, whose rows say so.
func TestSystemsPredicted(t *testing.T) {
	if testing.Short() {
		t.Skip("what is predicted is computed by one goroutine")
	}
	p := parsed(t, connected)
	res, err := replayed(t, 2, Config{Profile: p, Systems: systems, Bucket: 2000, Iterations: 1, Predict: []int{1, 4}})
	if err != nil || len(res.Rows) != 3*len(systems) {
		t.Fatal(res, err)
	}
	for i, r := range res.Rows {
		if nodes := []int{1, 1, 4}[i/len(systems)]; r.System != systems[i%len(systems)].Name || r.Nodes != nodes || r.Ranks != 2*nodes || (r.Iterations > 0) != (i < len(systems)) {
			t.Errorf("%d: %+v", i, r)
		}
		if r.Predicted < 0.7*res.Compute || (r.Iterations == 0 && r.Stall != max(0, 1-res.Compute/r.Predicted)) || r.Schemes == "" {
			t.Errorf("%d: %+v", i, r)
		}
		if here := res.Rows[i%len(systems)]; i/len(systems) == 1 && r.Predicted != here.Predicted { // as many ranks
			t.Errorf("%+v, want %+v", r, here)
		}
	}
	var b bytes.Buffer
	var doc struct {
		Rows []struct {
			Nodes     int      `json:"row_nodes"`
			Iteration *float64 `json:"iteration_ms"`
			Predicted *float64 `json:"predicted_ms"`
			Bytes     *float64 `json:"node_bytes_most"`
		}
	}
	if err := res.Write(&b, report.JSON); err != nil || json.Unmarshal(b.Bytes(), &doc) != nil || len(doc.Rows) != len(res.Rows) {
		t.Fatal(err, b.String())
	}
	if r := doc.Rows[0]; r.Nodes != 1 || r.Iteration == nil || r.Predicted == nil || r.Bytes == nil {
		t.Errorf("%+v", r)
	}
	if r := doc.Rows[len(doc.Rows)-1]; r.Nodes != 4 || r.Iteration != nil || r.Predicted == nil || r.Bytes != nil {
		t.Errorf("%+v", r)
	}
	b.Reset()
	if err := res.Write(&b, report.Text); err != nil || !strings.Contains(b.String(), "predicted: by the cost model") {
		t.Error(err, b.String())
	}
	for i, where := range []string{"", " predicted on 1 nodes", " predicted on 4 nodes"} {
		r := res.Rows[i*len(systems)]
		if line := fmt.Sprintf("\n# %s%s: %s, %s\n", r.System, where, r.Design, r.Schemes); strings.Count(b.String(), line) != 1 {
			t.Errorf("%s\nnot once: %s", b.String(), line)
		}
	}
	if _, err := replayed(t, 2, Config{Profile: p, Designs: []exchange.Design{exchange.SCB}, Iterations: 1, Predict: []int{4}}); err == nil || !strings.Contains(err.Error(), "can be predicted for systems only") {
		t.Error(err)
	}
}
