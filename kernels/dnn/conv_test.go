package dnn

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// shape completes a square shape.
func shape(n, groups, in, out, side, kernel, pad, stride, dilation int) Shape {
	return complete(Shape{
		N: n, Groups: groups, In: in, Out: out, H: side, W: side, KernelH: kernel, KernelW: kernel,
		PadH: pad, PadW: pad, StrideH: stride, StrideW: stride, DilationH: dilation, DilationW: dilation, Bias: true,
	})
}

// complete computes the output's extents.
func complete(s Shape) Shape {
	s.OutH = (s.H+2*s.PadH-s.DilationH*(s.KernelH-1)-1)/s.StrideH + 1
	s.OutW = (s.W+2*s.PadW-s.DilationW*(s.KernelW-1)-1)/s.StrideW + 1
	return s
}

// tensors are the arguments of all three passes.
type tensors struct{ x, w, b, y, dy, dx, dw, db []float32 }

func newTensors(s Shape, r *rand.Rand) *tensors {
	noise := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(r.NormFloat64())
		}
		return v
	}
	x, y, w := s.N*s.In*s.H*s.W, s.N*s.Out*s.OutH*s.OutW, s.Out*s.In/s.Groups*s.KernelH*s.KernelW
	t := &tensors{x: noise(x), w: noise(w), y: noise(y), dy: noise(y), dx: noise(x), dw: noise(w)}
	if s.Bias {
		t.b, t.db = noise(s.Out), noise(s.Out)
	}
	return t
}

func (t *tensors) clone() *tensors {
	c := slices.Clone[[]float32]
	return &tensors{c(t.x), c(t.w), c(t.b), c(t.y), c(t.dy), c(t.dx), c(t.dw), c(t.db)}
}

// run runs all passes.
func (t *tensors) run(c *Conv) error {
	return errors.Join(c.Forward(t.x, t.w, t.b, t.y), c.BackwardData(t.dy, t.w, t.dx), c.BackwardWeights(t.x, t.dy, t.dw, t.db))
}

// define is the definition, in float64: what run must make of t.
func (t *tensors) define(s Shape) (y, dx, dw, db []float64) {
	wide := func(v []float32) []float64 {
		w := make([]float64, len(v))
		for i := range v {
			w[i] = float64(v[i])
		}
		return w
	}
	y, dx, dw, db = make([]float64, len(t.y)), make([]float64, len(t.dx)), wide(t.dw), wide(t.db)
	in, out := s.In/s.Groups, s.Out/s.Groups
	for i := range y {
		ow, oh, o, n := i%s.OutW, i/s.OutW%s.OutH, i/s.OutW/s.OutH%s.Out, i/s.OutW/s.OutH/s.Out
		dy := float64(t.dy[i])
		if s.Bias {
			y[i] = float64(t.b[o])
			db[o] += dy
		}
		for c := range in {
			for k := range s.KernelH * s.KernelW {
				h := oh*s.StrideH - s.PadH + k/s.KernelW*s.DilationH
				w := ow*s.StrideW - s.PadW + k%s.KernelW*s.DilationW
				if h < 0 || h >= s.H || w < 0 || w >= s.W {
					continue
				}
				xi, wi := ((n*s.In+o/out*in+c)*s.H+h)*s.W+w, (o*in+c)*s.KernelH*s.KernelW+k
				y[i] += float64(t.x[xi]) * float64(t.w[wi])
				dx[xi] += dy * float64(t.w[wi])
				dw[wi] += dy * float64(t.x[xi])
			}
		}
	}
	return y, dx, dw, db
}

type failer interface {
	Fatalf(format string, args ...any)
}

// check holds a convolution of shape s to the definition, and reports whether
// there is one.
func check(t failer, s Shape, r *rand.Rand) bool {
	c, err := NewConv(s)
	if errors.Is(err, ErrUnsupported) {
		return false
	}
	if err != nil {
		t.Fatalf("%+v: %v", s, err)
	}
	a := newTensors(s, r)
	y, dx, dw, db := a.define(s)
	if err := a.run(c); err != nil {
		t.Fatalf("%+v: %v", s, err)
	}
	for _, v := range []struct {
		what string
		got  []float32
		want []float64
	}{{"y", a.y, y}, {"dx", a.dx, dx}, {"dw", a.dw, dw}, {"db", a.db, db}} {
		largest := 1.0
		for _, w := range v.want {
			largest = max(largest, math.Abs(w))
		}
		for i, w := range v.want {
			if d := math.Abs(float64(v.got[i]) - w); !(d <= 1e-5*largest) {
				t.Fatalf("%+v %v: %s[%d] is %v, want %v", s, c.Implementations(), v.what, i, v.got[i], w)
			}
		}
	}
	return true
}

