package layers

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/proto"
)

// This file holds the gradient checker, the registration of gradient cases,
// and the test that no registered layer goes unchecked. A file that defines a
// layer adds its cases from an init of its own test file:
//
//	func init() {
//		addGradient("Pooling", gradientCase{
//			name: "max", layer: `pooling_param { kernel_size: 2 }`, bottom: [][]int{{2, 3, 4, 4}},
//		})
//	}

// gradientCase is one configuration of a layer whose gradient is checked, and
// which is then run again to see that it allocates nothing.
type gradientCase struct {
	name    string
	layer   string // the body of the layer message, without name and type
	bottom  [][]int
	tops    int // number of tops, 1 where 0; -1 for none
	phase   proto.Phase
	inPlace bool
	// fill writes the bottoms' values; nil is fillNormal. Layers that take a
	// maximum use fillDistinct.
	fill func(bottom []*blob.Blob, r *rand.Rand)
	// params overwrites the parameters after Setup; nil keeps the fillers'.
	params func(params []*blob.Blob, r *rand.Rand)
	opts   gradientOpts
}

// gradientOpts says how a gradient is checked. The zero value checks every
// element of every parameter and of every bottom that takes a gradient.
type gradientOpts struct {
	step      float64 // of the differences, 1e-2 where 0
	tolerance float64 // relative to the larger of the gradients and 1, 2e-3 where 0
	// Elements of a bottom with | |x| - kink | < kinkRange are left out: the
	// function is not smooth there.
	kink, kinkRange float64
	bottoms         []int  // bottoms to check; nil: all that take a gradient
	noParams        bool   // leave out the parameters (statistics take no gradient)
	gradTops        int    // number of tops that carry a gradient, all where 0
	reseed          func() // called before every Forward: makes randomness repeat
}

var (
	gradientCases = map[string][]gradientCase{}
	// noGradient says why a layer type has no gradient to check.
	noGradient = map[string]string{
		"Data": noBottom, "DummyData": noBottom, "ImageData": noBottom, "Input": noBottom, "MemoryData": noBottom,
	}
)

const noBottom = "it has no bottom"

func addGradient(typ string, cases ...gradientCase) {
	gradientCases[typ] = append(gradientCases[typ], cases...)
}

func TestGradient(t *testing.T) {
	for _, typ := range Types() {
		if reason := noGradient[typ]; reason != "" {
			if len(gradientCases[typ]) > 0 {
				t.Errorf("%s is listed as having no gradient (%s) but has gradient cases", typ, reason)
			}
			continue
		}
		if len(gradientCases[typ]) == 0 {
			t.Errorf("layer type %s has no gradient case: add one with addGradient, or a reason to noGradient", typ)
		}
		for _, c := range gradientCases[typ] {
			t.Run(typ+"/"+c.name, func(t *testing.T) {
				l, bottom, top, reseed := c.make(t, typ)
				opts := c.opts
				opts.reseed = reseed
				checkGradient(t, l, bottom, top, opts)
			})
		}
	}
	for typ := range gradientCases {
		if !slices.Contains(Types(), typ) {
			t.Errorf("gradient cases of %q, which is no layer type", typ)
		}
	}
}

// TestSteadyStateAllocatesNothing runs every gradient case again.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	for _, typ := range Types() {
		for _, c := range gradientCases[typ] {
			t.Run(typ+"/"+c.name, func(t *testing.T) {
				l, bottom, top, _ := c.make(t, typ)
				allocates(t, l, bottom, top)
			})
		}
	}
}

// allocates fails the test where Forward and Backward allocate.
func allocates(t *testing.T, l Layer, bottom, top []*blob.Blob) {
	t.Helper()
	propagate := takeGradient(l, bottom)
	for _, b := range top {
		b.Diff()
	}
	run := func() {
		if err := errors.Join(l.Forward(bottom, top), l.Backward(top, propagate, bottom)); err != nil {
			t.Fatal(err)
		}
	}
	run()
	if n := testing.AllocsPerRun(5, run); n != 0 {
		t.Errorf("Forward and Backward allocate %v times", n)
	}
}

// make makes the layer, sets it up, and returns its bottoms and tops.
func (c *gradientCase) make(t *testing.T, typ string) (l Layer, bottom, top []*blob.Blob, reseed func()) {
	t.Helper()
	source := rand.NewPCG(1, 2)
	r := rand.New(source)
	for _, s := range c.bottom {
		bottom = append(bottom, blob.New(s...))
	}
	if c.fill != nil {
		c.fill(bottom, r)
	} else {
		for _, b := range bottom {
			fillNormal(b, r)
		}
	}
	top = newTops(c.tops)
	if c.inPlace {
		top[0] = bottom[0]
	}
	l = newLayer(t, typ, c.layer, Env{Phase: c.phase, Rand: r})
	checkBounds(t, l, bottom, top)
	setup(t, l, bottom, top)
	if c.params != nil {
		c.params(l.Params(), r)
	}
	return l, bottom, top, func() { source.Seed(3, 4) }
}

