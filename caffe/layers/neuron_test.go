package layers

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/proto"
)

func init() {
	shape := [][]int{{2, 3, 2, 3}}
	offZero := gradientOpts{kinkRange: 0.02}
	for _, inPlace := range []bool{false, true} {
		name := func(s string) string {
			if inPlace {
				return s + " in place"
			}
			return s
		}
		addGradient("ReLU",
			gradientCase{name: name("plain"), bottom: shape, inPlace: inPlace, opts: offZero},
			gradientCase{name: name("leaky"), layer: `relu_param { negative_slope: 0.1 }`, bottom: shape, inPlace: inPlace, opts: offZero})
		addGradient("Sigmoid", gradientCase{name: name("plain"), bottom: shape, inPlace: inPlace})
		addGradient("TanH", gradientCase{name: name("plain"), bottom: shape, inPlace: inPlace})
		addGradient("Power",
			gradientCase{name: name("default"), bottom: shape, inPlace: inPlace},
			gradientCase{name: name("linear"), layer: `power_param { scale: -0.5 shift: 2 }`, bottom: shape, inPlace: inPlace},
			gradientCase{name: name("square"), layer: `power_param { power: 2 scale: 0.5 shift: -1 }`, bottom: shape, inPlace: inPlace},
			gradientCase{name: name("cube"), layer: `power_param { power: 3 scale: 0.5 shift: -0.25 }`, bottom: shape, inPlace: inPlace},
			gradientCase{name: name("fraction"), layer: `power_param { power: 0.37 scale: 0.83 shift: 1 }`, bottom: shape, inPlace: inPlace, fill: fillRange(0, 2)},
			gradientCase{name: name("inverse"), layer: `power_param { power: -0.75 scale: 0.5 shift: 2 }`, bottom: shape, inPlace: inPlace, fill: fillRange(-1, 2)},
			gradientCase{name: name("power 0"), layer: `power_param { power: 0 scale: 3 shift: 2 }`, bottom: shape, inPlace: inPlace},
			gradientCase{name: name("scale 0"), layer: `power_param { power: 2 scale: 0 shift: 3 }`, bottom: shape, inPlace: inPlace})
		addGradient("Dropout",
			gradientCase{name: name("train"), bottom: [][]int{{3, 7}}, inPlace: inPlace},
			gradientCase{name: name("ratio 0.8"), layer: `dropout_param { dropout_ratio: 0.8 }`, bottom: [][]int{{3, 7}}, inPlace: inPlace},
			gradientCase{name: name("test"), bottom: [][]int{{3, 7}}, phase: proto.Phase_TEST, inPlace: inPlace})
	}
}

// runOn sets a layer up on bottoms of shape 1×n with the given values, and
// runs Forward.
func runOn(t *testing.T, typ, body string, env Env, tops int, bottoms ...[]float32) (l Layer, bottom, top []*blob.Blob) {
	t.Helper()
	for _, x := range bottoms {
		b := blob.New(1, len(x))
		copy(b.Data(), x)
		bottom = append(bottom, b)
	}
	top = newTops(tops)
	l = newLayer(t, typ, body, env)
	setup(t, l, bottom, top)
	if err := l.Forward(bottom, top); err != nil {
		t.Fatal(err)
	}
	return l, bottom, top
}

func wantValues(t *testing.T, what string, got []float32, want ...float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %v, want %v", what, got, want)
		return
	}
	for i := range got {
		g, w := float64(got[i]), float64(want[i])
		if !(math.Abs(g-w) <= 1e-5*max(1, math.Abs(w)) || math.IsNaN(g) && math.IsNaN(w) || g == w) {
			t.Errorf("%s: element %d is %v, want %v (all: %v)", what, i, g, w, got)
			return
		}
	}
}

func TestNeuronValues(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	negNaN := float32(math.Copysign(math.NaN(), -1)) // what a processor makes of 0·∞
	for _, c := range []struct {
		typ, body string
		x, y      []float32
	}{
		{"ReLU", "", []float32{-2, 0, 3, inf, -inf, nan, negNaN}, []float32{0, 0, 3, inf, 0, nan, nan}},
		{"ReLU", "relu_param { negative_slope: 0.5 }", []float32{-2, 0, 3}, []float32{-1, 0, 3}},
		{"Sigmoid", "", []float32{-1000, 0, 1, 1000}, []float32{0, 0.5, 0.7310586, 1}},
		{"TanH", "", []float32{-1000, 0, 1, 1000}, []float32{-1, 0, 0.7615942, 1}},
		{"Power", "power_param { power: 2 scale: 3 shift: 1 }", []float32{-1, 2}, []float32{4, 49}},
		{"Power", "power_param { power: 0.5 }", []float32{9, 2}, []float32{3, math.Sqrt2}},
		{"Power", "power_param { power: 0 scale: 0 shift: 0 }", []float32{9, 2}, []float32{1, 1}},
		{"Power", "power_param { power: 3 scale: 0 shift: 2 }", []float32{9, 2}, []float32{8, 8}},
	} {
		_, _, top := runOn(t, c.typ, c.body, Env{}, 1, c.x)
		wantValues(t, c.typ+" "+c.body, top[0].Data(), c.y...)
	}
}

