package train

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync/atomic"

	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/internal/atomicfile"
	"github.com/scaffe/scaffe/kernels/vec"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/trace"
	"github.com/scaffe/scaffe/train/checkpoint"
)

// Checkpoint says where a run keeps its state, and how often it is written.
type Checkpoint struct {
	// Dir is one directory for all ranks, made if it is not there. "" is none.
	Dir string
	// Every is after how many iterations; 0: only where training ends, or is stopped.
	Every int
}

// Checkpointed is a checkpoint that has been written.
type Checkpointed struct {
	Iter     int
	Manifest string // path
	Bytes    int64  // of all ranks' shards
}

// kept is how many checkpoints stay in their directory.
const kept = 2

// checkpoints writes a run's state beside training. Every rank copies what it writes at the
// end of an iteration, and a goroutine writes that. In each iteration the ranks sum, with
// the loss, how many of them are at it, so that all know when the shards are on the disk; then
// the root's goroutine writes the manifest. A checkpoint that is due meanwhile waits.
type checkpoints struct {
	Checkpoint
	files    atomicfile.FS
	ranges   []exchange.Range    // what this rank writes
	values   []float32           // a copy of it: the parameters, then each history
	manifest checkpoint.Manifest // at the root that of the set that is written, or the last

	// Alike on all ranks:
	phase phase
	due   bool
	iter  int // of the set that is written, or of the last: at first, where the run began

	busy    atomic.Bool // the goroutine is at work
	running bool        // what it comes to is still to be taken from done
	done    chan error
}

// phase is how far a set has come.
type phase uint8

const (
	idle    phase = iota
	writing       // the ranks write their shards
	sealing       // the root writes the manifest
)

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
	k.ranges = w.writes()
	own := checkpoint.Shard{Ranges: k.ranges}
	k.manifest.Layout = w.layout()
	k.values = make([]float32, own.Len(k.manifest.Histories))
	clear(k.values) // so that its pages are there when an iteration waits for the copy
	w.checkpoints = k
	return w.gatherRanges(ctx)
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

// gatherRanges has the root know what each rank writes.
func (w *Worker) gatherRanges(ctx context.Context) error {
	k := w.checkpoints
	size := w.comm.Size()
	counts := make([]int64, size)
	counts[w.comm.Rank()] = int64(2 * len(k.ranges))
	if err := w.comm.Allreduce(ctx, mem.Of(counts), mem.Of(counts), mem.Int64, mem.Sum); err != nil {
		return err
	}
	var mine []int64
	for _, r := range k.ranges {
		mine = append(mine, int64(r.Off), int64(r.Len))
	}
	total, each := 0, make([]int, size)
	for r, n := range counts {
		each[r], total = int(n), total+int(n)
	}
	all := make([]int64, total)
	if err := w.comm.Allgather(ctx, mem.Of(mine), mem.Of(all), each, mem.Int64); err != nil {
		return err
	}
	for _, n := range each {
		var s checkpoint.Shard
		for i := 0; i < n; i += 2 {
			s.Ranges = append(s.Ranges, exchange.Range{Off: int(all[i]), Len: int(all[i+1])})
		}
		all = all[n:]
		k.manifest.Shards = append(k.manifest.Shards, s)
	}
	return nil
}

// busyWriting is what this rank adds to the sum of those that write.
func (w *Worker) busyWriting() float64 {
	return one(w.checkpoints != nil && w.checkpoints.busy.Load())
}

// checkpoint does, at the end of an iteration, what is due: it starts a checkpoint, or goes
// on with the one that is written once all ranks are done with their part.
func (w *Worker) checkpoint(iter int) error {
	k := w.checkpoints
	if k == nil {
		return nil
	}
	k.due = k.due || k.Every > 0 && iter%k.Every == 0
	if k.phase != idle && !w.othersWrite {
		if err := w.proceed(); err != nil {
			return err
		}
	}
	if !k.due || k.phase != idle {
		return nil
	}
	return w.take(iter)
}

