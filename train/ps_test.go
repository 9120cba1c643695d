package train_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	pb "google.golang.org/protobuf/proto"

	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/syncer/coordinator"
	"github.com/scaffe/scaffe/train"
	"github.com/scaffe/scaffe/train/checkpoint"
)

// withStatistics puts a BatchNorm layer into the test's net, a layer large enough for
// several pairs, and what more says into its solver.
func withStatistics(t *testing.T, path, dir, more string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "net.prototxt"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "net.prototxt"), strings.NewReplacer(`layer { name: "relu1"`,
		`layer { name: "bn1" type: "BatchNorm" bottom: "conv1" top: "conv1" }
layer { name: "relu1"`, `layer { name: "ip1" type: "InnerProduct" bottom: "pool1"`,
		`layer { name: "ip0" type: "InnerProduct" bottom: "pool1" top: "ip0" inner_product_param { num_output: 30 weight_filler { type: "xavier" } } }
layer { name: "ip1" type: "InnerProduct" bottom: "ip0"`).Replace(string(text)))
	if text, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	write(t, path, strings.Replace(string(text), "max_iter: 50", "max_iter: 40", 1)+more)
}

// state reads the solver's state after so many iterations, history included.
func state(t *testing.T, dir string, iter int) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("s_iter_%d.solverstate", iter)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestPoseidon_ServersTrainAsAReduction: the KV store's servers apply the updates to their
// shards, and hold what the update rule remembers (section 4.1). Losses, scores and snapshots, the
// history in them, have the bits of reductions to one root, for any servers and pairs: with
// BatchNorm's statistics, clipped gradients and several passes too.
func TestPoseidon_ServersTrainAsAReduction(t *testing.T) {
	linear, err := spec.Parse("linear")
	if err != nil {
		t.Fatal(err)
	}
	for _, more := range []string{"", "clip_gradients: 0.5 iter_size: 2", `type: "Adam" momentum2: 0.999`} {
		path, dir := files(t, 30)
		withStatistics(t, path, dir, more)
		want := mustRun(t, 3, path, func(_ int, c *train.Config) { c.Spec, c.Bucket = linear, 1 })
		history := state(t, dir, 40)
		for i, servers := range []coordinator.Places{{}, {Ranks: []int{2}}, {Count: 2}} {
			for _, pair := range []int{4 << 10, 0} {
				d := append(exchange.All(), exchange.WFBP)[(2*i+pair/(4<<10))%5]
				got := mustRun(t, 3, path, func(_ int, c *train.Config) {
					c.Scheme, c.Servers, c.Pair, c.Design, c.Bucket = exchange.PS, servers, pair, d, 1
				})
				if !slices.Equal(got.loss, want.loss) || !slices.Equal(got.scores, want.scores) || !bytes.Equal(got.snapshot, want.snapshot) {
					t.Errorf("%q, servers %v, pairs of %d, %v: other bits than reduce's", more, servers, pair, d)
				}
				if !bytes.Equal(state(t, dir, 40), history) {
					t.Errorf("%q, servers %v, pairs of %d, %v: another history than reduce's", more, servers, pair, d)
				}
			}
		}
	}
}

// TestP3_SlicesTrainAsLayers: slices, each pushed, summed, updated and pulled by itself, in order of priority through a
// port, leave no trace in losses, scores and snapshots (P3, sections 4.2 and 5.6: accuracy is not affected): by servers, also those that are
// asked for parameters, and by a root, with BatchNorm's statistics, clipped gradients and several passes.
func TestP3_SlicesTrainAsLayers(t *testing.T) {
	linear, err := spec.Parse("linear")
	if err != nil {
		t.Fatal(err)
	}
	path, dir := files(t, 30)
	withStatistics(t, path, dir, "clip_gradients: 0.5 iter_size: 2")
	want := mustRun(t, 3, path, func(_ int, c *train.Config) { c.Spec, c.Bucket = linear, 1 })
	history := state(t, dir, 40)
	for i, scheme := range []exchange.Scheme{exchange.PS, exchange.Reduce, exchange.PS} {
		slice := []coordinator.Slice{1500, 1024, coordinator.LayerSlice}[i]
		got := mustRun(t, 3, path, func(_ int, c *train.Config) {
			c.Scheme, c.Spec, c.Bucket, c.Slice, c.Credit = scheme, linear, 1, slice, 1+i
			c.Pull = []coordinator.Pull{coordinator.PullRequest, coordinator.PullBroadcast, coordinator.PullRequest}[i]
		})
		if !slices.Equal(got.loss, want.loss) || !slices.Equal(got.scores, want.scores) || !bytes.Equal(got.snapshot, want.snapshot) || !bytes.Equal(state(t, dir, 40), history) {
			t.Errorf("%v, slices of %v: other bits than without", scheme, slice)
		}
	}
}

