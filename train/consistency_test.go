package train_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "google.golang.org/protobuf/proto"

	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/caffe/solver"
	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/syncer/coordinator"
	"github.com/scaffe/scaffe/train"
	"github.com/scaffe/scaffe/train/checkpoint"
)

func TestConsistencyText(t *testing.T) {
	for text, want := range map[string]train.Consistency{"bsp": {}, "drop:50ms": {Drop: 50 * time.Millisecond}, "drop:1m30s": {Drop: 90 * time.Second}, "ssp:0": {SSP: true}, "ssp:12": {SSP: true, Staleness: 12}} {
		c, err := train.ParseConsistency(text)
		if back := c.String(); err != nil || c != want || back != text {
			t.Errorf("%q: %v (%v), %v", text, c, back, err)
		}
	}
	for want, texts := range map[string][]string{
		"drop:50ms":  {"", "drop", "drop:", "drop:0s", "drop:-1ms", "drop:5", "late", "bsp:1", "ssp"},
		"want ssp:S": {"ssp:", "ssp:-1", "ssp:x", "ssp:1.5", "ssp:1001"},
	} {
		for _, text := range texts {
			if c, err := train.ParseConsistency(text); err == nil || c != (train.Consistency{}) || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, %v, want an error with %q", text, c, err, want)
			}
		}
	}
}

// TestPoseidon_NobodyLate: where no push is delayed, stragglers' handling (section 4.1) leaves no trace
// in the bits: with BatchNorm's statistics, several passes, clipped gradients, servers apart, all designs,
// and from a snapshot.
func TestPoseidon_NobodyLate(t *testing.T) {
	t.Cleanup(train.LateAfter(func(time.Duration) <-chan time.Time { return nil }))
	for i, more := range []string{"", "clip_gradients: 0.5 iter_size: 2 display: 10", `type: "Adam" momentum2: 0.999 display: 10 test_initialization: false`} {
		if testing.Short() && i == 0 {
			continue
		}
		path, dir := files(t, 30)
		withStatistics(t, path, dir, more)
		ps := func(c *train.Config) {
			c.Scheme, c.Pair, c.Design, c.Bucket = exchange.PS, 4<<10, append(exchange.All(), exchange.WFBP)[i], 1
		}
		want := mustRun(t, 3, path, func(_ int, c *train.Config) { ps(c) })
		history := state(t, dir, 40)
		drop := func(c *train.Config) {
			ps(c)
			c.Consistency.Drop = time.Second
			c.Options.SkipNotFinite = i == 1
		}
		got := mustRun(t, 3, path, func(_ int, c *train.Config) { drop(c) })
		apart := mustRun(t, 4, path, func(rank int, c *train.Config) {
			drop(c)
			onlyServes(t, rank, c, []int{1, 2, 3}, []int{0})
		})
		for name, got := range map[string]curve{"drop": got, "drop, a server apart": apart} {
			if !slices.Equal(got.loss, want.loss) || !slices.Equal(got.scores, want.scores) || !bytes.Equal(got.snapshot, want.snapshot) || !bytes.Equal(state(t, dir, 40), history) {
				t.Errorf("%q, %s: other losses (%v), scores (%v), snapshot (%v) or history (%v) than where all are waited for", more, name,
					!slices.Equal(got.loss, want.loss), !slices.Equal(got.scores, want.scores), !bytes.Equal(got.snapshot, want.snapshot), !bytes.Equal(state(t, dir, 40), history))
			}
		}
		rest := mustRun(t, 3, path, func(_ int, c *train.Config) {
			drop(c)
			c.Snapshot = dir + "/s_iter_20.solverstate"
		})
		if !slices.Equal(rest.loss, want.loss[20:]) || !bytes.Equal(rest.snapshot, want.snapshot) {
			t.Errorf("%q: gone on from a snapshot, training has other bits", more)
		}
	}
}

