package layers

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/proto"
)

// fillStatistics makes the running statistics of BatchNorm those of two
// batches.
func fillStatistics(params []*blob.Blob, r *rand.Rand) {
	uniform(params[0].Data(), -1, 1, r)
	uniform(params[1].Data(), 1, 3, r)
	params[2].Data()[0] = 1.9
}

func init() {
	stats := gradientOpts{noParams: true, step: 2e-2, tolerance: 5e-3}
	gaussian := `filler { type: "gaussian" } bias_filler { type: "gaussian" }`
	for _, inPlace := range []bool{false, true} {
		suffix := map[bool]string{true: " in place"}[inPlace]
		images := [][]int{{4, 3, 2, 3}}
		addGradient("BatchNorm",
			gradientCase{name: "images" + suffix, bottom: images, inPlace: inPlace, opts: stats},
			gradientCase{name: "matrix" + suffix, bottom: [][]int{{7, 4}}, inPlace: inPlace, opts: stats},
			gradientCase{name: "vector" + suffix, bottom: [][]int{{9}}, inPlace: inPlace, opts: stats},
			gradientCase{name: "large eps" + suffix, layer: `batch_norm_param { eps: 0.5 }`, bottom: images, inPlace: inPlace, opts: stats},
			gradientCase{name: "test" + suffix, bottom: images, inPlace: inPlace, phase: proto.Phase_TEST, params: fillStatistics, opts: stats},
			gradientCase{name: "global in training" + suffix, layer: `batch_norm_param { use_global_stats: true }`, bottom: images, inPlace: inPlace, params: fillStatistics, opts: stats},
			gradientCase{name: "batch in testing" + suffix, layer: `batch_norm_param { use_global_stats: false }`, bottom: images, inPlace: inPlace, phase: proto.Phase_TEST, opts: stats})
		addGradient("Scale",
			gradientCase{name: "channels" + suffix, layer: `scale_param { filler { type: "gaussian" } }`, bottom: images, inPlace: inPlace},
			gradientCase{name: "bias" + suffix, layer: `scale_param { bias_term: true ` + gaussian + ` }`, bottom: images, inPlace: inPlace},
			gradientCase{name: "two axes" + suffix, layer: `scale_param { num_axes: 2 bias_term: true ` + gaussian + ` }`, bottom: images, inPlace: inPlace},
			gradientCase{name: "to the end" + suffix, layer: `scale_param { num_axes: -1 bias_term: true ` + gaussian + ` }`, bottom: images, inPlace: inPlace},
			gradientCase{name: "all" + suffix, layer: `scale_param { axis: 0 num_axes: -1 ` + gaussian + ` }`, bottom: images, inPlace: inPlace},
			gradientCase{name: "from the first" + suffix, layer: `scale_param { axis: 0 num_axes: 2 ` + gaussian + ` }`, bottom: images, inPlace: inPlace},
			gradientCase{name: "last" + suffix, layer: `scale_param { axis: -1 bias_term: true ` + gaussian + ` }`, bottom: images, inPlace: inPlace},
			gradientCase{name: "one factor" + suffix, layer: `scale_param { num_axes: 0 bias_term: true ` + gaussian + ` }`, bottom: images, inPlace: inPlace},
			gradientCase{name: "matrix" + suffix, layer: `scale_param { bias_term: true ` + gaussian + ` }`, bottom: [][]int{{4, 5}}, inPlace: inPlace},
			gradientCase{name: "two bottoms" + suffix, bottom: [][]int{{4, 3, 2}, {3}}, inPlace: inPlace},
			gradientCase{name: "two bottoms, bias" + suffix, layer: `scale_param { axis: 0 bias_term: true ` + gaussian + ` }`, bottom: [][]int{{4, 3, 2}, {4, 3}}, inPlace: inPlace},
			gradientCase{name: "two equal bottoms" + suffix, layer: `scale_param { axis: 0 }`, bottom: [][]int{{4, 3}, {4, 3}}, inPlace: inPlace},
			gradientCase{name: "scalar bottom" + suffix, bottom: [][]int{{4, 3}, {}}, inPlace: inPlace})
	}
	addGradient("Scale", gradientCase{name: "second bottom only", bottom: [][]int{{4, 3, 2}, {3}}, opts: gradientOpts{bottoms: []int{1}}})
}

