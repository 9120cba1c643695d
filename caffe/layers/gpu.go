package layers

import (
	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/gpu"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/mem"
)

// OnGPU is implemented by layers that a GPU can compute. The contract is that of Forward and Backward, but what
// they begin is done later, in its order; errors of the GPU stay with it. Others compute on the host, and the blobs
// bring it the values that they have (package caffe/gpu).
type OnGPU interface {
	// FitsGPU reports whether the GPU has kernels for the layer as it is set up. It is known after Reshape.
	FitsGPU(bottom, top []*blob.Blob) bool
	ForwardGPU(d *gpu.Device, bottom, top []*blob.Blob) error
	BackwardGPU(d *gpu.Device, top []*blob.Blob, propagate []bool, bottom []*blob.Blob) error
}

// buffers makes the list of a kernel's buffers.
type buffers = []mem.Buffer

// number is a parameter of a kernel that is one of float32.
func number(x float32) int64 { return cuda.Number(float64(x)) }

// vector returns a blob that a layer keeps for the device, of so many float32.
func vector(d *gpu.Device, b *blob.Blob, n int) *blob.Blob {
	b.Place(d)
	_ = b.Reshape(n) // n is at most what a blob of the net has, or 2 for each of its planes
	return b
}

// geometry is a window as the kernels have it, without the dilation.
func (w window) geometry() [10]int64 {
	return [10]int64{int64(w.h), int64(w.w), int64(w.oh), int64(w.ow), int64(w.kh), int64(w.kw), int64(w.padH), int64(w.padW), int64(w.strideH), int64(w.strideW)}
}

// ReLU.

// FitsGPU says that it always does.
func (l *relu) FitsGPU(_, _ []*blob.Blob) bool { return true }

// ForwardGPU is Forward.
func (l *relu) ForwardGPU(d *gpu.Device, bottom, top []*blob.Blob) error {
	x := bottom[0].ReadData()
	d.Launch(cuda.ReluForward, bottom[0].Count(), buffers{top[0].WriteData(), x}, number(l.slope))
	return nil
}

// BackwardGPU is Backward.
func (l *relu) BackwardGPU(d *gpu.Device, top []*blob.Blob, propagate []bool, bottom []*blob.Blob) error {
	if propagate[0] {
		dy, x := top[0].ReadDiff(), bottom[0].ReadData()
		d.Launch(cuda.ReluBackward, bottom[0].Count(), buffers{bottom[0].WriteDiff(), dy, x}, number(l.slope))
	}
	return nil
}

// Pooling.

// FitsGPU says that the positions of the maxima are the host's business.
func (l *pooling) FitsGPU(_, top []*blob.Blob) bool { return len(top) == 1 }

// over begins one of pooling's kernels.
func (w window) over(d *gpu.Device, k cuda.Kernel, items int, b buffers) {
	g := w.geometry()
	d.Launch(k, items, b, g[0], g[1], g[2], g[3], g[4], g[5], g[6], g[7], g[8], g[9])
}

// ForwardGPU is Forward.
func (l *pooling) ForwardGPU(d *gpu.Device, bottom, top []*blob.Blob) error {
	x, y, n := bottom[0].ReadData(), top[0].WriteData(), top[0].Count()
	if l.max {
		l.win.over(d, cuda.MaxForward, n, buffers{y, vector(d, &l.kept, n).WriteData(), x})
	} else {
		l.win.over(d, cuda.AveForward, n, buffers{y, x})
	}
	return nil
}

// BackwardGPU is Backward.
func (l *pooling) BackwardGPU(d *gpu.Device, top []*blob.Blob, propagate []bool, bottom []*blob.Blob) error {
	if !propagate[0] {
		return nil
	}
	dx, dy, n := bottom[0].WriteDiff(), top[0].ReadDiff(), bottom[0].Count()
	if l.max {
		l.win.over(d, cuda.MaxBackward, n, buffers{dx, dy, l.kept.ReadData()})
	} else {
		l.win.over(d, cuda.AveBackward, n, buffers{dx, dy})
	}
	return nil
}

// Softmax, its loss, Accuracy.

