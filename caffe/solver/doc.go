// Package solver trains a net as a Caffe solver file says: the iterations,
// the learning rate, the update, tests, and snapshots that Caffe's own tools
// read.
//
// It owns the arithmetic of the update (Rule, Rate, ClipScale) and the order
// of what happens in an iteration. It must not know of ranks, MPI or syncers: a
// distributed trainer joins in through Callbacks and Hooks, with which one worker
// among many runs the very same loop as one worker alone. It prints nothing:
// Events report what happens.
//
//	f, err := proto.ReadSolver("lenet_solver.prototxt")
//	s, err := solver.New(f, solver.Options{})
//	defer s.Close()
//	s.Events.OnDisplay = func(d solver.Display) { fmt.Println(d.Iter, d.Loss) }
//	err = s.Solve(ctx)
//
// # One iteration
//
//  1. a test runs if one is due
//  2. Callbacks.OnStart
//  3. iter_size times forward and backward, with the Hooks around every layer
//     (before a forward its parameters must be current) and between the two;
//     Callbacks.OnLoss before the last backward
//  4. Callbacks.OnGradientsReady: the packed gradients may be summed over
//     workers; says who updates, and the global loss
//  5. a loss or a gradient that is NaN or infinite ends training, before the
//     update (or leaves it out, with SkipNotFinite)
//  6. the update: clip_gradients, 1/iter_size, weight decay, solver type; it
//     clears the gradients
//  7. a snapshot, if one is due; none is written of parameters that are NaN or
//     infinite
//
// # Weighing workers
//
// New sets the net's BatchShare to this worker's share of the global batch, so
// that the sum of all workers' gradients is that of one worker with the whole
// batch. The losses that callbacks are given are weighed in the same way: they
// add up to the loss over the global batch.
//
// # Repeating a run
//
// Random numbers depend on random_seed (1 where it is not set), on the layer
// and on the iteration, and a resumed run continues with the batch at which it
// stopped: a run that was interrupted and resumed has the same bits as one
// that was not. Tests always use the batches that they would have used in an
// uninterrupted run.
package solver
