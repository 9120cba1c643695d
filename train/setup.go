package train

import (
	"context"

	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/mem"
)

// Setup is one way to keep the ranks in step: a design, and the collectives
// that move its buckets.
type Setup struct {
	exchange *exchange.Exchange
}

// Exchange returns what moves parameters and gradients in this setup.
func (s *Setup) Exchange() *exchange.Exchange { return s.exchange }

// Setup makes another setup, next to the one that Config asked for and on the
// same net, for callers that compare (package train/table2). c's Design, Spec
// and Bucket count; the rest is as New was told. It is a collective; Close
// closes it.
func (w *Worker) Setup(ctx context.Context, c Config) (*Setup, error) {
	c.Pair, c.Slice, c.MaySlice, c.Credit, c.Placement, c.Pull, c.Sparse = w.moves.pair, w.moves.slice, w.moves.may, w.moves.credit, w.moves.place, w.moves.pull, w.moves.sparse
	return w.newSetup(ctx, c)
}

// Use continues training with s, from the next Step on. It is a collective.
func (w *Worker) Use(s *Setup) error {
	// What the setup before has under way ends first: then all parameters are
	// current, whichever setup brought them.
	if err := w.exchange.Current(); err != nil {
		return err
	}
	if w.apart() { // who only served a part may serve another
		data, _ := w.solver.Net().Packed()
		if err := w.comm.Bcast(w.ctx, data, mem.Float32, w.roles.workers[lowest]); err != nil {
			return err
		}
	}
	if w.shards == nil {
		w.exchange = s.exchange
		return nil
	}
	whole, err := w.gatherHistory(w.ctx)
	if err != nil {
		return err
	}
	w.exchange = s.exchange
	w.holdShard()
	return w.spreadHistory(w.ctx, whole) // the other buckets' pairs may be other servers'
}

// newSetup cuts the net into buckets and prepares to move them.
func (w *Worker) newSetup(ctx context.Context, c Config) (*Setup, error) {
	x, err := w.newExchange(ctx, c, nil)
	if err != nil {
		return nil, err
	}
	s := &Setup{exchange: x}
	w.setups = append(w.setups, s)
	return s, nil
}

// newExchange makes the exchange of the solver's net, or what change, unless nil, makes of it.
func (w *Worker) newExchange(ctx context.Context, c Config, change func(*exchange.Config)) (*exchange.Exchange, error) {
	data, diff := w.packed()
	book, err := w.bookFor(ctx, c)
	if err != nil {
		return nil, err
	}
	config := exchange.Config{
		Design: c.Design, Schemes: w.schemes.of, Spec: c.Spec, Bucket: c.Bucket, Slice: c.Slice, Credit: c.Credit, Root: lowest, Team: w.team, Book: book,
		Layers: w.exchangeLayers(), Data: data, Diff: diff,
		OnSum: w.onSum, UpdateAtOnce: w.updateAtOnce, BeforeUpdates: w.beforeUpdates, Events: w.sink,
	}
	if w.inPlace != nil {
		config.Queues = &w.inPlace.queues
	}
	if w.schemes.any(isDGC) {
		config.Momentum, config.Sparse = w.solver.Param().GetMomentum(), c.Sparse
		if w.solver.Clips() {
			config.Clip = w.clipOwn
		}
	}
	if w.rec != nil {
		config.Disorder = w.rec
	}
	if change != nil {
		change(&config)
	}
	return exchange.New(ctx, w.comm, config)
}
