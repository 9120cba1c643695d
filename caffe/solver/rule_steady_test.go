package solver

import (
	"context"
	"slices"
	"testing"

	"github.com/scaffe/scaffe/caffe/layers"
	"github.com/scaffe/scaffe/caffe/proto"
)

// everyLayer has one layer of every type but those that read files.
const everyLayer = `net_param {
  layer { name: "data" type: "DummyData" top: "data" top: "label" top: "target" dummy_data_param {
    shape { dim: 3 dim: 2 dim: 6 dim: 6 } shape { dim: 3 } shape { dim: 3 dim: 5 }
    data_filler { type: "gaussian" } data_filler { type: "constant" value: 2 } data_filler { type: "uniform" } } }
  layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
    convolution_param { num_output: 4 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } } }
  layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "conv" }
  layer { name: "scale" type: "Scale" bottom: "conv" top: "conv" scale_param { bias_term: true } }
  layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
  layer { name: "lrn" type: "LRN" bottom: "conv" top: "lrn" lrn_param { local_size: 3 } }
  layer { name: "pool" type: "Pooling" bottom: "lrn" top: "pool" pooling_param { kernel_size: 2 stride: 2 } }
  layer { name: "slice" type: "Slice" bottom: "pool" top: "s1" top: "s2" }
  layer { name: "sigmoid" type: "Sigmoid" bottom: "s1" top: "sigmoid" }
  layer { name: "tanh" type: "TanH" bottom: "s2" top: "tanh" }
  layer { name: "power" type: "Power" bottom: "tanh" top: "power" power_param { power: 2 scale: 0.5 shift: 1 } }
  layer { name: "sum" type: "Eltwise" bottom: "sigmoid" bottom: "power" top: "sum" }
  layer { name: "concat" type: "Concat" bottom: "sum" bottom: "tanh" top: "concat" }
  layer { name: "flatten" type: "Flatten" bottom: "concat" top: "flatten" }
  layer { name: "drop" type: "Dropout" bottom: "flatten" top: "flatten" }
  layer { name: "ip" type: "InnerProduct" bottom: "flatten" top: "ip" inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
  layer { name: "reshape" type: "Reshape" bottom: "ip" top: "reshape" reshape_param { shape { dim: 0 dim: -1 } } }
  layer { name: "softmax" type: "Softmax" bottom: "ip" top: "softmax" }
  layer { name: "silence" type: "Silence" bottom: "softmax" }
  layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" }
  layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
  layer { name: "loss2" type: "EuclideanLoss" bottom: "reshape" bottom: "target" top: "loss2" }
  layer { name: "loss3" type: "SigmoidCrossEntropyLoss" bottom: "reshape" bottom: "target" top: "loss3" }
}
`

// readers are the types whose batches come from elsewhere.
var readers = []string{"Data", "ImageData", "Input", "MemoryData"}

// An iteration allocates nothing once the first ones have made what they need.
func TestIterationAllocatesNothing(t *testing.T) {
	for _, rule := range []string{
		`type: "SGD" momentum: 0.9`, `type: "Nesterov" momentum: 0.9`, `type: "AdaGrad"`, `type: "RMSProp" rms_decay: 0.9`,
		`type: "AdaDelta" momentum: 0.9 delta: 1e-6`, `type: "Adam" momentum: 0.9`,
	} {
		text := everyLayer + `base_lr: 0.01 lr_policy: "fixed" weight_decay: 0.001 clip_gradients: 100 iter_size: 2 ` + rule
		f, err := proto.ParseSolver("solver.prototxt", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		s := start(t, f, Options{})
		var have []string
		for _, l := range s.Net().Layers() {
			have = append(have, l.Type)
		}
		for _, typ := range layers.Types() {
			if !slices.Contains(have, typ) && !slices.Contains(readers, typ) {
				t.Errorf("everyLayer lacks a layer of type %s", typ)
			}
		}
		step := func() {
			if err := s.Step(context.Background(), 1); err != nil {
				t.Fatal(err)
			}
		}
		step()
		step()
		if n := testing.AllocsPerRun(5, step); n != 0 {
			t.Errorf("%s: an iteration allocates %v times", rule, n)
		}
	}
}