// late trains on three ranks, of which held reads nothing until rank 0 has ended its twelfth
// iteration. Then rank 0 gives it time at the end of every iteration, until it is in again.
func late(t *testing.T, path string, held int, change func(rank int, c *train.Config)) (got curve, dropped []train.Dropped, s train.Summary) {
	t.Helper()
	released := make(chan any)
	var once sync.Once
	let := func() { once.Do(func() { close(released) }) }
	defer let()
	// While it is held, who is not there when the median worker is, is late at once; later nobody is.
	fired := make(chan time.Time)
	close(fired)
	defer train.LateAfter(func(time.Duration) <-chan time.Time {
		select {
		case <-released:
			return nil
		default:
			return fired
		}
	})()
	got, err := run(t, 3, path, func(rank int, c *train.Config) {
		c.Scheme, c.Pair, c.Consistency.Drop = exchange.PS, 4<<10, time.Hour
		if rank == held {
			c.Options.Data.OnBatch = func(int64, time.Time, time.Time) { <-released }
		}
		c.Events.OnDropped = func(d train.Dropped) { dropped = append(dropped, d) }
		c.Events.OnProgress = func(p train.Progress) {
			s = p.Summary
			if p.Iter < 12 {
				return
			}
			let()
			if n := len(dropped); n > 0 && dropped[n-1].Iter == p.Iter { // not back yet
				time.Sleep(50 * time.Millisecond)
			}
		}
		change(rank, c)
	})
	if err != nil {
		t.Fatal(err)
	}
	return got, dropped, s
}

