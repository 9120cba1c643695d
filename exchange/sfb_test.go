package exchange_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/kernels/factors"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/syncer/sfb"
)

// shapes are those of the fully connected layers among layers, all without bias.
var shapes = map[int]factors.Shape{2: {Out: 20, In: 35}, 3: {Out: 3, In: 1}, 6: {Out: 50, In: 100}}

const passes = 2

// factored is train of a net whose fully connected layers have factors, of a different
// number of rows on each rank.
type factored struct {
	model
	comm   *collectives.Comm
	layers []exchange.Layer
	iter   int
	u, v   map[int][]float32
}

func rowsOf(ranks int) (rows []int) {
	for r := range ranks {
		rows = append(rows, 4+r%3)
	}
	return rows
}

// backward makes the factors of a layer, which depend on its parameters.
func (f *factored) backward(layer, pass int) {
	s, rank := shapes[layer], f.comm.Rank()
	first := f.layers[layer].Params[0].Off
	fill := func(x []float32, which int) {
		for i := range x {
			x[i] = f.data[first+i%(s.Out*s.In)] * wave(i+31*which+7*pass+13*rank+f.iter)
		}
	}
	rows := rowsOf(f.comm.Size())[rank]
	u, v := make([]float32, rows*s.Out), make([]float32, rows*s.In)
	fill(u, 1)
	fill(v, 2)
	f.u[layer], f.v[layer] = u, v
}

// add adds the product of a layer's factors to its gradient, as a layer does that
// does not go by factors.
func (f *factored) add(layer int) {
	s := shapes[layer]
	diff := f.diff[f.layers[layer].Params[0].Off:]
	for k := range len(f.u[layer]) / s.Out {
		for o := range s.Out {
			for in := range s.In {
				diff[o*s.In+in] += f.u[layer][k*s.Out+o] * f.v[layer][k*s.In+in]
			}
		}
	}
}

