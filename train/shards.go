package train

import (
	"context"
	"math"

	"github.com/scaffe/scaffe/caffe/solver"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
)

// What follows is for schemes by which each rank updates a part of the parameters, a
// shard: servers'.

// shards is what the ranks settle together where they hold shards.
type shards struct {
	fixed [][]exchange.Range // by layer: see Worker.fixed
	norm  []float64          // by block of gradients; see solver.Update.ClipBy
	bad   []int64            // the first gradient that is not finite
	piece []float32          // of a history
	whole [][]float32        // the history of all parameters, at the root while a snapshot is taken
}

// pieceLen is how many elements of a history move at a time.
const pieceLen = 1 << 20

// noneBad stands for no element.
const noneBad = math.MaxInt64

// initShards prepares for shards, where the schemes make them: servers', or a root's beside
// what every worker updates; or where ranks that only serve are to know what workers settle.
func (w *Worker) initShards() {
	if w.apart() || w.schemes.any(exchange.Scheme.Served) || w.schemes.any(exchange.Scheme.Replicated) && w.schemes.any(func(s exchange.Scheme) bool { return !s.Replicated() }) {
		w.shards = &shards{fixed: w.fixed(), norm: make([]float64, w.solver.NormBlocks()), bad: make([]int64, 1)}
	}
}

// offerStatistics puts what this rank has gathered of a layer, and no solver learns
// (BatchNorm's means), in the place of the gradients if it is the lowest worker, and zeros
// elsewhere: so their sum, at whoever serves them, is what the lowest worker has.
func (w *Worker) offerStatistics(layer int) {
	if w.shards == nil || !w.Works() {
		return
	}
	n := w.solver.Net()
	if w.stale != nil {
		n = w.solver.Computes()
	}
	data, diff := n.Packed()
	for _, r := range w.shards.fixed[layer] {
		own := mem.Float32s(diff)[r.Off:r.End()]
		if w.isLowest() {
			copy(own, mem.Float32s(data)[r.Off:r.End()])
		} else {
			clear(own)
		}
	}
}

// takeStatistics takes what offerStatistics has sent out of the gradients of a part that
// this rank updates.
func (w *Worker) takeStatistics(s exchange.Sum) {
	if w.shards == nil || !s.Updates {
		return
	}
	data, diff := w.solver.Net().Packed()
	for _, layer := range s.Bucket.Layers {
		for _, r := range w.shards.fixed[layer] {
			if lo, hi := max(r.Off, s.Off), min(r.End(), s.End()); lo < hi {
				copy(mem.Float32s(data)[lo:hi], mem.Float32s(diff)[lo:hi])
				clear(mem.Float32s(diff)[lo:hi])
			}
		}
	}
}

// checkShards returns a *solver.NotFiniteError, the same on all ranks, if a gradient is
// NaN or infinite on any.
func (w *Worker) checkShards(u solver.Update, own []exchange.Sum) error {
	first := int64(noneBad)
	for _, s := range own {
		if i, value, found := u.FirstNotFinite(s.Off, s.End()); found {
			first = int64(i)<<32 | int64(math.Float32bits(value))
			break // they ascend
		}
	}
	w.shards.bad[0] = first
	b := mem.Of(w.shards.bad)
	if err := w.comm.Allreduce(w.ctx, b, b, mem.Int64, mem.Min); err != nil {
		return err
	}
	if first = w.shards.bad[0]; first == noneBad {
		return nil
	}
	return u.NotFinite(int(first>>32), math.Float32frombits(uint32(first)))
}

// speaks reports whether this rank is the one that tells of a part that it updates: what
// every worker updates is the lowest one's to tell of.
func (w *Worker) speaks(s exchange.Sum) bool {
	return w.isLowest() || !s.Bucket.Scheme.Replicated()
}

// clipShards returns u with clip_gradients: each rank sums the squares of what it
// updates, block by block, and the blocks' sums are gathered.
func (w *Worker) clipShards(u solver.Update, own []exchange.Sum) (solver.Update, error) {
	clear(w.shards.norm)
	for _, s := range own {
		if w.speaks(s) {
			w.solver.Squares(s.Off, s.End(), w.shards.norm)
		}
	}
	b := mem.Of(w.shards.norm)
	err := w.comm.Allreduce(w.ctx, b, b, mem.Float64, mem.Sum)
	return u.ClipBy(w.shards.norm), err
}

