package layers

import (
	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/kernels/nn"
)

func init() {
	register("Pooling", func(p *proto.LayerParameter, env Env) (Layer, error) {
		return &pooling{base: newBase(p, env), p: orEmpty(p.GetPoolingParam())}, nil
	})
}

// pooling is Caffe's Pooling: bottom [N, C, H, W] to top [N, C, H', W'] with
// H' = (H + 2·pad − kernel)/stride + 1, rounded up (round_mode CEIL, the
// default) or down; a last window that would start beyond the input is left
// out. MAX takes a second top for the positions of the maxima, counted within
// their plane. AVE divides by the window's size within the padded input.
//
// Among equal values MAX takes the first, as Caffe does. A NaN with a clear
// sign bit is greater than any number, so that it shows in the loss.
type pooling struct {
	base
	p    *proto.PoolingParameter
	max  bool
	win  window
	rows []span // by output row
	cols []span // by output column

	maxima *nn.MaxPool // MAX
	sums   []float32   // AVE: one row
	mask   []int32     // MAX: position in its plane of each output's maximum
	kept   blob.Blob   // the same on a GPU
}

// Bottoms says one.
func (l *pooling) Bottoms() Bounds { return Bounds{1, 1} }

// Tops says one, and for MAX perhaps a second for the mask.
func (l *pooling) Tops() Bounds {
	if l.p.GetPool() == proto.PoolingParameter_MAX {
		return Bounds{1, 2}
	}
	return Bounds{1, 1}
}

// Setup checks the parameters.
func (l *pooling) Setup(bottom, top []*blob.Blob) error {
	switch m := l.p.GetPool(); m {
	case proto.PoolingParameter_MAX:
		l.max = true
	case proto.PoolingParameter_AVE:
	default:
		return l.errorf("pool: %v is not supported; supported are MAX and AVE", m)
	}
	if bottom[0].NumAxes() != 4 {
		return l.errorf("bottom shape %v has %d axes; pooling needs 4 (N, C, H, W)", bottom[0].Shape(), bottom[0].NumAxes())
	}
	return l.readWindow()
}

func (l *pooling) readWindow() error {
	p, w := l.p, &l.win
	once := func(v *uint32) []uint32 {
		if v == nil {
			return nil
		}
		return []uint32{*v}
	}
	if p.GetGlobalPooling() {
		if p.KernelSize != nil || p.KernelH != nil || p.KernelW != nil {
			return l.errorf("global_pooling is given with a kernel size; its kernel is the whole input")
		}
		if err := l.readFields([]windowField{
			{"pad", once(p.Pad), p.PadH, p.PadW, 0, 0, &w.padH, &w.padW},
			{"stride", once(p.Stride), p.StrideH, p.StrideW, 1, 1, &w.strideH, &w.strideW},
		}); err != nil {
			return err
		}
		if w.padH != 0 || w.padW != 0 || w.strideH != 1 || w.strideW != 1 {
			return l.errorf("global_pooling needs pad 0 and stride 1")
		}
		return nil
	}
	if err := l.readFields([]windowField{
		{"kernel_size", once(p.KernelSize), p.KernelH, p.KernelW, 1, -1, &w.kh, &w.kw},
		{"pad", once(p.Pad), p.PadH, p.PadW, 0, 0, &w.padH, &w.padW},
		{"stride", once(p.Stride), p.StrideH, p.StrideW, 1, 1, &w.strideH, &w.strideW},
	}); err != nil {
		return err
	}
	if w.padH >= w.kh || w.padW >= w.kw {
		return l.errorf("pad %d×%d is not smaller than kernel %d×%d", w.padH, w.padW, w.kh, w.kw)
	}
	return nil
}

// Reshape sizes the tops and lays out the windows.
func (l *pooling) Reshape(bottom, top []*blob.Blob) error {
	b, w := bottom[0], &l.win
	if b.NumAxes() != 4 {
		return l.errorf("bottom shape %v has %d axes; pooling needs 4 (N, C, H, W)", b.Shape(), b.NumAxes())
	}
	w.h, w.w = b.Dim(2), b.Dim(3)
	if l.p.GetGlobalPooling() {
		w.kh, w.kw = w.h, w.w
	}
	up := l.p.GetRoundMode() == proto.PoolingParameter_CEIL
	l.rows = spans(l.rows[:0], w.h, w.kh, w.padH, w.strideH, up)
	l.cols = spans(l.cols[:0], w.w, w.kw, w.padW, w.strideW, up)
	w.oh, w.ow = len(l.rows), len(l.cols)
	if w.oh == 0 || w.ow == 0 {
		return l.errorf("kernel %d×%d exceeds the padded input %d×%d", w.kh, w.kw, w.h+2*w.padH, w.w+2*w.padW)
	}
	for i, t := range top {
		if err := l.reshape(i, t, b.Dim(0), b.Dim(1), w.oh, w.ow); err != nil {
			return err
		}
	}
	if !l.max {
		l.sums = ensure(l.sums, w.w)
		return nil
	}
	l.maxima = nn.NewMaxPool(inside(l.rows), inside(l.cols), w.h, w.w)
	if n := top[0].Count(); len(l.mask) < n {
		l.mask = make([]int32, n)
	}
	return nil
}

// Forward writes the tops' values.
func (l *pooling) Forward(bottom, top []*blob.Blob) error {
	x, y, mask := bottom[0].Data(), top[0].Data(), l.mask
	in, out := l.win.h*l.win.w, l.win.oh*l.win.ow
	for ; len(y) > 0; x, y = x[in:], y[out:] {
		if l.max {
			l.maxima.Plane(y[:out], mask[:out], x[:in])
			mask = mask[out:]
		} else {
			averagePlane(x[:in], y[:out], l.rows, l.cols, l.sums)
		}
	}
	if len(top) > 1 {
		positions := top[1].Data()
		for i := range positions {
			positions[i] = float32(l.mask[i])
		}
	}
	return nil
}

// Backward writes the bottom's gradient.
func (l *pooling) Backward(top []*blob.Blob, propagate []bool, bottom []*blob.Blob) error {
	if !propagate[0] {
		return nil
	}
	dx, dy, mask := bottom[0].Diff(), top[0].Diff(), l.mask
	in, out := l.win.h*l.win.w, l.win.oh*l.win.ow
	clear(dx)
	for ; len(dy) > 0; dx, dy = dx[in:], dy[out:] {
		if !l.max {
			spreadPlane(dx[:in], dy[:out], l.rows, l.cols, l.sums)
			continue
		}
		plane := dx[:in]
		for i, p := range mask[:out] {
			plane[p] += dy[i]
		}
		mask = mask[out:]
	}
	return nil
}
