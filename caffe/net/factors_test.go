package net_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/caffe/net"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/kernels/factors"
)

// factored is a net with inner products of every kind, over three samples.
const factored = `
layer { name: "data" type: "DummyData" top: "data" top: "target" dummy_data_param {
  shape { dim: 3 dim: 4 dim: 5 } shape { dim: 3 dim: 2 } data_filler { type: "gaussian" } data_filler { type: "uniform" } } }
layer { name: "conv" type: "InnerProduct" bottom: "data" top: "a" inner_product_param { axis: 2 num_output: 6 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "a" top: "a" }
layer { name: "transposed" type: "InnerProduct" bottom: "a" top: "b" inner_product_param { num_output: 7 transpose: true bias_term: false weight_filler { type: "xavier" } } }
layer { name: "still" type: "InnerProduct" bottom: "b" top: "c" param { lr_mult: 1 } param { lr_mult: 0 } inner_product_param { num_output: 9 weight_filler { type: "xavier" } } }
layer { name: "drop" type: "Dropout" bottom: "c" top: "c" }
layer { name: "last" type: "InnerProduct" bottom: "c" top: "d" inner_product_param { axis: -1 num_output: 2 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "EuclideanLoss" bottom: "d" bottom: "target" top: "loss" }
`

func build(t *testing.T, text string) *net.Net {
	t.Helper()
	f, err := proto.ParseNet("net.prototxt", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	n, err := net.New(f, net.Options{Phase: proto.Phase_TRAIN, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	if _, _, err := n.Pack(nil); err != nil {
		t.Fatal(err)
	}
	return n
}

// Poseidon, section 3.2: two workers, each with two passes, whose factors
// stand for the gradients: rebuilt, they are those of a net that computes them, and
// until then the backward pass leaves the parameters' gradients alone.
func TestPoseidon_FactorsOfANet(t *testing.T) {
	const workers, passes = 2, 2
	plain, n := build(t, factored), build(t, factored)
	handed := map[int]*net.Factors{}
	stacks, stacked := map[int]*factors.Stack{}, map[int][]float32{}
	for i, l := range n.Layers() {
		if l.Type != "InnerProduct" {
			continue
		}
		f, err := n.Factors(i)
		if err != nil {
			t.Fatal(err)
		}
		shape, rows := f.Shape()
		s, err := factors.NewStack(shape, []int{rows, rows}, passes)
		if err != nil {
			t.Fatal(err)
		}
		f.Leave(true)
		handed[i], stacks[i], stacked[i] = f, s, make([]float32, s.Len())
	}
	if len(handed) != 4 {
		t.Fatalf("%d layers have factors", len(handed))
	}
	part, pass := 0, 0
	n.Hooks.AfterBackward = func(layer int) error {
		if f := handed[layer]; f != nil {
			f.Put(stacks[layer], stacked[layer], part, pass)
		}
		return nil
	}
	for part = range workers {
		for pass = range passes {
			if _, err := n.ForwardBackward(); err != nil {
				t.Fatal(err)
			}
			if _, err := plain.ForwardBackward(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, p := range n.Learnable() {
		if slices.ContainsFunc(p.Blob.Diff(), func(x float32) bool { return x != 0 }) {
			t.Errorf("%s has a gradient before it is rebuilt", p.Name)
		}
	}
	for i, f := range handed {
		if err := f.Rebuild(stacks[i], stacked[i]); err != nil {
			t.Fatal(err)
		}
	}
	for i, p := range n.Learnable() {
		want := plain.Learnable()[i].Blob.Diff()
		for k, x := range p.Blob.Diff() {
			if math.Abs(float64(x-want[k])) > 1e-5*max(1, math.Abs(float64(want[k]))) {
				t.Errorf("%s, element %d: %v, not %v", p.Name, k, x, want[k])
			}
		}
	}
	if zero := n.Learnable()[4]; zero.LRMult != 0 || slices.Max(zero.Blob.Diff()) != 0 {
		t.Errorf("%s does not learn, and has a gradient: %v", zero.Name, zero.Blob.Diff())
	}
	handed[1].Leave(false)
	n.ClearDiffs()
	if _, err := n.ForwardBackward(); err != nil {
		t.Fatal(err)
	}
	if slices.Max(n.Learnable()[0].Blob.Diff()) == 0 {
		t.Error("no gradient, and none left out")
	}
}

// Layers that cannot hand over factors say why.
func TestLayersWithoutFactors(t *testing.T) {
	n := build(t, `
layer { name: "data" type: "DummyData" top: "data" top: "target" dummy_data_param { shape { dim: 2 dim: 1 dim: 3 dim: 3 } shape { dim: 2 dim: 4 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 2 kernel_size: 2 } }
layer { name: "first" type: "InnerProduct" bottom: "conv" top: "first" inner_product_param { num_output: 4 } }
layer { name: "one" type: "InnerProduct" bottom: "first" top: "one" param { name: "w" } inner_product_param { num_output: 4 bias_term: false } }
layer { name: "two" type: "InnerProduct" bottom: "one" top: "two" param { name: "w" } inner_product_param { num_output: 4 bias_term: false } }
layer { name: "still" type: "InnerProduct" bottom: "two" top: "still" param { lr_mult: 0 } inner_product_param { num_output: 4 } }
layer { name: "loss" type: "EuclideanLoss" bottom: "still" bottom: "target" top: "loss" }
layer { name: "aside" type: "InnerProduct" bottom: "first" top: "aside" inner_product_param { num_output: 4 } }
`)
	want := map[string]string{
		"conv":  `layer "conv" (Convolution): has no sufficient factors: InnerProduct layers alone`,
		"first": "",
		"one":   `layer "one" (InnerProduct): has no sufficient factors: parameter "w" is shared with layer "two"`,
		"two":   `layer "two" (InnerProduct): has no sufficient factors: parameter "w" is shared with layer "one"`,
		"still": `its weights do not learn (lr_mult 0)`,
		"aside": `it has no backward pass`,
	}
	for i, l := range n.Layers() {
		words, asked := want[l.Name]
		if !asked {
			continue
		}
		_, err := n.Factors(i)
		if got := fmt.Sprint(err); words == "" && err != nil || words != "" && !strings.Contains(got, words) {
			t.Errorf("%s: %v, want %q", l.Name, err, words)
		}
	}
}
