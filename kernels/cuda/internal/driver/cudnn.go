//go:build cuda && cgo && linux && (amd64 || arm64)

package driver

/*
#include "libraries.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"
)

var cudnn = loader[*C.scaffe_cudnn]{
	title: "cuDNN", env: EnvDNN, min: 8, max: 9,
	names: func() []string { return majors("libcudnn", 9, 8) },
	load:  loadWith(func(n *C.char, why **C.char) *C.scaffe_cudnn { return C.scaffe_cudnn_load(n, why) }, func(l *C.scaffe_cudnn) bool { return l == nil }),
	version: func(l *C.scaffe_cudnn) (string, int, error) {
		v := int(C.scaffe_cudnn_version(l)) // 8907 is 8.9.7, 90100 is 9.1.0
		thousands := 1000
		if v >= 90000 {
			thousands = 10000
		}
		return fmt.Sprintf("%d.%d.%d", v/thousands, v%thousands/100, v%100), v / thousands, nil
	},
}

// FindDNN says which cuDNN there is.
func FindDNN() (Library, error) {
	_, of, err := cudnn.get()
	return of, err
}

func (d *DNN) error(call string, code C.int) error {
	if code == 0 {
		return nil
	}
	return libraryError{call, C.GoString(C.scaffe_cudnn_error(d.l, code)), int(code)}
}

// OpenDNN makes cuDNN compute on a stream.
func (c Context) OpenDNN(s Stream) (*DNN, error) {
	l, _, err := cudnn.get()
	if err != nil {
		return nil, err
	}
	d := &DNN{l: l, c: c.c}
	var at *C.char
	if code := C.scaffe_cudnn_create(l, c.c, s.s, &d.h, &at); code != 0 {
		err := d.error(C.GoString(at), code)
		if d.h != nil {
			err = errors.Join(err, d.Close())
		}
		return nil, err
	}
	return d, nil
}

// Close gives the handle back, when what is on the stream has been done.
func (d *DNN) Close() error { return d.error("cudnnDestroy", C.scaffe_cudnn_destroy(d.l, d.c, d.h)) }

// Convolution is one shape of convolution, as cuDNN computes it.
type Convolution struct {
	d *DNN
	c C.scaffe_convolution
}

// Passes of a convolution, of which each has an algorithm.
const (
	Forward        = C.SCAFFE_FORWARD
	BackwardData   = C.SCAFFE_BACKWARD_DATA
	BackwardFilter = C.SCAFFE_BACKWARD_FILTER
)

var passCalls = [...]string{Forward: "cudnnConvolutionForward", BackwardData: "cudnnConvolutionBackwardData", BackwardFilter: "cudnnConvolutionBackwardFilter"}

// Plan prepares convolutions of a shape, each pass by an algorithm that gives the same bits each time, with at most so many
// bytes of workspace.
func (d *DNN) Plan(s Shape, tf32 bool, most int) (*Convolution, error) {
	is := C.scaffe_shape{
		n: C.int(s.N), groups: C.int(s.Groups), in: C.int(s.In), out: C.int(s.Out), h: C.int(s.H), w: C.int(s.W), out_h: C.int(s.OutH), out_w: C.int(s.OutW),
		kernel_h: C.int(s.KernelH), kernel_w: C.int(s.KernelW), pad_h: C.int(s.PadH), pad_w: C.int(s.PadW), stride_h: C.int(s.StrideH), stride_w: C.int(s.StrideW),
		dilation_h: C.int(s.DilationH), dilation_w: C.int(s.DilationW),
	}
	math := C.int(3) // CUDNN_FMA_MATH
	if tf32 {
		math = 0 // CUDNN_DEFAULT_MATH, which lets tensor cores take TF32 of float32
	}
	c := &Convolution{d: d}
	var at *C.char
	if code := C.scaffe_cudnn_plan(d.l, d.c, d.h, &is, math, C.size_t(most), &c.c, &at); code != 0 {
		c.Forget()
		return nil, d.error(C.GoString(at), code)
	}
	return c, nil
}

// Forget gives it back.
func (c *Convolution) Forget() { C.scaffe_cudnn_forget(c.d.l, c.d.c, &c.c) }

// Algorithm returns the number that cuDNN gives the algorithm of a pass, which is negative where there is none that will do, and
// the workspace that it takes.
func (c *Convolution) Algorithm(pass int) (algorithm, workspace int) {
	return int(c.c.algorithm[pass]), int(c.c.workspace[pass])
}

// Do puts a pass on the stream: y of x and w, x's gradient of w and y's, or w's gradient plus that of x and y's.
func (c *Convolution) Do(pass int, a, b, to, workspace unsafe.Pointer) error {
	return c.d.error(passCalls[pass], C.scaffe_cudnn_run(c.d.l, c.d.c, c.d.h, &c.c, C.int(pass), a, b, to, workspace, c.c.workspace[pass]))
}

// AddBias puts y += bias on the stream.
func (c *Convolution) AddBias(y, bias unsafe.Pointer) error {
	return c.d.error("cudnnAddTensor", C.scaffe_cudnn_bias(c.d.l, c.d.c, c.d.h, &c.c, 0, bias, y))
}

// SumBias puts the gradient of the bias += sums of y's on the stream.
func (c *Convolution) SumBias(gradient, dy unsafe.Pointer) error {
	return c.d.error("cudnnConvolutionBackwardBias", C.scaffe_cudnn_bias(c.d.l, c.d.c, c.d.h, &c.c, 1, dy, gradient))
}
