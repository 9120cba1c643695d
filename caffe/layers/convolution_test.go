package layers

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/scaffe/scaffe/caffe/blob"
)

func init() {
	xavier := ` weight_filler { type: "xavier" } bias_filler { type: "uniform" min: -1 max: 1 } }`
	c := func(name, body string, bottom ...[]int) gradientCase {
		return gradientCase{name: name, layer: "convolution_param { " + body + xavier, bottom: bottom, tops: len(bottom)}
	}
	addGradient("Convolution",
		c("3x3", `num_output: 3 kernel_size: 3`, []int{2, 2, 5, 4}),
		c("pad", `num_output: 2 kernel_size: 3 pad: 1`, []int{2, 2, 4, 4}),
		c("stride", `num_output: 2 kernel_size: 3 pad: 1 stride: 2`, []int{2, 3, 5, 6}),
		c("groups", `num_output: 4 kernel_size: 3 pad: 1 group: 2`, []int{2, 4, 4, 3}),
		c("depthwise", `num_output: 3 kernel_size: 2 group: 3`, []int{2, 3, 4, 3}),
		c("dilation", `num_output: 2 kernel_size: 2 dilation: 2 pad: 1`, []int{2, 2, 4, 5}),
		c("rectangular", `num_output: 2 kernel_h: 3 kernel_w: 1 pad_h: 1 stride_h: 2 stride_w: 1`, []int{2, 2, 5, 4}),
		c("no bias", `num_output: 2 kernel_size: 2 bias_term: false`, []int{2, 2, 3, 3}),
		c("1x1", `num_output: 3 kernel_size: 1`, []int{2, 3, 6, 6}),
		c("1x1 small", `num_output: 3 kernel_size: 1`, []int{3, 3, 2, 2}),
		c("1x1 pad", `num_output: 2 kernel_size: 1 pad: 1`, []int{1, 2, 3, 3}),
		c("two bottoms", `num_output: 2 kernel_size: 2`, []int{2, 2, 3, 3}, []int{2, 2, 3, 3}),
		c("axis 0", `num_output: 2 kernel_size: 2 axis: 0`, []int{2, 3, 4}),
		c("axis 2", `num_output: 2 kernel_size: 2 axis: -3`, []int{2, 2, 2, 3, 3}),
		c("kernel rows apart", `num_output: 2 kernel_size: 3 pad: 1`, []int{2, 22, 3, 3}),
	)
}

// TestConvolutionIsTheDefinition holds the layer to the reference over shapes
// that reach each way of tiling: the kernel's rows unrolled or not, one image
// a tile or several or only part of one.
func TestConvolutionIsTheDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		g           geometry
		out         int
		n, ch, h, w int
	}{
		{geometry{5, 5, 2, 2, 1, 1, 1, 1, 1}, 8, 2, 3, 32, 32},     // CIFAR-10 quick conv1
		{geometry{5, 5, 2, 2, 1, 1, 1, 1, 1}, 4, 3, 16, 16, 16},    // conv2
		{geometry{5, 5, 2, 2, 1, 1, 1, 1, 1}, 4, 21, 16, 8, 8},     // conv3, several images a tile
		{geometry{11, 11, 0, 0, 4, 4, 1, 1, 1}, 4, 2, 3, 131, 131}, // AlexNet conv1, part of an image
		{geometry{5, 5, 2, 2, 1, 1, 1, 1, 2}, 4, 1, 96, 27, 27},    // conv2, groups, kernel rows apart
		{geometry{3, 3, 1, 1, 2, 2, 1, 1, 1}, 4, 3, 24, 9, 10},     // two bands
		{geometry{7, 3, 5, 0, 3, 2, 2, 1, 1}, 3, 2, 26, 19, 9},     // three bands, uneven dilation
		{geometry{2, 3, 0, 4, 3, 1, 1, 3, 1}, 3, 2, 26, 8, 5},      // more stride than kernel
		{geometry{6, 6, 0, 0, 1, 1, 1, 1, 1}, 5, 9, 64, 6, 6},      // a whole plane
		{geometry{1, 1, 0, 0, 2, 2, 1, 1, 1}, 5, 2, 7, 9, 9},       // strided 1×1
		{geometry{3, 3, 4, 4, 1, 1, 1, 1, 1}, 2, 2, 22, 5, 5},      // pad beyond the kernel
		{geometry{3, 3, 8, 8, 1, 1, 8, 8, 1}, 2, 2, 22, 6, 6},      // dilation beyond the plane
	} {
		checkConv(t, r, c.g, c.out, true, c.n, c.ch, c.h, c.w)
	}
}