// shapes are of every kind that nets have, and odd ones.
var shapes = map[string]Shape{
	"first layer":         shape(2, 1, 3, 32, 32, 5, 2, 1, 1),
	"AlexNet conv1":       shape(1, 1, 3, 96, 67, 11, 0, 4, 1),
	"groups":              shape(2, 2, 96, 64, 13, 5, 2, 1, 1),
	"3x3":                 shape(2, 1, 32, 48, 13, 3, 1, 1, 1),
	"batch 1":             shape(1, 1, 32, 64, 8, 5, 2, 1, 1),
	"1x1":                 shape(3, 1, 64, 32, 7, 1, 0, 1, 1),
	"1x1 stride":          shape(2, 1, 64, 64, 14, 1, 0, 2, 1),
	"stride":              shape(2, 1, 16, 32, 15, 3, 1, 2, 1),
	"dilation":            shape(2, 1, 16, 16, 15, 3, 2, 1, 2),
	"odd channels":        shape(2, 1, 13, 21, 9, 3, 1, 1, 1),
	"odd group channels":  shape(2, 3, 15, 21, 9, 3, 1, 1, 1),
	"depthwise":           shape(2, 16, 16, 16, 9, 3, 1, 1, 1),
	"one of all":          shape(1, 1, 1, 1, 1, 1, 0, 1, 1),
	"remainder":           shape(2, 1, 16, 16, 10, 3, 0, 2, 1),
	"pad beyond kernel":   shape(2, 1, 16, 16, 5, 3, 4, 1, 1),
	"whole plane":         shape(9, 1, 32, 20, 6, 6, 0, 1, 1),
	"stride above kernel": shape(2, 1, 16, 16, 9, 2, 0, 3, 1),
}

func TestConvIsTheDefinition(t *testing.T) {
	for name, s := range shapes {
		t.Run(name, func(t *testing.T) {
			for _, bias := range []bool{true, false} {
				s.Bias = bias
				if !check(t, s, rand.New(rand.NewPCG(1, 2))) {
					t.Logf("no fast code: %v", ErrUnsupported)
				}
			}
		})
	}
}

func TestConvIsTheDefinitionForAnyShape(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := func(name string, lo, hi int) int { return rapid.IntRange(lo, hi).Draw(rt, name) }
		g := n("groups", 1, 3)
		s := Shape{
			N: n("n", 1, 3), Groups: g, In: g * n("in", 1, 18), Out: g * n("out", 1, 18),
			H: n("h", 1, 12), W: n("w", 1, 12), KernelH: n("kh", 1, 4), KernelW: n("kw", 1, 4),
			PadH: n("ph", 0, 3), PadW: n("pw", 0, 3), StrideH: n("sh", 1, 3), StrideW: n("sw", 1, 3),
			DilationH: n("dh", 1, 2), DilationW: n("dw", 1, 2), Bias: rapid.Bool().Draw(rt, "bias"),
		}
		if s.DilationH*(s.KernelH-1) >= s.H+2*s.PadH || s.DilationW*(s.KernelW-1) >= s.W+2*s.PadW {
			rt.Skip("the kernel exceeds the input")
		}
		check(rt, complete(s), rand.New(rand.NewPCG(uint64(s.H), uint64(s.W))))
	})
}

// TestConvServesTheNets: what the usual nets consist of never falls back,
// provided that the processor has AVX2.
func TestConvServesTheNets(t *testing.T) {
	if !Available {
		t.Skip("built without the tag onednn")
	}
	for _, name := range []string{"first layer", "AlexNet conv1", "groups", "3x3", "1x1", "1x1 stride", "stride"} {
		c, err := NewConv(shapes[name])
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		t.Logf("%s: %v", name, c.Implementations())
	}
}

func TestConvUnsupported(t *testing.T) {
	s := shapes["3x3"]
	if s.N = 0; Available {
		if _, err := NewConv(s); !errors.Is(err, ErrUnsupported) {
			t.Errorf("an empty batch: %v, want ErrUnsupported", err)
		}
		return
	}
	if _, err := NewConv(shapes["3x3"]); !errors.Is(err, ErrUnsupported) {
		t.Errorf("without oneDNN: %v, want ErrUnsupported", err)
	}
	if Name() != "not available" || Threads() != 1 {
		t.Errorf("without oneDNN: %q, %d threads", Name(), Threads())
	}
}

