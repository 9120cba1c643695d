package train_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "google.golang.org/protobuf/proto"

	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/trace"
	"github.com/scaffe/scaffe/train"
)

func ssp(c *train.Config, staleness int) {
	c.Scheme, c.Pair = exchange.PS, 4<<10
	c.Consistency = train.Consistency{SSP: true, Staleness: staleness}
}

// TestPoseidon_InStepItIsASum: where no worker may be ahead, an iteration's parameters have
// everybody's gradients in them, as with a sum of these (section 4.1's bulk-synchronous consistency): but
// for roundings the losses are the same, where the rule is a sum of steps. With BatchNorm's statistics,
// several passes, unequal parts of the batch, servers apart, all designs.
func TestPoseidon_InStepItIsASum(t *testing.T) {
	for i, design := range []exchange.Design{exchange.SCOBR, exchange.SCB, exchange.TF, exchange.SCOBNaive} {
		if testing.Short() && i != 1 {
			continue
		}
		path, dir := files(t, 31)
		withStatistics(t, path, dir, []string{"display: 7", "iter_size: 2 display: 1"}[i%2])
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		write(t, path, strings.NewReplacer("momentum: 0.9", "", "weight_decay: 0.001", "", "max_iter: 40", "max_iter: 26").Replace(string(text)))
		want := mustRun(t, 3, path, func(_ int, c *train.Config) { c.Scheme, c.Pair = exchange.PS, 4<<10 })
		for _, roles := range [][2][]int{{{0, 1, 2}, {0, 1, 2}}, {{1, 2, 3}, {0, 2}}} {
			got := mustRun(t, 3+i%2*roles[0][0], path, func(rank int, c *train.Config) {
				ssp(c, 0)
				c.Design, c.Bucket = design, 1
				if i%2 == 1 {
					onlyServes(t, rank, c, roles[0], roles[1])
				}
			})
			if len(got.loss) != len(want.loss) || len(got.scores) != len(want.scores) {
				t.Fatalf("%v: %d losses and %d scores, want %d and %d", design, len(got.loss), len(got.scores), len(want.loss), len(want.scores))
			}
			for k, l := range got.loss {
				if math.Abs(l-want.loss[k]) > 1e-4*want.loss[k] {
					t.Errorf("%v, %v: loss %d is %v, by sums %v", design, roles, k, l, want.loss[k])
				}
			}
			if i%2 == 0 {
				break
			}
		}
	}
}

