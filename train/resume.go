package train

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/syncer/onebit"
	"github.com/scaffe/scaffe/train/checkpoint"
)

// restored is the checkpoint that a run goes on from.
type restored struct {
	*checkpoint.Manifest
	path string
}

// findCheckpoint has the root's c name the manifest of the checkpoint to go on from.
func (w *Worker) findCheckpoint(c *Config) (err error) {
	if w.comm.Rank() == root && checkpoint.Is(c.Snapshot) {
		c.Snapshot, err = checkpoint.Find(c.Snapshot)
	}
	return err
}

// restoreCheckpoint has the root's solver go on from a checkpoint.
func (w *Worker) restoreCheckpoint(path string) error {
	data, _ := w.solver.Net().Packed()
	m, err := checkpoint.Load(path, w.layout(), append([][]float32{mem.Float32s(data)}, w.solver.History()...))
	if err != nil {
		return err
	}
	w.restored = restored{m, path}
	return w.solver.SetIter(m.Iter)
}

// quantised returns where the weights of a layer lie whose gradients are quantised.
func (w *Worker) quantised(layer int) (exchange.Range, bool) {
	if w.schemes.of[layer] != exchange.OneBit || w.schemes.factored[layer] == nil {
		return exchange.Range{}, false
	}
	return w.schemes.factored[layer].matrix.Weights, true
}

// noteResiduals says what a run that goes on from a snapshot or a checkpoint loses, as there is no
// residual of it, or no use for that; a line for each scheme.
func (w *Worker) noteResiduals(c Config) (notes []string) {
	if c.Snapshot == "" || w.comm.Rank() != root {
		return nil
	}
	for _, note := range []string{w.noteQuantised(), w.noteHeld()} {
		if note != "" {
			notes = append(notes, note)
		}
	}
	return notes
}

// noteQuantised is noteResiduals for onebit.
func (w *Worker) noteQuantised() string {
	var here []exchange.Range
	for i := range w.solver.Net().Layers() {
		if r, yes := w.quantised(i); yes {
			here = append(here, r)
		}
	}
	m := w.restored.Manifest
	switch {
	case m == nil || m.NoResiduals:
		if here == nil {
			return ""
		}
		what := "a snapshot"
		if m != nil {
			what = w.restored.path + ", of an earlier version,"
		}
		return fmt.Sprintf("onebit: %s has no residuals: what had not been sent when it was taken is lost", what)
	}
	had, _ := m.Residual()
	lost := w.lost(had, here)
	if lost == nil {
		return ""
	}
	return fmt.Sprintf("onebit: %s has residuals of %s, which do not go by onebit here: what had not been sent when it was taken is lost", w.restored.path, strings.Join(lost, ", "))
}

// lost names the layers of the checkpoint's ranges that are not among those here, each once.
func (w *Worker) lost(had, here []exchange.Range) (layers []string) {
	for _, r := range had {
		if slices.Contains(here, r) {
			continue
		}
		i := slices.IndexFunc(w.restored.Params, func(p checkpoint.Param) bool { return p.Off == r.Off })
		if i >= 0 && !slices.Contains(layers, w.restored.Params[i].Layer) {
			layers = append(layers, w.restored.Params[i].Layer)
		}
	}
	return layers
}

// sparsified returns where the parameters lie of whose gradients something is held back.
func (w *Worker) sparsified() (here []exchange.Range) {
	for i, l := range w.exchangeLayers() {
		if !isDGC(w.schemes.of[i]) {
			continue
		}
		for _, p := range l.Params {
			if p.Len > 0 && !slices.Contains(l.Fixed, p) {
				here = append(here, p)
			}
		}
	}
	return here
}

