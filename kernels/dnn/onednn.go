//go:build onednn && cgo

package dnn

/*
#cgo LDFLAGS: -ldnnl -ldl
#cgo noescape dnn_run
#cgo nocallback dnn_run
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"unsafe"
)

// Available reports whether oneDNN does the work.
const Available = true

// threadsEnv is OpenMP's own variable.
const threadsEnv = "OMP_NUM_THREADS"

func init() {
	n, err := strconv.Atoi(os.Getenv(threadsEnv))
	if err != nil || n < 1 {
		n = 1
	}
	SetThreads(n)
}

// Name returns the library and its version: "oneDNN 2.6.3".
func Name() string {
	v := C.dnnl_version()
	return fmt.Sprintf("oneDNN %d.%d.%d", v.major, v.minor, v.patch)
}

// SetThreads makes convolutions made from now on use at most n threads, at
// least one.
func SetThreads(n int) { C.dnn_set_threads(C.int(max(n, 1))) }

// Threads returns how many threads a call may use.
func Threads() int { return int(C.dnn_threads()) }

// engine is the process's one CPU engine.
var engine = sync.OnceValues(func() (C.dnnl_engine_t, error) {
	var e C.dnnl_engine_t
	if s := C.dnn_open(&e); s != C.dnnl_success {
		return nil, fmt.Errorf("dnn: opening oneDNN's CPU engine: %w", status(s))
	}
	return e, nil
})

// status makes an error of what oneDNN returned.
func status(s C.dnnl_status_t) error {
	return fmt.Errorf("oneDNN says %s", strings.TrimPrefix(C.GoString(C.dnnl_status2str(s)), "dnnl_"))
}

// Conv is a convolution made ready for one shape. It may be used by one
// goroutine at a time.
type Conv struct {
	shape                     Shape
	forward, backData, backWt *pass
}

// pass is one primitive with the reorders around it.
type pass struct{ c *C.pass }

// NewConv prepares a convolution. The error is ErrUnsupported where oneDNN has
// nothing better for the shape than its reference loops.
func NewConv(s Shape) (*Conv, error) {
	c := &Conv{shape: s}
	for kind, p := range map[C.int]**pass{
		C.conv_forward: &c.forward, C.conv_backward_data: &c.backData, C.conv_backward_weights: &c.backWt,
	} {
		var err error
		if *p, err = newPass(s, kind); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func newPass(s Shape, kind C.int) (*pass, error) {
	if min(s.N, s.Groups, s.In, s.Out, s.H, s.W, s.OutH, s.OutW) < 1 {
		return nil, ErrUnsupported
	}
	e, err := engine()
	if err != nil {
		return nil, err
	}
	n := func(v int) C.int { return C.int(v) }
	conv := C.convolution{
		n: n(s.N), groups: n(s.Groups), in: n(s.In), out: n(s.Out),
		h: n(s.H), w: n(s.W), oh: n(s.OutH), ow: n(s.OutW), kh: n(s.KernelH), kw: n(s.KernelW),
		pad_h: n(s.PadH), pad_w: n(s.PadW), stride_h: n(s.StrideH), stride_w: n(s.StrideW), dil_h: n(s.DilationH), dil_w: n(s.DilationW),
	}
	if s.Bias {
		conv.bias = 1
	}
	p := &pass{}
	switch st := C.dnn_conv(&p.c, e, &conv, kind); st {
	case C.dnnl_success:
	case C.dnnl_unimplemented, C.dnnl_invalid_arguments:
		return nil, ErrUnsupported
	default:
		return nil, fmt.Errorf("dnn: preparing a convolution of shape %+v: %w", s, status(st))
	}
	runtime.AddCleanup(p, func(c *C.pass) { C.dnn_free(c) }, p.c)
	if strings.Contains(p.impl(), "ref") { // "ref:any", "gemm:ref": plain loops
		return nil, ErrUnsupported
	}
	return p, nil
}

// impl is oneDNN's name for the code that it chose: "jit:avx512_core".
func (p *pass) impl() string { return C.GoString(&p.c.impl[0]) }

// Implementations names the code that runs forward, for the input's and for
// the weights' gradient.
func (c *Conv) Implementations() [3]string {
	return [3]string{c.forward.impl(), c.backData.impl(), c.backWt.impl()}
}

// Forward writes y = x ⋆ w + b; b is nil without a bias.
func (c *Conv) Forward(x, w, b, y []float32) error { return c.forward.run(x, w, y, b) }

// BackwardData writes dx, the gradient of the input.
func (c *Conv) BackwardData(dy, w, dx []float32) error { return c.backData.run(dx, w, dy, nil) }

// BackwardWeights adds the gradients of weights and bias to dw and db.
func (c *Conv) BackwardWeights(x, dy, dw, db []float32) error { return c.backWt.run(x, dw, dy, db) }

// run runs the pass on tensors in the order in which the pass has them.
func (p *pass) run(tensors ...[]float32) error {
	var at [C.max_tensors]unsafe.Pointer
	for i, t := range tensors {
		if i >= int(p.c.count) {
			break
		}
		if want := int(C.dnnl_memory_desc_get_size(&p.c.tensors[i].md)) / 4; len(t) != want {
			return fmt.Errorf("dnn: tensor %d has %d elements, want %d", i, len(t), want)
		}
		at[i] = unsafe.Pointer(&t[0])
	}
	w, err := takeWorkspace(int(p.c.bytes))
	if err != nil {
		return err
	}
	s := C.dnn_run(p.c, w.stream, (*C.char)(w.base), at[0], at[1], at[2], at[3])
	putWorkspace(w)
	runtime.KeepAlive(p)
	if s != C.dnnl_success {
		return fmt.Errorf("dnn: running %s: %w", p.impl(), status(s))
	}
	return nil
}
