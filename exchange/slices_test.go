package exchange_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/scaffe/scaffe/collectives"
	ct "github.com/scaffe/scaffe/collectives/collectivestest"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/faulty"
	"github.com/scaffe/scaffe/nbc/inproc"
	"github.com/scaffe/scaffe/syncer/coordinator"
	"github.com/scaffe/scaffe/trace"
)

// sliced is a net whose larger layers are several slices, some of them large enough for a port to hold back.
func sliced() (ls []exchange.Layer) {
	at := 0
	for i, sizes := range [][]int{{900, 30}, {}, {23_000, 100}, {3000}, {2500, 1}} {
		l := exchange.Layer{Name: fmt.Sprintf("l%d", i)}
		for _, n := range sizes {
			l.Params = append(l.Params, exchange.Range{Off: at, Len: n})
			at += (n + 15) / 16 * 16
		}
		ls = append(ls, l)
	}
	return ls
}

// moved is what an event out of order names.
var moved = regexp.MustCompile(`^((slice|KV pair) \d+ of )?l\d|^(reduce|bcast|allreduce)#`)

// disordered takes what does not go in the order of urgency on a rank.
type disordered struct {
	mu     sync.Mutex
	events []trace.Event
}

func (d *disordered) Add(e trace.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, e)
}

// is checks that each of what o counts has been told of, as what it was and when.
func (d *disordered) is(t *testing.T, o nbc.Order) {
	t.Helper()
	count := map[trace.Kind]int64{}
	var longest time.Duration
	for _, e := range d.events {
		count[e.Kind]++
		longest = max(longest, e.End.Sub(e.Begin))
		if !moved.MatchString(e.Name) || e.Iter < 0 || e.Iter > 3 || e.End.Before(e.Begin) {
			t.Errorf("%+v", e)
		}
	}
	if len(count) > 2 || count[trace.LetGo] != o.Patience || count[trace.Overtaken] != o.Inversions+o.Sums || longest > o.Longest {
		t.Errorf("%v and %v at most are told of, where there were %v", count, longest, o)
	}
}