// noteHeld is noteResiduals for dgc.
func (w *Worker) noteHeld() string {
	here, m := w.sparsified(), w.restored.Manifest
	if m == nil {
		if here == nil {
			return ""
		}
		return "dgc: a snapshot has nothing of what was held back: what had not been sent when it was taken is lost, its momentum too"
	}
	had, _ := m.HeldBack()
	lost := w.lost(had, here)
	switch {
	case here != nil && had == nil:
		return fmt.Sprintf("dgc: %s has nothing that was held back, nor the momentum of gradients: they begin at 0", w.restored.path)
	case lost == nil:
		return ""
	}
	return fmt.Sprintf("dgc: %s has what was held back of %s, which do not go by dgc here: what had not been sent when it was taken is lost", w.restored.path, strings.Join(lost, ", "))
}

// restoreResiduals has the workers go on with the residuals of the checkpoint that the root
// has read, whose layers are quantised here too. Those of gradients are the same worker's, by its number;
// of workers that there are no more those of number modulo the workers' count. Those of
// sums go by their columns to whoever adds them now. It is a collective.
func (w *Worker) restoreResiduals(ctx context.Context) error {
	if !w.schemes.any(func(s exchange.Scheme) bool { return s == exchange.OneBit || isDGC(s) }) {
		return nil
	}
	var text []byte
	if w.restored.Manifest != nil {
		text = w.restored.Text()
	}
	text, err := w.comm.BcastBytes(ctx, text, root)
	if err != nil || len(text) == 0 {
		return err
	}
	m, err := checkpoint.Parse(text)
	if err != nil {
		return err
	}
	r := residuals{Worker: w, m: m, own: w.exchange.Residuals()}
	for i := range w.solver.Net().Layers() {
		if of, yes := w.quantised(i); yes {
			r.here = append(r.here, of)
		}
	}
	_, workers := m.Residual()
	for number, rank := range workers {
		if err := r.restore(ctx, number, rank); err != nil {
			return err
		}
	}
	r.held, r.here = w.exchange.Held(), w.sparsified()
	_, workers = m.HeldBack()
	for number, rank := range workers {
		if err := r.restoreHeld(ctx, number, rank); err != nil {
			return err
		}
	}
	return nil
}

// residuals are on their way from a checkpoint, alike on all ranks but for own.
type residuals struct {
	*Worker
	m    *checkpoint.Manifest
	here []exchange.Range  // matrices that are quantised
	own  []onebit.Residual // of them, this rank's
	held []exchange.Held   // this rank's
	read []float32         // two pieces
}

// restore brings what one rank of the checkpoint has written, a worker of such a number, to those who
// go on with it.
func (r *residuals) restore(ctx context.Context, number, rank int) error {
	shard, members := &r.m.Shards[rank], len(r.roles.workers)
	at := 0
	for _, of := range shard.Residuals {
		if slices.Contains(r.here, of) {
			err := r.pieces(ctx, rank, at, of.Len, 1, r.roles.workers[number%members], func(piece []float32, from int) {
				r.takeGradient(of, piece, from, number >= members)
			})
			if err != nil {
				return err
			}
		}
		at += of.Len
	}
	for i := range shard.Sums {
		s := &shard.Sums[i]
		if slices.Contains(r.here, exchange.Range{Off: s.Off, Len: s.Rows * s.Cols}) {
			err := r.pieces(ctx, rank, at, s.Len(), s.Columns.Len, everyone, func(piece []float32, from int) { r.takeSums(s, piece, from) })
			if err != nil {
				return err
			}
		}
		at += s.Len()
	}
	return nil
}

// restoreHeld brings what one rank of the checkpoint has held back, as restore does the residuals of
// gradients: a gradient that moves to another worker takes its velocity with it.
func (r *residuals) restoreHeld(ctx context.Context, number, rank int) error {
	shard, members := &r.m.Shards[rank], len(r.roles.workers)
	at := 0
	for _, of := range shard.Residuals {
		at += of.Len
	}
	for i := range shard.Sums {
		at += shard.Sums[i].Len()
	}
	for _, of := range shard.Held {
		for half := range 2 {
			if slices.Contains(r.here, of) {
				err := r.pieces(ctx, rank, at, of.Len, 1, r.roles.workers[number%members], func(piece []float32, from int) {
					r.takeHeld(of, half, piece, from, number >= members)
				})
				if err != nil {
					return err
				}
			}
			at += of.Len
		}
	}
	return nil
}

