package layers

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/caffe/blob"
)

// fillLabels draws bottom 0 from a normal distribution and bottom 1 from the
// labels.
func fillLabels(labels ...float32) func([]*blob.Blob, *rand.Rand) {
	return func(bottom []*blob.Blob, r *rand.Rand) {
		fillNormal(bottom[0], r)
		y := bottom[1].Data()
		for i := range y {
			y[i] = labels[r.IntN(len(labels))]
		}
	}
}

func fillTargets(bottom []*blob.Blob, r *rand.Rand) {
	fillNormal(bottom[0], r)
	uniform(bottom[1].Data(), 0, 1, r)
}

var normalizations = []string{
	"",
	"loss_param { normalization: FULL }",
	"loss_param { normalization: VALID }",
	"loss_param { normalization: BATCH_SIZE }",
	"loss_param { normalization: NONE }",
	"loss_param { normalize: false }",
	"loss_param { normalize: true }",
	"loss_param { ignore_label: 1 }",
	"loss_param { ignore_label: 1 normalization: FULL }",
	"loss_param { ignore_label: 1 normalization: NONE }",
}

func init() {
	one := gradientOpts{gradTops: 1}
	for _, n := range normalizations {
		addGradient("SoftmaxWithLoss", gradientCase{
			name: "images " + n, layer: n, bottom: [][]int{{3, 4, 2, 3}, {3, 2, 3}}, fill: fillLabels(0, 1, 2, 3), opts: one,
		})
		addGradient("SigmoidCrossEntropyLoss", gradientCase{
			name: n, layer: n, bottom: [][]int{{3, 4, 2}, {3, 4, 2}}, fill: fillLabels(0, 1),
		})
	}
	addGradient("SoftmaxWithLoss",
		gradientCase{name: "vector and probabilities", bottom: [][]int{{5, 6}, {5}}, tops: 2, fill: fillLabels(0, 3, 5), opts: one},
		gradientCase{name: "old shapes", bottom: [][]int{{5, 6, 1, 1}, {5, 1, 1, 1}}, fill: fillLabels(0, 3, 5), opts: one},
		gradientCase{name: "axis -1", layer: `softmax_param { axis: -1 }`, bottom: [][]int{{2, 3, 4}, {2, 3}}, fill: fillLabels(0, 3), opts: one},
		gradientCase{name: "everything ignored", layer: `loss_param { ignore_label: 2 }`, bottom: [][]int{{3, 4}, {3}}, fill: fillLabels(2), opts: one})
	addGradient("SigmoidCrossEntropyLoss",
		gradientCase{name: "soft targets", bottom: [][]int{{4, 5}, {4, 5}}, fill: fillTargets})
	addGradient("EuclideanLoss",
		gradientCase{name: "images", bottom: [][]int{{3, 2, 2, 2}, {3, 2, 2, 2}}},
		gradientCase{name: "second only", bottom: [][]int{{3, 4}, {3, 4}}, opts: gradientOpts{bottoms: []int{1}}})
	for _, body := range []string{"", "softmax_param { axis: 0 }", "softmax_param { axis: -1 }"} {
		addGradient("Softmax",
			gradientCase{name: "images " + body, layer: body, bottom: [][]int{{2, 5, 2, 2}}},
			gradientCase{name: "in place " + body, layer: body, bottom: [][]int{{2, 5, 2, 2}}, inPlace: true},
			gradientCase{name: "matrix " + body, layer: body, bottom: [][]int{{3, 7}}})
	}
	noGradient["Accuracy"] = "it counts"
}

// lossOf returns a loss layer's top and bottom 0's gradient for scores and
// labels of the given shapes.
func lossOf(t *testing.T, typ, body string, shape, labelShape []int, x, y []float32, weight float32) (float32, []float32) {
	t.Helper()
	bottom := []*blob.Blob{blob.New(shape...), blob.New(labelShape...)}
	copy(bottom[0].Data(), x)
	copy(bottom[1].Data(), y)
	top := newTops(1)
	l := newLayer(t, typ, body, Env{})
	setup(t, l, bottom, top)
	if top[0].NumAxes() != 0 {
		t.Errorf("a loss has shape %v, not that of a scalar", top[0].Shape())
	}
	if !l.(Loss).IsLoss() {
		t.Errorf("%s is no loss", typ)
	}
	if err := l.Forward(bottom, top); err != nil {
		t.Fatal(err)
	}
	top[0].Diff()[0] = weight
	if err := l.Backward(top, []bool{true, false}, bottom); err != nil {
		t.Fatal(err)
	}
	return top[0].Data()[0], bottom[0].Diff()
}