func TestConvolutionOverRandomShapes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := func(lo, hi int, name string) int { return rapid.IntRange(lo, hi).Draw(rt, name) }
		g := geometry{
			in(1, 4, "kh"), in(1, 4, "kw"), in(0, 3, "ph"), in(0, 3, "pw"),
			in(1, 3, "sh"), in(1, 3, "sw"), in(1, 3, "dh"), in(1, 3, "dw"), in(1, 2, "group"),
		}
		h := in(max(1, g.dh*(g.kh-1)+1-2*g.ph), 12, "h")
		w := in(max(1, g.dw*(g.kw-1)+1-2*g.pw), 12, "w")
		c := g.group * rapid.SampledFrom([]int{1, 2, 17}).Draw(rt, "channels")
		r := rand.New(rand.NewPCG(uint64(h), uint64(w)))
		checkConv(rt, r, g, g.group*in(1, 3, "out"), rapid.Bool().Draw(rt, "bias"), in(0, 4, "n"), c, h, w)
	})
}

// TestConvolutionFollowsItsBottom reshapes between passes.
func TestConvolutionFollowsItsBottom(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	l, bottom, top, err := trySetup("Convolution", `convolution_param { num_output: 4 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } }`, Env{Rand: r}, 1, []int{2, 24, 6, 6})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range [][]int{{5, 24, 6, 6}, {1, 24, 20, 9}, {2, 24, 6, 6}} {
		bottom[0].Reshape(s...)
		if err := l.Reshape(bottom, top); err != nil {
			t.Fatal(err)
		}
		fillNormal(bottom[0], r)
		if err := l.Forward(bottom, top); err != nil {
			t.Fatal(err)
		}
		w := l.Params()[0]
		y, _, _, _ := refConv(geometry{3, 3, 1, 1, 1, 1, 1, 1, 1}, arrayOf(bottom[0], bottom[0].Data()), arrayOf(w, w.Data()), nil, given(t, top[0]))
		closeTo(t, fmt.Sprint(s), top[0].Data(), y.v)
	}
}

// TestConvolutionMemoryIsBounded: a tile's memory does not grow with the
// batch.
func TestConvolutionMemoryIsBounded(t *testing.T) {
	for _, s := range []struct {
		w       window
		in, out int
	}{
		{window{h: 227, w: 227, kh: 11, kw: 11, strideH: 4, strideW: 4, dilH: 1, dilW: 1, oh: 55, ow: 55}, 3, 96},
		{window{h: 27, w: 27, kh: 5, kw: 5, padH: 2, padW: 2, strideH: 1, strideW: 1, dilH: 1, dilW: 1, oh: 27, ow: 27}, 48, 128},
		{window{h: 13, w: 13, kh: 3, kw: 3, padH: 1, padW: 1, strideH: 1, strideW: 1, dilH: 1, dilW: 1, oh: 13, ow: 13}, 256, 384},
		{window{h: 224, w: 224, kh: 3, kw: 3, padH: 1, padW: 1, strideH: 1, strideW: 1, dilH: 1, dilW: 1, oh: 224, ow: 224}, 64, 64},
	} {
		c := newCorrelation(s.w, 1, s.in, s.out)
		c.size(256)
		if n := 4 * (cap(c.cols) + cap(c.stage)); n > 4<<20 {
			t.Errorf("%d×%d kernel over %d×%d×%d: %d bytes for a tile", s.w.kh, s.w.kw, s.in, s.w.h, s.w.w, n)
		}
	}
}

