package layers

import (
	"math"

	gproto "google.golang.org/protobuf/proto"

	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/kernels"
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
	if !l.global {
		l.norm.ReshapeLike(b)
	}
	return nil
}

// at returns the range of item o that channel c occupies.
func (l *batchNorm) at(o, c int) (from, to int) {
	from = (o*l.chans + c) * l.dim
	return from, from + l.dim
}

func (l *batchNorm) Forward(bottom, top []*blob.Blob) error {
	x, y := bottom[0].Data(), top[0].Data()
	if len(x) == 0 {
		return nil
	}
	if l.global {
		l.useGlobal()
	} else {
		l.useBatch(x)
	}
	for o := range l.outer {
		for c := range l.chans {
			i, j := l.at(o, c)
			if l.global {
				kernels.Normalize(y[i:j], x[i:j], l.mean[c], l.inv[c])
			} else {
				kernels.NormalizeBoth(y[i:j], l.norm.Data()[i:j], x[i:j], l.mean[c], l.inv[c])
			}
		}
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

// useBatch computes mean and variance of the batch and takes them into the
// parameters, the variance as an unbiased estimate.
func (l *batchNorm) useBatch(x []float32) {
	n := float64(l.outer * l.dim)
	unbiased := 1.0
	if n > 1 {
		unbiased = n / (n - 1)
	}
	runMean, runVar, weight := l.params[0].Data(), l.params[1].Data(), l.params[2].Data()
	weight[0] = weight[0]*l.fraction + 1
	for c := range l.mean {
		mean, variance := l.moments(x, c, n)
		l.mean[c] = float32(mean)
		l.inv[c] = float32(1 / math.Sqrt(variance+l.eps))
		runMean[c] = runMean[c]*l.fraction + float32(mean)
		runVar[c] = runVar[c]*l.fraction + float32(unbiased*variance)
	}
}

// moments returns mean and variance of channel c, which has n values, from
// sums of their distances to one of them: no distance exceeds what counts in
// the variance, so that the two sums in float64 lose nothing that a float32 shows.
func (l *batchNorm) moments(x []float32, c int, n float64) (mean, variance float64) {
	var sum, squares kernels.Lanes
	first, _ := l.at(0, c)
	for o := range l.outer {
		i, j := l.at(o, c)
		kernels.AddMoments(&sum, &squares, x[i:j], x[first])
	}
	off := sum.Total() / n
	return float64(x[first]) + off, max(0, squares.Total()/n-off*off)
}

// Backward is dx = (dy - mean(dy) - mean(dy·y)·y) / sqrt(var + eps), and only
// the last factor where mean and variance do not depend on x.
func (l *batchNorm) Backward(top []*blob.Blob, propagate []bool, bottom []*blob.Blob) error {
	if !propagate[0] {
		return nil
	}
	dy, dx := top[0].Diff(), bottom[0].Diff()
	for c := range l.chans {
		if l.global {
			for o := range l.outer {
				i, j := l.at(o, c)
				kernels.Scale(dx[i:j], l.inv[c], dy[i:j])
			}
			continue
		}
		l.gradient(dx, dy, c)
	}
	return nil
}

// gradient is Backward of channel c where the batch has its own moments.
func (l *batchNorm) gradient(dx, dy []float32, c int) {
	y, n := l.norm.Data(), float64(l.outer*l.dim)
	var sum, dot kernels.Lanes
	for o := range l.outer {
		i, j := l.at(o, c)
		kernels.AddSumDot(&sum, &dot, dy[i:j], y[i:j])
	}
	mean, slope := float32(sum.Total()/n), float32(dot.Total()/n)
	for o := range l.outer {
		i, j := l.at(o, c)
		kernels.NormalizeGrad(dx[i:j], dy[i:j], y[i:j], mean, slope, l.inv[c])
	}
}
