package train

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"

	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/internal/atomicfile"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/train/checkpoint"
)

// What follows prepares for checkpoints: where they are written, and who writes what.

// initCheckpoints prepares to write what the exchange has this rank update. It is a
// collective.
func (w *Worker) initCheckpoints(ctx context.Context, c Config) error {
	if c.Checkpoint.Dir == "" {
		return nil
	}
	k := &checkpoints{Checkpoint: c.Checkpoint, files: w.files, iter: w.solver.Iter(), done: make(chan error, 1)}
	if err := w.openCheckpoints(ctx, k); err != nil {
		return fmt.Errorf("--checkpoint: %w", err)
	}
	own := checkpoint.Shard{Ranges: w.writes()}
	for _, r := range w.exchange.Residuals() {
		own.Residuals = append(own.Residuals, r.Range)
		if r.Columns.Len > 0 {
			own.Sums = append(own.Sums, checkpoint.Stripe{Off: r.Off, Rows: r.Rows, Cols: r.Cols, Columns: r.Columns})
		}
	}
	for _, h := range w.exchange.Held() {
		own.Held = append(own.Held, h.Range)
	}
	k.manifest.Layout = w.layout()
	k.values = make([]float32, own.Len(k.manifest.Histories))
	clear(k.values) // so that its pages are there when an iteration waits for the copy
	w.checkpoints = k
	return w.gatherShards(ctx, own)
}

// openCheckpoints makes sure that all ranks can write to one directory, and that there is no
// set in it that this run's would not take the place of.
func (w *Worker) openCheckpoints(ctx context.Context, k *checkpoints) error {
	var err error
	token := []int64{rand.Int64()}
	if err := w.comm.Bcast(ctx, mem.Of(token), mem.Int64, root); err != nil {
		return err
	}
	probe := checkpoint.ProbePath(k.Dir, k.iter, uint64(token[0]))
	if w.comm.Rank() == root {
		if err = os.MkdirAll(k.Dir, 0o777); err == nil {
			err = later(k.Dir, k.iter)
		}
		if err == nil {
			err = atomicfile.Write(k.files, probe, nil)
		}
	}
	if err = w.comm.Agree(ctx, err); err != nil {
		return err
	}
	if _, err = os.Stat(probe); errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("%s is not the directory that rank %d writes to: all nodes must share it", k.Dir, root)
	} else if err == nil {
		err = atomicfile.Check(k.files, checkpoint.ShardPath(k.Dir, k.iter, w.comm.Rank()))
	}
	if err = w.comm.Agree(ctx, err); err != nil {
		return err
	}
	if w.comm.Rank() == root {
		err = atomicfile.Remove(k.files, probe)
	}
	return w.comm.Agree(ctx, err)
}

// later returns an error where a directory has a set of a later iteration than iter: of
// another run, which would be taken for the newest.
func later(dir string, iter int) error {
	iters, err := checkpoint.Sets(dir)
	if err == nil && len(iters) > 0 && iters[len(iters)-1] > iter {
		newest := iters[len(iters)-1]
		err = fmt.Errorf("%s has a checkpoint of iteration %d, and this run begins at %d: go on from it (--snapshot %s), remove it (%s.*), or name another directory",
			dir, newest, iter, dir, checkpoint.Stem(dir, newest))
	}
	return err
}

// layout describes the net and the update rule.
func (w *Worker) layout() checkpoint.Layout {
	n, r := w.solver.Net(), w.solver.Rule()
	l := checkpoint.Layout{Rule: r.Name(), Histories: r.Histories(), Elements: n.PackedCount()}
	for _, p := range n.Learnable() {
		l.Params = append(l.Params, checkpoint.Param{Layer: n.LayerName(p.Layer), Shape: p.Blob.Shape(), Off: p.Offset})
	}
	return l
}

// writes returns the elements that this rank writes: what it updates alone, and its share
// of what every worker updates. There the lowest one writes what no solver learns, as everywhere
// its statistics count.
func (w *Worker) writes() []exchange.Range {
	number, workers := slices.Index(w.roles.workers, w.comm.Rank()), len(w.roles.workers)
	var own []exchange.Range
	for _, s := range w.exchange.Own() {
		if !s.Bucket.Scheme.Replicated() {
			own = append(own, s.Range)
			continue
		}
		from, to := s.Off+s.Len*number/workers, s.Off+s.Len*(number+1)/workers
		for _, p := range w.solver.Net().Learnable() {
			fixed := exchange.Range{Off: max(p.Offset, s.Off), Len: min(p.Offset+p.Blob.Count(), s.End()) - max(p.Offset, s.Off)}
			if p.LRMult != 0 || fixed.Len <= 0 {
				continue
			}
			if w.isLowest() {
				own = append(own, fixed)
			}
			if end := min(fixed.Off, to); end > from {
				own = append(own, exchange.Range{Off: from, Len: end - from})
			}
			from = max(from, fixed.End())
		}
		if to > from {
			own = append(own, exchange.Range{Off: from, Len: to - from})
		}
	}
	return schedule.Join(own)
}

// gatherShards has the root know what each rank writes.
func (w *Worker) gatherShards(ctx context.Context, own checkpoint.Shard) error {
	k := w.checkpoints
	mine := own.Text()
	lengths := make([]int64, w.comm.Size())
	lengths[w.comm.Rank()] = int64(len(mine))
	if err := w.comm.Allreduce(ctx, mem.Of(lengths), mem.Of(lengths), mem.Int64, mem.Sum); err != nil {
		return err
	}
	total, each := 0, make([]int, len(lengths))
	for r, n := range lengths {
		each[r], total = int(n), total+int(n)
	}
	all := make([]byte, total)
	if err := w.comm.Allgather(ctx, mem.Of(mine), mem.Of(all), each, mem.Uint8); err != nil {
		return err
	}
	for _, n := range each {
		s, err := checkpoint.ParseShard(all[:n])
		if err != nil {
			return err
		}
		all = all[n:]
		k.manifest.Shards = append(k.manifest.Shards, s)
	}
	return nil
}