// onlyServes gives the ranks their roles, and fails if one that does not work reads a batch.
func onlyServes(t *testing.T, rank int, c *train.Config, workers, servers []int) {
	c.Workers.Ranks, c.Servers.Ranks = workers, servers
	if slices.Contains(workers, rank) {
		return
	}
	if rank > 0 { // its data sets are elsewhere; rank 0's snapshots have the net's own words
		c.Options.Rewrite = func(l *proto.LayerParameter) error {
			if d := l.GetDataParam(); d != nil {
				d.Source = pb.String("nowhere")
			}
			return nil
		}
	}
	c.Options.Data.OnBatch = func(int64, time.Time, time.Time) { t.Errorf("rank %d, which only serves, has read a batch", rank) }
}

// TestPoseidon_ServersApartTrainAsIfTheyWorked: nodes may be servers, workers, or both (Table 1).
// Servers that do not work read no data, and leave no trace in losses, scores and snapshots, the
// history in these, even where they write them: with BatchNorm's statistics, clipped gradients,
// several passes, skipped updates, and beside layers that go by other schemes.
func TestPoseidon_ServersApartTrainAsIfTheyWorked(t *testing.T) {
	linear, err := spec.Parse("linear")
	if err != nil {
		t.Fatal(err)
	}
	for i, k := range []struct{ more, scheme string }{
		{"", "ps"},
		{"clip_gradients: 0.5 iter_size: 2", "ps"},
		{`type: "Adam" momentum2: 0.999 display: 10`, "ps,ip0=adam,ip1=sfb,bn1=allreduce"},
		{"clip_gradients: 0.5", "reduce,ip0=ps"},
		{"", "allreduce"},
		{"iter_size: 2", "adam"},
		{"", "sfb"},
	} {
		if testing.Short() && (i == 0 || i > 3) { // with the race detector, too
			continue
		}
		path, dir := files(t, 30)
		withStatistics(t, path, dir, k.more)
		asked := ask(t, k.scheme)
		change := func(c *train.Config) {
			c.Spec, c.Bucket, c.Asked, c.Pair = linear, 1, asked, 4<<10
			c.Design = append(exchange.All(), exchange.WFBP)[i%5]
			c.Options.SkipNotFinite = i%2 == 1
		}
		want := mustRun(t, 3, path, func(_ int, c *train.Config) { change(c) })
		history := state(t, dir, 40)
		for _, roles := range [][2][]int{{{1, 2, 3}, {0}}, {{0, 2, 3}, {1, 2, 4}}} {
			got := mustRun(t, max(4, 1+slices.Max(roles[1])), path, func(rank int, c *train.Config) {
				change(c)
				onlyServes(t, rank, c, roles[0], roles[1])
				c.Checkpoint = train.Checkpoint{Dir: filepath.Join(dir, fmt.Sprint("kept", len(roles[1]))), Every: 20}
			})
			if !slices.Equal(got.loss, want.loss) || !slices.Equal(got.scores, want.scores) || !bytes.Equal(got.snapshot, want.snapshot) || !bytes.Equal(state(t, dir, 40), history) {
				t.Errorf("%v, workers and servers %v: other losses (%v), scores (%v), snapshot (%v) or history (%v) than with three ranks that work", k, roles,
					!slices.Equal(got.loss, want.loss), !slices.Equal(got.scores, want.scores), !bytes.Equal(got.snapshot, want.snapshot), !bytes.Equal(state(t, dir, 40), history))
			}
		}
		rest := mustRun(t, 4, path, func(rank int, c *train.Config) {
			change(c)
			onlyServes(t, rank, c, []int{1, 2, 3}, []int{0})
			c.Snapshot = filepath.Join(dir, "s_iter_20.solverstate")
			if i%2 == 1 { // written by other servers
				c.Snapshot = checkpoint.ManifestPath(filepath.Join(dir, "kept3"), 20)
			}
		})
		if !slices.Equal(rest.loss, want.loss[20:]) || !bytes.Equal(rest.snapshot, want.snapshot) || !bytes.Equal(state(t, dir, 40), history) {
			t.Errorf("%v: gone on from a snapshot that a server wrote, training has other bits", k)
		}
	}
}

// TestServersGoOnFromASnapshot: with the bits of a run that was not interrupted, and with
// other servers.
func TestServersGoOnFromASnapshot(t *testing.T) {
	path, dir := files(t, 30)
	withStatistics(t, path, dir, "")
	with := func(servers []int, from string) curve {
		return mustRun(t, 3, path, func(_ int, c *train.Config) {
			c.Scheme, c.Servers.Ranks, c.Pair, c.Snapshot = exchange.PS, servers, 4<<10, from
		})
	}
	whole := with([]int{0, 1, 2}, "")
	history := state(t, dir, 40)
	rest := with([]int{1, 2}, filepath.Join(dir, "s_iter_20.solverstate"))
	if !slices.Equal(rest.loss, whole.loss[20:]) || !bytes.Equal(rest.snapshot, whole.snapshot) || !bytes.Equal(state(t, dir, 40), history) {
		t.Error("the resumed run has other bits than the whole one")
	}
}

