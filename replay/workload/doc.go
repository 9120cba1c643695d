// Package workload holds what one iteration of a net costs, as data: for every
// layer the sizes of its parameters and the time of its forward and backward
// pass. A profile is measured by package measure (scaffe time), read from a file, or
// one of the built-in ones, for nets and GPUs of the papers. Package replay
// runs one with its computation replaced by waits.
//
//	p, err := workload.Load("alexnet-k80") // or the path of a file
//	fmt.Println(p.Bytes(), p.Compute())
//
// It must not know of ranks or communication.
//
// # The file
//
// A file is lines of words; what follows a # is a comment, except in a source.
// Times are milliseconds with at most six decimals, which is exact.
//
//	# scaffe profile
//	net AlexNet
//	source where the times come from, in words
//	source and a second line of it
//	batch 256
//	update_ms 1.25
//	# layer name type forward_ms backward_ms, elements of each parameter
//	layer conv1 Convolution 10.5 11.25 34848 96
//	layer relu1 ReLU 0.9 1.1
//	layer fc8 InnerProduct 2 4 1000x4096 1000
//
// A layer's first parameter may be ROWSxCOLUMNS: then sufficient factors can stand
// for the gradient of that matrix, with a row for each sample of the batch, or
// factor_rows of them. Without extents they cannot.
//
// Layers are in the order of the forward pass. A word with blanks or a # in it
// is quoted as in Go. Parameters that do not learn (lr_mult 0, such as the
// running statistics of BatchNorm) are left out: they have no gradient that
// anybody waits for.
//
// # Built-in profiles
//
// What is published for a GPU is the time of a whole net: forward and
// backward, or images per second. A built-in profile spreads it over the
// layers by the work that each does (Work.Spread): the larger of its
// multiply-adds over the GPU's peak and its bytes over the bandwidth of the
// GPU's memory. So convolutions share by their FLOPs; ReLU, pooling and
// normalisation, and the large fully connected layers of small batches, by
// their bytes. A backward pass is two products where a forward pass is one,
// those of the gradients of data and of weights, or one in a first layer. The
// source of every built-in profile says what was published, where, and that the
// times per layer were made in this way.
//
// The work of a layer is in the files nets/*.work, generated from the nets
// themselves (measure.WorkOf) by go generate.
package workload

//go:generate go run ./measure/gen
