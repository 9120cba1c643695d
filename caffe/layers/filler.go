package layers

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sort"

	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/proto"
)

// filler writes a blob's values as its message says.
type filler func(p *proto.FillerParameter, b *blob.Blob, r *rand.Rand) error

var fillers = map[string]filler{
	"constant":          fillConstant,
	"uniform":           fillUniform,
	"gaussian":          fillGaussian,
	"xavier":            fillXavier,
	"msra":              fillMSRA,
	"bilinear":          fillBilinear,
	"positive_unitball": fillUnitball,
}

// fill writes the values of b as p says; nil is Caffe's default, the constant
// 0. Every random number comes from r, in the order of the elements, so the
// same r gives the same weights.
func fill(p *proto.FillerParameter, b *blob.Blob, r *rand.Rand) error {
	f, ok := fillers[p.GetType()]
	if !ok {
		return fmt.Errorf("filler type %q is not supported; supported are %v", p.GetType(), fillerTypes())
	}
	if b.Count() == 0 {
		return fmt.Errorf("%s filler: nothing to fill in a parameter of shape %v", p.GetType(), b.Shape())
	}
	if p.GetSparse() != -1 && p.GetType() != "gaussian" {
		return fmt.Errorf("%s filler: sparse: %d is for the gaussian filler only", p.GetType(), p.GetSparse())
	}
	return f(p, b, r)
}

func fillerTypes() []string {
	ts := make([]string, 0, len(fillers))
	for t := range fillers {
		ts = append(ts, t)
	}
	sort.Strings(ts)
	return ts
}

func fillConstant(p *proto.FillerParameter, b *blob.Blob, _ *rand.Rand) error {
	x := b.Data()
	for i := range x {
		x[i] = p.GetValue()
	}
	return nil
}

func fillUniform(p *proto.FillerParameter, b *blob.Blob, r *rand.Rand) error {
	lo, hi := float64(p.GetMin()), float64(p.GetMax())
	if !(lo <= hi) {
		return fmt.Errorf("uniform filler: min %g is greater than max %g", lo, hi)
	}
	uniform(b.Data(), lo, hi, r)
	return nil
}

func uniform(x []float32, lo, hi float64, r *rand.Rand) {
	for i := range x {
		x[i] = float32(lo + (hi-lo)*r.Float64())
	}
}

func normal(x []float32, mean, std float64, r *rand.Rand) {
	for i := range x {
		x[i] = float32(mean + std*r.NormFloat64())
	}
}

// fillGaussian draws from N(mean, std²). With sparse: k each element is kept
// with probability k / shape[0] and zero otherwise.
func fillGaussian(p *proto.FillerParameter, b *blob.Blob, r *rand.Rand) error {
	std, sparse := float64(p.GetStd()), int(p.GetSparse())
	if !(std > 0) {
		return fmt.Errorf("gaussian filler: std %g is not positive", std)
	}
	outputs := b.Dim(0)
	if sparse < -1 || sparse > outputs {
		return fmt.Errorf("gaussian filler: sparse %d is not within [-1, %d] for a parameter of shape %v", sparse, outputs, b.Shape())
	}
	x := b.Data()
	normal(x, float64(p.GetMean()), std, r)
	if sparse < 0 {
		return nil
	}
	keep := float64(sparse) / float64(outputs)
	for i := range x {
		if r.Float64() >= keep {
			x[i] = 0
		}
	}
	return nil
}

// fan is the n of xavier and msra: fan-in = count/shape[0], fan-out =
// count/shape[1] (count for fewer than two axes), or their mean.
func fan(p *proto.FillerParameter, b *blob.Blob) (float64, error) {
	in, out := float64(b.Count()/b.Dim(0)), float64(b.Count()/b.Dim(1))
	switch n := p.GetVarianceNorm(); n {
	case proto.FillerParameter_FAN_IN:
		return in, nil
	case proto.FillerParameter_FAN_OUT:
		return out, nil
	case proto.FillerParameter_AVERAGE:
		return (in + out) / 2, nil
	default:
		return 0, fmt.Errorf("%s filler: unknown variance_norm %v", p.GetType(), n)
	}
}

// fillXavier draws from U(-a, a) with a = sqrt(3/n) (Glorot and Bengio 2010).
func fillXavier(p *proto.FillerParameter, b *blob.Blob, r *rand.Rand) error {
	n, err := fan(p, b)
	if err != nil {
		return err
	}
	a := math.Sqrt(3 / n)
	uniform(b.Data(), -a, a, r)
	return nil
}

// fillMSRA draws from N(0, 2/n) (He, Zhang, Ren and Sun 2015).
func fillMSRA(p *proto.FillerParameter, b *blob.Blob, r *rand.Rand) error {
	n, err := fan(p, b)
	if err != nil {
		return err
	}
	normal(b.Data(), 0, math.Sqrt(2/n), r)
	return nil
}

// fillBilinear makes each image of an N×C×K×K parameter the weights of
// bilinear upsampling (Long, Shelhamer and Darrell 2015).
func fillBilinear(_ *proto.FillerParameter, b *blob.Blob, _ *rand.Rand) error {
	if b.NumAxes() != 4 || b.Dim(2) != b.Dim(3) {
		return fmt.Errorf("bilinear filler: needs four axes and a square kernel, not shape %v", b.Shape())
	}
	k := b.Dim(3)
	f := math.Ceil(float64(k) / 2)
	c := float64(k-1) / (2 * f)
	tent := func(i int) float64 { return 1 - math.Abs(float64(i)/f-c) }
	x := b.Data()
	for i := range x {
		x[i] = float32(tent(i%k) * tent(i/k%k))
	}
	return nil
}

// fillUnitball draws from U(0, 1) and scales each row (outermost axis) to sum
// to 1.
func fillUnitball(_ *proto.FillerParameter, b *blob.Blob, r *rand.Rand) error {
	x := b.Data()
	uniform(x, 0, 1, r)
	dim := b.Count() / b.Dim(0)
	for ; len(x) > 0; x = x[dim:] {
		s := 0.0
		for _, v := range x[:dim] {
			s += float64(v)
		}
		for i := range x[:dim] {
			x[i] = float32(float64(x[i]) / s)
		}
	}
	return nil
}