// takeHeld takes velocities (half 0) of a parameter, or what has been accumulated (1), or adds them to those of a
// worker that there was before.
func (r *residuals) takeHeld(of exchange.Range, half int, piece []float32, from int, add bool) {
	i := slices.IndexFunc(r.held, func(x exchange.Held) bool { return x.Range == of })
	take([][]float32{r.held[i].Velocity, r.held[i].Accumulated}[half][from:], piece, add)
}

// everyone stands for all ranks.
const everyone = -1

// pieces reads n values of the residuals that a rank has written, from the given one on, and brings them
// piece by piece, each of whole units, to the rank to, or to everyone.
func (r *residuals) pieces(ctx context.Context, rank, from, n, unit, to int, take func(piece []float32, from int)) error {
	most := max(1, pieceLen/unit) * unit
	if len(r.read) < 2*most {
		r.read = make([]float32, 2*most)
	}
	for off := 0; off < n; off += most {
		size := min(most, n-off)
		piece, there := r.read[:size], r.read[most:][:size]
		var err error
		if r.comm.Rank() == root {
			err = r.m.ReadResiduals(filepath.Dir(r.restored.path), rank, from+off, piece)
		}
		if err = r.comm.Agree(ctx, err); err != nil {
			return err
		}
		if to == everyone {
			there, err = piece, r.comm.Bcast(ctx, mem.Of(piece), mem.Float32, root)
		} else {
			err = r.send(ctx, piece, there, to)
		}
		if err != nil {
			return err
		}
		if to == everyone || to == r.comm.Rank() {
			take(there, off)
		}
	}
	return nil
}

// send brings the root's piece to the rank to: a gather of which everyone else has none.
func (r *residuals) send(ctx context.Context, piece, there []float32, to int) error {
	counts := make([]int, r.comm.Size())
	counts[root] = len(piece)
	if r.comm.Rank() != root {
		piece = nil
	}
	if r.comm.Rank() != to {
		there = nil
	}
	return r.comm.Gather(ctx, mem.Of(piece), mem.Of(there), counts, mem.Float32, to)
}

// takeGradient takes values of a matrix's residual, or adds them to those of a worker that
// there was before.
func (r *residuals) takeGradient(of exchange.Range, piece []float32, from int, add bool) {
	i := slices.IndexFunc(r.own, func(x onebit.Residual) bool { return x.Range == of })
	take(r.own[i].Gradient[from:], piece, add)
}

// take copies a piece to the front of own, with the sign of zeros, or adds it.
func take(own, piece []float32, add bool) {
	if !add {
		copy(own, piece)
		return
	}
	for i, x := range piece {
		own[i] += x
	}
}

// takeSums takes from rows of a stripe the columns that this rank adds.
func (r *residuals) takeSums(s *checkpoint.Stripe, piece []float32, from int) {
	i := slices.IndexFunc(r.own, func(x onebit.Residual) bool { return x.Range == schedule.Range{Off: s.Off, Len: s.Rows * s.Cols} })
	if i < 0 {
		return // it only serves
	}
	own := &r.own[i]
	lo, hi := max(own.Columns.Off, s.Columns.Off), min(own.Columns.End(), s.Columns.End())
	if own.Cols != s.Cols || lo >= hi {
		return
	}
	row := from / s.Columns.Len
	for ; len(piece) > 0; piece, row = piece[s.Columns.Len:], row+1 {
		copy(own.Sum[row*own.Columns.Len+lo-own.Columns.Off:][:hi-lo], piece[lo-s.Columns.Off:])
	}
}
