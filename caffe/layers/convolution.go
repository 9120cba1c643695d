package layers

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/kernels/blas"
	"github.com/scaffe/scaffe/kernels/dnn"
)

func init() {
	register("Convolution", func(p *proto.LayerParameter, env Env) (Layer, error) {
		return &convolution{base: newBase(p, env), p: orEmpty(p.GetConvolutionParam())}, nil
	})
}

// orEmpty returns p, or an empty message where there is none.
func orEmpty[T any](p *T) *T {
	if p == nil {
		p = new(T)
	}
	return p
}

// convolution is Caffe's Convolution over two spatial axes: bottom
// […, C, H, W] to top […, num_output, H', W'] with
// H' = (H + 2·pad − dilation·(kernel−1) − 1)/stride + 1, rounded down.
//
// Params: weights [num_output, C/group, kernel_h, kernel_w], then the bias
// [num_output] unless bias_term is false.
type convolution struct {
	base
	p       *proto.ConvolutionParameter
	axis    int // of the channels
	win     window
	groups  int
	in, out int // channels

	fast     *dnn.Conv // nil: plain, as below
	fastFor  dnn.Shape
	plain    bool // for tests: never fast
	forward  *correlation
	mirrored *correlation // for stride 1, else nil
	ones     []float32    // one a column of the output plane
}

// Bottoms says one or more, each with its top.
func (l *convolution) Bottoms() Bounds { return Bounds{1, -1} }

// Tops says one a bottom.
func (l *convolution) Tops() Bounds { return Bounds{1, -1} }

// Setup makes the parameters.
func (l *convolution) Setup(bottom, top []*blob.Blob) error {
	if err := l.readWindow(); err != nil {
		return err
	}
	axis, err := l.base.axis("axis", int(l.p.GetAxis()), bottom[0])
	if err != nil {
		return err
	}
	if spatial := bottom[0].NumAxes() - axis - 1; spatial != 2 {
		return l.errorf("bottom shape %v has %d spatial axes after channel axis %d; only 2 are supported", bottom[0].Shape(), spatial, axis)
	}
	l.axis, l.in = axis, bottom[0].Dim(axis)
	l.out, l.groups = int(l.p.GetNumOutput()), int(l.p.GetGroup())
	switch {
	case l.out == 0:
		return l.errorf("num_output is missing or 0")
	case l.groups == 0 || l.in%l.groups != 0 || l.out%l.groups != 0:
		return l.errorf("group %d does not divide both the %d input channels and num_output %d", l.groups, l.in, l.out)
	case l.in == 0:
		return l.errorf("bottom shape %v has no channels", bottom[0].Shape())
	}
	if err := l.newParam(l.p.GetWeightFiller(), l.out, l.in/l.groups, l.win.kh, l.win.kw); err != nil {
		return err
	}
	if l.p.GetBiasTerm() {
		return l.newParam(l.p.GetBiasFiller(), l.out)
	}
	return nil
}

// maxWindow bounds kernel, pad, stride and dilation: beyond it, extents
// overflow long before a net makes sense.
const maxWindow = 1 << 16

// windowField is one field of a window as a message gives it.
type windowField struct {
	name     string
	repeated []uint32 // once for both axes, or once each
	h, w     *uint32  // or the fields by axis
	least    int
	missing  int  // value where nothing is said, -1 for an error
	dh, dw   *int // where the values go
}

// readWindow takes the kernel, pad, stride and dilation from the message.
func (l *convolution) readWindow() error {
	p, w := l.p, &l.win
	return l.readFields([]windowField{
		{"kernel_size", p.GetKernelSize(), p.KernelH, p.KernelW, 1, -1, &w.kh, &w.kw},
		{"pad", p.GetPad(), p.PadH, p.PadW, 0, 0, &w.padH, &w.padW},
		{"stride", p.GetStride(), p.StrideH, p.StrideW, 1, 1, &w.strideH, &w.strideW},
		{"dilation", p.GetDilation(), nil, nil, 1, 1, &w.dilH, &w.dilW},
	})
}

// readFields takes window fields and checks their range.
func (l *base) readFields(fields []windowField) error {
	for _, f := range fields {
		h, w, err := byAxis(f.name, f.repeated, f.h, f.w, f.missing)
		if err != nil {
			return l.errorf("%w", err)
		}
		if min(h, w) < f.least || max(h, w) > maxWindow {
			return l.errorf("%s %d×%d is out of range [%d, %d]", f.name, h, w, f.least, maxWindow)
		}
		*f.dh, *f.dw = h, w
	}
	return nil
}

