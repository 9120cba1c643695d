package layers

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/kernels/dnn"
)

// TestConvolutionIsItsPlainTwin holds the layer with package dnn's
// convolutions to the layer without, over two iterations whose gradients add up.
func TestConvolutionIsItsPlainTwin(t *testing.T) {
	if !dnn.Available {
		t.Skip("built without the tag onednn: there is only the plain layer")
	}
	for _, c := range []struct {
		body  string
		shape []int
	}{
		{`num_output: 32 kernel_size: 5 pad: 2`, []int{3, 3, 32, 32}},
		{`num_output: 24 kernel_size: 11 stride: 4`, []int{2, 3, 67, 67}},
		{`num_output: 64 kernel_size: 5 pad: 2 group: 2`, []int{2, 96, 13, 13}},
		{`num_output: 48 kernel_size: 3 pad: 1`, []int{1, 32, 13, 13}},
		{`num_output: 20 kernel_size: 1 stride: 2 bias_term: false`, []int{3, 17, 7, 9}},
		{`num_output: 16 kernel_size: 3 dilation: 2 pad: 3`, []int{2, 16, 9, 11}},
		{`num_output: 12 kernel_size: 3 group: 12`, []int{2, 12, 8, 8}},
		{`num_output: 7 kernel_h: 1 kernel_w: 7 pad_w: 3`, []int{2, 13, 9, 9}},
	} {
		var twins [2]*convolution
		var blobs [2][2][]*blob.Blob // bottoms and tops
		for i := range twins {
			made, err := tryLayer("Convolution", `convolution_param { weight_filler { type: "gaussian" } bias_filler { type: "gaussian" } `+c.body+" }", Env{})
			if err != nil {
				t.Fatal(err)
			}
			l := made.(*convolution)
			l.plain = i == 1
			twins[i] = l
			bottom, top := []*blob.Blob{blob.New(c.shape...)}, newTops(1)
			if err := l.Setup(bottom, top); err != nil {
				t.Fatal(err)
			}
			if err := l.Reshape(bottom, top); err != nil {
				t.Fatal(err)
			}
			r := rand.New(rand.NewPCG(3, 4))
			normal(bottom[0].Data(), 0, 1, r)
			normal(top[0].Diff(), 0, 1, r)
			for range 2 {
				if err := l.Forward(bottom, top); err != nil {
					t.Fatal(err)
				}
				if err := l.Backward(top, []bool{true}, bottom); err != nil {
					t.Fatal(err)
				}
			}
			blobs[i] = [2][]*blob.Blob{bottom, top}
		}
		if twins[0].fast == nil || twins[1].fast != nil {
			t.Errorf("%s: the first should be fast, the second plain", c.body)
		}
		compare := func(what string, a, b []float32) { closeTo(t, fmt.Sprintf("%s: %s", c.body, what), a, float64s(b)) }
		compare("top", blobs[0][1][0].Data(), blobs[1][1][0].Data())
		compare("bottom gradient", blobs[0][0][0].Diff(), blobs[1][0][0].Diff())
		for i, p := range twins[0].params {
			compare(fmt.Sprint("parameter gradient ", i), p.Diff(), twins[1].params[i].Diff())
		}
	}
}

// TestSteadyLayersAllocateNothing runs the layers that compute most.
func TestSteadyLayersAllocateNothing(t *testing.T) {
	for typ, body := range map[string]string{
		"Convolution":  `convolution_param { num_output: 8 kernel_size: 3 pad: 1 }`,
		"Pooling":      `pooling_param { kernel_size: 3 stride: 2 }`,
		"LRN":          `lrn_param { local_size: 5 alpha: 0.0001 beta: 0.75 }`,
		"ReLU":         ``,
		"InnerProduct": `inner_product_param { num_output: 40 }`,
	} {
		r := rand.New(rand.NewPCG(1, 2))
		l, bottom, top := run(t, typ, body, r, 1, []int{2, 16, 12, 12})
		propagate := []bool{true}
		if got := testing.AllocsPerRun(5, func() {
			if err := l.Forward(bottom, top); err != nil {
				t.Fatal(err)
			}
			if err := l.Backward(top, propagate, bottom); err != nil {
				t.Fatal(err)
			}
		}); got != 0 {
			t.Errorf("%s: %v allocations an iteration, want 0", typ, got)
		}
	}
}

// TestConvolutionFollowsItsBatch: a reshaped bottom is computed as if the
// layer had been made for it.
func TestConvolutionFollowsItsBatch(t *testing.T) {
	l, bottom, top, err := trySetup("Convolution", `convolution_param { num_output: 16 kernel_size: 3 pad: 1 weight_filler { type: "gaussian" } }`,
		Env{Rand: rand.New(rand.NewPCG(1, 2))}, 1, []int{4, 16, 9, 9})
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 4))
	normal(bottom[0].Data(), 0, 1, r)
	if err := l.Forward(bottom, top); err != nil {
		t.Fatal(err)
	}
	all := slices.Clone(top[0].Data())
	bottom[0].Reshape(1, 16, 9, 9)
	if err := l.Reshape(bottom, top); err != nil {
		t.Fatal(err)
	}
	if err := l.Forward(bottom, top); err != nil {
		t.Fatal(err)
	}
	closeTo(t, "the first image alone", top[0].Data(), float64s(all[:len(all)/4]))
}
