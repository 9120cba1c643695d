package train

import (
	"context"

	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/syncer/coordinator"
)

// bookFor returns the book where a scheme needs one, nil elsewhere.
func (w *Worker) bookFor(ctx context.Context, c Config) (*coordinator.Book, error) {
	if !w.schemes.any(exchange.Scheme.Served) {
		return nil, nil
	}
	return w.book(ctx, c)
}

// book writes the information book of this training, and makes sure that all ranks have
// written the same.
func (w *Worker) book(ctx context.Context, c Config) (*coordinator.Book, error) {
	batch := make([]int64, w.comm.Size())
	batch[w.comm.Rank()] = int64(w.LocalBatch() * int(w.solver.Param().GetIterSize()))
	if err := w.comm.Allreduce(ctx, mem.Of(batch), mem.Of(batch), mem.Int64, mem.Sum); err != nil {
		return nil, err
	}
	config := w.bookConfig(c.pieces())
	for r, b := range batch {
		config.Batch[r] = int(b)
	}
	b, err := coordinator.New(config)
	if err = w.comm.Agree(ctx, err); err != nil {
		return nil, err
	}
	return b, exchange.SameBook(ctx, w.comm, b)
}

// bookConfig is what a book is made of, but for what ranks must ask each other.
func (w *Worker) bookConfig(p pieces) coordinator.Config {
	return coordinator.Config{
		Nodes: w.comm.Nodes(), Workers: coordinator.Places{Ranks: w.roles.workers}, Servers: coordinator.Places{Ranks: w.roles.servers}, Pair: p.pair, Slice: p.slice, MaySlice: p.may,
		Placement: p.place, Seed: w.solver.Param().GetRandomSeed(), Pull: p.pull, Sparse: p.sparse,
		Batch: make([]int, w.comm.Size()), Layers: w.bookLayers(),
	}
}

// bookLayers describes the layers with parameters to the coordinator.
func (w *Worker) bookLayers() (ls []coordinator.Layer) {
	types := w.solver.Net().Layers()
	for i, l := range w.exchangeLayers() {
		if len(l.Params) == 0 {
			continue
		}
		known := coordinator.Layer{Name: l.Name, Type: types[i].Type, Params: l.Params}
		w.schemes.describe(&known, i)
		ls = append(ls, known)
	}
	return ls
}

// fixed returns, by layer, the parameters of layers that servers keep in step which no
// solver learns: BatchNorm's statistics.
func (w *Worker) fixed() [][]exchange.Range {
	n := w.solver.Net()
	learnable := n.Learnable()
	all := make([][]exchange.Range, len(n.Layers()))
	for i, l := range n.Layers() {
		for _, p := range l.Params {
			if learnable[p].LRMult == 0 && isPS(w.schemes.of[i]) {
				all[i] = append(all[i], exchange.Range{Off: learnable[p].Offset, Len: learnable[p].Blob.Count()})
			}
		}
	}
	return all
}
