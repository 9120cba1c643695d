package replay

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/kernels/factors"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/replay/workload"
	"github.com/scaffe/scaffe/syncer/coordinator"
)

// connected has inner products with a bias, without one, and stored the other way.
const connected = `
batch 5
update_ms 0.1
layer conv Convolution 0.1 0.1 100 7
layer fc1 InnerProduct 0.1 0.2 40x30 40
layer relu ReLU 0 0.1
layer fc2 InnerProduct 0 0.1 20x40
layer fc3 InnerProduct 0.1 0 20x12 12
`

func parsed(t *testing.T, text string) *workload.Profile {
	t.Helper()
	p, err := workload.Parse("p", text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func ask(t *testing.T, text string) *coordinator.Asked {
	t.Helper()
	a, err := coordinator.ParseAsked(text)
	if err != nil {
		t.Fatal(err)
	}
	return &a
}

// Section 3.2: factors bring every rank the sum of all gradients, under every design, beside
// layers of other schemes. The report says by which scheme each layer went.
func TestPoseidon_ReplayedFactorsAreTheSum(t *testing.T) {
	for _, ranks := range []int{1, 2, 4} {
		if testing.Short() && ranks != 4 {
			continue
		}
		for text, want := range map[string]string{
			"sfb":                          "sfb,conv=ps",
			"reduce,fc*=sfb":               "sfb,conv=reduce",
			"adam":                         "adam,conv=ps",
			"onebit,fc3=reduce":            "onebit,conv=ps,fc3=reduce",
			"dgc":                          "dgc",
			"dgc,fc1=sfb,fc2=onebit":       "dgc,fc1=sfb,fc2=onebit",
			"allreduce,fc1=sfb,fc3=ps":     "allreduce,fc1=sfb,fc3=ps",
			"poseidon,fc2=sfb,fc3=reduce":  "",
			"auto":                         "",
			"ps,conv=reduce,fc1=allreduce": "ps,conv=reduce,fc1=allreduce",
		} {
			if testing.Short() && want == "" {
				continue // choosing takes a core ten seconds with the race detector; TestSystemsCheck has it
			}
			res, err := replayed(t, ranks, Config{
				Profile: parsed(t, connected), Designs: append(exchange.All(), exchange.WFBP), Asked: ask(t, text), Bucket: 1,
				Iterations: 3, Warmup: 1, Turn: 2, Check: true, Jitter: 0.5, Straggler: Straggler{0, 2},
			})
			if err != nil {
				t.Fatalf("%d ranks, %s: %v", ranks, text, err)
			}
			chosen := ranks > 1 || text != "auto" // a lone rank has nothing to choose
			if len(res.Rows) != 5 || res.Buckets != 4 || res.Scheme != text || len(res.Choices) < 4 == chosen || want != "" && res.Chosen != want {
				t.Errorf("%d ranks, %s: %+v", ranks, text, res)
			}
			var b strings.Builder
			if err := res.Write(&b, report.Text); err != nil || strings.Contains(b.String(), "\n# fc1    40x30 ") != chosen {
				t.Errorf("%v\n%s", err, &b)
			}
		}
	}
	// One scheme for all layers needs no line for each.
	res, err := replayed(t, 2, Config{Profile: parsed(t, connected), Designs: []exchange.Design{exchange.SCB}, Asked: ask(t, "allreduce"), Iterations: 1})
	if err != nil || res.Scheme != "allreduce" || res.Chosen != "" || res.Choices != nil {
		t.Errorf("%+v %v", res, err)
	}
}

// Table 1: the values that a rank, which works and serves, sends and receives in an iteration, by
// the engine's count.
func TestPoseidon_AnIterationMovesWhatTable1Says(t *testing.T) {
	const ranks, k = 4, 3
	linear, err := spec.Parse("linear")
	if err != nil {
		t.Fatal(err)
	}
	// 32 KiB, and 16: two pairs of 4 KiB for each server, and one.
	p := parsed(t, fmt.Sprintf("batch %d\nlayer conv Convolution 0 0 4096\nlayer fc InnerProduct 0 0 64x128", k))
	conv := coordinator.PSCost(4096, ranks, ranks).Both
	for text, want := range map[string]func(rank int) float64{
		"ps":       func(int) float64 { return coordinator.PSCost(4096+64*128, ranks, ranks).Both },
		"poseidon": func(int) float64 { return conv + coordinator.SFBCost(64, 128, k, ranks).Both },
		"adam": func(rank int) float64 { // the layer is the first server's, and each of the four has a pair
			cost := coordinator.AdamCost(64*128, 64, 128, k, ranks)
			return conv + map[bool]float64{true: cost.Both, false: cost.Worker}[rank == 0]
		},
	} {
		c := Config{Profile: p, Designs: []exchange.Design{exchange.WFBP}, Asked: ask(t, text), Spec: linear, Pair: 4 * coordinator.Cut, Bucket: 1}
		opts := launch.Options{Local: ranks, Engine: nbc.Options{Deadline: 10 * time.Minute}, Log: os.Stderr}
		err := launch.Run(context.Background(), opts, func(ctx context.Context, comm *collectives.Comm) error {
			r, err := newRank(comm, c)
			if err = comm.Agree(ctx, err); err != nil {
				return err
			}
			defer r.close()
			if err := r.prepare(ctx); err != nil {
				return err
			}
			moved := func(iterations int) (int64, error) {
				before := comm.Payload()
				_, err := r.turn(ctx, r.ways[0], iterations)
				after := comm.Payload()
				return after.Sent - before.Sent + after.Received - before.Received, err
			}
			one, err := moved(1)
			if err != nil {
				return err
			}
			three, err := moved(3)
			if err != nil {
				return err
			}
			if values, want := float64(three-one)/2/4, want(comm.Rank()); values != want {
				return fmt.Errorf("%s: rank %d moves %v values in an iteration, want %v", text, comm.Rank(), values, want)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// Sizes shrink so that the schemes cost what they did in proportion, and biases still
// fit their matrices.
func TestPoseidon_ShrunkNetsKeepTheChoice(t *testing.T) {
	for _, name := range []string{"vgg19-titanx", "alexnet-k80", "googlenet-titanx"} {
		p, err := workload.Builtin(name)
		if err != nil {
			t.Fatal(err)
		}
		small, err := p.Shrink(0.01)
		if err != nil {
			t.Fatal(err)
		}
		all := coordinator.Places{All: true}
		c := coordinator.Config{Nodes: spec.NodesOf(8, 1), Workers: all, Servers: all}
		large, err := Book(p, c)
		if err != nil {
			t.Fatal(err)
		}
		b, err := Book(small, c)
		if err != nil {
			t.Fatal(err)
		}
		for i := range b.Layers {
			l := &b.Layers[i]
			want, err := large.BestScheme(l.Name)
			got, err2 := b.BestScheme(l.Name)
			if got != want || err != nil || err2 != nil || l.Refuses != "" {
				t.Errorf("%s, layer %s, %s: %v, not %v (%v, %v) %s", name, l.Name, l.Shape(), got, want, err, err2, l.Refuses)
			}
			for _, s := range []coordinator.Scheme{coordinator.PS, coordinator.SFB} {
				full, serves := large.Values(&large.Layers[i], s)
				values, _ := b.Values(l, s)
				if ratio := values / full; serves && l.Rows > 0 && full > 1e6 && math.Abs(ratio-0.01) > 0.002 {
					t.Errorf("%s, layer %s: %v moves %.4f of the values", name, l.Name, s, ratio)
				}
			}
		}
	}
}

// What a profile knows of a layer may not be a matrix with a bias.
func TestShape(t *testing.T) {
	for text, want := range map[string]struct {
		factors.Shape
		refuses string
	}{
		"8x6":     {factors.Shape{Out: 8, In: 6}, ""},
		"8x6 8":   {factors.Shape{Out: 8, In: 6}, ""},
		"8x6 6":   {factors.Shape{Out: 6, In: 8, Transposed: true}, ""},
		"8x6 7":   {factors.Shape{Out: 8, In: 6}, "a parameter of 7 elements is no bias beside weights of 8x6"},
		"8x6 8 8": {factors.Shape{Out: 8, In: 6}, "it has 3 parameters, more than weights and a bias"},
	} {
		p := parsed(t, "batch 2\nlayer fc InnerProduct 0 0 "+text)
		if s, refuses := shape(&p.Layers[0]); s != want.Shape || refuses != want.refuses {
			t.Errorf("%s: %+v, %q", text, s, refuses)
		}
		_, err := replayed(t, 2, Config{Profile: p, Designs: []exchange.Design{exchange.SCB}, Asked: ask(t, "fc=sfb"), Iterations: 1, Check: true})
		if want.refuses == "" && err != nil || want.refuses != "" && (err == nil || !strings.Contains(err.Error(), want.refuses)) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// What is asked for and cannot be is one message.
func TestReplaySchemeMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"conv=sfb":    `layer "conv" (Convolution) cannot`,
		"fc9=sfb":     "scheme fc9=sfb: no layer with parameters has such a name; there are conv, fc1, fc2, fc3",
		"conv=adam":   `layer "conv" (Convolution) cannot`,
		"conv=onebit": `layer "conv" (Convolution) cannot`,
	} {
		_, err := replayed(t, 2, Config{Profile: parsed(t, connected), Designs: []exchange.Design{exchange.SCB}, Asked: ask(t, text), Iterations: 1})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// The profiles of all ranks are compared, for schemes that need a book of them.
func TestReplayOfOtherProfiles(t *testing.T) {
	err := launch.Run(context.Background(), launch.Options{Local: 2}, func(ctx context.Context, comm *collectives.Comm) error {
		p := parsed(t, connected)
		if comm.Rank() == 1 {
			p.Batch = 6
		}
		_, err := Run(ctx, comm, Config{Profile: p, Designs: []exchange.Design{exchange.SCB}, Asked: ask(t, "poseidon"), Iterations: 1})
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "the information books of the ranks differ in batch: rank 0 has one, rank 1 another") {
		t.Error(err)
	}
}

// A layer whose factors travel leaves half of its backward pass out, and a product of all
// ranks' factors takes half of it for each.
func TestPoseidon_ProductsOfAllWorkers(t *testing.T) {
	l := &workload.Layer{Backward: 10 * time.Millisecond}
	if left, product := rebuilding(l, 8); left != 5*time.Millisecond || product != 40*time.Millisecond {
		t.Errorf("%v, %v", left, product)
	}
	if testing.Short() {
		t.Skip("replays for long")
	}
	res, err := replayed(t, 4, Config{
		Profile: parsed(t, connected), Designs: []exchange.Design{exchange.SCOBR}, Asked: ask(t, "reduce,fc1=sfb"), Iterations: 1,
		Straggler: Straggler{1, 2},
	})
	served, err2 := replayed(t, 4, Config{
		Profile: parsed(t, connected), Designs: []exchange.Design{exchange.SCOBR}, Asked: ask(t, "reduce,fc*=adam"), Iterations: 1,
	})
	if want := 0.4 - 0.15; err2 != nil || math.Abs(served.Rows[0].Products-want) > 1e-9 { // fc1's server: 4 × 0.1, and no half of fc1's and fc2's
		t.Errorf("products at adam's server %v: %v", served.Rows[0].Products, err2)
	}
	if want := 0.6; err != nil || math.Abs(res.Rows[0].Products-want) > 1e-9 || math.Abs(res.Compute-2*0.9) > 1e-9 { // 4 × 0.1 + 0.1 − 0.2 ms, twice
		t.Errorf("products %v, compute %v: %v", res.Rows[0].Products, res.Compute, err)
	}
}

// Products and computation take turns: neither takes from the time of the other.
func TestPoseidon_ProductsTakeTurnsWithComputation(t *testing.T) {
	start := time.Unix(1, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	var p processor
	is := func(what string, got time.Time, ms int) {
		t.Helper()
		if !got.Equal(at(ms)) {
			t.Errorf("%s at %v, want %d ms", what, got.Sub(start), ms)
		}
	}
	is("without products it ends", p.ends(at(0), at(100)), 100)
	is("a product ends", p.take(at(20), 10*time.Millisecond), 30)
	is("one that comes before that", p.take(at(25), 10*time.Millisecond), 40)
	is("one that comes later", p.take(at(115), 5*time.Millisecond), 120)
	is("computation in which three came", p.ends(at(0), at(100)), 125)
	is("that begins beside the first", p.ends(at(25), at(75)), 90)
	is("that begins beside the last", p.ends(at(118), at(120)), 122)
	is("that ends before it begins", p.ends(at(40), at(110)), 110)
	is("that begins when all have ended", p.ends(at(120), at(130)), 130)
	is("no computation", p.ends(at(27), at(27)), 27)
	p.passed(at(30))
	is("computation from there on", p.ends(at(30), at(40)), 50)
	p.passed(at(120))
	is("the next product ends", p.take(at(110), 7*time.Millisecond), 117)
	if len(p.turns) != 1 {
		t.Errorf("%d products are kept", len(p.turns))
	}
}

// The checker's quantiser keeps a column's sum, and leaves nothing out for good.
func TestPoseidon_CheckersQuantiser(t *testing.T) {
	column, residual := []float32{1, 3, -2, -4}, []float32{0, 9, 0, 9, 0, 9, 2, 9}
	quantise(column, residual, 2)
	if !slices.Equal(column, []float32{2, 2, -2, -2}) || !slices.Equal(residual, []float32{-1, 9, 1, 9, 0, 9, 0, 9}) {
		t.Errorf("%v, left %v", column, residual)
	}
}

// The checker sees a factor that lacks a rank, comes twice, or in another row.
func TestCheckerSeesFactors(t *testing.T) {
	const ranks, k, iter = 3, 4, 7
	for _, shape := range []factors.Shape{{Out: 9, In: 7}, {Out: 9, In: 7, Transposed: true}, {Out: 2, In: 5}} {
		var b strings.Builder
		fmt.Fprintf(&b, "batch %d\nlayer fc InnerProduct 0 0 ", k)
		if shape.Transposed {
			fmt.Fprintf(&b, "%dx%d %d", shape.In, shape.Out, shape.Out)
		} else {
			fmt.Fprintf(&b, "%dx%d %d", shape.Out, shape.In, shape.Out)
		}
		p := parsed(t, b.String())
		layers, count := layout(p)
		m := &layers[0]
		stack, err := factors.NewStack(shape, slices.Repeat([]int{k}, ranks), 1)
		if err != nil {
			t.Fatal(err)
		}
		stacked := make([]float32, stack.Len())
		m.Factors = matrixOf(&p.Layers[0], m, k, ranks)
		m.Factors.Put = func(*factors.Stack, []float32, int, int) {} // which makes them travel
		if m.Factors.Shape != shape {
			t.Fatalf("%+v, want %+v", m.Factors.Shape, shape)
		}
		c := &checker{size: ranks, data: make([]float32, count), diff: make([]float32, count), want: make([]float32, count), layers: layers}
		for c.rank = range ranks {
			c.put(0, iter, stack, stacked, c.rank, 0)
		}
		whole := exchange.Sum{Bucket: &exchange.Bucket{Layers: []int{0}}, Range: exchange.Range{Len: count}}
		rebuild := func() error {
			w, bias := m.Factors.Weights, m.Factors.Bias
			if err := stack.Rebuild(stacked, c.diff[w.Off:w.End()], c.diff[bias.Off:bias.End()]); err != nil {
				t.Fatal(err)
			}
			return c.update(whole, iter)
		}
		if err := rebuild(); err != nil {
			t.Errorf("%+v: %v", shape, err)
		}
		good := slices.Clone(stacked)
		off, n := stack.Part(1)
		for what, spoil := range map[string]func(){
			"a rank's factors lack":       func() { clear(stacked[off : off+n]) },
			"a rank's factors come twice": func() { copy(stacked[:n], stacked[off:]) },
			"another row of v": func() {
				row := shape.Row()
				for i := range shape.In {
					a, b := off+shape.Out+i, off+row+shape.Out+i
					stacked[a], stacked[b] = stacked[b], stacked[a]
				}
			},
			"those of another iteration": func() { c.rank = 1; c.put(0, iter+1, stack, stacked, 1, 0) },
		} {
			spoil()
			if err := rebuild(); err == nil {
				t.Errorf("%+v: %s: not seen", shape, what)
			}
			copy(stacked, good)
		}
	}
}