// The slope at 0 is that of the negative side, and 0 for both zeros.
func TestReLUSlopeAtZero(t *testing.T) {
	negZero := float32(math.Copysign(0, -1))
	for body, want := range map[string]float32{"": 0, "relu_param { negative_slope: 0.25 }": 0.25} {
		l, bottom, top := runOn(t, "ReLU", body, Env{}, 1, []float32{0, negZero, 1e-45, -1e-45})
		copy(top[0].Diff(), []float32{1, 1, 1, 1})
		if err := l.Backward(top, []bool{true}, bottom); err != nil {
			t.Fatal(err)
		}
		wantValues(t, body, bottom[0].Diff(), want, want, 1, want)
	}
}

func TestDropoutDistribution(t *testing.T) {
	ones := make([]float32, 100001)
	for i := range ones {
		ones[i] = 1
	}
	for _, ratio := range []float64{0.1, 0.5, 0.9} {
		body := "dropout_param { dropout_ratio: " + map[float64]string{0.1: "0.1", 0.5: "0.5", 0.9: "0.9"}[ratio] + " }"
		_, _, top := runOn(t, "Dropout", body, Env{Rand: rand.New(rand.NewPCG(1, 2))}, 1, ones)
		s := statsOf(top[0].Data())
		if math.Abs(s.zeros-ratio) > 0.006 || math.Abs(s.mean-1) > 0.03 || math.Abs(s.max-1/(1-ratio)) > 1e-5 {
			t.Errorf("ratio %g: share of zeros %g, mean %g, max %g", ratio, s.zeros, s.mean, s.max)
		}
		// Neighbors are independent: both elements of a pair vanish ratio² of the time.
		both := 0.0
		x := top[0].Data()
		for i := 0; i+1 < len(x); i += 2 {
			if x[i] == 0 && x[i+1] == 0 {
				both++
			}
		}
		if got := both / float64(len(x)/2); math.Abs(got-ratio*ratio) > 0.008 {
			t.Errorf("ratio %g: pairs vanish with probability %g", ratio, got)
		}
	}
}

func TestDropoutDependsOnItsSourceAlone(t *testing.T) {
	x := make([]float32, 64)
	for i := range x {
		x[i] = 1
	}
	run := func(seed uint64) (first, second []float32) {
		l, bottom, top := runOn(t, "Dropout", "", Env{Rand: rand.New(rand.NewPCG(seed, 0))}, 1, x)
		first = append(first, top[0].Data()...)
		if err := l.Forward(bottom, top); err != nil {
			t.Fatal(err)
		}
		return first, top[0].Data()
	}
	a1, a2 := run(1)
	b1, b2 := run(1)
	c1, _ := run(2)
	wantValues(t, "first batch", a1, b1...)
	wantValues(t, "second batch", a2, b2...)
	equal := func(a, b []float32) bool {
		for i := range a {
			if a[i] != b[i] {
				return false
			}
		}
		return true
	}
	if equal(a1, a2) || equal(a1, c1) {
		t.Error("two batches, or two seeds, gave the same mask")
	}
}

func TestNeuronErrors(t *testing.T) {
	for _, c := range []struct{ typ, body, want string }{
		{"Dropout", "dropout_param { dropout_ratio: 1 }", `layer "it" (Dropout): dropout_ratio 1 is not between 0 and 1`},
		{"Dropout", "dropout_param { dropout_ratio: 0 }", "dropout_ratio 0"},
		{"Dropout", "dropout_param { dropout_ratio: nan }", "dropout_ratio NaN"},
	} {
		if _, err := tryLayer(c.typ, c.body, Env{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.body, err, c.want)
		}
	}
	l := newLayer(t, "ReLU", "relu_param { negative_slope: -1 }", Env{})
	b := []*blob.Blob{blob.New(2)}
	if err := l.Setup(b, b); err == nil || !strings.Contains(err.Error(), `layer "it" (ReLU): negative_slope -1 is below 0`) {
		t.Errorf("a slope below 0 in place gives %v", err)
	}
	if err := l.Setup(b, newTops(1)); err != nil {
		t.Error(err)
	}
}

// A layer may be given another shape at any time.
func TestNeuronReshapes(t *testing.T) {
	for _, typ := range []string{"ReLU", "Dropout", "Power", "Sigmoid", "Softmax"} {
		l, bottom, top := runOn(t, typ, "", Env{}, 1, []float32{1, 2, 3})
		for _, n := range []int{7, 2} {
			bottom[0].Reshape(4, n)
			if err := l.Reshape(bottom, top); err != nil {
				t.Fatal(err)
			}
			if err := l.Forward(bottom, top); err != nil {
				t.Fatal(err)
			}
			if top[0].ShapeString() != bottom[0].ShapeString() {
				t.Errorf("%s: top %s for bottom %s", typ, top[0].ShapeString(), bottom[0].ShapeString())
			}
		}
	}
}