// trainFactored returns every rank's parameters after some iterations, and how the net
// is cut.
func trainFactored(t *testing.T, ranks int, c exchange.Config, iters int) (got [][]float32, buckets string) {
	t.Helper()
	got = make([][]float32, ranks)
	err := launch.Run(context.Background(), launch.Options{Local: ranks, Engine: nbc.Options{Deadline: 10 * time.Minute}, Log: os.Stderr}, func(ctx context.Context, comm *collectives.Comm) error {
		ls, n := layers()
		f := &factored{comm: comm, layers: ls, u: map[int][]float32{}, v: map[int][]float32{}}
		data, err := comm.Alloc(4 * n)
		if err != nil {
			return err
		}
		diff, err := comm.Alloc(4 * n)
		if err != nil {
			return err
		}
		f.data, f.diff = mem.Float32s(data), mem.Float32s(diff)
		for i := range f.data {
			f.data[i] = float32(math.Sin(float64(i)))
		}
		for i, s := range shapes {
			ls[i].Factors = &sfb.Matrix{
				Name: ls[i].Name, Shape: s, Rows: rowsOf(ranks), Passes: passes, Weights: ls[i].Params[0],
				Put: func(st *factors.Stack, stacked []float32, part, pass int) {
					st.Put(stacked, part, pass, f.u[i], f.v[i])
				},
			}
		}
		c := c
		c.Layers, c.Data, c.Diff, c.OnSum, c.Book = ls, data, diff, f.use, book(t, ranks, "all", 4096)
		x, err := exchange.New(ctx, comm, c)
		if err != nil {
			return err
		}
		defer x.Close()
		if comm.Rank() == 0 {
			for _, b := range x.Buckets() {
				buckets += fmt.Sprint(b.Name, b.Range, b.Scheme, x.Specs(&b), " ")
			}
		}
		for f.iter = range iters {
			if err := x.Start(f.iter); err != nil {
				return err
			}
			for pass := range passes {
				for i := range ls {
					if err := x.BeforeForward(i); err != nil {
						return err
					}
				}
				for i := len(ls) - 1; i >= 0; i-- {
					switch {
					case len(ls[i].Params) == 0:
					case ls[i].Factors == nil:
						for _, r := range ls[i].Params {
							for k := r.Off; k < r.End(); k++ {
								f.diff[k] += f.data[k] * wave(k+17*comm.Rank()+f.iter)
							}
						}
					default:
						if f.backward(i, pass); !c.Schemes[i].FactorsOnly() || c.Schemes[i] == exchange.OneBit {
							f.add(i)
						}
					}
					x.AfterPass(i, pass)
					if pass < passes-1 {
						continue
					}
					if err := x.AfterBackward(i); err != nil {
						return err
					}
				}
			}
			if err := x.Finish(); err != nil {
				return err
			}
		}
		if err := x.Current(); err != nil {
			return err
		}
		got[comm.Rank()] = slices.Clone(f.data)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got, buckets
}

// schemes are those of the test's net: one for fully connected layers, one for the rest.
func schemes(fc, rest exchange.Scheme) (all []exchange.Scheme) {
	for i := range sizes {
		if _, found := shapes[i]; found {
			all = append(all, fc)
		} else {
			all = append(all, rest)
		}
	}
	return all
}

// Section 3.2: layers that go by adam, each with a server of its own, beside any others, have
// the bits under every design that they have by sfb, on every rank.
func TestPoseidon_AdamUnderEveryDesign(t *testing.T) {
	defer goleak.VerifyNone(t)
	const ranks, iters = 3, 4
	for _, rest := range []exchange.Scheme{exchange.Reduce, exchange.PS} {
		want, _ := trainFactored(t, ranks, exchange.Config{Schemes: schemes(exchange.SFB, rest), Spec: parse(t, "linear"), Bucket: 1}, iters)
		for _, d := range append(exchange.All(), exchange.WFBP) {
			for _, atOnce := range []bool{false, true} {
				c := exchange.Config{Design: d, Schemes: schemes(exchange.Adam, rest), Spec: parse(t, "linear"), Bucket: 1, UpdateAtOnce: atOnce}
				got, buckets := trainFactored(t, ranks, c, iters)
				for rank := range got {
					if !slices.Equal(got[rank], want[0]) {
						t.Errorf("%v, rest by %v, at once %v: rank %d has other bits", d, rest, atOnce, rank)
					}
				}
				if want := "l2[112:816] adam [linear linear] l3[816:832] adam [linear linear] "; !strings.Contains(buckets, want) {
					t.Errorf("buckets %s, without %s", buckets, want)
				}
			}
		}
	}
	err := launch.Run(context.Background(), launch.Options{Local: 2}, func(ctx context.Context, comm *collectives.Comm) error {
		c := exchange.Config{Schemes: schemes(exchange.Adam, exchange.Reduce)}
		if _, _, err := train(ctx, comm, c, 1); err == nil || !strings.Contains(err.Error(), `layer "l2" cannot go by adam: it has no sufficient factors`) {
			t.Errorf("without factors: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Layers whose gradients are quantised (Seide et al. 2014) are part of any design, next to
// others: all designs give the same bits, on every rank.
func TestPoseidon_QuantisedUnderEveryDesign(t *testing.T) {
	defer goleak.VerifyNone(t)
	const ranks, iters = 3, 4
	var want []float32
	for _, d := range append(exchange.All(), exchange.WFBP, exchange.TF) {
		for _, atOnce := range []bool{false, true} {
			c := exchange.Config{Design: d, Schemes: schemes(exchange.OneBit, exchange.Reduce), Spec: parse(t, "chain"), Bucket: 1, UpdateAtOnce: atOnce}
			got, buckets := trainFactored(t, ranks, c, iters)
			if want == nil {
				want = got[0]
			}
			for rank := range got {
				if !slices.Equal(got[rank], want) {
					t.Errorf("%v, at once %v: rank %d has other bits", d, atOnce, rank)
				}
			}
			if want := "l2[112:816] onebit [linear linear] l3[816:832] onebit [linear linear] "; !strings.Contains(buckets, want) {
				t.Errorf("buckets %s, without %s", buckets, want)
			}
		}
	}
}

// Sections 3.1 and 3.2: layers that go by factors are part of any design, next to others,
// and learn what they learn by reduce. All designs give the same bits, on every rank,
// whether the gradients come from one pass or several, and the batch is equal in parts or
// not.
func TestPoseidon_FactorsUnderEveryDesign(t *testing.T) {
	defer goleak.VerifyNone(t)
	const iters = 4
	for _, ranks := range []int{1, 3} {
		for _, rest := range []exchange.Scheme{exchange.Reduce, exchange.Allreduce} {
			for _, text := range []string{"", "direct"} {
				plain, _ := trainFactored(t, ranks, exchange.Config{Schemes: schemes(rest, rest), Spec: parse(t, text)}, iters)
				var want []float32
				for _, bucket := range []int{1, 1 << 20} {
					for _, d := range append(exchange.All(), exchange.WFBP) {
						for _, atOnce := range []bool{false, true} {
							c := exchange.Config{Design: d, Schemes: schemes(exchange.SFB, rest), Spec: parse(t, text), Bucket: bucket, UpdateAtOnce: atOnce}
							got, _ := trainFactored(t, ranks, c, iters)
							if want == nil {
								want = got[0]
							}
							for rank := range got {
								if !slices.Equal(got[rank], want) {
									t.Errorf("%d ranks, %v, rest by %v, %q, bucket %d, at once %v: rank %d has other bits", ranks, d, rest, text, bucket, atOnce, rank)
								}
							}
						}
					}
				}
				for i, x := range want {
					if math.Abs(float64(x-plain[0][i])) > 1e-4*(1+math.Abs(float64(x))) {
						t.Fatalf("%d ranks, rest by %v, %q: parameter %d is %v, without factors %v", ranks, rest, text, i, x, plain[0][i])
					}
				}
			}
		}
	}
}

// Layers that go by factors are buckets of their own, served by the spec that is asked for.
func TestFactoredBuckets(t *testing.T) {
	r, s := exchange.Reduce, exchange.SFB
	mixed := []exchange.Scheme{r, r, s, s, r, r, s, r}
	for text, want := range map[string]string{
		"ring":   "l2[112:816] sfb [ring] l3[816:832] sfb [ring]",
		"chain":  "l7[5872:5888] reduce [chain chain]",
		"linear": "l6[864:5872] sfb [linear]",
	} {
		c := exchange.Config{Schemes: mixed, Bucket: 1 << 30, Spec: parse(t, text)}
		if text == "ring" { // which serves no reduce
			c.Schemes = slices.Clone(mixed)
			for i := range mixed {
				if mixed[i] == r {
					c.Schemes[i] = exchange.Allreduce
				}
			}
		}
		if _, got := trainFactored(t, 3, c, 1); !strings.Contains(got, want) {
			t.Errorf("%s: buckets %s, without %s", text, got, want)
		}
	}
	err := launch.Run(context.Background(), launch.Options{Local: 2}, func(ctx context.Context, comm *collectives.Comm) error {
		if _, _, err := train(ctx, comm, exchange.Config{Schemes: mixed}, 1); err == nil || !strings.Contains(err.Error(), `layer "l2" cannot go by sfb: it has no sufficient factors`) {
			t.Errorf("without factors: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