// Equal scores over C classes lose log C at each prediction; what that is
// divided by is the normalization.
func TestSoftmaxLossNormalization(t *testing.T) {
	log4 := math.Log(4)
	y := []float32{0, 1, 1, 2, 3, 0, 1, 2, 3, 1, 1, 1} // of 12, 6 are 1
	for body, want := range map[string]float64{
		"":                                                                     log4,
		"loss_param { normalization: FULL }":                                   log4,
		"loss_param { normalization: VALID }":                                  log4,
		"loss_param { normalize: false }":                                      log4 * 12 / 2,
		"loss_param { normalization: NONE }":                                   log4 * 12,
		"loss_param { ignore_label: 1 }":                                       log4,
		"loss_param { ignore_label: 1 normalization: FULL }":                   log4 * 6 / 12,
		"loss_param { ignore_label: 1 normalization: BATCH_SIZE }":             log4 * 6 / 2,
		"loss_param { ignore_label: 1 normalize: false }":                      log4 * 6 / 2,
		"loss_param { ignore_label: 1 normalize: false normalization: VALID }": log4,
		"loss_param { ignore_label: 1 normalization: NONE } loss_weight: 3":    log4 * 6,
	} {
		loss, _ := lossOf(t, "SoftmaxWithLoss", body, []int{2, 4, 2, 3}, []int{2, 2, 3}, make([]float32, 48), y, 1)
		if math.Abs(float64(loss)-want) > 1e-5*want {
			t.Errorf("%s: loss %g, want %g", body, loss, want)
		}
	}
}

func TestSoftmaxLossWeightScalesTheGradient(t *testing.T) {
	x, y := []float32{1, 2, 3, 0, 0, 0}, []float32{2, 0}
	_, a := lossOf(t, "SoftmaxWithLoss", "", []int{2, 3}, []int{2}, x, y, 1)
	_, b := lossOf(t, "SoftmaxWithLoss", "", []int{2, 3}, []int{2}, x, y, 0.3)
	for i := range a {
		if math.Abs(float64(b[i]-0.3*a[i])) > 1e-7 {
			t.Fatalf("element %d: %g and %g", i, a[i], b[i])
		}
	}
	wantValues(t, "gradient", a[3:], (1./3-1)/2, 1./6, 1./6)
}

func TestSoftmaxLossSecondTopIsTheProbabilities(t *testing.T) {
	bottom := []*blob.Blob{blob.New(2, 3), blob.New(2)}
	copy(bottom[0].Data(), []float32{0, 0, 0, 1000, 0, 0})
	top := newTops(2)
	l := newLayer(t, "SoftmaxWithLoss", "", Env{})
	setup(t, l, bottom, top)
	if err := l.Forward(bottom, top); err != nil {
		t.Fatal(err)
	}
	wantValues(t, "probabilities", top[1].Data(), 1./3, 1./3, 1./3, 1, 0, 0)
}

// A probability of 0 loses -log FLT_MIN, not infinity.
func TestSoftmaxLossIsFinite(t *testing.T) {
	loss, _ := lossOf(t, "SoftmaxWithLoss", "", []int{1, 2}, []int{1}, []float32{1000, -1000}, []float32{1}, 1)
	wantValues(t, "loss", []float32{loss}, float32(126*math.Ln2))
	loss, dx := lossOf(t, "SigmoidCrossEntropyLoss", "", []int{1, 2}, []int{1, 2}, []float32{1000, -1000}, []float32{0, 1}, 1)
	wantValues(t, "loss", []float32{loss}, 2000)
	wantValues(t, "gradient", dx, 1, -1)
}

func TestSigmoidLossNormalization(t *testing.T) {
	y := []float32{0, 1, 1, 0, 1, 0, 1, 1} // of 8, 5 are 1
	for body, want := range map[string]float64{
		"":                                   math.Ln2 * 8 / 2,
		"loss_param { normalize: true }":     math.Ln2,
		"loss_param { normalize: false }":    math.Ln2 * 8 / 2,
		"loss_param { normalization: FULL }": math.Ln2,
		"loss_param { normalization: NONE }": math.Ln2 * 8,
		"loss_param { ignore_label: 1 }":     math.Ln2 * 3 / 2,

		"loss_param { ignore_label: 1 normalization: VALID }": math.Ln2,
		"loss_param { ignore_label: 1 normalization: FULL }":  math.Ln2 * 3 / 8,
	} {
		loss, _ := lossOf(t, "SigmoidCrossEntropyLoss", body, []int{2, 4}, []int{2, 4}, make([]float32, 8), y, 1)
		if math.Abs(float64(loss)-want) > 1e-5*want {
			t.Errorf("%s: loss %g, want %g", body, loss, want)
		}
	}
}

