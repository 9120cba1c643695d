package train

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/scaffe/scaffe/internal/atomicfile"
	"github.com/scaffe/scaffe/kernels/vec"
	"github.com/scaffe/scaffe/mem"
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
	values   []float32           // a copy of what this rank writes, as its shard has it
	manifest checkpoint.Manifest // what every rank writes; at the root that of the set that is written, or the last

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
	if !k.due || k.phase != idle || !w.stale.meets(iter) {
		return nil
	}
	return w.take(iter)
}

// take copies this rank's part of the state, and starts to write it.
func (w *Worker) take(iter int) error {
	k := w.checkpoints
	k.due = false
	if err := w.stale.rest(); err != nil {
		return err
	}
	if err := w.exchange.Updated(); err != nil {
		return err
	}
	if w.gpu != nil {
		if err := w.paramsOnHost(); err != nil {
			return err
		}
	}
	if err := w.sameReplicas(); err != nil {
		return err
	}
	w.time.pauses()
	defer w.time.resumes(trace.Snapshot, "checkpoint")
	data, _ := w.solver.Net().Packed()
	shard := &k.manifest.Shards[w.comm.Rank()]
	values := k.values
	if len(shard.Ranges) > 0 { // others may have no history
		for _, r := range shard.Ranges {
			values = values[copy(values, mem.Float32s(data)[r.Off:r.End()]):]
		}
		for h := range k.manifest.Histories {
			for _, r := range shard.Ranges {
				values = values[copy(values, w.solver.Remembered(h, r.Off, r.End())):]
			}
		}
	}
	residuals := w.exchange.Residuals()
	for _, r := range residuals {
		values = values[copy(values, r.Gradient):]
	}
	for _, r := range residuals {
		values = values[copy(values, r.Sum):]
	}
	for _, h := range w.exchange.Held() {
		values = values[copy(values, h.Velocity):]
		values = values[copy(values, h.Accumulated):]
	}
	k.phase, k.iter = writing, iter
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
// checkpoint is written. Residuals always are.
func (w *Worker) finiteCopy(iter int) error {
	k := w.checkpoints
	i := vec.FirstNotFinite(k.values)
	if i < 0 {
		return nil
	}
	value, ranges := k.values[i], k.manifest.Shards[w.comm.Rank()].Ranges
	params := 0
	for _, r := range ranges {
		params += r.Len
	}
	at := i % max(1, params)
	for _, r := range ranges {
		if at < r.Len {
			return w.solver.NotFiniteAt(iter-1, r.Off+at, value, i >= params)
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
