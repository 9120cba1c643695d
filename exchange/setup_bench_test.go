package exchange_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/scaffe/scaffe/collectives"
	ct "github.com/scaffe/scaffe/collectives/collectivestest"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/inproc"
	"github.com/scaffe/scaffe/syncer/coordinator"
)

// BenchmarkSetUpOfSlices is how long 8 ranks of this process take to make the exchange of 20,000 slices, each with
// a push and a pull of its own: s on the slowest.
func BenchmarkSetUpOfSlices(b *testing.B) {
	const ranks, slices, layers, size = 8, 20_000, 50, 1024
	var ls []exchange.Layer
	for i := range layers {
		n := slices / layers * size
		ls = append(ls, exchange.Layer{Name: fmt.Sprintf("l%d", i), Params: []exchange.Range{{Off: i * n, Len: n}}})
	}
	data, diff := make([]float32, slices*size), make([]float32, slices*size) // nothing moves: one will do for all
	nodes := []int{0, 1, 2, 3, 4, 5, 6, 7}
	for _, scheme := range []exchange.Scheme{exchange.PS, exchange.Reduce} {
		b.Run(scheme.String(), func(b *testing.B) {
			for b.Loop() {
				w := inproc.NewWorld(ranks, inproc.Options{Nodes: nodes})
				var mu sync.Mutex
				var slowest time.Duration
				errs := ct.World(ranks, w.Open, nbc.Options{}, func(comm *collectives.Comm, _ *nbc.Engine) error {
					c := exchange.Config{
						Layers: ls, Scheme: scheme, Spec: parse(b, "binomial"), Bucket: 1, Slice: size, Credit: 2,
						Data: mem.Of(data), Diff: mem.Of(diff), OnSum: func(int, exchange.Sum) error { return nil },
					}
					began := time.Now()
					k := coordinator.Config{
						Nodes: nodes, Batch: make([]int, ranks), Slice: size,
						Workers: coordinator.Places{All: true}, Servers: coordinator.Places{All: true},
					}
					for _, l := range ls {
						k.Layers = append(k.Layers, coordinator.Layer{Name: l.Name, Params: l.Params})
					}
					var err error
					if c.Book, err = coordinator.New(k); err != nil {
						return err
					}
					x, err := exchange.New(context.Background(), comm, c)
					if err != nil {
						return err
					}
					took := time.Since(began)
					mu.Lock()
					slowest = max(slowest, took)
					mu.Unlock()
					defer x.Close()
					return comm.Barrier(context.Background())
				})
				if err := errors.Join(errs...); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(slowest.Seconds(), "s")
			}
		})
	}
}