// take copies this rank's part of the state, and starts to write it.
func (w *Worker) take(iter int) error {
	k := w.checkpoints
	k.due = false
	if err := w.exchange.Updated(); err != nil {
		return err
	}
	if err := w.sameReplicas(); err != nil {
		return err
	}
	w.time.pauses()
	defer w.time.resumes(trace.Snapshot, "checkpoint")
	data, _ := w.solver.Net().Packed()
	values := k.values
	if len(k.ranges) > 0 { // others may have no history
		for _, r := range k.ranges {
			values = values[copy(values, mem.Float32s(data)[r.Off:r.End()]):]
		}
		for h := range k.manifest.Histories {
			for _, r := range k.ranges {
				values = values[copy(values, w.solver.Remembered(h, r.Off, r.End())):]
			}
		}
	}
	k.phase, k.iter = writing, iter
	shard := &k.manifest.Shards[w.comm.Rank()]
	path := checkpoint.ShardPath(k.Dir, iter, w.comm.Rank())
	k.start(func() (err error) {
		if err = w.finiteCopy(iter); err == nil {
			shard.Digest, err = checkpoint.WriteShard(k.files, path, k.values)
		}
		return err
	})
	return nil
}

// start has a goroutine do one part of the work.
func (k *checkpoints) start(do func() error) {
	k.running = true
	k.busy.Store(true)
	go func() {
		err := do()
		if err != nil {
			err = fmt.Errorf("checkpoint of iteration %d: %w", k.iter, err)
		}
		k.busy.Store(false)
		k.done <- err
	}()
}

// finiteCopy returns an error where the copy has numbers that are not finite: of them no
// checkpoint is written.
func (w *Worker) finiteCopy(iter int) error {
	k := w.checkpoints
	i := vec.FirstNotFinite(k.values)
	if i < 0 {
		return nil
	}
	value := k.values[i]
	at := i % (len(k.values) / (1 + k.manifest.Histories)) // of the ranges
	for _, r := range k.ranges {
		if at < r.Len {
			return w.solver.NotFiniteAt(iter-1, r.Off+at, value, i >= len(k.values)/(1+k.manifest.Histories))
		}
		at -= r.Len
	}
	return errors.New("a number is not finite") // in the gaps between parameters
}

// proceed waits until all ranks have done their part of the set that is written, and starts
// the next one. It is a collective.
func (w *Worker) proceed() error {
	k := w.checkpoints
	var err error
	if k.running {
		k.running, err = false, <-k.done
	}
	if err = w.comm.Agree(w.ctx, err); err != nil {
		return err
	}
	if k.phase == sealing {
		k.phase = idle
		if w.comm.Rank() == root && w.events.OnCheckpoint != nil {
			w.events.OnCheckpoint(Checkpointed{Iter: k.iter, Manifest: checkpoint.ManifestPath(k.Dir, k.iter), Bytes: k.manifest.Bytes()})
		}
		return nil
	}
	if err := w.gatherDigests(); err != nil {
		return err
	}
	k.phase = sealing
	if w.comm.Rank() == root {
		k.start(w.seal)
	}
	return nil
}

// gatherDigests has the root know the digests of all shards.
func (w *Worker) gatherDigests() error {
	shards := w.checkpoints.manifest.Shards
	all := make([]byte, len(shards)*len(checkpoint.Digest{}))
	mine := shards[w.comm.Rank()].Digest
	if err := w.comm.Allgather(w.ctx, mem.Of(mine[:]), mem.Of(all), nil, mem.Uint8); err != nil {
		return err
	}
	for r := range shards {
		all = all[copy(shards[r].Digest[:], all):]
	}
	return nil
}

// seal makes the set whole, and removes older ones.
func (w *Worker) seal() error {
	k := w.checkpoints
	if err := w.writeChoice(checkpoint.Stem(k.Dir, k.iter)); err != nil {
		return err
	}
	k.manifest.Iter = k.iter
	if err := k.manifest.Write(k.files, k.Dir); err != nil {
		return err
	}
	iters, err := checkpoint.Sets(k.Dir)
	if err == nil {
		err = checkpoint.Clean(k.files, k.Dir, iters[max(0, len(iters)-kept):]...)
	}
	return err
}

// lastCheckpoint waits for what is being written, and writes the state that training has
// ended with, unless it is that of the last checkpoint. It is a collective.
func (w *Worker) lastCheckpoint() error {
	k := w.checkpoints
	if k == nil {
		return nil
	}
	if err := w.proceedTo(idle); err != nil || k.iter == w.solver.Iter() {
		return err
	}
	if err := w.take(w.solver.Iter()); err != nil {
		return err
	}
	return w.proceedTo(idle)
}

func (w *Worker) proceedTo(p phase) error {
	for w.checkpoints.phase != p {
		if err := w.proceed(); err != nil {
			return err
		}
	}
	return nil
}

// close waits for the goroutine.
func (k *checkpoints) close() {
	if k != nil && k.running {
		k.running = false
		<-k.done
	}
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
	return w.solver.SetIter(m.Iter)
}