func TestConvolutionErrors(t *testing.T) {
	for _, c := range []struct {
		body   string
		tops   int
		bottom []int
		want   string
	}{
		{`num_output: 2 kernel_size: 5`, 1, []int{1, 1, 3, 3}, `layer "it" (Convolution): kernel 5×5 exceeds the padded input 3×3`},
		{`num_output: 2`, 1, []int{1, 1, 3, 3}, "kernel_size is missing"},
		{`kernel_size: 3`, 1, []int{1, 1, 3, 3}, "num_output is missing"},
		{`num_output: 2 kernel_size: 3 kernel_h: 3`, 1, []int{1, 1, 3, 3}, "kernel_size and kernel_h/kernel_w are both given"},
		{`num_output: 2 kernel_h: 3`, 1, []int{1, 1, 3, 3}, "kernel_h and kernel_w must be given together"},
		{`num_output: 2 kernel_size: [1, 1, 1]`, 1, []int{1, 1, 3, 3}, "kernel_size is given 3 times"},
		{`num_output: 2 kernel_size: 0`, 1, []int{1, 1, 3, 3}, "kernel_size 0×0 is out of range"},
		{`num_output: 2 kernel_size: 1 stride: 0`, 1, []int{1, 1, 3, 3}, "stride 0×0 is out of range"},
		{`num_output: 2 kernel_size: 1 dilation: 0`, 1, []int{1, 1, 3, 3}, "dilation 0×0 is out of range"},
		{`num_output: 2 kernel_size: 1 pad: 4000000000`, 1, []int{1, 1, 3, 3}, "is out of range"},
		{`num_output: 3 kernel_size: 1 group: 2`, 1, []int{1, 2, 3, 3}, "group 2 does not divide"},
		{`num_output: 2 kernel_size: 1 group: 0`, 1, []int{1, 2, 3, 3}, "group 0 does not divide"},
		{`num_output: 2 kernel_size: 1`, 1, []int{1, 2, 3, 3, 3}, "3 spatial axes after channel axis 1; only 2 are supported"},
		{`num_output: 2 kernel_size: 1 axis: 9`, 1, []int{1, 2, 3, 3}, "axis 9 is out of range"},
		{`num_output: 2 kernel_size: 1 pad: 1`, 1, []int{1, 2, 0, 3}, "has an empty plane"},
		{`num_output: 2 kernel_size: 1`, 2, []int{1, 2, 3, 3}, "1 bottoms but 2 tops"},
	} {
		_, _, _, err := trySetup("Convolution", "convolution_param { "+c.body+" }", Env{}, c.tops, c.bottom)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.body, err, c.want)
		}
	}
	if _, _, _, err := trySetup("Convolution", "", Env{}, 1, []int{1, 1, 3, 3}); err == nil {
		t.Error("no convolution_param at all is accepted")
	}
	_, _, _, err := trySetup("Convolution", "convolution_param { num_output: 1 kernel_size: 1 }", Env{}, 2, []int{1, 2, 3, 3}, []int{1, 2, 3, 4})
	if err == nil || !strings.Contains(err.Error(), "all must be equal") {
		t.Errorf("unequal bottoms: %v", err)
	}
}

// BenchmarkConvolution runs forward and backward of the three convolutions of
// CIFAR-10 quick at batch 50, in images/s; "stack" is all three, the first
// without a gradient for its bottom.
func BenchmarkConvolution(b *testing.B) {
	const n = 50
	type step struct {
		Layer
		bottom, top []*blob.Blob
		propagate   []bool
	}
	newStep := func(out, in, side int, propagate bool) step {
		body := fmt.Sprintf(`convolution_param { num_output: %d kernel_size: 5 pad: 2 weight_filler { type: "xavier" } }`, out)
		l, bottom, top := run(b, "Convolution", body, rand.New(rand.NewPCG(1, 2)), 1, []int{n, in, side, side})
		return step{l, bottom, top, []bool{propagate}}
	}
	stack := []step{newStep(32, 3, 32, false), newStep(32, 32, 16, true), newStep(64, 32, 8, true)}
	bench := func(name string, forward, backward bool, steps ...step) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				for _, s := range steps {
					if forward {
						_ = s.Forward(s.bottom, s.top)
					}
					if backward {
						_ = s.Backward(s.top, s.propagate, s.bottom)
					}
				}
			}
			b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "images/s")
		})
	}
	for i, s := range stack {
		bench(fmt.Sprintf("conv%d/forward", i+1), true, false, s)
		bench(fmt.Sprintf("conv%d/backward", i+1), false, true, s)
	}
	bench("stack", true, true, stack...)
}