// FitsGPU says that it does unless there is nothing to compute.
func (l *softmax) FitsGPU(_, _ []*blob.Blob) bool { return l.channels > 0 }

func (s *softmaxer) forwardGPU(d *gpu.Device, x, y mem.Buffer) {
	d.Launch(cuda.SoftmaxForward, s.outer*s.inner, buffers{y, x}, int64(s.channels), int64(s.inner))
}

// ForwardGPU is Forward.
func (l *softmax) ForwardGPU(d *gpu.Device, bottom, top []*blob.Blob) error {
	x := bottom[0].ReadData()
	l.softmaxer.forwardGPU(d, x, top[0].WriteData())
	return nil
}

// BackwardGPU is Backward.
func (l *softmax) BackwardGPU(d *gpu.Device, top []*blob.Blob, propagate []bool, bottom []*blob.Blob) error {
	if propagate[0] {
		y, dy := top[0].ReadData(), top[0].ReadDiff()
		d.Launch(cuda.SoftmaxBackward, l.outer*l.inner, buffers{bottom[0].WriteDiff(), dy, y}, int64(l.channels), int64(l.inner))
	}
	return nil
}

// FitsGPU says that it does unless there is nothing to compute.
func (l *softmaxLoss) FitsGPU(_, _ []*blob.Blob) bool { return l.channels > 0 }

// ignoring are the parameters of kernels that leave out a label.
func ignoring(has bool, label int) (leaves, ignored int64) {
	if has {
		leaves = 1
	}
	return leaves, int64(label)
}

// ForwardGPU is Forward. The labels, which the host has read, are checked by it.
func (l *softmaxLoss) ForwardGPU(d *gpu.Device, bottom, top []*blob.Blob) error {
	valid := 0
	for i, v := range bottom[1].HostData() {
		if l.norm.ignores(v) {
			continue
		}
		if _, err := l.at(v, i); err != nil {
			return err
		}
		valid++
	}
	l.divisor = l.norm.divisor(l.outer, l.inner, valid)
	l.prob.Place(d)
	l.softmaxer.forwardGPU(d, bottom[0].ReadData(), l.prob.WriteData())
	leaves, ignored := ignoring(l.norm.hasIgnore, l.norm.ignore)
	n := l.outer * l.inner
	each := d.Scratch(8 * n)
	d.Launch(cuda.LossOfEach, n, buffers{each, l.prob.ReadData(), bottom[1].ReadData()}, int64(l.channels), int64(l.inner), leaves, ignored)
	d.Launch(cuda.MeanOf, 1, buffers{top[0].WriteData(), each}, cuda.Number(l.divisor), -1)
	if len(top) > 1 {
		top[1].ShareData(&l.prob)
	}
	return nil
}

// BackwardGPU is Backward.
func (l *softmaxLoss) BackwardGPU(d *gpu.Device, top []*blob.Blob, propagate []bool, bottom []*blob.Blob) error {
	if err := l.noLabelGradient(propagate); err != nil || !propagate[0] {
		return err
	}
	g := float32(float64(top[0].HostDiff()[0]) / l.divisor)
	leaves, ignored := ignoring(l.norm.hasIgnore, l.norm.ignore)
	d.Launch(cuda.LossBackward, bottom[0].Count(), buffers{bottom[0].WriteDiff(), l.prob.ReadData(), bottom[1].ReadData()}, int64(l.channels), int64(l.inner), leaves, ignored, number(g))
	return nil
}

// FitsGPU says that the accuracy of each class is the host's business.
func (l *accuracy) FitsGPU(_, top []*blob.Blob) bool { return len(top) == 1 && l.classes > 0 }

// ForwardGPU is Forward, with the labels checked by the host.
func (l *accuracy) ForwardGPU(d *gpu.Device, bottom, top []*blob.Blob) error {
	count := 0
	for i, v := range bottom[1].HostData() {
		c := labelOf(v)
		if l.hasIgnore && c == l.ignore {
			continue
		}
		if c < 0 || c >= l.classes {
			return l.badLabel(v, i, l.classes)
		}
		count++
	}
	leaves, ignored := ignoring(l.hasIgnore, l.ignore)
	n := l.outer * l.inner
	each := d.Scratch(8 * n)
	d.Launch(cuda.Hits, n, buffers{each, bottom[0].ReadData(), bottom[1].ReadData()}, int64(l.classes), int64(l.inner), int64(l.topK), leaves, ignored)
	d.Launch(cuda.MeanOf, 1, buffers{top[0].WriteData(), each}, cuda.Number(float64(max(1, count))), 1)
	return nil
}

