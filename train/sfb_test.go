package train_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/syncer/coordinator"
	"github.com/scaffe/scaffe/train"
)

// fullyConnected puts inner products of all kinds into the test's net, and what more says
// into its solver.
func fullyConnected(t *testing.T, path, dir, more string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "net.prototxt"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "net.prototxt"), strings.Replace(string(text), `layer { name: "ip1" type: "InnerProduct" bottom: "pool1"`,
		`layer { name: "rows" type: "InnerProduct" bottom: "pool1" top: "rows" inner_product_param { axis: 2 num_output: 4 weight_filler { type: "xavier" } } }
layer { name: "turned" type: "InnerProduct" bottom: "rows" top: "turned" param { lr_mult: 1 } param { lr_mult: 0 } inner_product_param { transpose: true num_output: 30 weight_filler { type: "xavier" } } }
layer { name: "relu2" type: "ReLU" bottom: "turned" top: "turned" }
layer { name: "ip0" type: "InnerProduct" bottom: "turned" top: "ip0" inner_product_param { num_output: 20 bias_term: false weight_filler { type: "xavier" } } }
layer { name: "relu3" type: "ReLU" bottom: "ip0" top: "ip0" }
layer { name: "ip1" type: "InnerProduct" bottom: "ip0"`, 1))
	if text, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	write(t, path, strings.Replace(string(text), "max_iter: 50", "max_iter: 30", 1)+more)
}

// ask returns what --scheme asks for.
func ask(t testing.TB, text string) *coordinator.Asked {
	t.Helper()
	a, err := coordinator.ParseAsked(text)
	if err != nil {
		t.Fatal(err)
	}
	return &a
}

// TestPoseidon_FactorsTrainAsReductions: fully connected layers that go by sufficient
// factors (section 3.2), of any axis, stored either way, with a bias, with one that does not
// learn, without one, learn what one rank learns, from unequal parts of a batch, in several
// passes, with clipped gradients. All designs write the same bits, and so do two runs.
func TestPoseidon_FactorsTrainAsReductions(t *testing.T) {
	for _, more := range []string{"", "iter_size: 2", "clip_gradients: 0.5"} {
		path, dir := files(t, 30)
		fullyConnected(t, path, dir, more)
		one := mustRun(t, 1, path, nil)
		for _, text := range []string{"sfb", "reduce,ip*=sfb", "allreduce,rows=sfb,turned=sfb"} {
			var first curve
			designs := []exchange.Design{exchange.SCB, exchange.SCOBR, exchange.SCOBR}
			if text == "sfb" {
				designs = append(exchange.All(), exchange.WFBP, exchange.SCOBR)
			}
			for i, d := range designs {
				c := mustRun(t, 4, path, func(_ int, c *train.Config) { c.Design, c.Asked, c.Bucket = d, ask(t, text), 1 })
				if i == 0 {
					first = c
				}
				if !bytes.Equal(c.snapshot, first.snapshot) || !slices.Equal(c.loss, first.loss) || !slices.Equal(c.scores, first.scores) {
					t.Errorf("%q, %s: %v has other bits than SC-B", more, text, d)
				}
			}
			if err := near(one.loss, first.loss); err != nil {
				t.Errorf("%q, %s: loss: %v", more, text, err)
			}
			if err := near(one.scores, first.scores); err != nil {
				t.Errorf("%q, %s: scores: %v", more, text, err)
			}
			if text != "sfb" {
				continue
			}
			history := state(t, dir, 30)
			for _, servers := range []coordinator.Places{{}, {Ranks: []int{2, 3}}} { // the other schemes that serve factors
				c := mustRun(t, 4, path, func(_ int, c *train.Config) { c.Asked, c.Servers, c.Bucket = ask(t, "adam"), servers, 1 })
				if !bytes.Equal(c.snapshot, first.snapshot) || !slices.Equal(c.loss, first.loss) || !slices.Equal(c.scores, first.scores) || !bytes.Equal(state(t, dir, 30), history) {
					t.Errorf("%q: adam at servers %v has other bits than sfb", more, servers)
				}
			}
		}
	}
}