// Every channel comes out with mean 0 and variance 1.
func TestBatchNormNormalizes(t *testing.T) {
	bottom := []*blob.Blob{blob.New(16, 3, 5, 5)}
	normal(bottom[0].Data(), 1000, 3, rand.New(rand.NewPCG(1, 2))) // far from 0: two passes matter
	top := newTops(1)
	l := newLayer(t, "BatchNorm", "", Env{})
	setup(t, l, bottom, top)
	forward(t, l, bottom, top)
	for c := range 3 {
		var xs []float32
		for n := range 16 {
			xs = append(xs, top[0].Data()[(n*3+c)*25:][:25]...)
		}
		if s := statsOf(xs); math.Abs(s.mean) > 1e-4 || math.Abs(s.std-1) > 1e-4 {
			t.Errorf("channel %d has mean %g and deviation %g", c, s.mean, s.std)
		}
	}
}

// The parameters are sums weighted by age, and their quotients are the
// statistics of the test phase.
func TestBatchNormRunningStatistics(t *testing.T) {
	l, bottom, top := runOn(t, "BatchNorm", "batch_norm_param { moving_average_fraction: 0.5 eps: 0 }", Env{}, 1, []float32{0})
	bottom[0].Reshape(2, 1)
	if err := l.Reshape(bottom, top); err != nil {
		t.Fatal(err)
	}
	for _, p := range l.Params() {
		clear(p.Data())
	}
	for _, batch := range [][]float32{{1, 3}, {10, 14}} { // means 2 and 12, unbiased variances 2 and 8
		copy(bottom[0].Data(), batch)
		forward(t, l, bottom, top)
	}
	for i, want := range []float32{0.5*2 + 12, 0.5*2 + 8, 1.5} {
		wantValues(t, "parameter", l.Params()[i].Data(), want)
	}
	test := newLayer(t, "BatchNorm", "batch_norm_param { eps: 0 }", Env{Phase: proto.Phase_TEST})
	setup(t, test, bottom, top)
	for i, p := range test.Params() {
		copy(p.Data(), l.Params()[i].Data())
	}
	copy(bottom[0].Data(), []float32{13 / 1.5, 13/1.5 + 6})
	forward(t, test, bottom, top)
	wantValues(t, "normalized", top[0].Data(), 0, float32(6/math.Sqrt(6)))
	for i, p := range test.Params() {
		wantValues(t, "unchanged", p.Data(), l.Params()[i].Data()...)
	}
}

// Without any batch seen, the test phase does not divide by 0.
func TestBatchNormWithoutStatistics(t *testing.T) {
	_, _, top := runOn(t, "BatchNorm", "batch_norm_param { eps: 0.25 }", Env{Phase: proto.Phase_TEST}, 1, []float32{3, -1})
	wantValues(t, "normalized", top[0].Data(), 6, -2)
}

// The statistics are not for the solver to learn: each lr_mult is 0, and any
// other is refused.
func TestBatchNormParametersAreNotLearned(t *testing.T) {
	for body, want := range map[string]string{
		"":                     "",
		"param { lr_mult: 0 }": "",
		"param { lr_mult: 0 decay_mult: 0 } param { lr_mult: 0 } param { lr_mult: 0 }": "",
		"param { lr_mult: 0 } param {}": "param 1 has lr_mult 1",
		"param { lr_mult: 0.5 }":        "param 0 has lr_mult 0.5",
	} {
		p := &proto.LayerParameter{}
		if err := prototext.Unmarshal([]byte(`name: "it" type: "BatchNorm" `+body), p); err != nil {
			t.Fatal(err)
		}
		_, err := New(p, Env{})
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q", body, err, want)
			}
			continue
		}
		if err != nil || len(p.Param) != 3 {
			t.Fatalf("%s: %v, %d params", body, err, len(p.Param))
		}
		for i, s := range p.Param {
			if s.GetLrMult() != 0 {
				t.Errorf("%s: param %d has lr_mult %g", body, i, s.GetLrMult())
			}
		}
	}
}