// BackwardGPU is Backward.
func (l *accuracy) BackwardGPU(_ *gpu.Device, top []*blob.Blob, propagate []bool, bottom []*blob.Blob) error {
	return l.Backward(top, propagate, bottom)
}

// Layers whose tops are their bottoms' memory.

// FitsGPU says that it always does.
func (l *view) FitsGPU(_, _ []*blob.Blob) bool { return true }

// ForwardGPU is Forward.
func (l *view) ForwardGPU(_ *gpu.Device, bottom, top []*blob.Blob) error {
	return l.Forward(bottom, top)
}

// BackwardGPU is Backward.
func (l *view) BackwardGPU(_ *gpu.Device, top []*blob.Blob, propagate []bool, bottom []*blob.Blob) error {
	return l.Backward(top, propagate, bottom)
}

// FitsGPU says that it always does.
func (l *split) FitsGPU(_, _ []*blob.Blob) bool { return true }

// ForwardGPU is Forward.
func (l *split) ForwardGPU(_ *gpu.Device, bottom, top []*blob.Blob) error {
	return l.Forward(bottom, top)
}

// BackwardGPU is Backward.
func (l *split) BackwardGPU(d *gpu.Device, top []*blob.Blob, propagate []bool, bottom []*blob.Blob) error {
	if propagate[0] {
		weightedSum(d, bottom[0].WriteDiff(), top, (*blob.Blob).ReadDiff, nil)
	}
	return nil
}

// weightedSum begins y = Σ weight·x, each 1 where there are no weights.
func weightedSum(d *gpu.Device, y mem.Buffer, of []*blob.Blob, read func(*blob.Blob) mem.Buffer, weights []float32) {
	for i, b := range of {
		w, add := float32(1), int64(min(i, 1))
		if weights != nil {
			w = weights[i]
		}
		d.Launch(cuda.Scaled, y.Len()/4, buffers{y, read(b)}, number(w), add)
	}
}

// FitsGPU says that it always does.
func (l *silence) FitsGPU(_, _ []*blob.Blob) bool { return true }

// ForwardGPU has nothing to do.
func (l *silence) ForwardGPU(*gpu.Device, []*blob.Blob, []*blob.Blob) error { return nil }

// BackwardGPU is Backward.
func (l *silence) BackwardGPU(_ *gpu.Device, _ []*blob.Blob, propagate []bool, bottom []*blob.Blob) error {
	for i, b := range bottom {
		if propagate[i] {
			b.ClearDiff()
		}
	}
	return nil
}

// Dropout: the masks are the CPU's.

// FitsGPU says that it always does.
func (l *dropout) FitsGPU(_, _ []*blob.Blob) bool { return true }

// masked begins to = from, times the mask in training.
func (l *dropout) masked(d *gpu.Device, to, from mem.Buffer) {
	if l.phase != proto.Phase_TRAIN {
		d.Launch(cuda.Scaled, to.Len()/4, buffers{to, from}, number(1), 0)
		return
	}
	d.Launch(cuda.Multiply, to.Len()/4, buffers{to, from, l.mask.ReadData()})
}

// ForwardGPU is Forward.
func (l *dropout) ForwardGPU(d *gpu.Device, bottom, top []*blob.Blob) error {
	if l.phase == proto.Phase_TRAIN {
		l.mask.Place(d)
		l.draw()
	}
	x := bottom[0].ReadData()
	l.masked(d, top[0].WriteData(), x)
	return nil
}

// BackwardGPU is Backward.
func (l *dropout) BackwardGPU(d *gpu.Device, top []*blob.Blob, propagate []bool, bottom []*blob.Blob) error {
	if propagate[0] {
		dy := top[0].ReadDiff()
		l.masked(d, bottom[0].WriteDiff(), dy)
	}
	return nil
}

