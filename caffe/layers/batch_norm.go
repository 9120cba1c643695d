package layers

import (
	"math"

	gproto "google.golang.org/protobuf/proto"

	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/kernels/vec"
)

func init() { register("BatchNorm", newBatchNorm) }

// batchNorm is y = (x - mean) / sqrt(var + eps) for each channel, axis 1 (Ioffe
// and Szegedy 2015, without their scale and shift, which a Scale layer does).
//
// With use_global_stats, the default of the test phase, mean and variance are
// the running ones, which are its three parameters: Σ of the means and of the
// variances, each weighted by moving_average_fraction to the power of its age,
// and the Σ of those weights. They take no gradient.
type batchNorm struct {
	base
	global            bool
	fraction          float32
	eps               float64
	outer, chans, dim int
	norm              blob.Blob // y, which the next layer may change in place
	mean, inv         []float32 // of each channel; inv is 1/sqrt(var+eps)

	means, inverses, meansDy, meansDyY blob.Blob // on a GPU: mean, inv, and the means of gradients

	// Of each channel of a block, which stays in the caches.
	block           int
	sums, products  []vec.Lanes
	meanDy, meanDyY []float32
}

// newBatchNorm sets lr_mult to 0 for each of the three parameters in p, as
// Caffe does in its copy, and refuses any other.
func newBatchNorm(p *proto.LayerParameter, env Env) (Layer, error) {
	q := p.GetBatchNormParam()
	l := &batchNorm{base: newBase(p, env), fraction: q.GetMovingAverageFraction(), eps: float64(q.GetEps())}
	if l.global = env.Phase == proto.Phase_TEST; q != nil && q.UseGlobalStats != nil {
		l.global = q.GetUseGlobalStats()
	}
	if !(l.eps >= 0) {
		return nil, l.errorf("batch_norm_param.eps %g is below 0", l.eps)
	}
	for i, s := range p.GetParam() {
		if s.GetLrMult() != 0 {
			return nil, l.errorf("param %d has lr_mult %g, but the parameters of BatchNorm are running statistics, which cannot be learned: set lr_mult to 0 or leave the params out", i, s.GetLrMult())
		}
	}
	for len(p.Param) < 3 {
		p.Param = append(p.Param, &proto.ParamSpec{LrMult: gproto.Float32(0)})
	}
	return l, nil
}

// Statistics returns the running ones where Forward changes them.
func (l *batchNorm) Statistics() []*blob.Blob {
	if l.global {
		return nil
	}
	return l.params
}

func (l *batchNorm) Bottoms() Bounds { return Bounds{1, 1} }
func (l *batchNorm) Tops() Bounds    { return Bounds{1, 1} }
func (l *batchNorm) InPlace() bool   { return true }

// channels returns the extent of axis 1, and 1 for a bottom without one.
func channels(b *blob.Blob) int { return b.Dim(1) }

func (l *batchNorm) Setup(bottom, _ []*blob.Blob) error {
	l.chans = channels(bottom[0])
	l.mean, l.inv = make([]float32, l.chans), make([]float32, l.chans)
	l.params = []*blob.Blob{blob.New(l.chans), blob.New(l.chans), blob.New(1)}
	return nil
}

func (l *batchNorm) Reshape(bottom, top []*blob.Blob) error {
	b := bottom[0]
	if b.NumAxes() == 0 || channels(b) != l.chans {
		return l.errorf("the bottom has shape %v, but the layer was set up for %d channels (axis 1)", b.Shape(), l.chans)
	}
	if l.outer, l.dim = b.Dim(0), 1; b.NumAxes() > 2 {
		l.dim = b.CountFrom(2, b.NumAxes())
	}
	if top[0] != b {
		top[0].ReshapeLike(b)
	}
	if l.global {
		return nil
	}
	l.norm.ReshapeLike(b)
	l.block = blockOf(l.dim)
	l.sums, l.products = make([]vec.Lanes, l.block), make([]vec.Lanes, l.block)
	l.meanDy, l.meanDyY = make([]float32, l.block), make([]float32, l.block)
	return nil
}

// rows calls f with every row of channels from to to: where it lies, and its
// channel.
func (l *batchNorm) rows(from, to int, f func(i, j, c int)) {
	for o := range l.outer {
		i := (o*l.chans + from) * l.dim
		for c := from; c < to; c++ {
			f(i, i+l.dim, c)
			i += l.dim
		}
	}
}

