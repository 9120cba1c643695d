package layers

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/scaffe/scaffe/caffe/blob"
)

func init() {
	c := func(name, body string, tops int, bottom ...int) gradientCase {
		g := gradientCase{name: name, layer: "pooling_param { " + body + " }", bottom: [][]int{bottom}, tops: tops, fill: fillApart}
		g.opts.gradTops = 1 // the mask takes none
		return g
	}
	addGradient("Pooling",
		c("max", `kernel_size: 2 stride: 2`, 1, 2, 2, 4, 4),
		c("max 3x3 s2", `kernel_size: 3 stride: 2`, 1, 2, 2, 6, 5),
		c("max pad", `kernel_size: 3 stride: 2 pad: 1`, 1, 1, 2, 5, 6),
		c("max mask", `kernel_size: 2`, 2, 1, 2, 3, 3),
		c("max rectangular", `kernel_h: 1 kernel_w: 3 stride_h: 2 stride_w: 1`, 1, 1, 2, 5, 4),
		c("max global", `global_pooling: true`, 1, 2, 3, 3, 2),
		c("average", `pool: AVE kernel_size: 2 stride: 2`, 1, 2, 2, 4, 5),
		c("average 3x3 s2 pad", `pool: AVE kernel_size: 3 stride: 2 pad: 1`, 1, 1, 2, 6, 5),
		c("average floor", `pool: AVE kernel_size: 2 stride: 2 round_mode: FLOOR`, 1, 1, 2, 5, 5),
		c("average global", `pool: AVE global_pooling: true`, 1, 2, 3, 3, 4),
	)
}

// fillApart writes a random permutation of multiples of 0.1, so that a step of
// the differences does not change which element is the largest.
func fillApart(bottom []*blob.Blob, r *rand.Rand) {
	for _, b := range bottom {
		x := b.Data()
		for i, p := range r.Perm(len(x)) {
			x[i] = 0.1 * float32(p-len(x)/2)
		}
	}
}

func checkPool(t failer, r *rand.Rand, g geometry, max, ceil bool, shape ...int) {
	pool, round, tops := "AVE", "FLOOR", 1
	if max {
		pool, tops = "MAX", 2
	}
	if ceil {
		round = "CEIL"
	}
	body := fmt.Sprintf(`pooling_param { pool: %s round_mode: %s kernel_h: %d kernel_w: %d pad_h: %d pad_w: %d stride_h: %d stride_w: %d }`,
		pool, round, g.kh, g.kw, g.ph, g.pw, g.sh, g.sw)
	_, bottom, top := run(t, "Pooling", body, r, tops, shape)
	y, mask, dx := refPool(g, max, ceil, arrayOf(bottom[0], bottom[0].Data()), given(t, top[0]))
	what := fmt.Sprintf("%s on %v: ", body, shape)
	closeTo(t, what+"top", top[0].Data(), y.v)
	closeTo(t, what+"bottom gradient", bottom[0].Diff(), dx.v)
	if max {
		closeTo(t, what+"mask", top[1].Data(), mask.v)
	}
}

func TestPoolingIsTheDefinition(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := func(lo, hi int, name string) int { return rapid.IntRange(lo, hi).Draw(rt, name) }
		g := geometry{kh: in(1, 5, "kh"), kw: in(1, 5, "kw"), sh: in(1, 4, "sh"), sw: in(1, 4, "sw")}
		g.ph, g.pw = in(0, g.kh-1, "ph"), in(0, g.kw-1, "pw")
		h, w := in(max(1, g.kh-2*g.ph), 12, "h"), in(max(1, g.kw-2*g.pw), 12, "w")
		r := rand.New(rand.NewPCG(uint64(h), uint64(w)))
		checkPool(rt, r, g, rapid.Bool().Draw(rt, "max"), rapid.Bool().Draw(rt, "ceil"), in(0, 2, "n"), in(1, 3, "c"), h, w)
	})
}

// TestPoolingExtents: the shapes that Caffe's nets are known by.
func TestPoolingExtents(t *testing.T) {
	for _, c := range []struct {
		body     string
		in, want int
	}{
		{`kernel_size: 3 stride: 2`, 32, 16},  // CIFAR-10 quick: rounded up, the last window is clipped
		{`kernel_size: 3 stride: 2`, 55, 27},  // AlexNet
		{`kernel_size: 3 stride: 2`, 112, 56}, // GoogLeNet
		{`kernel_size: 3 stride: 2 round_mode: FLOOR`, 112, 55},
		{`kernel_size: 2 stride: 2`, 24, 12},        // LeNet
		{`kernel_size: 3 stride: 2`, 2, 1},          // a window larger than the input
		{`kernel_size: 2 stride: 2 pad: 1`, 3, 2},   // the third window would start in the padding
		{`kernel_size: 3 stride: 1 pad: 1`, 14, 14}, // inception
		{`global_pooling: true`, 7, 1},
	} {
		_, _, top, err := trySetup("Pooling", "pooling_param { pool: AVE "+c.body+" }", Env{}, 1, []int{1, 1, c.in, c.in})
		if err != nil {
			t.Errorf("%s on %d: %v", c.body, c.in, err)
		} else if top[0].Dim(2) != c.want || top[0].Dim(3) != c.want {
			t.Errorf("%s on %d gives %v, want %d", c.body, c.in, top[0].Shape(), c.want)
		}
	}
}

