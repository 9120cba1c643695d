package train

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/syncer/coordinator"
)

// BucketCost is what it took an iteration to keep a bucket in step, beside what was
// predicted.
type BucketCost struct {
	Name   string
	Scheme exchange.Scheme
	// PredictedBytes are those in and out of the busiest rank by the scheme's formula,
	// Payload those that the messages of the busiest rank held by the engine's count; 0
	// where the MPI library moves them.
	PredictedBytes float64
	Payload        int
	// Predicted is how long the communication is expected to take alone. Least and Most are how long
	// it was in flight, beside computation and other buckets, on the rank where that took
	// the least, which waited for no other, and on the one where it took the most.
	Predicted, Least, Most time.Duration
}

// costs gathers what the buckets of all ranks cost, beside what predict has said at the
// root. It is a collective; nothing may be under way.
func (w *Worker) costs(ctx context.Context, predicted []coordinator.Outlook) ([]BucketCost, error) {
	const each = 3
	accounts := w.exchange.Accounts()
	if w.stale != nil {
		accounts = w.stale.moves.Accounts()
	}
	if w.comm.Size() == 1 || w.done == 0 || len(accounts) == 0 {
		return nil, nil
	}
	v := make([]int64, each*len(accounts))
	for i, a := range accounts {
		flight := int64(a.Flight) / int64(max(1, a.Rounds))
		copy(v[each*i:], []int64{-flight, flight, a.Payload.Sent + a.Payload.Received})
		if !w.Works() { // it waits for the workers' computation too
			copy(v[each*i:], []int64{math.MinInt64, 0})
		}
	}
	if err := w.comm.Allreduce(ctx, mem.Of(v), mem.Of(v), mem.Int64, mem.Max); err != nil {
		return nil, err
	}
	var all []BucketCost
	for i, o := range predicted {
		x := v[each*i:]
		all = append(all, BucketCost{
			Name: accounts[i].Name, Scheme: o.Scheme, PredictedBytes: o.Bytes, Payload: int(x[2]),
			Predicted: o.Time, Least: time.Duration(-x[0]), Most: time.Duration(x[1]),
		})
	}
	return all, nil
}

// predict returns, at the root of several ranks, what each bucket is expected to cost.
func (w *Worker) predict() ([]coordinator.Outlook, error) {
	if w.comm.Size() == 1 || w.comm.Rank() != root {
		return nil, nil
	}
	var book *coordinator.Book
	if w.schemes.audit != nil {
		book = w.schemes.audit.Book
	} else { // one scheme, which does not depend on batches
		var err error
		if book, err = coordinator.New(w.bookConfig(w.moves)); err != nil {
			return nil, err
		}
	}
	network := w.exchange.Network(book, w.product)
	inBook := exchange.InBook(w.exchangeLayers())
	var all []coordinator.Outlook
	for _, b := range w.exchange.Moved() {
		var layers []*coordinator.Layer
		for _, l := range b.Layers {
			layers = append(layers, &book.Layers[inBook[l]])
		}
		o, err := network.Bucket(layers, b.Scheme, w.exchange.Specs(&b))
		if err != nil {
			return nil, fmt.Errorf("prediction of bucket %q: %w", b.Name, err)
		}
		all = append(all, o)
	}
	return all, nil
}