func (l *batchNorm) Forward(bottom, top []*blob.Blob) error {
	x, y := bottom[0].Data(), top[0].Data()
	if len(x) == 0 {
		return nil
	}
	if l.global {
		l.useGlobal()
		l.rows(0, l.chans, func(i, j, c int) { vec.Normalize(y[i:j], x[i:j], l.mean[c], l.inv[c]) })
		return nil
	}
	weight := l.params[2].Data()
	weight[0] = weight[0]*l.fraction + 1
	norm := l.norm.Data()
	for from := 0; from < l.chans; from += l.block {
		to := min(from+l.block, l.chans)
		l.useBatch(x, from, to)
		l.rows(from, to, func(i, j, c int) {
			vec.NormalizeBoth(y[i:j], norm[i:j], x[i:j], l.mean[c], l.inv[c])
		})
	}
	return nil
}

// useGlobal takes mean and variance from the parameters.
func (l *batchNorm) useGlobal() {
	mean, variance := l.params[0].Data(), l.params[1].Data()
	weight := 0.0
	if w := l.params[2].Data()[0]; w != 0 {
		weight = 1 / float64(w)
	}
	for c := range l.mean {
		l.mean[c] = float32(weight * float64(mean[c]))
		l.inv[c] = float32(1 / math.Sqrt(weight*float64(variance[c])+l.eps))
	}
}

// useBatch computes mean and variance of channels from to to and takes them
// into the parameters, the variance as an unbiased estimate. They come from sums of
// the distances to one value of the channel: it is never farther from the mean
// than √n standard deviations, so that float64 has digits to spare.
func (l *batchNorm) useBatch(x []float32, from, to int) {
	n := float64(l.outer * l.dim)
	unbiased := 1.0
	if n > 1 {
		unbiased = n / (n - 1)
	}
	clear(l.sums)
	clear(l.products)
	l.rows(from, to, func(i, j, c int) {
		vec.AddMoments(&l.sums[c-from], &l.products[c-from], x[i:j], x[c*l.dim])
	})
	runMean, runVar := l.params[0].Data(), l.params[1].Data()
	for c := from; c < to; c++ {
		off := l.sums[c-from].Total() / n
		mean := float64(x[c*l.dim]) + off
		variance := max(0, l.products[c-from].Total()/n-off*off)
		l.mean[c] = float32(mean)
		l.inv[c] = float32(1 / math.Sqrt(variance+l.eps))
		runMean[c] = runMean[c]*l.fraction + float32(mean)
		runVar[c] = runVar[c]*l.fraction + float32(unbiased*variance)
	}
}

// Backward is dx = (dy - mean(dy) - mean(dy·y)·y) / sqrt(var + eps), and only
// the last factor where mean and variance do not depend on x.
func (l *batchNorm) Backward(top []*blob.Blob, propagate []bool, bottom []*blob.Blob) error {
	if !propagate[0] {
		return nil
	}
	dy, dx := top[0].Diff(), bottom[0].Diff()
	if l.global {
		l.rows(0, l.chans, func(i, j, c int) { vec.Scale(dx[i:j], l.inv[c], dy[i:j]) })
		return nil
	}
	for from := 0; from < l.chans; from += l.block {
		l.gradient(dx, dy, from, min(from+l.block, l.chans))
	}
	return nil
}

// gradient is Backward of channels from to to where the batch has its own
// moments.
func (l *batchNorm) gradient(dx, dy []float32, from, to int) {
	y, n := l.norm.Data(), float64(l.outer*l.dim)
	clear(l.sums)
	clear(l.products)
	l.rows(from, to, func(i, j, c int) {
		vec.AddSumDot(&l.sums[c-from], &l.products[c-from], dy[i:j], y[i:j])
	})
	for c := range to - from {
		l.meanDy[c] = float32(l.sums[c].Total() / n)
		l.meanDyY[c] = float32(l.products[c].Total() / n)
	}
	l.rows(from, to, func(i, j, c int) {
		vec.NormalizeGrad(dx[i:j], dy[i:j], y[i:j], l.meanDy[c-from], l.meanDyY[c-from], l.inv[c])
	})
}
