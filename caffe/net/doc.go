// Package net builds a net from its NetParameter and runs it: the layers that
// a phase selects, joined by named blobs, forward and backward, with hooks
// around every layer.
//
// It owns Caffe's net-level rules: include and exclude, in-place tops,
// implicit Split layers, parameters shared by name, which layers need a
// backward pass, loss weights, and what a .caffemodel holds. It must not know
// of solvers, ranks, MPI or syncers: a distributed trainer joins in
// through Hooks and the packed parameter buffers.
//
//	n, err := net.Load("lenet_train_test.prototxt", net.Options{Phase: proto.Phase_TRAIN})
//	...
//	data, diff, err := n.Pack(nil) // all parameters and all gradients, contiguous
//	n.Hooks.AfterBackward = func(layer int) error { ... } // n.Layers()[layer].Params are ready
//	n.ClearDiffs()
//	loss, err := n.ForwardBackward()
//
// # Parameters
//
// Learnable lists the parameters without duplicates, in layer order: a
// parameter that several layers share by name belongs to the first of them.
// That layer is the first to need it in a forward pass and the last to add to
// its gradient in a backward pass, so Param.Layer is the layer whose hooks
// matter. Param.Offset is the parameter's place in the packed buffers
// (S-Caffe section 2.2: packed_comm_buffer and packed_reduce_buffer).
//
// # Gradients of a part
//
// Most losses are means over the batch that a layer sees. A worker that sees b
// of the B samples of a global batch sets BatchShare to b/B: then the sum of
// the workers' gradients is the gradient of the mean over all B samples. A loss
// that is a sum (normalization: NONE, or a loss_weight on a top that is not a mean)
// adds up over the workers as it is. Layers say which they are
// (layers.BatchMean), and Loss keeps the two apart.
package net
