package layers

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/caffe/blob"
)

func init() {
	addGradient("Concat",
		gradientCase{name: "channels", bottom: [][]int{{2, 3, 2}, {2, 1, 2}, {2, 2, 2}}},
		gradientCase{name: "items", layer: `concat_param { axis: 0 }`, bottom: [][]int{{2, 3}, {1, 3}}},
		gradientCase{name: "last", layer: `concat_param { axis: -1 }`, bottom: [][]int{{2, 3}, {2, 1}}},
		gradientCase{name: "concat_dim", layer: `concat_param { concat_dim: 0 }`, bottom: [][]int{{2, 3}, {1, 3}}},
		gradientCase{name: "single", bottom: [][]int{{2, 3}}},
		gradientCase{name: "first only", bottom: [][]int{{2, 3}, {2, 2}}, opts: gradientOpts{bottoms: []int{0}}})
	addGradient("Slice",
		gradientCase{name: "channels", bottom: [][]int{{2, 6, 2}}, tops: 3},
		gradientCase{name: "points", layer: `slice_param { slice_point: 1 slice_point: 4 }`, bottom: [][]int{{2, 6, 2}}, tops: 3},
		gradientCase{name: "items", layer: `slice_param { axis: 0 slice_point: 1 }`, bottom: [][]int{{4, 3}}, tops: 2},
		gradientCase{name: "last", layer: `slice_param { axis: -1 }`, bottom: [][]int{{2, 3, 4}}, tops: 2},
		gradientCase{name: "slice_dim", layer: `slice_param { slice_dim: 0 }`, bottom: [][]int{{4, 3}}, tops: 2},
		gradientCase{name: "single", bottom: [][]int{{2, 3}}})
	addGradient("Split",
		gradientCase{name: "one", bottom: [][]int{{2, 3}}, tops: 1},
		gradientCase{name: "two", bottom: [][]int{{2, 3}}, tops: 2},
		gradientCase{name: "five", bottom: [][]int{{2, 3}}, tops: 5})
	images := [][]int{{2, 3, 2, 2}, {2, 3, 2, 2}, {2, 3, 2, 2}}
	addGradient("Eltwise",
		gradientCase{name: "sum", bottom: images[:2]},
		gradientCase{name: "sum of three", layer: `eltwise_param { operation: SUM }`, bottom: images},
		gradientCase{name: "weighted", layer: `eltwise_param { coeff: 1 coeff: -0.5 coeff: 2 }`, bottom: images},
		gradientCase{name: "difference", layer: `eltwise_param { coeff: -1 coeff: 1 }`, bottom: images[:2]},
		gradientCase{name: "product", layer: `eltwise_param { operation: PROD }`, bottom: images},
		gradientCase{name: "product of two", layer: `eltwise_param { operation: PROD }`, bottom: images[:2]},
		gradientCase{name: "unstable product", layer: `eltwise_param { operation: PROD stable_prod_grad: false }`, bottom: images},
		gradientCase{name: "maximum", layer: `eltwise_param { operation: MAX }`, bottom: images, fill: fillDistinct},
		gradientCase{name: "maximum of two", layer: `eltwise_param { operation: MAX }`, bottom: images[:2], fill: fillDistinct},
		gradientCase{name: "last only", layer: `eltwise_param { operation: PROD }`, bottom: images, opts: gradientOpts{bottoms: []int{2}}})
	addGradient("Flatten",
		gradientCase{name: "default", bottom: [][]int{{2, 3, 2, 2}}},
		gradientCase{name: "middle", layer: `flatten_param { axis: 1 end_axis: -2 }`, bottom: [][]int{{2, 3, 2, 2}}})
	addGradient("Reshape",
		gradientCase{name: "default", layer: `reshape_param { shape { dim: 0 dim: -1 } }`, bottom: [][]int{{2, 3, 2, 2}}})
	noGradient["Silence"] = "it has no top"
}

