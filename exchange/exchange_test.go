package exchange_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/trace"
)

// sizes are the parameters of a net's layers; 0 is a layer without. The sixth
// layer shares the first one's.
var sizes = []int{100, 0, 700, 3, 0, 20, 5000, 1}

const shares = 5

func layers() ([]exchange.Layer, int) {
	var ls []exchange.Layer
	at := 0
	for i, n := range sizes {
		l := exchange.Layer{Name: fmt.Sprintf("l%d", i)}
		if n > 0 {
			l.Params = []exchange.Range{{Off: at, Len: n}}
			at += (n + 15) / 16 * 16
		}
		if i == shares {
			l.Shared = []int{0}
		}
		ls = append(ls, l)
	}
	return ls, at
}

// end is how many elements the packed buffers of a net have.
func end(ls []exchange.Layer) (n int) {
	for _, l := range ls {
		for _, p := range l.Params {
			n = (p.End() + 15) / 16 * 16
		}
	}
	return n
}

// model is a stand-in for a solver: parameters move by a hundredth of the sum of
// the gradients, and gradients depend on the parameters, rank and iteration in
// a way that no order of additions leaves unnoticed.
type model struct {
	data, diff []float32
}

func (m *model) use(_ int, s exchange.Sum) error {
	d, g := m.data[s.Off:s.End()], m.diff[s.Off:s.End()]
	for i := range g {
		if s.Updates {
			d[i] -= g[i] / 100
		}
		g[i] = 0
	}
	return nil
}

// waves are cosines, and powers numbers of several sizes: with the race detector functions of package math took a third of the time.
var (
	waves  [4096]float32
	powers = [...]float32{1, 7, 49, 343, 2401}
)

func init() {
	for i := range waves {
		waves[i] = float32(math.Cos(float64(i)))
	}
}

// wave is a number of either sign, at most 1, that differs from its neighbors'.
func wave(i int) float32 { return waves[i%len(waves)] }

// train runs iterations and returns the parameters that this rank has.
func train(ctx context.Context, comm *collectives.Comm, c exchange.Config, iters int) ([]float32, *exchange.Exchange, error) {
	ls, n := layers()
	if c.Layers != nil { // another net
		ls, n = c.Layers, end(c.Layers)
	}
	m := &model{}
	worker := comm.Rank() // its number
	if c.Team != nil {
		worker = slices.Index(c.Team.Members(), comm.Rank())
	}
	data, err := comm.Alloc(4 * n)
	if err != nil {
		return nil, nil, err
	}
	diff, err := comm.Alloc(4 * n)
	if err != nil {
		return nil, nil, err
	}
	m.data, m.diff = mem.Float32s(data), mem.Float32s(diff)
	if worker == c.Root || c.Scheme == exchange.Allreduce || c.Scheme == exchange.PS || c.Schemes != nil {
		for i := range m.data {
			m.data[i] = float32(math.Sin(float64(i)))
		}
	}
	c.Layers, c.Data, c.Diff = ls, data, diff
	if c.OnSum == nil {
		c.OnSum = m.use
	}
	x, err := exchange.New(ctx, comm, c)
	if err != nil {
		return nil, nil, err
	}
	defer x.Close()
	for iter := range iters {
		if err := x.Start(iter); err != nil {
			return nil, nil, err
		}
		for i := range ls {
			if err := x.BeforeForward(i); err != nil {
				return nil, nil, err
			}
		}
		for i := len(ls) - 1; i >= 0; i-- {
			for _, r := range ls[i].Params {
				for k := r.Off; k < r.End() && worker >= 0; k++ {
					m.diff[k] += m.data[k] * wave(k+17*worker+iter) * powers[(k+worker)%len(powers)]
				}
			}
			if err := x.AfterBackward(i); err != nil {
				return nil, nil, err
			}
		}
		if err := x.Finish(); err != nil {
			return nil, nil, err
		}
		if iter%3 == 2 { // as before a snapshot or a test
			if err := errors.Join(x.Updated(), x.Current()); err != nil {
				return nil, nil, err
			}
		}
	}
	if err := x.Current(); err != nil {
		return nil, nil, err
	}
	return slices.Clone(m.data), x, nil
}