func newTops(n int) []*blob.Blob {
	if n == 0 {
		n = 1
	}
	var top []*blob.Blob
	for range n {
		top = append(top, blob.New())
	}
	return top
}

// newLayer makes the layer of type typ and name "it" with the given body.
func newLayer(t *testing.T, typ, body string, env Env) Layer {
	t.Helper()
	l, err := tryLayer(typ, body, env)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func tryLayer(typ, body string, env Env) (Layer, error) {
	p := &proto.LayerParameter{}
	if err := prototext.Unmarshal(fmt.Appendf(nil, "name: 'it' type: %q %s", typ, body), p); err != nil {
		return nil, err
	}
	if env.Rand == nil {
		env.Rand = rand.New(rand.NewPCG(1, 2))
	}
	return New(p, env)
}

// trySetup makes a layer, sets it up with bottoms of the given shapes and runs
// Reshape; it returns the first error.
func trySetup(typ, body string, env Env, tops int, shapes ...[]int) (l Layer, bottom, top []*blob.Blob, err error) {
	for _, s := range shapes {
		bottom = append(bottom, blob.New(s...))
	}
	top = newTops(tops)
	if l, err = tryLayer(typ, body, env); err != nil {
		return
	}
	if err = l.Setup(bottom, top); err == nil {
		err = l.Reshape(bottom, top)
	}
	return
}

func setup(t *testing.T, l Layer, bottom, top []*blob.Blob) {
	t.Helper()
	if err := l.Setup(bottom, top); err != nil {
		t.Fatal(err)
	}
	if err := l.Reshape(bottom, top); err != nil {
		t.Fatal(err)
	}
}

func checkBounds(t *testing.T, l Layer, bottom, top []*blob.Blob) {
	t.Helper()
	b, ok := l.(Blobs)
	if !ok {
		t.Fatalf("%T does not implement Blobs", l)
	}
	within := func(n int, b Bounds) bool { return n >= b.Min && (b.Max < 0 || n <= b.Max) }
	if !within(len(bottom), b.Bottoms()) || !within(len(top), b.Tops()) {
		t.Fatalf("%d bottoms, %d tops are not within %v, %v", len(bottom), len(top), b.Bottoms(), b.Tops())
	}
	if len(top) > 0 && top[0] == bottom[0] && !b.InPlace() {
		t.Fatal("the layer does not say that it may be in place")
	}
}

// fillNormal writes normal values, none within 0.02 of 0.
func fillNormal(b *blob.Blob, r *rand.Rand) {
	x := b.Data()
	for i := range x {
		x[i] = float32(math.Round(r.NormFloat64()*16)/16) + 0.025 + 0.01*float32(i)/float32(len(x))
	}
}

// fillDistinct writes values around 0 that lie 0.05 from each other, over all
// bottoms, in random order.
func fillDistinct(bottom []*blob.Blob, r *rand.Rand) {
	n := 0
	for _, b := range bottom {
		n += b.Count()
	}
	order := r.Perm(n)
	for _, b := range bottom {
		x := b.Data()
		for i := range x {
			x[i] = 0.05*float32(order[i]-n/2) + 0.025
		}
		order = order[len(x):]
	}
}

// fillRange returns a fill that draws every bottom from U(lo, hi).
func fillRange(lo, hi float64) func([]*blob.Blob, *rand.Rand) {
	return func(bottom []*blob.Blob, r *rand.Rand) {
		for _, b := range bottom {
			uniform(b.Data(), lo, hi, r)
		}
	}
}

// takeGradient says which bottoms take a gradient.
func takeGradient(l Layer, bottom []*blob.Blob) []bool {
	p := make([]bool, len(bottom))
	for i := range p {
		p[i] = !l.(Blobs).NoBackward(i)
	}
	return p
}

// checkGradient fails the test where the layer's Backward does not agree with
// two-sided differences of its Forward. The layer has been set up.
func checkGradient(t *testing.T, l Layer, bottom, top []*blob.Blob, opts gradientOpts) {
	t.Helper()
	if err := gradientError(l, bottom, top, opts); err != nil {
		t.Error(err)
	}
}

// gradientError compares Backward with two-sided differences of the objective
// Σ w·top, where w are random weights, given to Backward as the tops' diffs.
// It also checks that Backward adds to the parameters' diffs, overwrites the
// bottoms' and leaves alone those of bottoms it was not asked for.
func gradientError(l Layer, bottom, top []*blob.Blob, opts gradientOpts) error {
	c := newChecker(l, bottom, top, opts)
	if err := c.backward(); err != nil {
		return err
	}
	var errs []error
	checked := 0
	for i, b := range bottom {
		if !c.propagate[i] {
			if slices.ContainsFunc(b.Diff(), func(x float32) bool { return x != garbage }) {
				errs = append(errs, fmt.Errorf("Backward wrote the diff of bottom %d, which it was not asked for", i))
			}
			continue
		}
		n, err := c.check(fmt.Sprintf("bottom %d", i), b, 0)
		checked += n
		errs = append(errs, err)
	}
	for i, b := range l.Params() {
		if !opts.noParams {
			n, err := c.check(fmt.Sprintf("parameter %d", i), b, garbage)
			checked += n
			errs = append(errs, err)
		}
	}
	if checked == 0 {
		errs = append(errs, errors.New("no element was checked"))
	}
	return errors.Join(errs...)
}

// garbage is what the diffs hold before Backward.
const garbage = 64

type checker struct {
	gradientOpts
	layer         Layer
	bottom, top   []*blob.Blob
	propagate     []bool
	weights       [][]float32 // of each top
	saved         map[*blob.Blob][]float32
	bottomOrParam []*blob.Blob
}

func newChecker(l Layer, bottom, top []*blob.Blob, opts gradientOpts) *checker {
	if opts.step == 0 {
		opts.step = 1e-2
	}
	if opts.tolerance == 0 {
		opts.tolerance = 2e-3
	}
	c := &checker{gradientOpts: opts, layer: l, bottom: bottom, top: top}
	c.propagate = takeGradient(l, bottom)
	if opts.bottoms != nil {
		for i := range c.propagate {
			c.propagate[i] = slices.Contains(opts.bottoms, i)
		}
	}
	c.saved = map[*blob.Blob][]float32{}
	c.bottomOrParam = append(slices.Clone(bottom), l.Params()...)
	for _, b := range c.bottomOrParam {
		c.saved[b] = slices.Clone(b.Data())
	}
	r := rand.New(rand.NewPCG(5, 6))
	for i, b := range top {
		w := make([]float32, b.Count())
		if opts.gradTops == 0 || i < opts.gradTops {
			for j := range w {
				w[j] = float32(0.5 + r.Float64())
				if r.IntN(2) == 0 {
					w[j] = -w[j]
				}
			}
		}
		c.weights = append(c.weights, w)
	}
	return c
}

// forward runs Forward on the saved values, element i of b (where b is not
// nil) moved by d, and returns copies of the tops.
func (c *checker) forward(b *blob.Blob, i int, d float64) ([][]float32, float64, error) {
	for _, s := range c.bottomOrParam {
		copy(s.Data(), c.saved[s])
	}
	moved := 0.0
	if b != nil {
		x := b.Data()
		x[i] += float32(d)
		moved = float64(x[i])
	}
	if c.reseed != nil {
		c.reseed()
	}
	if err := c.layer.Forward(c.bottom, c.top); err != nil {
		return nil, 0, err
	}
	var tops [][]float32
	for _, t := range c.top {
		tops = append(tops, slices.Clone(t.Data()))
	}
	return tops, moved, nil
}

// backward leaves the computed gradients in the diffs.
func (c *checker) backward() error {
	if _, _, err := c.forward(nil, 0, 0); err != nil {
		return err
	}
	for _, b := range c.bottomOrParam {
		d := b.Diff()
		for i := range d {
			d[i] = garbage
		}
	}
	for i, t := range c.top {
		copy(t.Diff(), c.weights[i])
	}
	return c.layer.Backward(c.top, c.propagate, c.bottom)
}

// check compares every element of b's diff, less what it held before, with
// differences, and returns how many it compared and what did not agree.
func (c *checker) check(what string, b *blob.Blob, before float32) (int, error) {
	n, wrong := 0, 0
	var first error
	got := slices.Clone(b.Diff())
	for i, x := range c.saved[b] {
		if math.Abs(math.Abs(float64(x))-c.kink) < c.kinkRange {
			continue
		}
		want, err := c.difference(b, i)
		if err != nil {
			return n, err
		}
		n++
		g := float64(got[i] - before)
		if math.Abs(g-want) <= c.tolerance*max(math.Abs(g), math.Abs(want), 1) {
			continue
		}
		if wrong++; wrong == 1 {
			first = fmt.Errorf("%s, element %d of %d (value %g): Backward says %g, differences say %g", what, i, len(got), x, g, want)
		}
	}
	if wrong > 0 {
		return n, fmt.Errorf("%d of %d gradients are wrong; first: %w", wrong, n, first)
	}
	return n, nil
}

// difference is the two-sided difference of the objective.
func (c *checker) difference(b *blob.Blob, i int) (float64, error) {
	hi, xhi, err := c.forward(b, i, c.step)
	if err != nil {
		return 0, err
	}
	lo, xlo, err := c.forward(b, i, -c.step)
	if err != nil {
		return 0, err
	}
	s := 0.0
	for k, w := range c.weights {
		for j := range w {
			s += float64(w[j]) * (float64(hi[k][j]) - float64(lo[k][j]))
		}
	}
	return s / (xhi - xlo), nil
}
