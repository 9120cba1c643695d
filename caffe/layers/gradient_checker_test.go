package layers

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/caffe/blob"
)

// brokenLayer is y = p·x², with a choice of mistakes.
type brokenLayer struct {
	base
	mistake string
}

func (l *brokenLayer) Bottoms() Bounds { return Bounds{1, 1} }
func (l *brokenLayer) Tops() Bounds    { return Bounds{1, 1} }

func (l *brokenLayer) Setup(_, _ []*blob.Blob) error {
	l.params = []*blob.Blob{blob.New(1)}
	l.params[0].Data()[0] = 1.5
	return nil
}

func (l *brokenLayer) Reshape(bottom, top []*blob.Blob) error {
	top[0].ReshapeLike(bottom[0])
	return nil
}

func (l *brokenLayer) Forward(bottom, top []*blob.Blob) error {
	for i, x := range bottom[0].Data() {
		top[0].Data()[i] = l.params[0].Data()[0] * x * x
	}
	return nil
}

func (l *brokenLayer) Backward(top []*blob.Blob, _ []bool, bottom []*blob.Blob) error {
	p, dp := l.params[0].Data()[0], float32(0)
	x, dx := bottom[0].Data(), bottom[0].Diff()
	for i, d := range top[0].Diff() {
		g := 2 * p * x[i] * d
		switch {
		case l.mistake == "factor":
			g *= 1.02
		case l.mistake == "one element" && i == 3:
			g = -g
		}
		if l.mistake == "bottom adds" {
			dx[i] += g
		} else {
			dx[i] = g
		}
		dp += d * x[i] * x[i]
	}
	switch l.mistake {
	case "parameter":
		dp = -dp
	case "parameter overwrites":
		l.params[0].Diff()[0] = 0
	}
	l.params[0].Diff()[0] += dp
	return nil
}

// A checker that cannot fail checks nothing: each mistake must be found, and
// no mistake must be found in a right layer.
func TestGradientCheckerFindsMistakes(t *testing.T) {
	for mistake, want := range map[string]string{
		"":                     "",
		"factor":               "bottom 0",
		"one element":          "1 of 6 gradients are wrong; first: bottom 0, element 3 of 6",
		"bottom adds":          "bottom 0",
		"parameter":            "parameter 0",
		"parameter overwrites": "parameter 0",
	} {
		l := &brokenLayer{mistake: mistake}
		bottom, top := []*blob.Blob{blob.New(2, 3)}, newTops(1)
		fillNormal(bottom[0], rand.New(rand.NewPCG(7, 8)))
		setup(t, l, bottom, top)
		err := gradientError(l, bottom, top, gradientOpts{})
		switch {
		case want == "" && err != nil:
			t.Errorf("a right layer is called wrong: %v", err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("mistake %q: got error %v, want one with %q", mistake, err, want)
		}
	}
}

func TestGradientCheckerRefusesToCheckNothing(t *testing.T) {
	l := &brokenLayer{}
	bottom, top := []*blob.Blob{blob.New(2)}, newTops(1)
	setup(t, l, bottom, top)
	err := gradientError(l, bottom, top, gradientOpts{noParams: true, kinkRange: 100})
	if err == nil || !strings.Contains(err.Error(), "no element was checked") {
		t.Errorf("got %v", err)
	}
}

func TestGradientCheckerFindsUnaskedGradients(t *testing.T) {
	l := &brokenLayer{}
	bottom, top := []*blob.Blob{blob.New(2)}, newTops(1)
	setup(t, l, bottom, top)
	err := gradientError(l, bottom, top, gradientOpts{bottoms: []int{}})
	if err == nil || !strings.Contains(err.Error(), "bottom 0, which it was not asked for") {
		t.Errorf("got %v", err)
	}
}