func iota32(b *blob.Blob, from int) {
	x := b.Data()
	for i := range x {
		x[i] = float32(from + i)
	}
}

func forward(t *testing.T, l Layer, bottom, top []*blob.Blob) {
	t.Helper()
	if err := l.Forward(bottom, top); err != nil {
		t.Fatal(err)
	}
}

func TestConcatValues(t *testing.T) {
	l, bottom, top, err := trySetup("Concat", "", Env{}, 1, []int{2, 1, 2}, []int{2, 2, 2})
	if err != nil {
		t.Fatal(err)
	}
	iota32(bottom[0], 0)
	iota32(bottom[1], 100)
	forward(t, l, bottom, top)
	if !slices.Equal(top[0].Shape(), []int{2, 3, 2}) {
		t.Errorf("shape %v", top[0].Shape())
	}
	wantValues(t, "concat", top[0].Data(), 0, 1, 100, 101, 102, 103, 2, 3, 104, 105, 106, 107)
}

func TestSliceValues(t *testing.T) {
	l, bottom, top, err := trySetup("Slice", "slice_param { slice_point: 1 }", Env{}, 2, []int{2, 3, 2})
	if err != nil {
		t.Fatal(err)
	}
	iota32(bottom[0], 0)
	forward(t, l, bottom, top)
	if !slices.Equal(top[0].Shape(), []int{2, 1, 2}) || !slices.Equal(top[1].Shape(), []int{2, 2, 2}) {
		t.Errorf("shapes %v and %v", top[0].Shape(), top[1].Shape())
	}
	wantValues(t, "top 0", top[0].Data(), 0, 1, 6, 7)
	wantValues(t, "top 1", top[1].Data(), 2, 3, 4, 5, 8, 9, 10, 11)
}

func TestEltwiseValues(t *testing.T) {
	a, b, c := []float32{1, -2, 3}, []float32{4, 0, 3}, []float32{-1, 5, 3}
	for body, want := range map[string][]float32{
		"":                                  {4, 3, 9},
		"eltwise_param { operation: PROD }": {-4, 0, 27},
		"eltwise_param { operation: MAX }":  {4, 5, 3},
		"eltwise_param { coeff: 1 coeff: 2 coeff: -3 }": {12, -17, 0},
	} {
		_, _, top := runOn(t, "Eltwise", body, Env{}, 1, a, b, c)
		wantValues(t, body, top[0].Data(), want...)
	}
}

// The gradient of a tie goes to the second bottom, as in Caffe.
func TestEltwiseMaximumOfATie(t *testing.T) {
	x := []float32{3}
	l, bottom, top := runOn(t, "Eltwise", "eltwise_param { operation: MAX }", Env{}, 1, x, x, x)
	top[0].Diff()[0] = 5
	if err := l.Backward(top, []bool{true, true, true}, bottom); err != nil {
		t.Fatal(err)
	}
	for i, want := range []float32{0, 5, 0} {
		wantValues(t, fmt.Sprintf("bottom %d", i), bottom[i].Diff(), want)
	}
}