// without trains on three ranks that wait for each other, with the gradients of those that were
// dropped left out by hand and the others' weighed by the samples in it.
func without(t *testing.T, path string, dropped []train.Dropped, change func(rank int, c *train.Config)) (losses []float64, snapshot []byte) {
	t.Helper()
	out := map[int][]int{}
	for _, d := range dropped {
		out[d.Iter] = d.Late
	}
	weight := func(iter, rank int) float32 {
		switch {
		case slices.Contains(out[iter], rank):
			return 0
		case len(out[iter]) > 0:
			return 30. / 20
		}
		return 1
	}
	opts := launch.Options{Local: 3, Engine: nbc.Options{Deadline: 10 * time.Minute}}
	err := launch.Run(context.Background(), opts, func(ctx context.Context, comm *collectives.Comm) error {
		f, err := proto.ReadSolver(path)
		if err != nil {
			return err
		}
		c := train.Config{Solver: f, Scheme: exchange.PS, Pair: 4 << 10, Events: train.Events{Solver: solver.Events{
			OnIteration: func(i solver.Iteration) { losses = append(losses, float64(i.Loss)) },
			OnSnapshot: func(s solver.Snapshot) {
				if snapshot, err = os.ReadFile(s.Model); err != nil {
					t.Error(err)
				}
			},
		}}}
		change(comm.Rank(), &c)
		w, err := train.New(ctx, comm, c)
		if err != nil {
			return err
		}
		defer w.Close()
		n := w.Solver().Net()
		after, loss := w.Solver().Hooks.AfterBackward, w.Solver().Callbacks.OnLoss
		w.Solver().Hooks.AfterBackward = func(layer int) error {
			_, diff := n.Packed()
			for _, p := range n.Layers()[layer].Params {
				at := n.Learnable()[p]
				for i := range at.Blob.Count() {
					mem.Float32s(diff)[at.Offset+i] *= weight(w.Solver().Iter(), comm.Rank())
				}
			}
			return after(layer)
		}
		w.Solver().Callbacks.OnLoss = func(iter int, part float64) error {
			return loss(iter, part*float64(weight(iter, comm.Rank())))
		}
		_, err = w.Run(ctx)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return losses, snapshot
}

// TestPoseidon_DropsTheStraggler: "Poseidon handles stragglers by simply dropping them" (section 4.1):
// a worker that is late is left out of iterations, the sum is weighed by the samples in it, and it
// goes on with the newest parameters, and their iteration's batch. The bits are those of the same
// sums made by hand. The lowest worker, which is the lowest server, may be the late one.
func TestPoseidon_DropsTheStraggler(t *testing.T) {
	for _, held := range []int{2, 0} {
		path, dir := files(t, 30)
		if held > 0 { // BatchNorm's statistics stay the lowest worker's
			withStatistics(t, path, dir, "")
		}
		roles := func(_ int, c *train.Config) {
			c.Solver.Solver.Snapshot = pb.Int32(10) // the first while a worker is behind
			if held == 0 {
				c.Servers.Ranks = []int{1, 2}
			}
		}
		got, dropped, s := late(t, path, held, roles)
		early := state(t, dir, 10)
		n := len(dropped)
		if n < 12 || n >= s.Iterations {
			t.Errorf("rank %d was left out of %d iterations", held, n)
		}
		for i, d := range dropped {
			if d.Iter != i || !slices.Equal(d.Late, []int{held}) {
				t.Errorf("rank %d is held: %+v", held, d)
			}
		}
		if want := s.Iterations*30 - 10*n; s.Images != want || s.LeftOutOf(held) != n || s.LeftOutOf(1) != 0 {
			t.Errorf("%d images, left out %v; want %d, and %d of rank %d", s.Images, s.LeftOut, want, n, held)
		}
		loss, snapshot := without(t, path, dropped, roles)
		if !slices.Equal(got.loss, loss) {
			t.Errorf("rank %d held: losses %v, by hand %v", held, got.loss, loss)
		}
		if !bytes.Equal(got.snapshot, snapshot) {
			t.Errorf("rank %d held: other parameters than by hand", held)
		}
		if !bytes.Equal(early, state(t, dir, 10)) {
			t.Errorf("rank %d held: another history than by hand in the snapshot of iteration 10, when it was behind", held)
		}
	}
}

// TestDropGoesOnFromWhereAWorkerWasBehind: a snapshot and a checkpoint that were written while a worker was
// behind have in them what those of the same sums made by hand have, and training goes on from them
// alike.
func TestDropGoesOnFromWhereAWorkerWasBehind(t *testing.T) {
	if testing.Short() { // other tests have as much for the race detector
		t.Skip("long")
	}
	const at = 5 // rank 2 is held until the twelfth
	files := func() (path, dir, set string, change func(int, *train.Config)) {
		path, dir = files(t, 30)
		withStatistics(t, path, dir, "")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		write(t, path, strings.NewReplacer("snapshot: 20", "snapshot: 5", "max_iter: 40", "max_iter: 25").Replace(string(text)))
		set = t.TempDir() // a copy
		return path, dir, set, func(_ int, c *train.Config) {
			c.Checkpoint = train.Checkpoint{Dir: filepath.Join(dir, "sets"), Every: at}
			c.Events.OnCheckpoint = func(p train.Checkpointed) {
				if p.Iter == at {
					copySet(t, c.Checkpoint.Dir, set, at)
				}
			}
		}
	}
	path, dir, set, change := files()
	_, dropped, _ := late(t, path, 2, change)
	if n := len(dropped); n <= at || dropped[at].Iter != at {
		t.Fatalf("nobody was behind in iteration %d: %v", at, dropped)
	}
	byHand, handDir, handSet, change := files()
	without(t, byHand, dropped, change)
	defer train.LateAfter(func(time.Duration) <-chan time.Time { return nil })()
	for what, from := range map[string][2]string{
		"a snapshot":   {filepath.Join(dir, "s_iter_5.solverstate"), filepath.Join(handDir, "s_iter_5.solverstate")},
		"a checkpoint": {checkpoint.ManifestPath(set, at), checkpoint.ManifestPath(handSet, at)},
	} {
		rest := func(path, from string, drop time.Duration) curve {
			return mustRun(t, 3, path, func(_ int, c *train.Config) {
				c.Scheme, c.Pair, c.Snapshot, c.Consistency.Drop = exchange.PS, 4<<10, from, drop
			})
		}
		got, want := rest(path, from[0], time.Hour), rest(byHand, from[1], 0)
		model := bytes.ReplaceAll(want.snapshot, []byte(handDir), []byte(dir)) // where its data is
		if len(got.loss) != 25-at || !slices.Equal(got.loss, want.loss) || !bytes.Equal(got.snapshot, model) {
			t.Errorf("gone on from %s: %d losses, other bits than by hand", what, len(got.loss))
		}
	}
}

// TestDropSkips: a gradient that is NaN costs the update of an iteration, and no more, with the bits that it
// has where all are waited for.
func TestDropSkips(t *testing.T) {
	if testing.Short() { // other tests have as much for the race detector
		t.Skip("long")
	}
	defer train.LateAfter(func(time.Duration) <-chan time.Time { return nil })()
	path, _ := files(t, 30)
	skips := func(c *train.Config) *int {
		n := new(int)
		c.Scheme, c.Pair, c.Options.SkipNotFinite = exchange.PS, 4<<10, true
		c.Events.Solver.OnSkip = func(solver.Skip) { *n++ }
		return n
	}
	want, err := runPoisoned(t, path, func(_ int, c *train.Config) { skips(c) })
	if err != nil {
		t.Fatal(err)
	}
	var skipped [2]*int
	got, err := runHooked(t, 2, path, func(rank int, c *train.Config) {
		skipped[rank] = skips(c)
		c.Consistency.Drop = time.Hour
	}, func(rank int, w *train.Worker) {
		if rank != 1 {
			return
		}
		n := w.Solver().Computes()
		w.AfterBackward(func(iter, layer int) {
			if iter == 7 && n.LayerName(layer) == "ip1" {
				n.Learnable()[n.Layers()[layer].Params[0]].Blob.Diff()[3] = float32(math.NaN())
			}
		})
	})
	if err != nil || *skipped[0] != 1 || !slices.Equal(got.loss, want.loss) || !bytes.Equal(got.snapshot, want.snapshot) {
		t.Errorf("%v, %d skipped; want one skipped, and the bits of workers that are waited for", err, *skipped[0])
	}
}

// TestDropEndsWithTheOthers: a rank that fails while another is held back ends all of them, with its
// error.
func TestDropEndsWithTheOthers(t *testing.T) {
	path, _ := files(t, 30)
	failed := make(chan any)
	wrong := errors.New("something is wrong")
	opts := launch.Options{Local: 3, Engine: nbc.Options{Deadline: 10 * time.Minute}}
	err := launch.Run(context.Background(), opts, func(ctx context.Context, comm *collectives.Comm) error {
		f, err := proto.ReadSolver(path)
		if err != nil {
			return err
		}
		c := train.Config{Solver: f, Scheme: exchange.PS, Consistency: train.Consistency{Drop: time.Millisecond}}
		if comm.Rank() == 2 {
			c.Options.Data.OnBatch = func(int64, time.Time, time.Time) { <-failed }
		}
		w, err := train.New(ctx, comm, c)
		if err != nil {
			return err
		}
		defer w.Close()
		if comm.Rank() == 1 {
			start := w.Solver().Callbacks.OnStart
			w.Solver().Callbacks.OnStart = func(iter int) error {
				if iter == 3 {
					defer close(failed)
					return wrong
				}
				return start(iter)
			}
		}
		_, err = w.Run(ctx)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), wrong.Error()) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v, want one message, %v", err, wrong)
	}
}

// TestConsistencyIsTheServers: one message on all ranks.
func TestConsistencyIsTheServers(t *testing.T) {
	path, _ := files(t, 30)
	for want, change := range map[string]func(rank int, c *train.Config){
		"needs --scheme ps for all layers": func(_ int, c *train.Config) { c.Scheme = exchange.Reduce },
		"for all layers":                   func(_ int, c *train.Config) { c.Asked = ask(t, "ps,ip1=sfb") },
		"remove --pull request": func(_ int, c *train.Config) {
			c.Scheme, c.Pull, c.Consistency = exchange.PS, coordinator.PullRequest, train.Consistency{SSP: true}
		},
		"differ in consistency": func(rank int, c *train.Config) {
			if c.Scheme = exchange.PS; rank == 1 {
				c.Consistency.Drop = time.Second
			}
		},
	} {
		_, err := run(t, 3, path, func(rank int, c *train.Config) {
			c.Consistency.Drop = time.Minute
			change(rank, c)
		})
		if err == nil || strings.Count(err.Error(), want) != 1 || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want one message with %q", err, want)
		}
	}
}