// Concat and Slice.

// partGPU begins the copy of part k to the whole, or of the whole to it.
func (l *joint) partGPU(d *gpu.Device, k int, whole, part mem.Buffer, toPart bool) {
	off, stride := 0, 0
	for i, c := range l.chunk {
		if i < k {
			off += c
		}
		stride += c
	}
	n := l.chunk[k]
	if toPart {
		d.Launch(cuda.Part, l.outer*n, buffers{part, whole}, int64(l.outer), int64(n), int64(n), 0, int64(stride), int64(off))
	} else {
		d.Launch(cuda.Part, l.outer*n, buffers{whole, part}, int64(l.outer), int64(n), int64(stride), int64(off), int64(n), 0)
	}
}

// FitsGPU says that it always does.
func (l *joint) FitsGPU(_, _ []*blob.Blob) bool { return true }

// ForwardGPU is Forward.
func (l *concat) ForwardGPU(d *gpu.Device, bottom, top []*blob.Blob) error {
	if len(bottom) == 1 {
		return l.Forward(bottom, top)
	}
	y := top[0].WriteData()
	for i, b := range bottom {
		l.partGPU(d, i, y, b.ReadData(), false)
	}
	return nil
}

// BackwardGPU is Backward.
func (l *concat) BackwardGPU(d *gpu.Device, top []*blob.Blob, propagate []bool, bottom []*blob.Blob) error {
	if len(bottom) == 1 {
		return l.Backward(top, propagate, bottom)
	}
	for i, b := range bottom {
		if propagate[i] {
			l.partGPU(d, i, top[0].ReadDiff(), b.WriteDiff(), true)
		}
	}
	return nil
}

// ForwardGPU is Forward.
func (l *slice) ForwardGPU(d *gpu.Device, bottom, top []*blob.Blob) error {
	if len(top) == 1 {
		return l.Forward(bottom, top)
	}
	for i, t := range top {
		l.partGPU(d, i, bottom[0].ReadData(), t.WriteData(), true)
	}
	return nil
}

// BackwardGPU is Backward.
func (l *slice) BackwardGPU(d *gpu.Device, top []*blob.Blob, propagate []bool, bottom []*blob.Blob) error {
	if len(top) == 1 || !propagate[0] {
		return l.Backward(top, propagate, bottom)
	}
	dx := bottom[0].WriteDiff()
	for i, t := range top {
		l.partGPU(d, i, dx, t.ReadDiff(), false)
	}
	return nil
}

// Eltwise.

// FitsGPU says that the gradient of a product of three or more by the others is the host's business.
func (l *eltwise) FitsGPU(bottom, _ []*blob.Blob) bool {
	return l.op != proto.EltwiseParameter_PROD || len(bottom) == 2 || !l.stable
}

// ForwardGPU is Forward.
func (l *eltwise) ForwardGPU(d *gpu.Device, bottom, top []*blob.Blob) error {
	y, n := top[0].WriteData(), top[0].Count()
	switch l.op {
	case proto.EltwiseParameter_SUM:
		weightedSum(d, y, bottom, (*blob.Blob).ReadData, l.coeff)
	case proto.EltwiseParameter_PROD:
		d.Launch(cuda.Multiply, n, buffers{y, bottom[0].ReadData(), bottom[1].ReadData()})
		for _, b := range bottom[2:] {
			d.Launch(cuda.Multiply, n, buffers{y, y, b.ReadData()})
		}
	case proto.EltwiseParameter_MAX:
		w := vector(d, &l.from, n).WriteData()
		d.Launch(cuda.Greater, n, buffers{y, w, bottom[1].ReadData()}, 1, 1)
		for i, b := range bottom {
			if i != 1 {
				d.Launch(cuda.Greater, n, buffers{y, w, b.ReadData()}, int64(i), 0)
			}
		}
	}
	return nil
}

