package net

import (
	"math"
	"testing"

	"github.com/scaffe/scaffe/caffe/proto"
)

// build makes a net from text.
func build(t testing.TB, text string, o Options) *Net {
	t.Helper()
	f, err := proto.ParseNet("net.prototxt", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	n, err := New(f, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// small has a convolution, pooling, activations in place, a Split, a
// parameter that two layers share, and two losses.
const small = `
input: "data" input_shape { dim: 2 dim: 2 dim: 6 dim: 6 }
input: "label" input_shape { dim: 2 }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 3 kernel_size: 3 pad: 1 weight_filler { type: "gaussian" std: 0.5 } bias_filler { type: "uniform" min: -0.3 max: 0.3 } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" relu_param { negative_slope: 0.1 } }
layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: "sig" type: "Sigmoid" bottom: "pool" top: "sig" }
layer { name: "ip1" type: "InnerProduct" bottom: "pool" top: "ip1" param { name: "w" }
  inner_product_param { num_output: 4 weight_filler { type: "gaussian" std: 0.2 } } }
layer { name: "ip2" type: "InnerProduct" bottom: "sig" top: "ip2" param { name: "w" }
  inner_product_param { num_output: 4 weight_filler { type: "gaussian" std: 0.2 } } }
layer { name: "sum" type: "Eltwise" bottom: "ip1" bottom: "ip2" top: "sum" }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "sum" bottom: "label" top: "loss" }
layer { name: "aux" type: "SoftmaxWithLoss" bottom: "ip1" bottom: "label" top: "aux" loss_weight: 0.3 }
`

// reference computes small's loss in float64, written from the layers'
// definitions, without any code of package layers.
type reference struct {
	data  []float64 // 2×2×6×6
	label []int
	// The learnable parameters in order: conv weights 3×2×3×3, conv biases 3,
	// shared weights 4×27, biases of ip1 4, biases of ip2 4.
	p [5][]float64
}

func (r *reference) loss() float64 {
	total := 0.0
	for n := range 2 {
		pool := r.pooled(n)
		sig := make([]float64, len(pool))
		for i, x := range pool {
			sig[i] = 1 / (1 + math.Exp(-x))
		}
		ip1, ip2 := r.inner(pool, r.p[3]), r.inner(sig, r.p[4])
		sum := make([]float64, 4)
		for i := range sum {
			sum[i] = ip1[i] + ip2[i]
		}
		total += crossEntropy(sum, r.label[n])/2 + 0.3*crossEntropy(ip1, r.label[n])/2
	}
	return total
}

// pooled is image n after convolution, leaky ReLU and max pooling: 3×3×3.
func (r *reference) pooled(n int) []float64 {
	var out []float64
	for c := range 3 {
		for y := range 3 {
			for x := range 3 {
				best := math.Inf(-1)
				for _, d := range [][2]int{{0, 0}, {0, 1}, {1, 0}, {1, 1}} {
					v := r.convolved(n, c, 2*y+d[0], 2*x+d[1])
					best = math.Max(best, math.Max(v, 0.1*v))
				}
				out = append(out, best)
			}
		}
	}
	return out
}

func (r *reference) convolved(n, c, y, x int) float64 {
	v := r.p[1][c]
	for ci := range 2 {
		for ky := range 3 {
			for kx := range 3 {
				iy, ix := y+ky-1, x+kx-1
				if iy >= 0 && iy < 6 && ix >= 0 && ix < 6 {
					v += r.p[0][((c*2+ci)*3+ky)*3+kx] * r.data[((n*2+ci)*6+iy)*6+ix]
				}
			}
		}
	}
	return v
}

func (r *reference) inner(x, bias []float64) []float64 {
	out := make([]float64, 4)
	for o := range out {
		out[o] = bias[o]
		for i, v := range x {
			out[o] += r.p[2][o*27+i] * v
		}
	}
	return out
}

func crossEntropy(x []float64, label int) float64 {
	sum := 0.0
	for _, v := range x {
		sum += math.Exp(v)
	}
	return math.Log(sum) - x[label]
}

// setInputs gives small its inputs and returns the reference with the same.
func setInputs(n *Net) *reference {
	r := &reference{label: []int{3, 1}}
	for i := range n.Blob("data").Data() {
		v := float32(math.Sin(float64(i)*1.7)) + float32(math.Cos(float64(i)*0.3))
		n.Blob("data").Data()[i] = v
		r.data = append(r.data, float64(v))
	}
	copy(n.Blob("label").Data(), []float32{3, 1})
	for i, p := range n.Learnable() {
		for _, v := range p.Blob.Data() {
			r.p[i] = append(r.p[i], float64(v))
		}
	}
	return r
}

// Forward agrees with an independent float64 computation, and Backward with
// its central differences, to 1e-4.
func TestAgainstFloat64Reference(t *testing.T) {
	n := build(t, small, Options{Seed: 7})
	if _, _, err := n.Pack(nil); err != nil {
		t.Fatal(err)
	}
	r := setInputs(n)
	n.ClearDiffs()
	loss, err := n.ForwardBackward()
	if err != nil {
		t.Fatal(err)
	}
	if want := r.loss(); math.Abs(float64(loss)-want) > 1e-4*want {
		t.Errorf("loss %v, the reference has %v", loss, want)
	}
	const h = 1e-5
	for i, p := range n.Learnable() {
		if len(r.p[i]) != p.Blob.Count() {
			t.Fatalf("parameter %s has %d elements", p.Name, p.Blob.Count())
		}
		for k, got := range p.Blob.Diff() {
			at := r.p[i][k]
			r.p[i][k] = at + h
			up := r.loss()
			r.p[i][k] = at - h
			want := (up - r.loss()) / (2 * h)
			r.p[i][k] = at
			if math.Abs(float64(got)-want) > 1e-4*math.Max(1, math.Abs(want)) {
				t.Errorf("gradient of %s[%d] is %v, the reference has %v", p.Name, k, got, want)
			}
		}
	}
}

// A net of other layers, held against its own central differences: what
// counts here is that the gradients of all paths add up.
func TestNumericalGradient(t *testing.T) {
	n := build(t, netWithPaths, Options{Seed: 3})
	for i := range n.Blob("data").Data() {
		n.Blob("data").Data()[i] = float32(math.Sin(float64(i)))
	}
	for i := range n.Blob("target").Data() {
		n.Blob("target").Data()[i] = float32(i) / 3
	}
	n.ClearDiffs()
	if _, err := n.ForwardBackward(); err != nil {
		t.Fatal(err)
	}
	for _, p := range n.Learnable() {
		for k, got := range p.Blob.Diff() {
			want := difference(t, n, &p.Blob.Data()[k])
			if math.Abs(float64(got)-want) > 5e-3*math.Max(1, math.Abs(want)) {
				t.Errorf("gradient of %s[%d] is %v, numerically %v", p.Name, k, got, want)
			}
		}
	}
}

// netWithPaths reaches its loss from the convolution on three paths.
const netWithPaths = `
input: "data" input_shape { dim: 2 dim: 4 dim: 5 dim: 5 }
input: "target" input_shape { dim: 2 dim: 3 }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 4 kernel_size: 3 group: 2 weight_filler { type: "gaussian" std: 0.4 } } }
layer { name: "tanh" type: "TanH" bottom: "conv" top: "conv" }
layer { name: "norm" type: "LRN" bottom: "conv" top: "norm" lrn_param { local_size: 3 alpha: 0.5 beta: 0.75 } }
layer { name: "slice" type: "Slice" bottom: "norm" top: "s1" top: "s2" }
layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param { pool: AVE kernel_size: 3 } }
layer { name: "flat" type: "Flatten" bottom: "pool" top: "flat" }
layer { name: "ip1" type: "InnerProduct" bottom: "s1" top: "ip1" inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "ip2" type: "InnerProduct" bottom: "s2" top: "ip2" inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "cat" type: "Concat" bottom: "ip1" bottom: "ip2" bottom: "flat" top: "cat" }
layer { name: "ip3" type: "InnerProduct" bottom: "cat" top: "ip3" inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "EuclideanLoss" bottom: "ip3" bottom: "target" top: "loss" }
`

// difference is the central difference of the loss at one parameter element.
func difference(t *testing.T, n *Net, x *float32) float64 {
	t.Helper()
	const h = 1e-2
	at := *x
	defer func() { *x = at }()
	*x = at + h
	up, err := n.Forward()
	if err != nil {
		t.Fatal(err)
	}
	*x = at - h
	down, err := n.Forward()
	if err != nil {
		t.Fatal(err)
	}
	return (float64(up) - float64(down)) / (2 * h)
}
