package dnn

import (
	"errors"
	"runtime"
)

// Products reports whether Gemm is fast: oneDNN's own product is generated
// code on x86 and plain loops elsewhere.
const Products = Available && runtime.GOARCH == "amd64"

// Shape is the geometry of a convolution of batches [N, In, H, W] with weights
// [Out, In/Groups, KernelH, KernelW] to [N, Out, OutH, OutW]. All extents are
// in elements; a dilation of 1 is dense; pads are the zeros on either side.
type Shape struct {
	N, Groups, In, Out   int
	H, W, OutH, OutW     int
	KernelH, KernelW     int
	PadH, PadW           int
	StrideH, StrideW     int
	DilationH, DilationW int
	Bias                 bool
}

// ErrUnsupported is why this package does not compute something: the program
// was built without oneDNN, or oneDNN has no fast code for the shape. The
// caller computes itself.
var ErrUnsupported = errors.New("dnn: no fast code for this")
