// Package train is one worker of data-parallel training: it joins the hooks
// and callbacks of a single-worker solver (package caffe/solver) to the
// syncers that keep the replicas in step (package syncer).
//
//	w, err := train.New(ctx, comm, train.Config{Solver: file})
//	...
//	defer w.Close()
//	summary, err := w.Run(ctx)
//
// When parameters and gradients move is package exchange's business
// (Config.Design): the worker tells it how far an iteration has come, and is told
// when a bucket's gradients have been summed.
//
// # The update
//
// A bucket is updated as soon as its sum has arrived, by its goroutine, once the
// loss of the iteration is known to be finite on all ranks: it is summed while
// backward runs. Where the update depends on all gradients (clip_gradients, or
// Options.SkipNotFinite) all buckets wait for the last.
//
// # What all ranks agree on
//
// With the loss the ranks sum whether one of them was asked for a snapshot or an
// end (Config.Requests), so that all act in the same iteration.
//
// # The same sum
//
// Every rank reads its own part of each global batch (parallel readers), and
// weighs its gradients with its share of it, so the sum over the ranks is the
// gradient of the mean over the global batch, whatever the number of ranks.
package train
