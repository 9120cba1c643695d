package exchange_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/scaffe/scaffe/collectives"
	ct "github.com/scaffe/scaffe/collectives/collectivestest"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/inproc"
	"github.com/scaffe/scaffe/syncer"
	"github.com/scaffe/scaffe/syncer/coordinator"
	"github.com/scaffe/scaffe/syncer/ps"
)

// book is the information book of n ranks of a node for the test's net, who all work.
func book(t *testing.T, n int, servers string, pair int) *coordinator.Book {
	t.Helper()
	return bookOf(t, make([]int, n), coordinator.Places{All: true}, servers, pair)
}

func bookOf(t *testing.T, nodes []int, workers coordinator.Places, servers string, pair int) *coordinator.Book {
	t.Helper()
	c := coordinator.Config{Nodes: nodes, Batch: make([]int, len(nodes)), Workers: workers, Pair: pair}
	var err error
	if c.Servers, err = coordinator.ParsePlaces(servers); err != nil {
		t.Fatal(err)
	}
	ls, _ := layers()
	for _, l := range ls {
		if len(l.Params) > 0 {
			c.Layers = append(c.Layers, coordinator.Layer{Name: l.Name, Type: "Convolution", Params: l.Params})
		}
	}
	b, err := coordinator.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// served is c with the scheme ps: every rank has a book of its own, as they do.
func served(t *testing.T, n int, servers string, pair int, c exchange.Config) [][]float32 {
	t.Helper()
	books := make([]*coordinator.Book, n)
	for r := range books {
		books[r] = book(t, n, servers, pair)
	}
	got := make([][]float32, n)
	err := launch.Run(context.Background(), launch.Options{Local: n}, func(ctx context.Context, comm *collectives.Comm) error {
		c := c
		c.Book = books[comm.Rank()]
		data, _, err := train(ctx, comm, c, 5)
		got[comm.Rank()] = data
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestPoseidon_WholeTensorsGiveTheSameBits: pairs that are parameters, as TensorFlow's shards are
// (section 5.1), each of a bucket of its own or several of one.
func TestPoseidon_WholeTensorsGiveTheSameBits(t *testing.T) {
	defer goleak.VerifyNone(t)
	want := run(t, 3, exchange.Config{Spec: parse(t, "linear"), Bucket: 2000}, 5)[0]
	for _, bucket := range []int{1, 2000} {
		got := make([][]float32, 3)
		err := launch.Run(context.Background(), launch.Options{Local: 3}, func(ctx context.Context, comm *collectives.Comm) error {
			b := book(t, 3, "all", 4096)
			b.Placement = coordinator.PlaceTensor
			data, _, err := train(ctx, comm, exchange.Config{Design: exchange.TF, Scheme: exchange.PS, Bucket: bucket, Book: b}, 5)
			got[comm.Rank()] = data
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for rank := range got {
			if !slices.Equal(got[rank], want) {
				t.Errorf("bucket %d: other bits on rank %d", bucket, rank)
			}
		}
	}
}

// TestPoseidon_ServersGiveTheBitsOfAReduction: the KV store holds the global parameters in
// shards, and a worker pushes and pulls KV pairs (section 4.1). Whoever serves which pairs,
// however large these and the buckets are, and whatever moves when, every worker ends with
// the parameters that a linear reduction to one root gives.
func TestPoseidon_ServersGiveTheBitsOfAReduction(t *testing.T) {
	defer goleak.VerifyNone(t)
	pairs := []int{4096, 16384, 1 << 20}
	if testing.Short() { // with the race detector, too
		pairs = pairs[:2]
	}
	for _, n := range []int{1, 2, 4} {
		want := run(t, n, exchange.Config{Spec: parse(t, "linear"), Bucket: 2000}, 5)[0]
		for _, servers := range []string{"all", "count:1", fmt.Sprint(n - 1), "0"} {
			for _, pair := range pairs {
				for _, bucket := range []int{1, 2000, 1 << 20} {
					for _, d := range append(exchange.All(), exchange.WFBP) {
						atOnce := bucket == 2000 && pair == 4096
						if bucket != 2000 && pair != 4096 && d != exchange.SCOBR {
							continue
						}
						c := exchange.Config{Design: d, Scheme: exchange.PS, Bucket: bucket, UpdateAtOnce: atOnce}
						for rank, got := range served(t, n, servers, pair, c) {
							if !slices.Equal(got, want) {
								t.Errorf("%d ranks, servers %s, pairs of %d, bucket %d: %v (update at once %v) has other bits on rank %d", n, servers, pair, bucket, d, atOnce, rank)
							}
						}
					}
				}
			}
		}
	}
}

// TestPoseidon_MixedWithServers: layers that servers keep in step, others that a root
// does, and others that every rank updates by itself (Algorithm 1 chooses for each).
func TestPoseidon_MixedWithServers(t *testing.T) {
	defer goleak.VerifyNone(t)
	mixed := make([]exchange.Scheme, len(sizes))
	for i := range mixed {
		mixed[i] = []exchange.Scheme{exchange.PS, exchange.Reduce, exchange.Allreduce}[i%3]
	}
	for _, d := range append(exchange.All(), exchange.WFBP) {
		for _, atOnce := range []bool{false, true} {
			c := exchange.Config{Design: d, Spec: parse(t, "linear"), Bucket: 1, UpdateAtOnce: atOnce}
			want := run(t, 3, c, 5)[0]
			c.Schemes = mixed
			for rank, got := range served(t, 3, "1,2", 4096, c) {
				if !slices.Equal(got, want) {
					t.Errorf("%v (update at once %v) with three schemes has other bits on rank %d than with reduce", d, atOnce, rank)
				}
			}
		}
	}
}

// on trains on ranks of this process that lie on nodes, of which workers work, and returns the
// workers' parameters.
func on(t *testing.T, nodes, workers []int, servers string, pair int, c exchange.Config) [][]float32 {
	t.Helper()
	books := make([]*coordinator.Book, len(nodes))
	for r := range books {
		books[r] = bookOf(t, nodes, coordinator.Places{Ranks: workers}, servers, pair)
	}
	got := make([][]float32, len(workers))
	w := inproc.NewWorld(len(nodes), inproc.Options{Nodes: nodes})
	for _, err := range ct.World(len(nodes), w.Open, nbc.Options{Deadline: 10 * time.Minute}, func(comm *collectives.Comm, _ *nbc.Engine) error {
		c, ctx := c, context.Background()
		c.Book = books[comm.Rank()]
		var err error
		if c.Team, err = syncer.NewTeam(ctx, comm, workers, c.Book.Servers); err != nil {
			return err
		}
		defer c.Team.Close()
		data, _, err := train(ctx, comm, c, 5)
		if i := slices.Index(workers, comm.Rank()); i >= 0 {
			got[i] = data
		}
		return errors.Join(err, comm.Barrier(ctx))
	}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	return got
}

// TestPoseidon_ServersApartGiveTheSameBits: nodes may be servers, workers, or both (Table 1 has
// the costs of each). Workers end with the parameters that they have without servers apart,
// wherever these are and whatever they serve, and layers of other schemes move between workers
// alone.
func TestPoseidon_ServersApartGiveTheSameBits(t *testing.T) {
	defer goleak.VerifyNone(t)
	mixed := make([]exchange.Scheme, len(sizes))
	for i := range mixed {
		mixed[i] = []exchange.Scheme{exchange.PS, exchange.Reduce, exchange.Allreduce}[i%3]
	}
	for _, k := range []struct {
		nodes, workers []int
		servers        string
	}{
		{[]int{0, 0}, []int{1}, "0"},
		{[]int{0, 0, 0, 0}, []int{0, 1, 2}, "3"},
		{[]int{0, 0, 0, 0, 0}, []int{1, 2, 4}, "0,3"},
		{[]int{0, 1, 2, 3, 4}, []int{1, 2, 4}, "0,2,3"},
		{[]int{1, 0, 0, 1, 1, 2}, []int{1, 2, 3, 5}, "0,4"},
		{[]int{0, 1, 1, 2, 2}, []int{1, 2, 3, 4}, "0"},
	} {
		var nodes, all []int
		for i, r := range k.workers {
			nodes, all = append(nodes, k.nodes[r]), append(all, i)
		}
		for i, d := range append(exchange.All(), exchange.WFBP) {
			c := exchange.Config{Design: d, Spec: ps.Spec(spec.LayoutOf(nodes)), Bucket: []int{1, 2000}[i%2], UpdateAtOnce: i%3 == 1}
			want := on(t, nodes, all, "all", 4096, c)[0]
			for _, schemes := range [][]exchange.Scheme{slices.Repeat([]exchange.Scheme{exchange.PS}, len(sizes)), mixed} {
				c.Schemes = schemes
				for i, got := range on(t, k.nodes, k.workers, k.servers, 4096, c) {
					if !slices.Equal(got, want) {
						t.Errorf("%v, %v: other bits at worker %d (%v) than without servers apart", k, d, i, schemes)
					}
				}
			}
		}
	}
}

// TestServersNeedABook: and one of this net.
func TestServersNeedABook(t *testing.T) {
	err := launch.Run(context.Background(), launch.Options{Local: 2}, func(ctx context.Context, comm *collectives.Comm) error {
		if _, _, err := train(ctx, comm, exchange.Config{Scheme: exchange.PS}, 1); err == nil || !strings.Contains(err.Error(), "needs an information book") {
			t.Errorf("no book: %v", err)
		}
		other := book(t, 2, "all", 4096)
		other.Layers[1].Name = "another"
		if _, _, err := train(ctx, comm, exchange.Config{Scheme: exchange.PS, Book: other}, 1); err == nil || !strings.Contains(err.Error(), `layer "l2" is not in its place`) {
			t.Errorf("another net's book: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