// byAxis returns a window field's values for height and width: name is given
// once for both or once each, or h and w are given instead.
func byAxis(name string, repeated []uint32, h, w *uint32, missing int) (int, int, error) {
	stem := strings.TrimSuffix(name, "_size")
	switch {
	case (h != nil || w != nil) && len(repeated) > 0:
		return 0, 0, fmt.Errorf("%s and %s_h/%s_w are both given; use one", name, stem, stem)
	case h != nil || w != nil:
		if missing < 0 && (h == nil || w == nil) {
			return 0, 0, fmt.Errorf("%s_h and %s_w must be given together", stem, stem)
		}
		return valueOr(h, missing), valueOr(w, missing), nil
	case len(repeated) == 1:
		return int(repeated[0]), int(repeated[0]), nil
	case len(repeated) == 2:
		return int(repeated[0]), int(repeated[1]), nil
	case len(repeated) > 2:
		return 0, 0, fmt.Errorf("%s is given %d times; only 2 spatial axes are supported", name, len(repeated))
	case missing < 0:
		return 0, 0, fmt.Errorf("%s is missing", name)
	}
	return missing, missing, nil
}

func valueOr(v *uint32, missing int) int {
	if v == nil {
		return missing
	}
	return int(*v)
}

// Reshape sizes the tops and the tiles.
func (l *convolution) Reshape(bottom, top []*blob.Blob) error {
	if len(bottom) != len(top) {
		return l.errorf("%d bottoms but %d tops; each bottom needs its own top", len(bottom), len(top))
	}
	b := bottom[0]
	for i, o := range bottom[1:] {
		if !slices.Equal(o.Shape(), b.Shape()) {
			return l.errorf("bottom %d has shape %v but bottom 0 has %v; all must be equal", i+1, o.Shape(), b.Shape())
		}
	}
	if b.NumAxes() != l.axis+3 || b.Dim(l.axis) != l.in {
		return l.errorf("bottom shape %v does not fit weights of shape %v over channel axis %d", b.Shape(), l.params[0].Shape(), l.axis)
	}
	w := l.win
	w.h, w.w = b.Dim(l.axis+1), b.Dim(l.axis+2)
	if w.h == 0 || w.w == 0 {
		return l.errorf("bottom shape %v has an empty plane", b.Shape())
	}
	if w.reachH() > w.h+2*w.padH || w.reachW() > w.w+2*w.padW {
		return l.errorf("kernel %d×%d exceeds the padded input %d×%d", w.reachH(), w.reachW(), w.h+2*w.padH, w.w+2*w.padW)
	}
	w.oh = (w.h+2*w.padH-w.reachH())/w.strideH + 1
	w.ow = (w.w+2*w.padW-w.reachW())/w.strideW + 1
	shape := append(slices.Clone(b.Shape()[:l.axis]), l.out, w.oh, w.ow)
	for i, t := range top {
		if err := l.reshape(i, t, shape...); err != nil {
			return err
		}
	}
	return l.prepare(w, b.CountFrom(0, l.axis))
}

// prepare makes what depends on the spatial shape w and the n images of a
// batch: package dnn's convolution where it has one, else the tiles.
func (l *convolution) prepare(w window, n int) error {
	same := w == l.win
	l.win = w
	if err := l.prepareFast(n); err != nil || l.fast != nil {
		return err
	}
	if l.forward == nil || !same {
		l.plan()
	}
	l.forward.size(n)
	if l.mirrored != nil {
		l.mirrored.size(n)
	}
	return nil
}

// prepareFast sets fast, or leaves it nil.
func (l *convolution) prepareFast(n int) error {
	w := l.win
	s := dnn.Shape{
		N: n, Groups: l.groups, In: l.in, Out: l.out, H: w.h, W: w.w, OutH: w.oh, OutW: w.ow,
		KernelH: w.kh, KernelW: w.kw, PadH: w.padH, PadW: w.padW, StrideH: w.strideH, StrideW: w.strideW,
		DilationH: w.dilH, DilationW: w.dilW, Bias: l.bias() != nil,
	}
	if l.plain || s == l.fastFor {
		return nil
	}
	var err error
	if l.fast, err = dnn.NewConv(s); errors.Is(err, dnn.ErrUnsupported) {
		err = nil
	}
	l.fastFor = s
	return l.wrap(err)
}