func TestEuclideanLossValue(t *testing.T) {
	loss, dx := lossOf(t, "EuclideanLoss", "", []int{2, 2}, []int{2, 2}, []float32{1, 2, 3, 4}, []float32{1, 0, 0, 0}, 2)
	wantValues(t, "loss", []float32{loss}, (4+9+16)/4.)
	wantValues(t, "gradient", dx, 0, 2, 3, 4)
}

func TestSoftmaxValues(t *testing.T) {
	_, _, top := runOn(t, "Softmax", "", Env{}, 1, []float32{1, 2, 3, 1000})
	wantValues(t, "row", top[0].Data(), 0, 0, 0, 1)
	// The rows of an inner extent above 1 are those of the transposed blob.
	r := rand.New(rand.NewPCG(3, 4))
	planes, rows := []*blob.Blob{blob.New(2, 5, 3)}, []*blob.Blob{blob.New(6, 5)}
	fillNormal(planes[0], r)
	at := func(n, c, i int) int { return (n*5+c)*3 + i }
	for n := range 2 {
		for c := range 5 {
			for i := range 3 {
				rows[0].Data()[(n*3+i)*5+c] = planes[0].Data()[at(n, c, i)]
			}
		}
	}
	a, b := newTops(1), newTops(1)
	for _, x := range []struct{ bottom, top []*blob.Blob }{{planes, a}, {rows, b}} {
		l := newLayer(t, "Softmax", "", Env{})
		setup(t, l, x.bottom, x.top)
		if err := l.Forward(x.bottom, x.top); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 2 {
		for c := range 5 {
			for i := range 3 {
				wantValues(t, "element", a[0].Data()[at(n, c, i):][:1], b[0].Data()[(n*3+i)*5+c])
			}
		}
	}
}

func TestAccuracy(t *testing.T) {
	scores := []float32{
		0.9, 0.1, 0.0,
		0.2, 0.5, 0.3,
		0.1, 0.2, 0.7,
		0.4, 0.4, 0.2,
		float32(math.NaN()), 0, 0,
	}
	for _, c := range []struct {
		body   string
		labels []float32
		want   float32
		each   []float32
	}{
		{"", []float32{0, 1, 2, 2, 1}, 3. / 5, []float32{1, 0.5, 0.5}},
		{"", []float32{0, 0, 0, 0, 0}, 1. / 5, []float32{1. / 5, 0, 0}}, // a tie and NaN lose
		{"accuracy_param { top_k: 2 }", []float32{1, 2, 1, 0, 0}, 4. / 5, []float32{0.5, 1, 1}},
		{"accuracy_param { top_k: 3 }", []float32{0, 0, 0, 0, 0}, 1, []float32{1, 0, 0}},
		{"accuracy_param { ignore_label: 0 }", []float32{0, 1, 0, 2, 0}, 0.5, []float32{0, 1, 0}},
		{"accuracy_param { ignore_label: 255 }", []float32{0, 255, 255, 255, 255}, 1, []float32{1, 0, 0}},
		{"accuracy_param { ignore_label: 1 }", []float32{1, 1, 1, 1, 1}, 0, []float32{0, 0, 0}},
	} {
		for _, tops := range []int{1, 2} {
			bottom := []*blob.Blob{blob.New(5, 3), blob.New(5)}
			copy(bottom[0].Data(), scores)
			copy(bottom[1].Data(), c.labels)
			top := newTops(tops)
			l := newLayer(t, "Accuracy", c.body, Env{})
			setup(t, l, bottom, top)
			for range 2 { // nothing is left over from an earlier batch
				if err := l.Forward(bottom, top); err != nil {
					t.Fatal(err)
				}
			}
			wantValues(t, "accuracy "+c.body, top[0].Data(), c.want)
			if tops == 2 {
				wantValues(t, "per class "+c.body, top[1].Data(), c.each...)
			}
			if n := testing.AllocsPerRun(3, func() { _ = l.Forward(bottom, top) }); n != 0 {
				t.Errorf("Forward allocates %v times", n)
			}
			if err := l.Backward(top, []bool{false, false}, bottom); err != nil {
				t.Error(err)
			}
		}
	}
}

// Scores of N×H×W×C images along the last axis, and C×N along the first.
func TestAccuracyAxis(t *testing.T) {
	for body, shape := range map[string][]int{
		"accuracy_param { axis: -1 }": {2, 1, 2, 3},
		"":                            {2, 3, 1, 2},
	} {
		bottom := []*blob.Blob{blob.New(shape...), blob.New(2, 1, 2)}
		x := bottom[0].Data()
		labels := []float32{0, 1, 2, 0}
		for i, c := range labels { // item i/2, place i%2
			if body == "" {
				x[(i/2*3+int(c))*2+i%2] = 1
			} else {
				x[i*3+int(c)] = 1
			}
		}
		copy(bottom[1].Data(), labels)
		bottom[1].Data()[3] = 1 // one of four is wrong
		top := newTops(1)
		l := newLayer(t, "Accuracy", body, Env{})
		setup(t, l, bottom, top)
		if err := l.Forward(bottom, top); err != nil {
			t.Fatal(err)
		}
		wantValues(t, body, top[0].Data(), 0.75)
	}
}

func TestBadLabels(t *testing.T) {
	for _, typ := range []string{"SoftmaxWithLoss", "Accuracy"} {
		for _, bad := range []float32{3, -1, 1e30, float32(math.NaN()), float32(math.Inf(-1))} {
			bottom := []*blob.Blob{blob.New(2, 3), blob.New(2)}
			bottom[1].Data()[1] = bad
			top := newTops(1)
			l := newLayer(t, typ, "", Env{})
			setup(t, l, bottom, top)
			err := l.Forward(bottom, top)
			if err == nil || !strings.Contains(err.Error(), `layer "it" (`+typ+`): label `) || !strings.Contains(err.Error(), "(value 1 of bottom 1) is not a class from 0 to 2") {
				t.Errorf("%s with label %g: got %v", typ, bad, err)
			}
		}
	}
}

// A label that goes bad between Forward and Backward is an error too.
func TestBadLabelInBackward(t *testing.T) {
	bottom, top := []*blob.Blob{blob.New(2, 3), blob.New(2)}, newTops(1)
	l := newLayer(t, "SoftmaxWithLoss", "", Env{})
	setup(t, l, bottom, top)
	if err := l.Forward(bottom, top); err != nil {
		t.Fatal(err)
	}
	bottom[1].Data()[0] = 7
	if err := l.Backward(top, []bool{true, false}, bottom); err == nil || !strings.Contains(err.Error(), "label 7") {
		t.Errorf("got %v", err)
	}
}

func TestLossErrors(t *testing.T) {
	for _, c := range []struct {
		typ, body string
		a, b      []int
		want      string
	}{
		{"SoftmaxWithLoss", "", []int{2, 3}, []int{3}, "2 and 3 items"},
		{"SoftmaxWithLoss", "", []int{2, 3, 4}, []int{2}, "2 labels (shape [2]) for 8 predictions"},
		{"SoftmaxWithLoss", "softmax_param { axis: 2 }", []int{2, 3}, []int{2}, "softmax_param.axis 2 is out of range [-2, 2)"},
		{"Softmax", "softmax_param { axis: -3 }", []int{2, 3}, nil, "softmax_param.axis -3"},
		{"SigmoidCrossEntropyLoss", "", []int{2, 3}, []int{2}, "2 targets"},
		{"EuclideanLoss", "", []int{2, 3}, []int{2, 4}, "6 and 8 values"},
		{"Accuracy", "accuracy_param { top_k: 4 }", []int{2, 3}, []int{2}, "top_k 4 is more than the 3 classes"},
		{"Accuracy", "accuracy_param { top_k: 0 }", []int{2, 3}, []int{2}, "top_k must be at least 1"},
		{"Accuracy", "accuracy_param { axis: 2 }", []int{2, 3}, []int{2}, "accuracy_param.axis 2"},
		{"Accuracy", "", []int{2, 3}, []int{3}, "3 labels (shape [3]) for 2 predictions"},
	} {
		shapes := slices.DeleteFunc([][]int{c.a, c.b}, func(s []int) bool { return s == nil })
		_, _, _, err := trySetup(c.typ, c.body, Env{}, 1, shapes...)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), `layer "it" (`+c.typ+`)`) {
			t.Errorf("%s %s: got %v, want an error with %q", c.typ, c.body, err, c.want)
		}
	}
	for _, typ := range []string{"SoftmaxWithLoss", "SigmoidCrossEntropyLoss", "Accuracy"} {
		l, bottom, top, err := trySetup(typ, "", Env{}, 1, []int{2, 1}, []int{2, 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Backward(top, []bool{true, true}, bottom); err == nil || !strings.Contains(err.Error(), "no gradient") {
			t.Errorf("%s: a gradient for the labels gives %v", typ, err)
		}
	}
}