// TestMaxPoolingOrder: ties go to the first, signs and extremes order, NaN
// shows.
func TestMaxPoolingOrder(t *testing.T) {
	inf, nan, zero := float32(math.Inf(1)), float32(math.NaN()), float32(math.Copysign(0, -1))
	for _, c := range []struct {
		x    [4]float32
		want int
	}{
		{[4]float32{1, 1, 1, 1}, 0},
		{[4]float32{-2, -1, -3, -1}, 1},
		{[4]float32{-inf, -1e38, -inf, -inf}, 1},
		{[4]float32{-inf, -inf, -inf, -inf}, 0},
		{[4]float32{1e-45, 0, -1e-45, inf}, 3},
		{[4]float32{zero, 0, zero, 0}, 0},
		{[4]float32{1, inf, nan, 0}, 2},
	} {
		l, bottom, top, err := trySetup("Pooling", "pooling_param { kernel_size: 2 }", Env{}, 2, []int{1, 1, 2, 2})
		if err != nil {
			t.Fatal(err)
		}
		copy(bottom[0].Data(), c.x[:])
		if err := l.Forward(bottom, top); err != nil {
			t.Fatal(err)
		}
		v, at := top[0].Data()[0], int(top[1].Data()[0])
		if at != c.want || math.Float32bits(v) != math.Float32bits(c.x[c.want]) {
			t.Errorf("%v: %v at %d, want position %d", c.x, v, at, c.want)
		}
	}
}

func TestPoolingErrors(t *testing.T) {
	for _, c := range []struct {
		body   string
		bottom []int
		want   string
	}{
		{`pool: STOCHASTIC kernel_size: 2`, []int{1, 1, 3, 3}, "pool: STOCHASTIC is not supported"},
		{`kernel_size: 5`, []int{1, 1, 3, 3}, `layer "it" (Pooling): kernel 5×5 exceeds the padded input 3×3`},
		{`kernel_size: 2 pad: 2`, []int{1, 1, 3, 3}, "pad 2×2 is not smaller than kernel 2×2"},
		{`stride: 2`, []int{1, 1, 3, 3}, "kernel_size is missing"},
		{`kernel_w: 2`, []int{1, 1, 3, 3}, "kernel_h and kernel_w must be given together"},
		{`kernel_size: 2 stride: 2 stride_h: 1`, []int{1, 1, 3, 3}, "stride and stride_h/stride_w are both given"},
		{`global_pooling: true kernel_size: 2`, []int{1, 1, 3, 3}, "global_pooling is given with a kernel size"},
		{`global_pooling: true pad: 1`, []int{1, 1, 3, 3}, "global_pooling needs pad 0 and stride 1"},
		{`kernel_size: 2`, []int{1, 3, 3}, "pooling needs 4"},
	} {
		_, _, _, err := trySetup("Pooling", "pooling_param { "+c.body+" }", Env{}, 1, c.bottom)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.body, err, c.want)
		}
	}
	if _, _, _, err := trySetup("Pooling", "", Env{}, 1, []int{1, 1, 3, 3}); err == nil {
		t.Error("no pooling_param at all is accepted")
	}
}

// BenchmarkPooling runs the first two poolings of CIFAR-10 quick, in images/s.
func BenchmarkPooling(b *testing.B) {
	for _, c := range []struct {
		name string
		side int
	}{{"MAX", 32}, {"AVE", 16}} {
		l, bottom, top := run(b, "Pooling", "pooling_param { kernel_size: 3 stride: 2 pool: "+c.name+" }", rand.New(rand.NewPCG(1, 2)), 1, []int{50, 32, c.side, c.side})
		b.Run(c.name+"/forward", func(b *testing.B) {
			for b.Loop() {
				_ = l.Forward(bottom, top)
			}
			b.ReportMetric(float64(50*b.N)/b.Elapsed().Seconds(), "images/s")
		})
		b.Run(c.name+"/backward", func(b *testing.B) {
			for b.Loop() {
				_ = l.Backward(top, []bool{true}, bottom)
			}
			b.ReportMetric(float64(50*b.N)/b.Elapsed().Seconds(), "images/s")
		})
	}
}
