package gpucheck

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/encoding/prototext"
	pb "google.golang.org/protobuf/proto"

	"github.com/scaffe/scaffe/caffe/net"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/models"
)

// glyphs names the data that training is compared on.
const glyphs = "glyphs"

// smallNet learns the sums of what it is given, with dropout.
const smallNet = `name: "small"
layer { name: "data" type: "DummyData" top: "data" top: "target" dummy_data_param {
  shape { dim: %d dim: 3 dim: 16 dim: 16 } shape { dim: %[1]d dim: 4 } data_filler { type: "gaussian" } data_filler { type: "gaussian" } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 16 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: "drop" type: "Dropout" bottom: "pool" top: "pool" }
layer { name: "ip" type: "InnerProduct" bottom: "pool" top: "ip" inner_product_param { num_output: 4 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "target" top: "loss" }
`

// glyphsNet learns digits that are drawn, with dropout.
const glyphsNet = `name: "glyphs"
layer { name: "data" type: "Data" top: "data" top: "label" transform_param { scale: 0.00390625 } data_param { source: %q batch_size: %d backend: LMDB } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 16 kernel_size: 5 pad: 2 stride: 2 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: "drop" type: "Dropout" bottom: "pool" top: "pool" }
layer { name: "ip" type: "InnerProduct" bottom: "pool" top: "ip" inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
`

// quick names the net of that name for CIFAR-10 (Caffe's "quick").
const quick = "CIFAR-10 quick"

// quickNet has its layers, on made-up images.
const quickNet = `name: "quick"
layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {
  shape { dim: %d dim: 3 dim: 32 dim: 32 } shape { dim: %[1]d } data_filler { type: "constant" value: 1 } data_filler { type: "constant" value: 3 } } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1" convolution_param { num_output: 32 pad: 2 kernel_size: 5 weight_filler { type: "xavier" } } }
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1" pooling_param { pool: MAX kernel_size: 3 stride: 2 } }
layer { name: "relu1" type: "ReLU" bottom: "pool1" top: "pool1" }
layer { name: "conv2" type: "Convolution" bottom: "pool1" top: "conv2" convolution_param { num_output: 32 pad: 2 kernel_size: 5 weight_filler { type: "xavier" } } }
layer { name: "relu2" type: "ReLU" bottom: "conv2" top: "conv2" }
layer { name: "pool2" type: "Pooling" bottom: "conv2" top: "pool2" pooling_param { pool: AVE kernel_size: 3 stride: 2 } }
layer { name: "conv3" type: "Convolution" bottom: "pool2" top: "conv3" convolution_param { num_output: 64 pad: 2 kernel_size: 5 weight_filler { type: "xavier" } } }
layer { name: "relu3" type: "ReLU" bottom: "conv3" top: "conv3" }
layer { name: "pool3" type: "Pooling" bottom: "conv3" top: "pool3" pooling_param { pool: AVE kernel_size: 3 stride: 2 } }
layer { name: "ip1" type: "InnerProduct" bottom: "pool3" top: "ip1" inner_product_param { num_output: 64 weight_filler { type: "xavier" } } }
layer { name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2" inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }
`

// solver writes a solver for a net on made-up images, of the larger nets all alike, and returns its path: model is a built-in net, quick, glyphs, or "" for a small one.
func (c *Check) solver(name, model string, batch, iterations int) (string, error) {
	text := fmt.Sprintf(smallNet, batch)
	switch model {
	case "":
	case quick:
		text = fmt.Sprintf(quickNet, batch)
	case glyphs:
		text = fmt.Sprintf(glyphsNet, filepath.Join(c.Dir, "log", "glyphs", "train_lmdb"), batch)
	default:
		f, err := models.Net(model)
		if err != nil {
			return "", err
		}
		made := net.Synthetic(batch, 3, 227, 227)
		for _, l := range f.Net.GetLayer() {
			if err := made(l); err != nil {
				return "", err
			}
			if d := l.GetDummyDataParam(); d != nil { // filled once: the host would take longer for new numbers than the GPU for the rest
				d.DataFiller[0] = &proto.FillerParameter{Type: pb.String("constant"), Value: pb.Float32(1)}
			}
		}
		b, err := prototext.Marshal(f.Net)
		if err != nil {
			return "", err
		}
		text = string(b)
	}
	path := filepath.Join(c.Dir, "log", fmt.Sprintf("%s-%d-%d", name, batch, iterations))
	solver := fmt.Sprintf("net: %q\nbase_lr: 0.001 momentum: 0.9 weight_decay: 0.0005 lr_policy: \"fixed\" max_iter: %d random_seed: 1 snapshot_after_train: false\n", path+".net.prototxt", iterations)
	return path + ".prototxt", errors.Join(os.WriteFile(path+".net.prototxt", []byte(text), 0o666), os.WriteFile(path+".prototxt", []byte(solver), 0o666))
}