func TestScaleValues(t *testing.T) {
	x := []float32{1, 2, 3, 4}
	_, _, top := runOn(t, "Scale", "", Env{}, 1, x)
	wantValues(t, "default", top[0].Data(), x...)
	_, _, top = runOn(t, "Scale", "scale_param { filler { value: 2 } bias_term: true bias_filler { value: -1 } }", Env{}, 1, x)
	wantValues(t, "with bias", top[0].Data(), 1, 3, 5, 7)
	_, _, top = runOn(t, "Scale", "scale_param { axis: 0 }", Env{}, 1, x, []float32{1, 0, -1, 2})
	wantValues(t, "two bottoms", top[0].Data(), 1, 0, -3, 8)
}

func TestScaleParameterShapes(t *testing.T) {
	for body, want := range map[string][][]int{
		"":                                {{3}},
		"scale_param { bias_term: true }": {{3}, {3}},
		"scale_param { axis: 0 num_axes: -1 bias_term: true }": {{2, 3, 4}, {2, 3, 4}},
		"scale_param { num_axes: 0 bias_term: true }":          {{}, {}},
		"scale_param { axis: -2 num_axes: 2 }":                 {{3, 4}},
	} {
		l, _, _, err := trySetup("Scale", body, Env{}, 1, []int{2, 3, 4})
		if err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		var got [][]int
		for _, p := range l.Params() {
			got = append(got, p.Shape())
		}
		if !slices.EqualFunc(got, want, func(a, b []int) bool { return slices.Equal(a, b) }) {
			t.Errorf("%s: shapes %v, want %v", body, got, want)
		}
	}
	l, _, _, err := trySetup("Scale", "scale_param { bias_term: true }", Env{}, 1, []int{2, 3, 4}, []int{3, 4})
	if err != nil || len(l.Params()) != 1 || !slices.Equal(l.Params()[0].Shape(), []int{3, 4}) {
		t.Errorf("two bottoms with bias: %v, %v", l.Params(), err)
	}
}

func TestScaleErrors(t *testing.T) {
	for _, c := range []struct {
		typ, body string
		shapes    [][]int
		want      string
	}{
		{"Scale", "scale_param { num_axes: -2 }", [][]int{{2, 3}}, "num_axes -2 is below -1"},
		{"Scale", "scale_param { axis: 2 }", [][]int{{2, 3}}, "scale_param.axis 2 is out of range [-2, 2)"},
		{"Scale", "scale_param { num_axes: 2 }", [][]int{{2, 3}}, "reach past the 2 axes"},
		{"Scale", "", [][]int{{2, 3}, {2}}, "factors of shape [2] do not fit a bottom of shape [2 3] from axis 1 on"},
		{"Scale", "", [][]int{{2, 3}, {3, 1}}, "do not fit"},
		{"Scale", `scale_param { filler { type: "x" } }`, [][]int{{2, 3}}, `filler type "x" is not supported`},
		{"BatchNorm", "", [][]int{{}}, "set up for"},
		{"BatchNorm", "batch_norm_param { eps: -1 }", [][]int{{2, 3}}, "eps -1 is below 0"},
	} {
		_, _, _, err := trySetup(c.typ, c.body, Env{}, 1, c.shapes...)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), `layer "it" (`+c.typ+`)`) {
			t.Errorf("%s %s: got %v, want an error with %q", c.typ, c.body, err, c.want)
		}
	}
	l, bottom, top, err := trySetup("BatchNorm", "", Env{}, 1, []int{2, 3, 4})
	if err != nil {
		t.Fatal(err)
	}
	bottom[0].Reshape(2, 5, 4)
	if err := l.Reshape(bottom, top); err == nil || !strings.Contains(err.Error(), "set up for 3 channels") {
		t.Errorf("another number of channels gives %v", err)
	}
}