// held trains on three ranks, of which rank 2 reads nothing until the others have begun all that they may
// without it, as long as it is held.
func held(t *testing.T, staleness int, change func(c *train.Config)) (s train.Summary, most int) {
	t.Helper()
	path, _ := files(t, 30)
	released := make(chan any)
	var once sync.Once
	let := func() { once.Do(func() { close(released) }) }
	defer let()
	opts := launch.Options{Local: 3, Engine: nbc.Options{Deadline: 10 * time.Minute}}
	err := launch.Run(context.Background(), opts, func(ctx context.Context, comm *collectives.Comm) error {
		f, err := proto.ReadSolver(path)
		if err != nil {
			return err
		}
		f.Solver.TestInterval, f.Solver.Snapshot, f.Solver.MaxIter = nil, nil, pb.Int32(20)
		c := train.Config{Solver: f}
		ssp(&c, staleness)
		if comm.Rank() == 2 {
			c.Options.Data.OnBatch = func(int64, time.Time, time.Time) { <-released }
		}
		c.Events.OnBehind = func(b train.Behind) {
			if b.By[0] > staleness || b.By[1] > staleness || b.By[2] > staleness {
				t.Errorf("iteration %d: %v iterations behind, where %d are allowed", b.Iter, b.By, staleness)
			}
		}
		change(&c)
		w, err := train.New(ctx, comm, c)
		if err != nil {
			return err
		}
		defer w.Close()
		if comm.Rank() == 1 {
			go func() {
				defer let()
				for w.Begun() <= staleness && ctx.Err() == nil {
					time.Sleep(time.Millisecond)
				}
				time.Sleep(20 * time.Millisecond) // for more than may be
				most = w.Begun()
			}()
		}
		got, err := w.Run(ctx)
		if comm.Rank() == 0 {
			s = got
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return s, most
}

// TestPoseidon_WorkersAreBounded: stale synchronous parallel, which Poseidon's KV store has from Bösen
// (section 4.1): while a worker is held, others come S iterations further and no more; afterwards all
// train to the end.
func TestPoseidon_WorkersAreBounded(t *testing.T) {
	for _, staleness := range []int{0, 3} {
		s, most := held(t, staleness, func(*train.Config) {})
		if most != staleness+1 {
			t.Errorf("ssp:%d: beside a worker at iteration 0 another has begun %d iterations", staleness, most)
		}
		if l := s.LagOf(2); s.Iterations != 20 || l.Most > staleness {
			t.Errorf("ssp:%d: %d iterations, lags %v", staleness, s.Iterations, s.Lag)
		}
	}
}

// TestPoseidon_WorkersComeApartByTheirStaleness: a worker that is slow in every iteration has the others
// S iterations ahead all the time, by its own count of what has ended, and the summary says so.
func TestPoseidon_WorkersComeApartByTheirStaleness(t *testing.T) {
	const staleness, iters = 3, 12
	path, _ := files(t, 30)
	var (
		ended [3]atomic.Int64 // by rank: iterations
		begun atomic.Pointer[train.Worker]
		s     train.Summary
		all   *trace.Trace
		over  = make(chan any)
		once  sync.Once
		pairs int // of all servers
	)
	opts := launch.Options{Local: 3, Engine: nbc.Options{Deadline: 10 * time.Minute}}
	err := launch.Run(context.Background(), opts, func(ctx context.Context, comm *collectives.Comm) error {
		defer once.Do(func() { close(over) })
		f, err := proto.ReadSolver(path)
		if err != nil {
			return err
		}
		f.Solver.TestInterval, f.Solver.Snapshot, f.Solver.MaxIter = nil, nil, pb.Int32(iters)
		rec := trace.New(comm.Rank(), trace.Options{})
		c := train.Config{Solver: f, Trace: rec}
		ssp(&c, staleness)
		if comm.Rank() == 2 { // it has no batch before rank 1 is as far ahead as may be
			c.Options.Data.OnBatch = func(batch int64, _, _ time.Time) {
				for since := time.Now(); ; time.Sleep(time.Millisecond) {
					if w := begun.Load(); w != nil && w.Begun() >= min(int(batch)+staleness+1, iters) {
						return
					}
					select {
					case <-over:
						return
					default:
					}
					if time.Since(since) > time.Minute {
						t.Errorf("rank 1 has not come %d iterations ahead of iteration %d", staleness, batch)
						return
					}
				}
			}
		}
		w, err := train.New(ctx, comm, c)
		if err != nil {
			return err
		}
		defer w.Close()
		if comm.Rank() == 1 {
			begun.Store(w)
		}
		w.AfterBackward(func(iter, layer int) {
			if layer == 0 {
				ended[comm.Rank()].Store(int64(iter) + 1)
			}
			for other := range ended {
				if n := int(ended[other].Load()); n < iter-staleness {
					t.Errorf("rank %d is at iteration %d, and rank %d has ended %d", comm.Rank(), iter, other, n)
				}
			}
		})
		got, err := w.Run(ctx)
		if err != nil {
			return err
		}
		own := []int64{int64(len(w.Exchange().Own()))}
		if err := comm.Allreduce(ctx, mem.Of(own), mem.Of(own), mem.Int64, mem.Sum); err != nil {
			return err
		}
		gathered, err := trace.Gather(ctx, comm, rec)
		if comm.Rank() == 0 {
			s, all, pairs = got, gathered, int(own[0])
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	updates := 0 // one for each pair and worker, where it is served
	for _, r := range all.Ranks {
		for _, e := range r.Events {
			if e.Kind != trace.Update {
				continue
			}
			updates++
			if e.Name == "" || e.End < e.Begin || e.Iter < 0 || e.Iter >= iters {
				t.Errorf("rank %d: an update of bucket %q in iteration %d, from %v to %v", r.Rank, e.Name, e.Iter, e.Begin, e.End)
			}
		}
	}
	if want := 3 * iters * pairs; updates != want {
		t.Errorf("the trace has %d updates, want %d", updates, want)
	}
	for _, r := range all.Ranks { // who computes is told of as computing
		var waits []trace.Record
		for _, e := range r.Events {
			switch e.Kind {
			case trace.Sync:
				waits = append(waits, e)
			case trace.Forward, trace.Backward:
				if at := slices.IndexFunc(waits, func(w trace.Record) bool { return w.End > e.Begin }); at >= 0 {
					t.Errorf("rank %d: %v of layer %s in iteration %d begins within the wait for %s", r.Rank, e.Kind, e.Name, e.Iter, waits[at].Name)
				}
			}
		}
		if len(waits) == 0 {
			t.Errorf("rank %d has waited for nobody", r.Rank)
		}
	}
	// A worker's clock may be read just before it begins, or just after.
	if l := s.LagOf(2); l.Most < staleness-2 || l.Most > staleness || l.Mean(s.Iterations) <= 0 {
		t.Errorf("the summary has a worker that was %d iterations behind by %+v", staleness, l)
	}
}

// TestStaleAppliesEveryPush: whatever the order in which they arrive, parameters end where the sum of all
// pushes brings them, of unequal learning rates too. All numbers are sums of powers of two, so that the order leaves no trace.
func TestStaleAppliesEveryPush(t *testing.T) {
	if testing.Short() { // other tests have as much for the race detector
		t.Skip("long")
	}
	const iters, workers = 12, 4
	path, dir := files(t, 32)
	text, err := os.ReadFile(filepath.Join(dir, "net.prototxt"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "net.prototxt"), strings.ReplaceAll(string(text), `weight_filler { type: "xavier" }`, `weight_filler { type: "constant" value: 0 }`))
	write(t, path, fmt.Sprintf(`net: "%[1]s/net.prototxt" base_lr: 0.5 lr_policy: "fixed" max_iter: %[2]d snapshot_prefix: "%[1]s/s"`, dir, iters))
	push := func(rank, iter int) float32 { return float32((rank+1)*(iter%4+1)) / 1024 }
	var sum float32
	for rank := range workers {
		for iter := range iters {
			sum += push(rank, iter)
		}
	}
	for _, skip := range []bool{false, true} { // then pushes begin when the passes have ended
		opts := launch.Options{Local: workers, Engine: nbc.Options{Deadline: 10 * time.Minute}}
		err := launch.Run(context.Background(), opts, func(ctx context.Context, comm *collectives.Comm) error {
			f, err := proto.ReadSolver(path)
			if err != nil {
				return err
			}
			c := train.Config{Solver: f}
			ssp(&c, 2)
			c.Options.SkipNotFinite = skip
			w, err := train.New(ctx, comm, c)
			if err != nil {
				return err
			}
			defer w.Close()
			n := w.Solver().Computes()
			w.AfterBackward(func(iter, layer int) {
				for _, p := range n.Layers()[layer].Params {
					g := n.Learnable()[p].Blob.Diff()
					for i := range g {
						g[i] = push(comm.Rank(), iter)
					}
				}
			})
			if _, err = w.Run(ctx); err != nil {
				return err
			}
			for i, p := range w.Solver().Net().Learnable() {
				want := -0.5 * p.LRMult * sum
				if at := slices.IndexFunc(p.Blob.Data(), func(v float32) bool { return v != want }); at >= 0 {
					t.Errorf("skip %v, rank %d: element %d of parameter %d is %v, want %v", skip, comm.Rank(), at, i, p.Blob.Data()[at], want)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestStaleAlone: where there is one worker, nobody is ahead of it, and bits are those of one that is in
// step, with its server apart too.
func TestStaleAlone(t *testing.T) {
	if testing.Short() { // other tests have as much for the race detector
		t.Skip("long")
	}
	path, _ := files(t, 30)
	want := mustRun(t, 1, path, func(_ int, c *train.Config) { c.Scheme = exchange.PS })
	for ranks := range 2 {
		got := mustRun(t, ranks+1, path, func(rank int, c *train.Config) {
			ssp(c, 2)
			if ranks > 0 {
				onlyServes(t, rank, c, []int{1}, []int{0})
			}
		})
		if !slices.Equal(got.loss, want.loss) || !bytes.Equal(got.snapshot, want.snapshot) {
			t.Errorf("%d ranks: other bits than without", ranks+1)
		}
	}
}

// TestStaleTrains: workers that are apart train, with every rule, and leave snapshots and checkpoints from
// which training goes on, by servers apart and with other workers.
func TestStaleTrains(t *testing.T) {
	for i, more := range []string{"", "iter_size: 2 display: 3", `type: "Adam" momentum2: 0.999 display: 10`} {
		if testing.Short() && i != 1 {
			continue
		}
		path, dir := files(t, 30)
		withStatistics(t, path, dir, more)
		kept := filepath.Join(dir, "kept")
		change := func(rank int, c *train.Config) {
			ssp(c, 2)
			c.Checkpoint = train.Checkpoint{Dir: kept, Every: 15}
			c.Options.SkipNotFinite = i == 1
			if i == 2 {
				onlyServes(t, rank, c, []int{1, 2, 3}, []int{0, 2})
			}
		}
		got := mustRun(t, 3+i/2, path, change)
		want := mustRun(t, 3, path, func(_ int, c *train.Config) { c.Scheme = exchange.PS })
		if n := len(got.loss); n != 40 || mean(got.loss[30:]) > 1.15*mean(want.loss[30:]) {
			t.Errorf("%q: losses %v; of workers in step %v", more, got.loss, want.loss)
		}
		manifests, err := filepath.Glob(filepath.Join(kept, "*.manifest"))
		if err != nil || len(manifests) != 2 {
			t.Errorf("%q: the checkpoints %v (%v), want those of iterations 30 and 40, or, where the disk was slow, an earlier one for the first", more, manifests, err)
		}
		for _, from := range append(manifests[:1], filepath.Join(dir, "s_iter_20.solverstate")) {
			rest := mustRun(t, 2, path, func(_ int, c *train.Config) {
				ssp(c, 1)
				c.Snapshot = from
			})
			if n := len(rest.loss); n == 0 || n > 25 || mean(rest.loss) > 1.2*mean(got.loss[40-n:]) {
				t.Errorf("%q: gone on from %s, losses %v; before %v", more, from, rest.loss, got.loss)
			}
		}
	}
}

// TestStaleStops: a stop that is asked for while workers are apart comes where they meet, with a
// snapshot.
func TestStaleStops(t *testing.T) {
	if testing.Short() { // other tests have as much for the race detector
		t.Skip("long")
	}
	path, dir := files(t, 30)
	var asked sync.Once
	got := mustRun(t, 3, path, func(rank int, c *train.Config) {
		ssp(c, 3)
		iter := 0
		c.Requests = func() (snapshot, stop bool) {
			if iter++; rank == 1 && iter > 4 {
				asked.Do(func() { stop = true })
			}
			return false, stop
		}
	})
	n := len(got.loss)
	if n < 5 || n > 5+4 {
		t.Errorf("asked to stop in iteration 4, training has ended after %d", n)
	}
	state(t, dir, n)
}

// TestStaleLossNotFinite: a loss that is not finite is told of as without, once, and nothing is advised that
// is refused.
func TestStaleLossNotFinite(t *testing.T) {
	if testing.Short() { // other tests have as much for the race detector
		t.Skip("long")
	}
	path, _ := files(t, 30)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, strings.Replace(string(text), "base_lr: 0.01", "base_lr: 1e30", 1))
	_, err = run(t, 3, path, func(_ int, c *train.Config) { ssp(c, 1) })
	if err == nil || !strings.Contains(err.Error(), " is NaN") || strings.Contains(err.Error(), "set clip_gradients") || strings.Count(err.Error(), "iteration") != 1 || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v, want one message about an iteration", err)
	}
}

// TestStaleEndsWithTheOthers: a rank that fails while others wait for its pushes ends all of them.
func TestStaleEndsWithTheOthers(t *testing.T) {
	path, _ := files(t, 30)
	wrong := errors.New("something is wrong")
	_, err := runHooked(t, 3, path, func(_ int, c *train.Config) { ssp(c, 1) }, func(rank int, w *train.Worker) {
		if rank != 1 {
			return
		}
		start := w.Solver().Callbacks.OnStart
		w.Solver().Callbacks.OnStart = func(iter int) error {
			if iter == 7 {
				return wrong
			}
			return start(iter)
		}
	})
	if err == nil || !strings.Contains(err.Error(), wrong.Error()) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v, want one message, %v", err, wrong)
	}
}

// TestStaleCannot: one message on all ranks.
func TestStaleCannot(t *testing.T) {
	for want, more := range map[string]string{"remove clip_gradients": "clip_gradients: 1", "needs --scheme ps": ""} {
		path, _ := files(t, 30)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		write(t, path, fmt.Sprintf("%s\n%s", text, more))
		_, err = run(t, 2, path, func(_ int, c *train.Config) {
			ssp(c, 1)
			if more == "" {
				c.Scheme = exchange.Reduce
			}
		})
		if err == nil || strings.Count(err.Error(), want) != 1 || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want one message with %q", err, want)
		}
	}
}