func mustConv(t testing.TB, s Shape) *Conv {
	if !Available {
		t.Skip("built without the tag onednn")
	}
	c, err := NewConv(s)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestConvRefusesWrongLengths(t *testing.T) {
	s := shapes["3x3"]
	c, a := mustConv(t, s), newTensors(s, rand.New(rand.NewPCG(1, 2)))
	if err := c.Forward(a.x[1:], a.w, a.b, a.y); err == nil || !strings.Contains(err.Error(), "elements, want") {
		t.Errorf("a short input: %v", err)
	}
	if err := c.Forward(a.x, a.w, nil, a.y); err == nil {
		t.Error("no error for a missing bias")
	}
}

func TestConvAllocatesNothing(t *testing.T) {
	s := shapes["groups"]
	c, a := mustConv(t, s), newTensors(s, rand.New(rand.NewPCG(1, 2)))
	if got := testing.AllocsPerRun(10, func() {
		if err := a.run(c); err != nil {
			t.Fatal(err)
		}
	}); got != 0 {
		t.Errorf("%v allocations in all three passes, want 0", got)
	}
}

// TestConvRepeats: the same bits in every run, of another Conv of the shape
// too, at other addresses, and while other goroutines compute.
func TestConvRepeats(t *testing.T) {
	for name, s := range shapes {
		c, err := NewConv(s)
		if errors.Is(err, ErrUnsupported) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		start := newTensors(s, rand.New(rand.NewPCG(1, 2)))
		want := start.clone()
		if err := want.run(c); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				other, err := NewConv(s)
				if err != nil {
					t.Error(err)
					return
				}
				got := start.clone()
				got.x = append(make([]float32, i), got.x...)[i:]
				if err := got.run(other); err != nil {
					t.Error(err)
				}
				for what, v := range map[string][2][]float32{"y": {got.y, want.y}, "dx": {got.dx, want.dx}, "dw": {got.dw, want.dw}, "db": {got.db, want.db}} {
					if !slices.Equal(v[0], v[1]) {
						t.Errorf("%s: %s has other bits", name, what)
					}
				}
			})
		}
		wg.Wait()
	}
}

// TestConvTreatsImagesAlike: where in the batch an image lies does not show in
// its bits.
func TestConvTreatsImagesAlike(t *testing.T) {
	for name, s := range shapes {
		s.N = 5
		c, err := NewConv(s)
		if errors.Is(err, ErrUnsupported) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		a := newTensors(s, rand.New(rand.NewPCG(1, 2)))
		image := func(v []float32, n int) []float32 { return v[n*len(v)/s.N : (n+1)*len(v)/s.N] }
		for n := 1; n < s.N; n++ {
			copy(image(a.x, n), image(a.x, 0))
			copy(image(a.dy, n), image(a.dy, 0))
		}
		if err := a.run(c); err != nil {
			t.Fatal(err)
		}
		for n := 1; n < s.N; n++ {
			if !slices.Equal(image(a.y, n), image(a.y, 0)) || !slices.Equal(image(a.dx, n), image(a.dx, 0)) {
				t.Errorf("%s %v: image %d has other bits than image 0", name, c.Implementations(), n)
			}
		}
	}
}

func TestName(t *testing.T) {
	if n := Name(); Available != strings.HasPrefix(n, "oneDNN 2.") {
		t.Errorf("Name() = %q", n)
	}
}

func TestThreads(t *testing.T) {
	if !Available {
		t.Skip("built without the tag onednn")
	}
	before := Threads()
	defer SetThreads(before)
	if SetThreads(2); Threads() != 2 {
		t.Errorf("Threads() = %d after SetThreads(2)", Threads())
	}
	check(t, shapes["3x3"], rand.New(rand.NewPCG(1, 2)))
	if SetThreads(0); Threads() != 1 {
		t.Errorf("Threads() = %d after SetThreads(0)", Threads())
	}
}

// BenchmarkConv reports GFLOPS of each pass for the convolutions of CIFAR-10
// quick and AlexNet.
func BenchmarkConv(b *testing.B) {
	for _, s := range []Shape{
		shape(100, 1, 3, 32, 32, 5, 2, 1, 1), shape(100, 1, 32, 32, 16, 5, 2, 1, 1), shape(100, 1, 32, 64, 8, 5, 2, 1, 1),
		shape(16, 1, 3, 96, 227, 11, 0, 4, 1), shape(16, 2, 96, 256, 27, 5, 2, 1, 1), shape(16, 1, 256, 384, 13, 3, 1, 1, 1),
	} {
		c, a := mustConv(b, s), newTensors(s, rand.New(rand.NewPCG(1, 2)))
		flops := 2 * float64(len(a.y)) * float64(len(a.w)) / float64(s.Out)
		for _, pass := range []struct {
			name string
			run  func() error
		}{
			{"forward", func() error { return c.Forward(a.x, a.w, a.b, a.y) }},
			{"data", func() error { return c.BackwardData(a.dy, a.w, a.dx) }},
			{"weights", func() error { return c.BackwardWeights(a.x, a.dy, a.dw, a.db) }},
		} {
			b.Run(fmt.Sprintf("%dx%dx%d-%d/%s", s.N, s.In, s.H, s.KernelH, pass.name), func(b *testing.B) {
				for b.Loop() {
					if err := pass.run(); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(flops*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOPS")
			})
		}
	}
}
