package train_test

import (
	"context"
	"math"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/syncer/coordinator"
	"github.com/scaffe/scaffe/train"
)

// TestIterationsAllocateNothing: in steady state, whatever the design, on any
// number of ranks.
func TestIterationsAllocateNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "solver.prototxt")
	write(t, filepath.Join(dir, "net.prototxt"), `
layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {
  shape { dim: 6 dim: 40 } shape { dim: 6 } data_filler { type: "constant" value: 1 } data_filler { type: "constant" value: 3 } } }
layer { name: "ip1" type: "InnerProduct" bottom: "data" top: "ip1" inner_product_param { num_output: 50 weight_filler { type: "xavier" } } }
layer { name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2" inner_product_param { num_output: 20 weight_filler { type: "xavier" } } }
layer { name: "ip3" type: "InnerProduct" bottom: "ip2" top: "ip3" inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip3" bottom: "label" top: "loss" }
`)
	write(t, path, `net: "`+dir+`/net.prototxt" base_lr: 0.001 momentum: 0.9 lr_policy: "fixed" max_iter: 1000
snapshot_after_train: false snapshot_prefix: "s"`)
	apart := train.Config{Scheme: exchange.PS, Bucket: 1, Workers: coordinator.Places{Ranks: []int{1, 2}}, Servers: coordinator.Places{Ranks: []int{0}}}
	if perIteration := allocations(t, path, 3, apart); perIteration >= 1 {
		t.Errorf("2 workers and a server: %.1f allocations an iteration", perIteration)
	}
	for _, k := range []train.Consistency{{SSP: true, Staleness: 2}, {Drop: time.Minute}, {Drop: time.Nanosecond}} {
		if perIteration := allocations(t, path, 3, train.Config{Scheme: exchange.PS, Bucket: 1, Consistency: k}); perIteration >= 1 {
			t.Errorf("%v: %.1f allocations an iteration", k, perIteration)
		}
	}
	for _, scheme := range []exchange.Scheme{exchange.PS, exchange.Reduce} { // ip1 is two slices
		c := train.Config{Scheme: scheme, Bucket: 1, Slice: 1024, Credit: 1}
		if perIteration := allocations(t, path, 3, c); perIteration >= 1 {
			t.Errorf("%v in slices: %.1f allocations an iteration", scheme, perIteration)
		}
	}
	for _, ranks := range []int{1, 3} {
		for _, d := range append(exchange.All(), exchange.WFBP) {
			for _, scheme := range []exchange.Scheme{exchange.Reduce, exchange.Allreduce, exchange.PS, exchange.SFB, exchange.Adam, exchange.OneBit, exchange.DGC} {
				if testing.Short() && d != exchange.SCOBR && (scheme == exchange.Adam || scheme == exchange.OneBit) {
					continue // their requests are those of ps and sfb
				}
				perIteration := allocations(t, path, ranks, train.Config{Design: d, Asked: &coordinator.Asked{Default: scheme}, Bucket: 1})
				if perIteration >= 1 {
					t.Errorf("%d ranks, %v, %v: %.1f allocations an iteration", ranks, d, scheme, perIteration)
				}
			}
		}
	}
}

// allocations returns how many there are in an iteration, over all ranks of a run, when it has come to its steady state: what
// grows when ranks are late does so in the first rounds, and fewer than one an iteration ends the test.
func allocations(t *testing.T, path string, ranks int, c train.Config) float64 {
	const warm, measured, rounds = 50, 50, 6
	var perIteration atomic.Uint64 // as bits
	err := launch.Run(context.Background(), launch.Options{Local: ranks}, func(ctx context.Context, comm *collectives.Comm) error {
		cfg := c
		var err error
		if cfg.Solver, err = proto.ReadSolver(path); err != nil {
			return err
		}
		w, err := train.New(ctx, comm, cfg)
		if err != nil {
			return err
		}
		defer w.Close()
		mallocs := func() (n uint64, err error) {
			if err := w.Exchange().Current(); err != nil {
				return 0, err
			}
			if comm.Rank() == 0 {
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				n = m.Mallocs
			}
			return n, comm.Barrier(ctx)
		}
		if err := w.Step(ctx, warm); err != nil {
			return err
		}
		for range rounds {
			before, err := mallocs()
			if err != nil {
				return err
			}
			if err := w.Step(ctx, measured); err != nil {
				return err
			}
			after, err := mallocs()
			if err != nil {
				return err
			}
			if comm.Rank() == 0 {
				perIteration.Store(math.Float64bits(float64(after-before) / measured))
			}
			if err := comm.Barrier(ctx); err != nil {
				return err
			}
			if math.Float64frombits(perIteration.Load()) < 1 {
				break
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return math.Float64frombits(perIteration.Load())
}