// chosen returns which scheme each layer of the test's net goes by.
func chosen(t *testing.T, ranks int, path string, c train.Config) (schemes string, audit *coordinator.Audit, err error) {
	t.Helper()
	err = launch.Run(context.Background(), launch.Options{Local: ranks}, func(ctx context.Context, comm *collectives.Comm) error {
		c := c
		var err error
		if c.Solver, err = proto.ReadSolver(path); err != nil {
			return err
		}
		w, err := train.New(ctx, comm, c)
		if err != nil {
			return err
		}
		defer w.Close()
		if comm.Rank() == 0 {
			for _, b := range w.Exchange().Buckets() {
				schemes += b.Name + "=" + b.Scheme.String() + " "
			}
			audit = w.Audit()
		}
		return comm.Barrier(ctx)
	})
	return strings.TrimSpace(schemes), audit, err
}

// What is asked for is what layers go by; what cannot be is one message on all ranks.
func TestSchemesAskedFor(t *testing.T) {
	path, dir := files(t, 30)
	fullyConnected(t, path, dir, "")
	for text, want := range map[string]string{
		"sfb":                   "conv1=ps rows=sfb turned=sfb ip0=sfb ip1=sfb",
		"adam,ip0=reduce":       "conv1=ps rows=adam turned=adam ip0=reduce ip1=adam",
		"ps,ip*=onebit":         "conv1=ps rows=ps turned=ps ip0=onebit ip1=onebit",
		"allreduce,ip*=sfb":     "conv1=allreduce rows=allreduce turned=allreduce ip0=sfb ip1=sfb",
		"reduce,ip1=sfb,*p1=ps": "conv1=reduce rows=reduce turned=reduce ip0=reduce ip1=ps",
	} {
		got, audit, err := chosen(t, 3, path, train.Config{Asked: ask(t, text), Bucket: 1})
		if err != nil || got != want || len(audit.Rows) != 5 {
			t.Errorf("%s: %s, %v, want %s", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"conv1=sfb":    `scheme conv1=sfb: layer "conv1" (Convolution) cannot: only InnerProduct layers have sufficient factors`,
		"fc6=sfb":      "scheme fc6=sfb: no layer with parameters has such a name; there are conv1, rows, turned, ip0, ip1",
		"conv1=onebit": `scheme conv1=onebit: layer "conv1" (Convolution) cannot: only InnerProduct layers have sufficient factors`,
		"conv1=adam":   `scheme conv1=adam: layer "conv1" (Convolution) cannot: only InnerProduct layers have sufficient factors`,
	} {
		if _, _, err := chosen(t, 3, path, train.Config{Asked: ask(t, text)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if got, _, err := chosen(t, 1, path, train.Config{Asked: ask(t, "sfb"), Bucket: 1}); err != nil || strings.Contains(got, "sfb") {
		t.Errorf("a lone rank moves %s (%v)", got, err)
	}
	// Weights that two layers share.
	text, err := os.ReadFile(filepath.Join(dir, "net.prototxt"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "net.prototxt"), strings.NewReplacer(`layer { name: "accuracy"`,
		`layer { name: "a" type: "InnerProduct" bottom: "ip1" top: "a" param { name: "w" } inner_product_param { num_output: 10 bias_term: false } }
layer { name: "b" type: "InnerProduct" bottom: "a" top: "b" param { name: "w" } inner_product_param { num_output: 10 bias_term: false } }
layer { name: "accuracy"`, `bottom: "ip1" bottom: "label" top: "loss"`, `bottom: "b" bottom: "label" top: "loss"`).Replace(string(text)))
	want := `layer "a" (InnerProduct) cannot: parameter "w" is shared with layer "b"`
	if _, _, err := chosen(t, 2, path, train.Config{Asked: ask(t, "a=sfb")}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

// The schemes that auto chooses from have the algorithm that is asked for, and those that it
// cannot serve are not chosen.
func TestAutoChoosesAmongWhatIsAskedFor(t *testing.T) {
	path, dir := files(t, 30)
	fullyConnected(t, path, dir, "")
	for algorithm, want := range map[string]string{"linear": "linear linear", "ring": " ring"} { // of reduce and of allreduce
		asked, err := spec.Parse(algorithm)
		if err != nil {
			t.Fatal(err)
		}
		_, audit, err := chosen(t, 3, path, train.Config{Asked: ask(t, "auto"), Spec: asked, Bucket: 1})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range audit.Rows {
			if got := r.Of(exchange.Reduce).Spec + " " + r.Of(exchange.Allreduce).Spec; got != want {
				t.Errorf("%s: layer %s: %q, want %q", algorithm, r.Layer.Name, got, want)
			}
		}
	}
}

// Factors that have more values than gradients, here those of many passes, are not weighed, nor tried, by auto.
func TestAutoLeavesFactorsThatOutweigh(t *testing.T) {
	for passes, outweigh := range map[int]bool{1: false, 1_000: true} {
		path, dir := files(t, 30)
		fullyConnected(t, path, dir, fmt.Sprintf("\niter_size: %d", passes))
		_, audit, err := chosen(t, 3, path, train.Config{Bucket: 1})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range audit.Rows {
			if r.Layer.Name != "turned" {
				continue
			}
			if refused := strings.Contains(r.Layer.Refuses, "more values than its gradients"); refused != outweigh || r.Of(exchange.SFB).Serves == outweigh {
				t.Errorf("%d passes: %+v", passes, r)
			}
		}
	}
}

// Factors that no memory could hold are refused by whoever asks for them, and not tried.
func TestFactorsThatFindNoMemory(t *testing.T) {
	path, dir := files(t, 30)
	fullyConnected(t, path, dir, "\niter_size: 1000000000")
	for _, scheme := range []string{"reduce,turned=sfb", "reduce,turned=adam"} {
		_, _, err := chosen(t, 3, path, train.Config{Asked: ask(t, scheme), Bucket: 1})
		if err == nil || !strings.Contains(err.Error(), "turned") || !strings.Contains(err.Error(), "its factors of 1000000000 passes have ") {
			t.Errorf("%s: %v", scheme, err)
		}
	}
	if _, audit, err := chosen(t, 3, path, train.Config{Bucket: 1}); err != nil || strings.Contains(audit.Chosen().String(), "sfb") {
		t.Errorf("auto: %v, %v", audit, err)
	}
}

// Algorithm 1: of a net that trains, as of a profile. K is the largest part of the batch.
func TestPoseidon_Algorithm1ChoosesForANet(t *testing.T) {
	path, dir := files(t, 30)
	fullyConnected(t, path, dir, "")
	_, audit, err := chosen(t, 4, path, train.Config{Asked: ask(t, "poseidon"), Bucket: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range audit.Rows {
		want := exchange.PS
		if l := r.Layer; l.Type == coordinator.FC {
			k := slices.Max(l.Factors)
			if coordinator.SFBCost(l.Rows, l.Cols, k, 4).Both <= coordinator.PSCost(l.Rows*l.Cols, 4, 4).Both {
				want = exchange.SFB
			}
		}
		if r.Choice != want {
			t.Errorf("layer %s, %s: %v, not %v", r.Layer.Name, r.Layer.Shape(), r.Choice, want)
		}
	}
	if k := fmt.Sprint(audit.Rows[4].Layer.Factors); k != "[7 8 7 8]" {
		t.Errorf("rows of the factors: %s", k)
	}
}

// A replica that differs is noticed at the next test or snapshot, and its layer named.
func TestPoseidon_ReplicasAreCompared(t *testing.T) {
	for _, text := range []string{"test_interval: 25", "test_interval: 1000"} { // a test at 25, or a snapshot at 20
		path, dir := files(t, 30)
		fullyConnected(t, path, dir, "")
		solver, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		write(t, path, strings.NewReplacer("test_interval: 25", text, "test_iter: 5", "test_iter: 5 test_initialization: false").Replace(string(solver)))
		err = launch.Run(context.Background(), launch.Options{Local: 3}, func(ctx context.Context, comm *collectives.Comm) error {
			c := train.Config{Asked: ask(t, "reduce,ip*=sfb")}
			var err error
			if c.Solver, err = proto.ReadSolver(path); err != nil {
				return err
			}
			w, err := train.New(ctx, comm, c)
			if err != nil {
				return err
			}
			defer w.Close()
			if comm.Rank() == 1 { // a bit flips
				n := w.Solver().Net()
				data, _ := n.Packed()
				for _, p := range n.Learnable() {
					if n.LayerName(p.Layer) == "ip0" {
						mem.Float32s(data)[p.Offset+3] *= 1.5
					}
				}
			}
			_, err = w.Run(ctx)
			return err
		})
		if err == nil || !strings.Contains(err.Error(), `layer "ip0": parameter`) || !strings.Contains(err.Error(), "ranks 0, 2 have one, rank 1 another") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// At the end the root knows what every bucket has cost: the bytes of factors and even pairs
// by Table 1, times of all ranks.
func TestPoseidon_BucketsCostWhatTable1Says(t *testing.T) {
	path, dir := files(t, 30)
	fullyConnected(t, path, dir, "")
	err := launch.Run(context.Background(), launch.Options{Local: 3}, func(ctx context.Context, comm *collectives.Comm) error {
		c := train.Config{Asked: ask(t, "ps,rows=reduce,ip*=sfb,turned=allreduce"), Bucket: 1}
		var err error
		if c.Solver, err = proto.ReadSolver(path); err != nil {
			return err
		}
		w, err := train.New(ctx, comm, c)
		if err != nil {
			return err
		}
		defer w.Close()
		s, err := w.Run(ctx)
		if err != nil || comm.Rank() != 0 {
			if len(s.Buckets) != 0 {
				t.Errorf("rank %d has %v", comm.Rank(), s.Buckets)
			}
			return err
		}
		var got []string
		for i, b := range s.Buckets {
			got = append(got, b.Name+"="+b.Scheme.String())
			if b.Predicted <= 0 || b.Least <= 0 || b.Most < b.Least {
				t.Errorf("%+v", b)
			}
			if want := w.Audit().Rows[i].Of(b.Scheme).Bytes; b.PredictedBytes != want {
				t.Errorf("%s: %v bytes predicted, %v by the audit", b.Name, b.PredictedBytes, want)
			}
			if b.Scheme == exchange.SFB && float64(b.Payload) != b.PredictedBytes {
				t.Errorf("%s: %d bytes of factors, %v by Table 1", b.Name, b.Payload, b.PredictedBytes)
			}
		}
		if text := strings.Join(got, " "); text != "conv1=ps rows=reduce turned=allreduce ip0=sfb ip1=sfb" {
			t.Errorf("buckets %s", text)
		}
		// One pair, 480 elements with what lies between parameters: its server takes in and sends two of them.
		if b := s.Buckets[0]; b.Payload != 4*mem.Float32.Bytes(480) {
			t.Errorf("%+v", b)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, scheme := range []exchange.Scheme{exchange.Reduce, exchange.PS} { // without an audit
		err := launch.Run(context.Background(), launch.Options{Local: 2}, func(ctx context.Context, comm *collectives.Comm) error {
			c := train.Config{Scheme: scheme, Design: exchange.SCB, Bucket: 1}
			var err error
			if c.Solver, err = proto.ReadSolver(path); err != nil {
				return err
			}
			w, err := train.New(ctx, comm, c)
			if err != nil {
				return err
			}
			defer w.Close()
			s, err := w.Run(ctx)
			if err != nil || comm.Rank() != 0 {
				return err
			}
			if len(s.Buckets) != 1 || s.Buckets[0].Name != "all parameters" || s.Buckets[0].Predicted <= 0 || s.Buckets[0].Payload == 0 || s.Buckets[0].PredictedBytes == 0 {
				t.Errorf("%v: %+v", scheme, s.Buckets)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Section 5.4's baseline: fully connected layers whose gradients are quantised to a bit, the
// rest of a gradient added later. A net learns that way nearly as it does exactly, under every design with the same bits,
// run after run, from unequal parts of a batch, with clipped gradients; replicas stay equal.
func TestPoseidon_QuantisedGradientsLearn(t *testing.T) {
	for _, more := range []string{"", "iter_size: 2 clip_gradients: 5"} {
		path, dir := files(t, 30)
		fullyConnected(t, path, dir, more)
		var first curve
		designs := []exchange.Design{exchange.SCB, exchange.SCOBR, exchange.SCOBR, exchange.WFBP, exchange.SCOB}
		if testing.Short() {
			if more == "" {
				continue
			}
			designs = designs[:2]
		}
		for i, d := range designs {
			c := mustRun(t, 4, path, func(_ int, c *train.Config) { c.Design, c.Asked, c.Bucket = d, ask(t, "onebit"), 1 })
			if i == 0 {
				first = c
			}
			if !bytes.Equal(c.snapshot, first.snapshot) || !slices.Equal(c.loss, first.loss) || !slices.Equal(c.scores, first.scores) {
				t.Errorf("%q: %v has other bits than SC-B", more, d)
			}
		}
		exact := mustRun(t, 4, path, func(_ int, c *train.Config) { c.Asked, c.Bucket = ask(t, "sfb"), 1 })
		if slices.Equal(exact.loss, first.loss) {
			t.Errorf("%q: nothing was quantised", more)
		}
		for i, loss := range first.loss {
			if math.Abs(loss-exact.loss[i]) > 0.01*exact.loss[i] {
				t.Errorf("%q: iteration %d: a loss of %v, exactly %v", more, i, loss, exact.loss[i])
			}
		}
	}
}