func TestViewShapes(t *testing.T) {
	for _, c := range []struct {
		typ, body    string
		bottom, want []int
	}{
		{"Flatten", "", []int{2, 3, 4, 5}, []int{2, 60}},
		{"Flatten", "flatten_param { axis: 2 }", []int{2, 3, 4, 5}, []int{2, 3, 20}},
		{"Flatten", "flatten_param { axis: 0 end_axis: -2 }", []int{2, 3, 4, 5}, []int{24, 5}},
		{"Flatten", "flatten_param { axis: -1 }", []int{2, 3}, []int{2, 3}},
		{"Reshape", "reshape_param { shape { dim: 0 dim: 3 dim: -1 } }", []int{2, 12, 1}, []int{2, 3, 4}},
		{"Reshape", "reshape_param { shape { dim: 24 } }", []int{2, 3, 4}, []int{24}},
		{"Reshape", "reshape_param { shape { dim: 2 dim: -1 } axis: 1 }", []int{2, 8, 3}, []int{2, 2, 12}},
		{"Reshape", "reshape_param { shape { dim: 2 dim: 4 } axis: 1 num_axes: 1 }", []int{2, 8, 3}, []int{2, 2, 4, 3}},
		{"Reshape", "reshape_param { shape { dim: -1 } axis: -2 num_axes: 1 }", []int{2, 8}, []int{2, 8}},
		{"Reshape", "reshape_param { shape { dim: 1 dim: 1 } axis: -1 }", []int{2, 8}, []int{2, 8, 1, 1}},
		{"Reshape", "reshape_param { shape { dim: 1 } axis: 0 num_axes: 0 }", []int{2, 8}, []int{1, 2, 8}},
		{"Reshape", "reshape_param { axis: 1 num_axes: 1 }", []int{2, 1, 8}, []int{2, 8}},
		{"Reshape", "", []int{1, 1}, []int{}},
	} {
		l, bottom, top, err := trySetup(c.typ, c.body, Env{}, 1, c.bottom)
		if err != nil {
			t.Errorf("%s %s: %v", c.typ, c.body, err)
			continue
		}
		if !slices.Equal(top[0].Shape(), c.want) {
			t.Errorf("%s %s of %v: shape %v, want %v", c.typ, c.body, c.bottom, top[0].Shape(), c.want)
		}
		forward(t, l, bottom, top)
		top[0].Diff()[0] = 7
		if err := l.Backward(top, []bool{true}, bottom); err != nil {
			t.Fatal(err)
		}
		if !top[0].DataBuffer().Same(bottom[0].DataBuffer()) || !top[0].DiffBuffer().Same(bottom[0].DiffBuffer()) || bottom[0].Diff()[0] != 7 {
			t.Errorf("%s: top and bottom do not share memory", c.typ)
		}
	}
}

func TestSplitShares(t *testing.T) {
	l, bottom, top, err := trySetup("Split", "", Env{}, 3, []int{2, 3})
	if err != nil {
		t.Fatal(err)
	}
	iota32(bottom[0], 1)
	forward(t, l, bottom, top)
	for _, b := range top {
		if !b.DataBuffer().Same(bottom[0].DataBuffer()) {
			t.Error("a top has values of its own")
		}
	}
	bottom[0].Reshape(5, 3) // grows into new memory
	if err := l.Reshape(bottom, top); err != nil {
		t.Fatal(err)
	}
	iota32(bottom[0], 1)
	forward(t, l, bottom, top)
	if top[2].Count() != 15 || top[2].Data()[14] != 15 {
		t.Errorf("after Reshape: %v", top[2].Data())
	}
}

func TestSilence(t *testing.T) {
	l, bottom, _, err := trySetup("Silence", "", Env{}, -1, []int{2}, []int{3})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range bottom {
		b.Diff()[0] = 9
	}
	forward(t, l, bottom, nil)
	if err := l.Backward(nil, []bool{true, false}, bottom); err != nil {
		t.Fatal(err)
	}
	if bottom[0].Diff()[0] != 0 || bottom[1].Diff()[0] != 9 {
		t.Errorf("gradients %v and %v", bottom[0].Diff(), bottom[1].Diff())
	}
	allocates(t, l, bottom, nil)
}

