// Package dnn computes convolutions with oneDNN, the CPU's counterpart of
// cuDNN: forward and both gradients, with groups, dilation and bias, on plain
// row-major float32 tensors. Its matrix product comes along, for the layers
// whose weights are too big for any cache.
//
//	conv, err := dnn.NewConv(shape)     // once a shape; ErrUnsupported: compute it another way
//	err = conv.Forward(x, w, bias, y)   // allocates nothing
//
// The library comes in with the build tag onednn (Debian's libdnnl-dev).
// Without the tag the package still builds, everywhere: NewConv then returns
// ErrUnsupported, as it does for a shape for which oneDNN has only its
// reference loops. Callers keep another way to compute, which is also the reference
// implementation that tests compare this package with.
//
// # Layouts
//
// oneDNN is fastest on tensors whose channels lie in blocks of 8 or 16. A
// convolution therefore copies its tensors to such layouts and back, in a
// workspace that all convolutions share, as far as the code that oneDNN chose
// asks for it (the first layer of a net reads plain images). That is 6 % of the
// time of AlexNet's convolutions and 9 % of CIFAR-10 quick's, on one core of a Zen 5
// (DNNL_VERBOSE=1 tells); BenchmarkConv has the rates. Keeping blobs blocked between
// layers would save most of it, at the price of every layer having to know.
//
// # Threads, bits
//
// A call uses one thread, as package blas does: a rank has a core, not a
// machine. OMP_NUM_THREADS or SetThreads change that. For a fixed number of
// threads the same call gives the same bits: which code runs depends on the
// shape, the library and the processor alone, nothing is chosen by
// measuring.
package dnn