// wrap names the layer in an error from elsewhere.
func (l *base) wrap(err error) error {
	if err == nil {
		return nil
	}
	return l.errorf("%w", err)
}

// plan makes what depends on the spatial shape.
func (l *convolution) plan() {
	in, out := l.in/l.groups, l.out/l.groups
	l.forward = newCorrelation(l.win, l.groups, in, out)
	l.forward.grads = make([]float32, len(l.forward.weights))
	l.mirrored = nil
	if l.win.strideH == 1 && l.win.strideW == 1 {
		l.mirrored = newCorrelation(l.win.mirrored(), l.groups, out, in)
	}
	l.ones = make([]float32, l.win.oh*l.win.ow)
	set(l.ones, 1)
}

func (l *convolution) bias() *blob.Blob {
	if len(l.params) < 2 {
		return nil
	}
	return l.params[1]
}

// Forward writes the tops' values.
func (l *convolution) Forward(bottom, top []*blob.Blob) error {
	if l.fast != nil {
		return l.wrap(l.fastForward(bottom, top))
	}
	weights, bias := l.values()
	l.forward.setWeights(weights)
	for i, b := range bottom {
		l.forward.apply(b.CountFrom(0, l.axis), b.Data(), bias, top[i].Data())
	}
	return nil
}

// Backward adds to the parameters' gradients and writes those of the bottoms
// that take one.
func (l *convolution) Backward(top []*blob.Blob, propagate []bool, bottom []*blob.Blob) error {
	if l.fast != nil {
		return l.wrap(l.fastBackward(top, propagate, bottom))
	}
	clear(l.forward.grads)
	for i, b := range bottom {
		l.forward.weightGrad(b.CountFrom(0, l.axis), b.Data(), top[i].Diff())
		if l.bias() != nil {
			l.biasGrad(top[i].Diff())
		}
	}
	l.forward.addGrads(l.params[0].Diff())
	if !slices.Contains(propagate, true) {
		return nil
	}
	l.takeWeights()
	for i, b := range bottom {
		if !propagate[i] {
			continue
		}
		if n := b.CountFrom(0, l.axis); l.mirrored != nil {
			l.mirrored.apply(n, top[i].Diff(), nil, b.Diff())
		} else {
			l.forward.inputGrad(n, top[i].Diff(), b.Diff())
		}
	}
	return nil
}

// values and gradients of the parameters; the bias is nil where there is none.
func (l *convolution) values() (w, b []float32) {
	if bias := l.bias(); bias != nil {
		b = bias.Data()
	}
	return l.params[0].Data(), b
}

func (l *convolution) gradients() (dw, db []float32) {
	if bias := l.bias(); bias != nil {
		db = bias.Diff()
	}
	return l.params[0].Diff(), db
}

func (l *convolution) fastForward(bottom, top []*blob.Blob) error {
	w, b := l.values()
	for i := range bottom {
		if err := l.fast.Forward(bottom[i].Data(), w, b, top[i].Data()); err != nil {
			return err
		}
	}
	return nil
}

func (l *convolution) fastBackward(top []*blob.Blob, propagate []bool, bottom []*blob.Blob) error {
	w, _ := l.values()
	dw, db := l.gradients()
	for i := range bottom {
		dy := top[i].Diff()
		if err := l.fast.BackwardWeights(bottom[i].Data(), dy, dw, db); err != nil {
			return err
		}
		if !propagate[i] {
			continue
		}
		if err := l.fast.BackwardData(dy, w, bottom[i].Diff()); err != nil {
			return err
		}
	}
	return nil
}

func (l *convolution) takeWeights() {
	if l.mirrored != nil {
		l.mirrored.setMirrored(l.params[0].Data())
	} else {
		l.forward.setWeights(l.params[0].Data())
	}
}

// biasGrad adds the sum of each output plane, as a product with ones.
func (l *convolution) biasGrad(dy []float32) {
	db, plane := l.bias().Diff(), len(l.ones)
	for ; len(dy) > 0; dy = dy[l.out*plane:] {
		blas.Gemv(false, l.out, plane, 1, dy, plane, l.ones, 1, db)
	}
}