// amid trains the net of sliced on ranks of this process that lie on nodes, whose messages are late, and pairs
// placed, as the seed says, and returns every rank's parameters, and what became of the order of its messages.
func amid(t *testing.T, nodes []int, seed uint64, c exchange.Config) (got [][]float32, order nbc.Order) {
	t.Helper()
	c.Layers = sliced()
	got = make([][]float32, len(nodes))
	orders := make([]nbc.Order, len(nodes))
	w := inproc.NewWorld(len(nodes), inproc.Options{Seed: seed, Nodes: nodes})
	open := func(rank int) func() (nbc.Transport, error) {
		return func() (nbc.Transport, error) {
			t, err := w.Open(rank)()
			return faulty.Wrap(t, faulty.Plan{Seed: seed, Delay: int(seed % 4), Reorder: seed%2 == 1}), err
		}
	}
	errs := ct.World(len(nodes), open, nbc.Options{}, func(comm *collectives.Comm, e *nbc.Engine) error {
		c, err := c, error(nil)
		b := coordinator.Config{
			Nodes: nodes, Batch: make([]int, len(nodes)), Slice: c.Slice, Placement: coordinator.Placement(seed % 3), Seed: int64(seed),
			Workers: coordinator.Places{All: true}, Servers: coordinator.Places{All: true},
		}
		for _, l := range c.Layers {
			if len(l.Params) > 0 {
				b.Layers = append(b.Layers, coordinator.Layer{Name: l.Name, Params: l.Params})
			}
		}
		if c.Book, err = coordinator.New(b); err != nil {
			return err
		}
		var told disordered
		c.Disorder = &told
		got[comm.Rank()], _, err = train(context.Background(), comm, c, 4)
		orders[comm.Rank()] = e.Order()
		told.is(t, orders[comm.Rank()])
		return errors.Join(err, comm.Barrier(context.Background()))
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for _, o := range orders {
		order = order.Add(o)
	}
	return got, order
}

// TestP3_SlicesOrderAndCreditChangeNoBit: parameters are cut into slices, each of which is summed, updated and
// brought back by itself, the most urgent first (section 4.2). With ps, and with reductions by linear, chain and
// binomial, that changes no bit, whatever the slices, their servers, the credit, the design and the delays; nor do
// credit and design with ring and direct, where slices are equal. With a credit nothing less urgent begins while a slice is
// ready to leave, and without one nothing is added; the counts say so.
func TestP3_SlicesOrderAndCreditChangeNoBit(t *testing.T) {
	defer goleak.VerifyNone(t)
	designs := []exchange.Design{exchange.SCOBR, exchange.WFBP, exchange.SCB, exchange.SCOBNaive}
	seed, letGo := uint64(0), int64(0)
	for _, k := range []struct {
		scheme exchange.Scheme
		spec   string
		like   string // a reduction with the same bits, uncut; "": those of slices differ from it
	}{
		{exchange.PS, "", "linear"},
		{exchange.Reduce, "linear", "linear"},
		{exchange.Reduce, "chain,chunk=2K", "chain,chunk=2K"},
		{exchange.Reduce, "binomial", "binomial"},
		{exchange.Allreduce, "ring,chunk=2K", ""},
		{exchange.Allreduce, "direct", ""},
	} {
		nodes := []int{0, 1, 2, 3}
		bucket := 1 + 8000*int(seed%2)
		var want []float32
		if k.like != "" {
			got, _ := amid(t, nodes, 0, exchange.Config{Scheme: exchange.Reduce, Spec: parse(t, k.like), Bucket: bucket})
			want = got[0]
		}
		for _, slice := range []coordinator.Slice{1024, 5000, 7777, coordinator.LayerSlice} {
			if k.like == "" {
				want = nil
			}
			for _, credit := range []int{0, 1, 3} {
				seed++
				if testing.Short() && seed%3 != 0 && slice != 5000 {
					continue
				}
				d := designs[seed%4]
				got, order := amid(t, nodes, seed, exchange.Config{
					Design: d, Scheme: k.scheme, Spec: parse(t, k.spec), Bucket: bucket, Slice: slice, Credit: credit, UpdateAtOnce: seed%5 == 0,
				})
				if want == nil {
					want = got[0]
				}
				if k.scheme == exchange.PS && credit == 1 && slice > 4096 && seed%3 != uint64(coordinator.PlaceKVStore) && order.Longest == 0 {
					t.Errorf("seed %d: no slice of %v has waited at a port", seed, slice)
				}
				letGo += order.Patience
				if order.Sums != 0 || credit > 0 && order.Inversions != 0 {
					t.Errorf("seed %d: %v by %q, %v, slices of %v, credit %d: %v", seed, k.scheme, k.spec, d, slice, credit, order)
				}
				for rank := range got {
					if !slices.Equal(got[rank], want) {
						t.Errorf("seed %d: %v by %q, %v, slices of %v, credit %d: other bits on rank %d", seed, k.scheme, k.spec, d, slice, credit, rank)
					}
				}
			}
		}
	}
	if letGo == 0 {
		t.Error("patience has let nothing go: no event of it has been seen")
	}
}

// TestP3_EachSliceMovesByItself: a layer of several slices is so many parts, each updated by itself; one that is not
// cut is updated at once (section 4.2).
func TestP3_EachSliceMovesByItself(t *testing.T) {
	defer goleak.VerifyNone(t)
	for _, scheme := range []exchange.Scheme{exchange.PS, exchange.Reduce, exchange.Allreduce} {
		for slice, want := range map[coordinator.Slice][]int{10_000: {1, 0, 3, 1, 1}, coordinator.LayerSlice: {1, 0, 1, 1, 1}} {
			var mu sync.Mutex
			updated := map[exchange.Range]bool{}
			amid(t, []int{0, 1}, uint64(coordinator.PlaceRoundRobin), exchange.Config{
				Scheme: scheme, Spec: parse(t, "linear"), Bucket: 1, Slice: slice,
				OnSum: func(_ int, s exchange.Sum) error {
					mu.Lock()
					defer mu.Unlock()
					updated[s.Range] = updated[s.Range] || s.Updates
					return nil
				},
			})
			got := make([]int, 5)
			for r, once := range updated {
				for i, l := range sliced() {
					if len(l.Params) > 0 && r.Off >= l.Params[0].Off && r.Off < l.Params[len(l.Params)-1].End() {
						got[i]++
					}
				}
				if !once || slice > 0 && r.Len > int(slice) {
					t.Errorf("%v, slices of %v: %v is updated: %v", scheme, slice, r, once)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%v, slices of %v: the layers are updated in %v parts, want %v", scheme, slice, got, want)
			}
		}
	}
}