// BackwardGPU is Backward.
func (l *eltwise) BackwardGPU(d *gpu.Device, top []*blob.Blob, propagate []bool, bottom []*blob.Blob) error {
	dy, n := top[0].ReadDiff(), top[0].Count()
	for i, b := range bottom {
		switch {
		case !propagate[i]:
		case l.op == proto.EltwiseParameter_SUM:
			d.Launch(cuda.Scaled, n, buffers{b.WriteDiff(), dy}, number(l.coeff[i]), 0)
		case l.op == proto.EltwiseParameter_MAX:
			d.Launch(cuda.WhereNumber, n, buffers{b.WriteDiff(), dy, l.from.ReadData()}, int64(i))
		case l.stable:
			d.Launch(cuda.Multiply, n, buffers{b.WriteDiff(), dy, bottom[1-i].ReadData()})
		default:
			d.Launch(cuda.ProductGradient, n, buffers{b.WriteDiff(), top[0].ReadData(), b.ReadData(), dy})
		}
	}
	return nil
}

// LRN.

// FitsGPU says that it always does.
func (l *lrn) FitsGPU(_, _ []*blob.Blob) bool { return true }

// windowWithin is the window of WITHIN_CHANNEL.
func (l *lrn) windowWithin(b *blob.Blob) window {
	n := 2*l.half + 1
	return window{h: b.Dim(2), w: b.Dim(3), oh: len(l.rows), ow: len(l.cols), kh: n, kw: n, padH: l.half, padW: l.half, strideH: 1, strideW: 1}
}

// ForwardGPU is Forward.
func (l *lrn) ForwardGPU(d *gpu.Device, bottom, top []*blob.Blob) error {
	b, n := bottom[0], bottom[0].Count()
	x, y, scales := b.ReadData(), top[0].WriteData(), vector(d, &l.scales, n).WriteData()
	if !l.within {
		d.Launch(cuda.LrnAcross, n, buffers{y, scales, x}, int64(b.Dim(1)), int64(b.CountFrom(2, 4)), int64(l.half), number(l.k), number(l.alpha), number(l.beta))
		return nil
	}
	squares := d.Scratch(4 * n)
	d.Launch(cuda.Multiply, n, buffers{squares, x, x})
	l.windowWithin(b).over(d, cuda.AveForward, n, buffers{scales, squares})
	d.Launch(cuda.LrnWithin, n, buffers{y, scales, x}, number(l.alpha), number(l.beta))
	return nil
}

// BackwardGPU is Backward.
func (l *lrn) BackwardGPU(d *gpu.Device, top []*blob.Blob, propagate []bool, bottom []*blob.Blob) error {
	if !propagate[0] {
		return nil
	}
	b, n, factor := bottom[0], bottom[0].Count(), number(2*l.alpha*l.beta)
	x, y, dy, scales, dx := b.ReadData(), top[0].ReadData(), top[0].ReadDiff(), l.scales.ReadData(), b.WriteDiff()
	if !l.within {
		d.Launch(cuda.LrnAcrossBackward, n, buffers{dx, x, y, dy, scales}, int64(b.Dim(1)), int64(b.CountFrom(2, 4)), int64(l.half), factor, number(l.beta))
		return nil
	}
	ratios := d.Scratch(4 * n)
	d.Launch(cuda.LrnRatio, n, buffers{ratios, y, dy, scales})
	l.windowWithin(b).over(d, cuda.AveBackward, n, buffers{dx, ratios})
	d.Launch(cuda.LrnWithinBackward, n, buffers{dx, dx, x, dy, scales}, factor, number(l.beta))
	return nil
}

// BatchNorm and Scale.

// pairs begins the sums over planes of a and of a·b; see pair_sums in layers.cu.
func pairs(d *gpu.Device, outer, channels, plane int, a, b mem.Buffer) mem.Buffer {
	sums := d.Scratch(16 * outer * channels)
	d.Launch(cuda.PairSums, outer*channels, buffers{sums, a, b}, int64(channels), int64(plane))
	return sums
}

// FitsGPU says that it does unless there is nothing to compute.
func (l *batchNorm) FitsGPU(bottom, _ []*blob.Blob) bool { return bottom[0].Count() > 0 }