func TestJointErrors(t *testing.T) {
	for _, c := range []struct {
		typ, body string
		tops      int
		shapes    [][]int
		want      string
	}{
		{"Concat", "concat_param { axis: 1 concat_dim: 1 }", 1, [][]int{{2, 3}}, "both axis and the older concat_dim"},
		{"Concat", "concat_param { axis: 2 }", 1, [][]int{{2, 3}}, "concat_param.axis 2 is out of range [-2, 2)"},
		{"Concat", "concat_param { concat_dim: 2 }", 1, [][]int{{2, 3}}, "concat_dim 2 is out of range"},
		{"Concat", "concat_param { concat_dim: 4294967295 }", 1, [][]int{{2, 3}}, "concat_dim 4294967295 is out of range"},
		{"Concat", "", 1, [][]int{{2, 3}, {2, 3, 1}}, "bottom 1 has shape [2 3 1]"},
		{"Concat", "", 1, [][]int{{2, 3}, {1, 3}}, "all axes but axis 1 must be equal"},
		{"Slice", "slice_param { axis: 1 slice_dim: 1 }", 1, [][]int{{2, 3}}, "both axis and the older slice_dim"},
		{"Slice", "slice_param { slice_dim: 7 }", 1, [][]int{{2, 3}}, "slice_dim 7 is out of range"},
		{"Slice", "", 2, [][]int{{2, 3}}, "2 tops do not divide extent 3 of axis 1"},
		{"Slice", "slice_param { slice_point: 1 }", 3, [][]int{{2, 3}}, "1 slice_point for 3 tops"},
		{"Slice", "slice_param { slice_point: 2 slice_point: 2 }", 3, [][]int{{2, 3}}, "[2 2] must rise and lie within extent 3"},
		{"Slice", "slice_param { slice_point: 3 }", 2, [][]int{{2, 3}}, "[3] must rise"},
		{"Slice", "slice_param { slice_point: 0 }", 2, [][]int{{2, 3}}, "[0] must rise"},
		{"Eltwise", "eltwise_param { coeff: 1 }", 1, [][]int{{2}, {2}}, "1 coeff for 2 bottoms"},
		{"Eltwise", "eltwise_param { operation: PROD coeff: 1 coeff: 1 }", 1, [][]int{{2}, {2}}, "coeff is for operation SUM, not PROD"},
		{"Eltwise", "", 1, [][]int{{2, 3}, {3, 2}}, "bottom 1 has shape [3 2], bottom 0 has [2 3]"},
		{"Flatten", "flatten_param { axis: 3 }", 1, [][]int{{2, 3}}, "flatten_param.axis 3"},
		{"Flatten", "flatten_param { end_axis: 2 }", 1, [][]int{{2, 3}}, "flatten_param.end_axis 2"},
		{"Flatten", "flatten_param { axis: 1 end_axis: 0 }", 1, [][]int{{2, 3}}, "end_axis 0 lies before axis 1"},
		{"Reshape", "reshape_param { shape { dim: -1 dim: -1 } }", 1, [][]int{{2, 3}}, "only one dim may be -1"},
		{"Reshape", "reshape_param { shape { dim: -2 } }", 1, [][]int{{2, 3}}, "dim -2 is below -1"},
		{"Reshape", "reshape_param { shape { dim: 5 } }", 1, [][]int{{2, 3}}, "shape [5] has 5 values, but the bottom has 6"},
		{"Reshape", "reshape_param { shape { dim: 4 dim: -1 } }", 1, [][]int{{2, 3}}, "do not divide by the product 4"},
		{"Reshape", "reshape_param { shape { dim: 2 dim: 3 dim: 0 } }", 1, [][]int{{2, 3}}, "no axis 2 to keep"},
		{"Reshape", "reshape_param { axis: 3 }", 1, [][]int{{2, 3}}, "reshape_param.axis 3 is out of range [-3, 2]"},
		{"Reshape", "reshape_param { axis: 1 num_axes: 2 }", 1, [][]int{{2, 3}}, "reach past the 2 axes"},
		{"Reshape", "reshape_param { num_axes: -2 }", 1, [][]int{{2, 3}}, "num_axes -2 is below -1"},
	} {
		_, _, _, err := trySetup(c.typ, c.body, Env{}, c.tops, c.shapes...)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), `layer "it" (`+c.typ+`)`) {
			t.Errorf("%s %s: got %v, want an error with %q", c.typ, c.body, err, c.want)
		}
	}
}
