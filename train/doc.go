// Package train is one worker of data-parallel training: it joins the hooks
// and callbacks of a single-worker solver (package caffe/solver) to the
// syncers that keep the replicas in step (package syncer).
//
//	w, err := train.New(ctx, comm, train.Config{Solver: file})
//	...
//	defer w.Close()
//	summary, err := w.Run(ctx)
//
// # The design SC-B
//
// S-Caffe section 4.1: phases one after another, one packed buffer each way.
//
//  1. the root's parameters are broadcast
//  2. forward and backward, each rank on its own part of the global batch
//  3. the gradients, packed in one buffer, are reduced to the root
//  4. the root updates the parameters
//
// In this package that is one bucket that holds all parameters: its Pull
// starts with the iteration and is awaited before the first layer that has
// parameters, its Push starts after the backward of the last such layer, and
// is awaited before the update.
//
// # The same sum
//
// Every rank reads its own part of each global batch (parallel readers), and
// weighs its gradients with its share of it, so the sum over the ranks is the
// gradient of the mean over the global batch, whatever the number of ranks.
package train