// ForwardGPU is Forward.
func (l *batchNorm) ForwardGPU(d *gpu.Device, bottom, top []*blob.Blob) error {
	x, n := bottom[0].ReadData(), bottom[0].Count()
	mean, inverse := vector(d, &l.means, l.chans).WriteData(), vector(d, &l.inverses, l.chans).WriteData()
	var kept mem.Buffer
	if l.global {
		d.Launch(cuda.GlobalMoments, l.chans, buffers{mean, inverse, l.params[0].ReadData(), l.params[1].ReadData(), l.params[2].ReadData()}, cuda.Number(l.eps))
	} else {
		sums := pairs(d, l.outer, l.chans, l.dim, x, mem.Buffer{})
		d.Launch(cuda.Moments, l.chans, buffers{mean, inverse, l.params[0].ChangeData(), l.params[1].ChangeData(), l.params[2].ChangeData(), sums, x}, int64(l.dim), number(l.fraction), cuda.Number(l.eps))
		l.norm.Place(d)
		kept = l.norm.WriteData()
	}
	d.Launch(cuda.Normalize, n, buffers{top[0].WriteData(), kept, x, mean, inverse}, int64(l.dim))
	return nil
}

// BackwardGPU is Backward.
func (l *batchNorm) BackwardGPU(d *gpu.Device, top []*blob.Blob, propagate []bool, bottom []*blob.Blob) error {
	if !propagate[0] {
		return nil
	}
	dy, inverse, n := top[0].ReadDiff(), l.inverses.ReadData(), bottom[0].Count()
	if l.global {
		d.Launch(cuda.Affine, n, buffers{bottom[0].WriteDiff(), dy, inverse, {}}, int64(l.dim))
		return nil
	}
	y := l.norm.ReadData()
	sums := pairs(d, l.outer, l.chans, l.dim, dy, y)
	meanDy, meanDyY := vector(d, &l.meansDy, l.chans).WriteData(), vector(d, &l.meansDyY, l.chans).WriteData()
	d.Launch(cuda.MeanGradients, l.chans, buffers{meanDy, meanDyY, sums}, int64(l.dim))
	d.Launch(cuda.NormalizeBackward, n, buffers{bottom[0].WriteDiff(), dy, y, meanDy, meanDyY, inverse}, int64(l.dim))
	return nil
}

// FitsGPU says that it does unless there is nothing to compute.
func (l *scale) FitsGPU(bottom, _ []*blob.Blob) bool { return bottom[0].Count() > 0 }

// ForwardGPU is Forward.
func (l *scale) ForwardGPU(d *gpu.Device, bottom, top []*blob.Blob) error {
	x, n := bottom[0].ReadData(), bottom[0].Count()
	if top[0] == bottom[0] {
		l.kept.Place(d)
		d.Launch(cuda.Scaled, n, buffers{l.kept.WriteData(), x}, number(1), 0)
	}
	var bias mem.Buffer
	if b := l.bias(); b != nil {
		bias = b.ReadData()
	}
	d.Launch(cuda.Affine, n, buffers{top[0].WriteData(), x, l.factors(bottom).ReadData(), bias}, int64(l.inner))
	return nil
}

// BackwardGPU is Backward.
func (l *scale) BackwardGPU(d *gpu.Device, top []*blob.Blob, propagate []bool, bottom []*blob.Blob) error {
	dy, x := top[0].ReadDiff(), bottom[0]
	if top[0] == bottom[0] {
		x = &l.kept
	}
	var df, db mem.Buffer
	if b := l.bias(); b != nil {
		db = b.ChangeDiff()
	}
	if len(bottom) == 1 {
		df = l.params[0].ChangeDiff()
	} else if propagate[1] {
		bottom[1].ClearDiff()
		df = bottom[1].ChangeDiff()
	}
	if df.Len()+db.Len() > 0 {
		sums := pairs(d, l.outer, l.dim, l.inner, dy, x.ReadData())
		d.Launch(cuda.AddPairSums, l.dim, buffers{db, df, sums}, int64(l.dim))
	}
	if propagate[0] {
		f := l.factors(bottom).ReadData()
		d.Launch(cuda.Affine, bottom[0].Count(), buffers{bottom[0].WriteDiff(), dy, f, {}}, int64(l.inner))
	}
	return nil
}