// run trains on n ranks of this process and returns every rank's parameters.
func run(t *testing.T, n int, c exchange.Config, iters int) [][]float32 {
	t.Helper()
	got := make([][]float32, n)
	err := launch.Run(context.Background(), launch.Options{Local: n, Engine: nbc.Options{Deadline: 10 * time.Minute}, Log: os.Stderr}, func(ctx context.Context, comm *collectives.Comm) error {
		data, _, err := train(ctx, comm, c, iters)
		got[comm.Rank()] = data
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func parse(t testing.TB, text string) spec.Spec {
	t.Helper()
	if text == "" {
		return spec.Spec{}
	}
	s, err := spec.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSCaffe_AllDesignsGiveTheSameBits: whatever moves when, every rank of
// every design ends with the same parameters, for one spec and bucket size
// (sections 4.1 to 4.3 change when, not what). So does Poseidon's.
func TestSCaffe_AllDesignsGiveTheSameBits(t *testing.T) {
	defer goleak.VerifyNone(t)
	specs := []string{"", "chain,chunk=1K", "CB-2", "direct", "ring,chunk=1K"}
	if testing.Short() { // with the race detector, too
		specs = specs[1:3]
	}
	for _, n := range []int{1, 2, 4} {
		for _, scheme := range []exchange.Scheme{exchange.Reduce, exchange.Allreduce} {
			for _, text := range specs {
				if scheme == exchange.Reduce && strings.HasPrefix(text, "ring") {
					continue
				}
				for _, bucket := range []int{1, 2000, 1 << 20} {
					var want []float32
					for _, d := range append(exchange.All(), exchange.WFBP, exchange.TF) {
						for _, atOnce := range []bool{false, true} {
							if atOnce && bucket != 2000 {
								continue
							}
							c := exchange.Config{Design: d, Scheme: scheme, Spec: parse(t, text), Bucket: bucket, UpdateAtOnce: atOnce}
							for rank, got := range run(t, n, c, 5) {
								if want == nil {
									want = got
								}
								if !slices.Equal(got, want) {
									t.Errorf("%d ranks, %v, spec %q, bucket %d: %v (update at once %v) has other bits on rank %d", n, scheme, text, bucket, d, atOnce, rank)
								}
							}
						}
					}
				}
			}
		}
	}
}

// TestPoseidon_LayersOfDifferentSchemes: Algorithm 1 gives "each layer" a scheme of its
// own, and no bucket holds layers of two. All designs give the same bits, and where
// each layer's spec adds in the same order, those of one scheme (section 3.2).
func TestPoseidon_LayersOfDifferentSchemes(t *testing.T) {
	defer goleak.VerifyNone(t)
	mixed := make([]exchange.Scheme, len(sizes))
	for i := range mixed {
		mixed[i] = []exchange.Scheme{exchange.Reduce, exchange.Allreduce}[i/2%2]
	}
	for _, bucket := range []int{1, 1 << 20} {
		for _, atOnce := range []bool{false, true} {
			for _, d := range append(exchange.All(), exchange.WFBP) {
				c := exchange.Config{Design: d, Spec: parse(t, "chain,chunk=1K"), Bucket: bucket, UpdateAtOnce: atOnce}
				want := run(t, 3, c, 5)[0]
				c.Schemes = mixed
				for rank, got := range run(t, 3, c, 5) {
					if !slices.Equal(got, want) {
						t.Errorf("bucket %d: %v (update at once %v) with two schemes has other bits on rank %d than with reduce", bucket, d, atOnce, rank)
					}
				}
			}
		}
	}
	err := launch.Run(context.Background(), launch.Options{Local: 2}, func(ctx context.Context, comm *collectives.Comm) error {
		_, x, err := train(ctx, comm, exchange.Config{Schemes: mixed, Bucket: 1 << 30}, 1)
		if err != nil || comm.Rank() > 0 {
			return err
		}
		var got []string
		for _, b := range x.Buckets() {
			got = append(got, b.Name+b.Range.String()+b.Scheme.String())
		}
		if g, want := strings.Join(got, " "), "l0[0:112]reduce l2…l3[112:832]allreduce l5[832:864]reduce l6…l7[864:5888]allreduce"; g != want {
			t.Errorf("buckets %s, want %s", g, want)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	err = launch.Run(context.Background(), launch.Options{Local: 2}, func(ctx context.Context, comm *collectives.Comm) error {
		if _, _, err := train(ctx, comm, exchange.Config{Schemes: mixed[1:]}, 1); err == nil || !strings.Contains(err.Error(), "schemes of 7 layers, where there are 8") {
			t.Errorf("too few schemes: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestBuckets: neighboring layers share a bucket until it is large enough, in
// the order of the backward pass.
func TestBuckets(t *testing.T) {
	for _, c := range []struct {
		bucket int
		want   string
	}{
		{1, "l0[0:112] l2[112:816] l3[816:832] l5[832:864] l6[864:5872] l7[5872:5888]"},
		{4 * 40, "l0[0:112] l2[112:816] l3…l5[816:864] l6…l7[864:5888]"},
		{4 * 800, "l0…l5[0:864] l6…l7[864:5888]"},
		{1 << 30, "l0…l7[0:5888]"},
	} {
		err := launch.Run(context.Background(), launch.Options{Local: 2}, func(ctx context.Context, comm *collectives.Comm) error {
			_, x, err := train(ctx, comm, exchange.Config{Bucket: c.bucket}, 1)
			if err != nil || comm.Rank() > 0 {
				return err
			}
			var got []string
			for _, b := range x.Buckets() {
				got = append(got, b.Name+b.Range.String())
			}
			if g := strings.Join(got, " "); g != c.want {
				t.Errorf("buckets of at least %d bytes: %s, want %s", c.bucket, g, c.want)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestBucketsByScheme: the least size of a bucket is its scheme's, and a scheme by which no layer with
// parameters goes has no part in it.
func TestBucketsByScheme(t *testing.T) {
	schemes := slices.Repeat([]exchange.Scheme{exchange.Allreduce}, len(sizes))
	for i := range schemes {
		if sizes[i] == 0 {
			schemes[i] = exchange.Reduce
		} else if i > 3 {
			schemes[i] = exchange.PS
		}
	}
	err := launch.Run(context.Background(), launch.Options{Local: 2}, func(ctx context.Context, comm *collectives.Comm) error {
		c := exchange.Config{Schemes: schemes, Book: book(t, 2, "all", 4096), Buckets: map[exchange.Scheme]int{exchange.Allreduce: 1, exchange.PS: 1 << 30}}
		_, x, err := train(ctx, comm, c, 1)
		if err != nil {
			return err
		}
		var got []string
		for _, b := range x.Buckets() {
			got = append(got, b.Name)
		}
		if g, want := strings.Join(got, " "), "l0 l2 l3 l5…l7"; g != want || x.MinBucket() != 1<<30 {
			return fmt.Errorf("buckets %s of at least %d, want %s", g, x.MinBucket(), want)
		}
		c.Buckets = nil
		if _, x, err = train(ctx, comm, c, 1); err != nil {
			return err
		}
		if least := x.MinBuckets(); len(least) != 2 || least[exchange.Allreduce] == 0 || least[exchange.PS] == 0 {
			return fmt.Errorf("least buckets %v", least)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestAutoBucket: latency must not cost more than a little, and no more bytes
// are gathered than that takes; in a small net, fewer.
func TestAutoBucket(t *testing.T) {
	const bandwidth = 1e9
	for _, latency := range []float64{0, 10e-6, 100e-6, 1e-3, 1} {
		took := func(bytes int) float64 { return latency + float64(bytes)/bandwidth }
		got := exchange.AutoBucket(1<<40, took)
		cost := func(n int) float64 { return latency / (float64(n) / bandwidth) }
		if got > 64<<10 && got < 16<<20 && cost(got) > 0.16 {
			t.Errorf("latency %v: %d bytes pay %.2f for it", latency, got, cost(got))
		}
		if got > 64<<10 && cost(got/2) < 0.14 {
			t.Errorf("latency %v: %d bytes, half of it would do", latency, got)
		}
		for _, total := range []int{1, 1 << 20, 32 << 20, 1 << 30} {
			small := exchange.AutoBucket(total, took)
			sum := func(size int) float64 { return float64(total)/float64(size)*latency + float64(size)/bandwidth }
			if small > got || small > 64<<10 && sum(small/2) < 0.99*sum(small) && sum(small/4) < 0.99*sum(small) {
				t.Errorf("latency %v: buckets of %d bytes in a net of %d, of %d in a large one", latency, small, total, got)
			}
		}
	}
}

// phases are the times at which the phases of iterations ended on rank 0.
type phases struct{ begin, backward, finish [iters]time.Time }

const iters = 4

// timed runs a design on two ranks and returns rank 0's events of one bucket, by
// iteration, and when its phases were.
func timed(t *testing.T, d exchange.Design, bucket int32) (push, pull []trace.Record, start time.Time, p phases) {
	t.Helper()
	var own *trace.Trace
	err := launch.Run(context.Background(), launch.Options{Local: 2}, func(ctx context.Context, comm *collectives.Comm) error {
		ls, n := layers()
		rec := trace.New(comm.Rank(), trace.Options{})
		x, err := exchange.New(ctx, comm, exchange.Config{
			Design: d, Bucket: 1, Layers: ls, Data: mem.Alloc(4 * n), Diff: mem.Alloc(4 * n), Events: rec,
			OnSum: func(int, exchange.Sum) error { return nil },
		})
		if err != nil {
			return err
		}
		defer x.Close()
		note := func(at *time.Time) {
			if comm.Rank() == 0 {
				*at = time.Now()
			}
		}
		for iter := range iters {
			if err := x.Start(iter); err != nil {
				return err
			}
			note(&p.begin[iter])
			for i := range ls {
				if err := x.BeforeForward(i); err != nil {
					return err
				}
			}
			for i := len(ls) - 1; i >= 0; i-- {
				if i == 0 {
					note(&p.backward[iter])
				}
				if err := x.AfterBackward(i); err != nil {
					return err
				}
			}
			if err := x.Finish(); err != nil {
				return err
			}
			note(&p.finish[iter])
			if err := x.Updated(); err != nil {
				return err
			}
		}
		if err := x.Current(); err != nil {
			return err
		}
		got, err := trace.Gather(ctx, comm, rec)
		if comm.Rank() == 0 {
			own = got
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range own.Ranks[0].Events {
		switch {
		case e.Bucket != bucket:
		case e.Kind == trace.Push:
			push = append(push, e)
		case e.Kind == trace.Pull:
			pull = append(pull, e)
		}
	}
	if len(push) != iters || len(pull) < iters {
		t.Fatalf("%v: bucket %d was pushed %d times and pulled %d times in %d iterations", d, bucket, len(push), len(pull), iters)
	}
	return push, pull, own.Start, p
}

// when checks the last bucket's push and pull of each iteration: whether the push
// starts before the backward pass ends, the pull before the next forward pass
// begins, and whether the parameters are here when the iteration ends.
func when(t *testing.T, d exchange.Design, bucket int32, underBackward, beforeForward bool) (atFinish int) {
	t.Helper()
	push, pull, start, p := timed(t, d, bucket)
	for iter := range iters - 1 {
		if got := start.Add(push[iter].Begin).Before(p.backward[iter]); got != underBackward {
			t.Errorf("%v, iteration %d: the last bucket's push starts before backward ends: %v", d, iter, got)
		}
		next := pull[iter+1] // the first pull brings the first parameters
		if got := start.Add(next.Begin).Before(p.begin[iter+1]); got != beforeForward {
			t.Errorf("%v, iteration %d: the last bucket's pull starts before forward: %v", d, iter, got)
		}
		if !start.Add(next.End).After(p.finish[iter]) {
			atFinish++
		}
	}
	return atFinish
}

// TestSCaffe_PhasesFollowEachOther: SC-B moves one packed buffer after backward
// and one before forward (section 4.1).
func TestSCaffe_PhasesFollowEachOther(t *testing.T) { when(t, exchange.SCB, 0, false, true) }

// TestSCaffe_BroadcastOneLayerAhead: the naive design overlaps "the communication
// of layer i+1 with the computation phase of layer i" (section 4.2, Figure 4).
func TestSCaffe_BroadcastOneLayerAhead(t *testing.T) { when(t, exchange.SCOBNaive, 5, false, false) }

// TestSCaffe_AllBroadcastsStartAtTheBeginning: SC-OB "starts all Ibcast
// operations at the beginning" (section 4.2, Figure 5).
func TestSCaffe_AllBroadcastsStartAtTheBeginning(t *testing.T) {
	when(t, exchange.SCOB, 5, false, true)
}

// TestSCaffe_ReductionsUnderBackward: SC-OBR overlaps the n-th reduction with the
// backward pass of layer n-1 (section 4.3, Figure 6).
func TestSCaffe_ReductionsUnderBackward(t *testing.T) { when(t, exchange.SCOBR, 5, true, true) }

// TestPoseidon_WaitFreeBackpropagation: a row of the table starts each layer's
// communication "once its gradients are generated" (section 3.1), and ends the
// iteration when all layers have been synchronized (Algorithm 2).
func TestPoseidon_WaitFreeBackpropagation(t *testing.T) {
	if n := when(t, exchange.WFBP, 5, true, true); n != iters-1 {
		t.Errorf("the last bucket's parameters were here at the end of %d of %d iterations", n, iters-1)
	}
}

// TestPoseidon_TensorFlowAsksForParametersLate: as the paper describes it (section 5.1), gradients leave
// under the backward pass and parameters come under the next forward pass alone.
func TestPoseidon_TensorFlowAsksForParametersLate(t *testing.T) {
	push, pull, start, p := timed(t, exchange.TF, 5)
	for iter := range iters - 1 {
		if !start.Add(push[iter].Begin).Before(p.backward[iter]) {
			t.Errorf("iteration %d: the last bucket's push starts after backward", iter)
		}
		if next := start.Add(pull[iter+1].Begin); next.Before(p.finish[iter]) || next.After(p.begin[iter+1]) {
			t.Errorf("iteration %d: the last bucket's pull does not start with the next one", iter)
		}
	}
}

// TestErrorsReachTheCaller: an update that fails ends all ranks, and nobody is
// left waiting.
func TestErrorsReachTheCaller(t *testing.T) {
	for _, d := range append(exchange.All(), exchange.WFBP) {
		for _, scheme := range []exchange.Scheme{exchange.Reduce, exchange.Allreduce} {
			const deadline = 5 * time.Minute
			begun := time.Now()
			err := launch.Run(context.Background(), launch.Options{Local: 3, Engine: nbc.Options{Deadline: deadline}}, func(ctx context.Context, comm *collectives.Comm) error {
				c := exchange.Config{Design: d, Scheme: scheme, Bucket: 1}
				c.OnSum = func(iter int, s exchange.Sum) error {
					if iter == 2 && s.Bucket.Index == 3 && comm.Rank() == 0 {
						return errors.New("the disk is on fire")
					}
					return nil
				}
				_, _, err := train(ctx, comm, c, 6)
				return err
			})
			if err == nil || !strings.Contains(err.Error(), "the disk is on fire") {
				t.Errorf("%v, %v: ended with %v", d, scheme, err)
			}
			if time.Since(begun) > deadline {
				t.Errorf("%v, %v: the deadline ended it", d, scheme)
			}
		}
	}
}

// TestNames: flags' words.
func TestNames(t *testing.T) {
	for _, name := range exchange.Names() {
		d, err := exchange.Parse(name)
		if err != nil {
			t.Errorf("%v", err)
		}
		if got, err := exchange.Parse(strings.ToLower(d.String())); err != nil || got != d {
			t.Errorf("%v: %v, %v", d, got, err)
		}
	}
	if _, err := exchange.Parse("SC-X"); err == nil || !strings.Contains(err.Error(), "SC-OB-naive") {
		t.Errorf("SC-X: %v", err)
	}
}