// TestPoseidon_ServersRememberTheirShardsAlone: a server holds "one shard of the globally shared model
// parameters" (section 4.1), and what the update rule remembers of it; rank 0
// too, which has all of it only while a snapshot is written.
func TestPoseidon_ServersRememberTheirShardsAlone(t *testing.T) {
	path, _ := files(t, 30)
	for scheme, least := range map[string]int{"ps": 0, "ps,ip1=sfb": 10*216 + 10} {
		whole, served, remembered := 0, make([]int, 3), make([]int, 3)
		err := launch.Run(context.Background(), launch.Options{Local: 3}, func(ctx context.Context, comm *collectives.Comm) error {
			f, err := proto.ReadSolver(path)
			if err != nil {
				return err
			}
			c := train.Config{Solver: f, Asked: ask(t, scheme), Pair: 4 << 10, Servers: coordinator.Places{Ranks: []int{0, 1}}}
			w, err := train.New(ctx, comm, c)
			if err != nil {
				return err
			}
			defer w.Close()
			if err := w.Step(ctx, 3); err != nil {
				return err
			}
			for _, s := range w.Exchange().Own() {
				served[comm.Rank()] += s.Len
			}
			if err := w.Solver().Snapshot(); err != nil {
				return err
			}
			remembered[comm.Rank()] = len(w.Solver().History()[0])
			if comm.Rank() == 0 {
				whole = w.Solver().Net().PackedCount()
			}
			return comm.Barrier(ctx)
		})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(remembered, served) || scheme == "ps" && served[0] >= whole {
			t.Errorf("%s: of %d elements they update %v and remember %v", scheme, whole, served, remembered)
		}
		if served[2] < least || served[1] < served[2] || served[1] >= whole {
			t.Errorf("%s: of %d elements they update %v", scheme, whole, served)
		}
	}
}

// TestPoseidon_AdamGoesOnFromASnapshot: a layer's one server holds what the update rule
// remembers of it (section 3.2); a snapshot has it, and a run goes on from there with the bits of one
// that was not interrupted, with another server.
func TestPoseidon_AdamGoesOnFromASnapshot(t *testing.T) {
	path, dir := files(t, 30)
	fullyConnected(t, path, dir, "")
	with := func(servers []int, from string) curve {
		return mustRun(t, 3, path, func(_ int, c *train.Config) {
			c.Asked, c.Servers.Ranks, c.Snapshot = ask(t, "adam,conv1=allreduce"), servers, from
		})
	}
	whole := with([]int{0, 1, 2}, "")
	history := state(t, dir, 30)
	rest := with([]int{1}, filepath.Join(dir, "s_iter_20.solverstate"))
	if !slices.Equal(rest.loss, whole.loss[20:]) || !bytes.Equal(rest.snapshot, whole.snapshot) || !bytes.Equal(state(t, dir, 30), history) {
		t.Error("the resumed run has other bits than the whole one")
	}
}

// TestServersThatAreNotThere: one message on all ranks.
func TestServersThatAreNotThere(t *testing.T) {
	path, _ := files(t, 30)
	for want, change := range map[string]func(*train.Config){
		"9 servers of 3 ranks":                     func(c *train.Config) { c.Servers.Count = 9 },
		"pair size 2K":                             func(c *train.Config) { c.Pair = 2 << 10 },
		"9 workers of 3 ranks":                     func(c *train.Config) { c.Workers.Count = 9 },
		"rank 3 of the workers: there are 3 ranks": func(c *train.Config) { c.Workers.Ranks = []int{0, 3} },
		"rank 1 is neither a worker nor a server":  func(c *train.Config) { c.Workers.Ranks, c.Servers.Ranks = []int{0, 2}, []int{0} },
	} {
		for _, scheme := range []exchange.Scheme{exchange.PS, exchange.Reduce} {
			_, err := run(t, 3, path, func(_ int, c *train.Config) {
				c.Scheme = scheme
				change(c)
			})
			if err == nil || strings.Count(err.Error(), want) != 1 || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v: %v, want one message with %q", scheme, err, want)
			}
		}
	}
	// Ranks whose books differ.
	_, err := run(t, 3, path, func(rank int, c *train.Config) {
		if c.Scheme = exchange.PS; rank == 1 {
			c.Servers.Ranks = []int{2}
		}
	})
	if err == nil || !strings.Contains(err.Error(), "differ in servers: ranks 0, 2 have one, rank 1 another") {
		t.Errorf("different servers: %v", err)
	}
}