// TestApartNotFinite: a worker whose numbers go wrong, in passes that run apart, ends training with one
// message, or what it has of that iteration is left out, by all servers alike, and training goes on.
func TestApartNotFinite(t *testing.T) {
	for i, consistency := range []train.Consistency{{SSP: true, Staleness: 1}, {SSP: true, Staleness: 1}, {Drop: time.Hour}, {Drop: time.Hour}} {
		skip := i%2 == 1
		if testing.Short() && !skip {
			continue
		}
		path, _ := files(t, 30)
		var skipped []solver.Skip
		_, err := runHooked(t, 3, path, func(_ int, c *train.Config) {
			c.Solver.Solver.MaxIter = pb.Int32(12)
			c.Scheme, c.Pair, c.Consistency = exchange.PS, 4<<10, consistency
			c.Options.SkipNotFinite = skip
			c.Events.Solver.OnSkip = func(s solver.Skip) { skipped = append(skipped, s) }
		}, func(rank int, w *train.Worker) {
			if rank != 1 {
				return
			}
			n := w.Solver().Computes()
			w.AfterBackward(func(iter, layer int) {
				if iter == 7 && n.LayerName(layer) == "conv1" {
					n.Learnable()[n.Layers()[layer].Params[0]].Blob.Diff()[3] = float32(math.NaN())
				}
			})
		})
		if skip && (err != nil || len(skipped) != 1 || skipped[0].Iter != 7) {
			t.Errorf("%v: %v, skipped %v; want iteration 7 alone to be skipped", consistency, err, skipped)
		}
		if !skip && (err == nil || !strings.Contains(err.Error(), "iteration 7: a gradient is NaN, that of parameter") || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%v: %v, want one message about the gradient", consistency, err)
		}
	}
}
