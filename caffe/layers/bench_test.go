package layers

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/scaffe/scaffe/caffe/blob"
)

// BenchmarkLayers runs Forward and Backward of the layers that a net has many
// of on blobs of the size of AlexNet's first, 16×96×27×27, or its last, and on
// the first and last images within ResNet-50.
func BenchmarkLayers(b *testing.B) {
	image, class := []int{16, 96, 27, 27}, []int{16, 1000}
	large, small := []int{16, 64, 112, 112}, []int{16, 2048, 7, 7}
	for _, c := range []struct {
		name, typ, body string
		bottom          [][]int
		inPlace         bool
	}{
		{"ReLU", "ReLU", "", [][]int{image}, false},
		{"ReLU-inplace", "ReLU", "", [][]int{image}, true},
		{"ReLU-leaky", "ReLU", "relu_param { negative_slope: 0.1 }", [][]int{image}, true},
		{"Sigmoid", "Sigmoid", "", [][]int{image}, true},
		{"TanH", "TanH", "", [][]int{image}, true},
		{"Dropout", "Dropout", "", [][]int{image}, true},
		{"Eltwise-sum", "Eltwise", "", [][]int{image, image}, false},
		{"Eltwise-prod", "Eltwise", "eltwise_param { operation: PROD }", [][]int{image, image}, false},
		{"Eltwise-max", "Eltwise", "eltwise_param { operation: MAX }", [][]int{image, image}, false},
		{"BatchNorm", "BatchNorm", "", [][]int{image}, true},
		{"Scale", "Scale", "scale_param { bias_term: true }", [][]int{image}, true},
		{"Concat", "Concat", "", [][]int{image, image}, false},
		{"Softmax", "Softmax", "", [][]int{class}, false},
		{"SoftmaxWithLoss", "SoftmaxWithLoss", "", [][]int{class, {16}}, false},
		{"BatchNorm-large", "BatchNorm", "", [][]int{large}, true},
		{"BatchNorm-small", "BatchNorm", "", [][]int{small}, true},
		{"Scale-large", "Scale", "scale_param { bias_term: true }", [][]int{large}, true},
		{"Scale-small", "Scale", "scale_param { bias_term: true }", [][]int{small}, true},
		{"Eltwise-large", "Eltwise", "", [][]int{large, large}, false},
		{"Accuracy", "Accuracy", "", [][]int{class, {16}}, false},
	} {
		r := rand.New(rand.NewPCG(1, 2))
		var bottom []*blob.Blob
		for _, s := range c.bottom {
			x := blob.New(s...)
			normal(x.Data(), 0, 1, r)
			bottom = append(bottom, x)
		}
		top := newTops(1)
		if c.inPlace {
			top[0] = bottom[0]
		}
		l, err := tryLayer(c.typ, c.body, Env{Rand: r})
		if err == nil && l.(Blobs).NoBackward(1) {
			clear(bottom[1].Data()) // labels
		}
		if err == nil {
			err = l.Setup(bottom, top)
		}
		if err == nil {
			err = l.Reshape(bottom, top)
		}
		if err != nil {
			b.Fatal(err)
		}
		n := bottom[0].Count()
		b.Run(c.name+"/forward", func(b *testing.B) {
			for b.Loop() {
				if err := l.Forward(bottom, top); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/value")
		})
		propagate := takeGradient(l, bottom)
		if !slices.Contains(propagate, true) {
			continue
		}
		normal(top[0].Diff(), 0, 1, r)
		normal(bottom[0].Data(), 0, 1, r)
		if err := l.Forward(bottom, top); err != nil {
			b.Fatal(err)
		}
		b.Run(c.name+"/backward", func(b *testing.B) {
			for b.Loop() {
				if err := l.Backward(top, propagate, bottom); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/value")
		})
	}
}