// holdShard has the solver remember what this rank updates, and no more.
func (w *Worker) holdShard() {
	var own []exchange.Range
	for _, s := range w.exchange.Own() {
		own = append(own, s.Range)
	}
	var parts [][2]int
	for _, r := range schedule.Join(own) {
		parts = append(parts, [2]int{r.Off, r.End()})
	}
	w.solver.Hold(parts)
}

// initHistory has each rank remember what it updates by: where training goes on, of what the root has read.
func (w *Worker) initHistory(ctx context.Context, goesOn bool) error {
	if w.shards == nil {
		return nil
	}
	var whole [][]float32
	if goesOn && w.comm.Rank() == root {
		whole = w.solver.History()
	}
	w.holdShard()
	if !goesOn {
		return nil
	}
	return w.spreadHistory(ctx, whole)
}

// gatherHistory brings the solver's history to the root, where it lies as long as somebody reads it.
func (w *Worker) gatherHistory(ctx context.Context) (whole [][]float32, err error) {
	for k := range w.solver.Rule().Histories() {
		var all []float32
		if w.comm.Rank() == root {
			all = make([]float32, w.solver.Net().PackedCount())
		}
		if err := w.gather(ctx, all, func(lo, hi int) []float32 { return w.solver.Remembered(k, lo, hi) }); err != nil {
			return nil, err
		}
		whole = append(whole, all)
	}
	return whole, nil
}

// takeHistory gives the gathered history away.
func (w *Worker) takeHistory() [][]float32 {
	whole := w.shards.whole
	w.shards.whole = nil
	return whole
}

// gatherParameters brings the parameters to a root that only serves.
func (w *Worker) gatherParameters(ctx context.Context) error {
	data, _ := w.solver.Net().Packed()
	all := mem.Float32s(data)
	return w.gather(ctx, all, func(lo, hi int) []float32 { return all[lo:hi] })
}

// gather brings to the root's all, from those who update them, what of gives for elements [lo, hi),
// piece by piece: a sum of whole numbers, whose bits are those of the one rank that has an
// element.
func (w *Worker) gather(ctx context.Context, all []float32, of func(lo, hi int) []float32) error {
	return w.eachPiece(func(piece []float32, off int) error {
		clear(piece)
		w.eachOwn(off, len(piece), func(s exchange.Sum, lo, hi int) {
			if w.speaks(s) {
				copy(piece[lo-off:hi-off], of(lo, hi))
			}
		})
		b := mem.Of(piece)
		if err := w.comm.Reduce(ctx, b, b, mem.Int32, mem.Sum, root); err != nil {
			return err
		}
		if w.comm.Rank() == root {
			copy(all[off:], piece)
		}
		return nil
	})
}

// spreadHistory brings the root's history of all parameters to those who update by it.
func (w *Worker) spreadHistory(ctx context.Context, whole [][]float32) error {
	for k := range w.solver.Rule().Histories() {
		err := w.eachPiece(func(piece []float32, off int) error {
			if w.comm.Rank() == root {
				copy(piece, whole[k][off:])
			}
			if err := w.comm.Bcast(ctx, mem.Of(piece), mem.Float32, root); err != nil {
				return err
			}
			w.eachOwn(off, len(piece), func(_ exchange.Sum, lo, hi int) {
				copy(w.solver.Remembered(k, lo, hi), piece[lo-off:hi-off])
			})
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// eachPiece calls f with a buffer for each piece of a packed buffer.
func (w *Worker) eachPiece(f func(piece []float32, off int) error) error {
	count := w.solver.Net().PackedCount()
	if w.shards.piece == nil {
		w.shards.piece = make([]float32, min(pieceLen, count))
	}
	for off := 0; off < count; off += pieceLen {
		if err := f(w.shards.piece[:min(pieceLen, count-off)], off); err != nil {
			return err
		}
	}
	return nil
}

// eachOwn calls f for the elements from off on that this rank updates.
func (w *Worker) eachOwn(off, n int, f func(s exchange.Sum, lo, hi int)) {
	for _, s := range w.exchange.Own() {
		if lo, hi := max(s.Off, off), min(s.End(), off+n); lo < hi {
			f(s, lo, hi)
		}
	}
}
