package net

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/scaffe/scaffe/caffe/proto"
)

// conv and fc count the parameters of a layer: its weights and biases.
func conv(in, out, kernel int) int { return out*in*kernel*kernel + out }
func fc(in, out int) int           { return in*out + out }

// inception counts one inception module of GoogLeNet (Szegedy et al. 2014,
// table 1): 1×1, 3×3 with its reduction, 5×5 with its reduction, and the
// projection behind the pooling.
func inception(in, n1, r3, n3, r5, n5, proj int) int {
	return conv(in, n1, 1) + conv(in, r3, 1) + conv(r3, n3, 3) + conv(in, r5, 1) + conv(r5, n5, 5) + conv(in, proj, 1)
}

// auxiliary counts one of its two auxiliary heads: 1×1 convolution to 128
// channels of 4×4, and two fully connected layers.
func auxiliary(in int) int { return conv(in, 128, 1) + fc(128*4*4, 1024) + fc(1024, 1000) }

// alexnet counts AlexNet and CaffeNet, whose second, fourth and fifth
// convolutions have two groups.
func alexnet() int {
	return conv(3, 96, 11) + conv(48, 256, 5) + conv(256, 384, 3) + conv(192, 384, 3) + conv(192, 256, 3) +
		fc(256*6*6, 4096) + fc(4096, 4096) + fc(4096, 1000)
}

func googlenet() int {
	return conv(3, 64, 7) + conv(64, 64, 1) + conv(64, 192, 3) +
		inception(192, 64, 96, 128, 16, 32, 32) + // 3a
		inception(256, 128, 128, 192, 32, 96, 64) + // 3b
		inception(480, 192, 96, 208, 16, 48, 64) + // 4a
		inception(512, 160, 112, 224, 24, 64, 64) + // 4b
		inception(512, 128, 128, 256, 24, 64, 64) + // 4c
		inception(512, 112, 144, 288, 32, 64, 64) + // 4d
		inception(528, 256, 160, 320, 32, 128, 128) + // 4e
		inception(832, 256, 160, 320, 32, 128, 128) + // 5a
		inception(832, 384, 192, 384, 48, 128, 128) + // 5b
		fc(1024, 1000) + auxiliary(512) + auxiliary(528)
}

// The nets that Caffe ships load unmodified, have the shapes and parameter
// counts that their papers give, and run forward and backward.
func TestStockNets(t *testing.T) {
	dir := os.Getenv("SCAFFE_CAFFE_NETS")
	if dir == "" {
		t.Skip("SCAFFE_CAFFE_NETS is not set: point it at a folder with the prototxt files that BVLC Caffe ships")
	}
	for _, c := range []struct {
		file     string
		channels int
		size     int
		batch    int
		params   int
		total    int // the same as a number, where it is known from elsewhere
		shapes   map[string][]int
	}{
		{
			"lenet_train_test.prototxt", 1, 28, 4, conv(1, 20, 5) + conv(20, 50, 5) + fc(800, 500) + fc(500, 10), 431080,
			map[string][]int{"conv1": {4, 20, 24, 24}, "pool2": {4, 50, 4, 4}, "ip2": {4, 10}, "loss": {}},
		},
		{
			"cifar10_quick_train_test.prototxt", 3, 32, 4, 0, 145578,
			map[string][]int{"pool1": {4, 32, 16, 16}, "pool2": {4, 32, 8, 8}, "pool3": {4, 64, 4, 4}, "ip1": {4, 64}, "ip2": {4, 10}},
		},
		{
			"cifar10_full_train_test.prototxt", 3, 32, 4,
			conv(3, 32, 5) + conv(32, 32, 5) + conv(32, 64, 5) + fc(64*4*4, 10), 89578,
			map[string][]int{"norm1": {4, 32, 16, 16}, "norm2": {4, 32, 8, 8}, "pool3": {4, 64, 4, 4}},
		},
		{
			"bvlc_alexnet_train_val.prototxt", 3, 256, 2, alexnet(), 60965224,
			map[string][]int{"data": {2, 3, 227, 227}, "conv1": {2, 96, 55, 55}, "pool1": {2, 96, 27, 27}, "pool2": {2, 256, 13, 13}, "pool5": {2, 256, 6, 6}, "fc8": {2, 1000}},
		},
		{
			"bvlc_reference_caffenet_train_val.prototxt", 3, 256, 2, alexnet(), 60965224,
			map[string][]int{"conv1": {2, 96, 55, 55}, "norm1": {2, 96, 27, 27}, "pool5": {2, 256, 6, 6}, "fc8": {2, 1000}},
		},
		{
			"bvlc_googlenet_train_val.prototxt", 3, 224, 2, googlenet(), 13378280,
			map[string][]int{
				"conv1/7x7_s2": {2, 64, 112, 112}, "inception_3b/output": {2, 480, 28, 28}, "inception_4e/output": {2, 832, 14, 14},
				"loss1/ave_pool": {2, 512, 4, 4}, "pool5/7x7_s1": {2, 1024, 1, 1}, "loss3/classifier": {2, 1000},
			},
		},
	} {
		t.Run(c.file, func(t *testing.T) {
			n, err := Load(filepath.Join(dir, c.file), Options{Phase: proto.Phase_TRAIN, Rewrite: Synthetic(c.batch, c.channels, c.size, c.size)})
			if err != nil {
				t.Fatal(err)
			}
			defer n.Close()
			if got := n.ParamCount(); got != c.total || c.params != 0 && got != c.params {
				t.Errorf("%d parameters, by hand %d, published %d", got, c.params, c.total)
			}
			for name, shape := range c.shapes {
				if b := n.Blob(name); b == nil || !slices.Equal(b.Shape(), shape) {
					t.Errorf("blob %q is %v, want shape %v", name, b, shape)
				}
			}
			if _, _, err := n.Pack(nil); err != nil {
				t.Fatal(err)
			}
			loss, err := n.ForwardBackward()
			if err != nil {
				t.Fatal(err)
			}
			if !(loss > 0.5 && loss < 50) {
				t.Errorf("loss %v", loss)
			}
			for _, p := range n.Learnable() {
				if !slices.ContainsFunc(p.Blob.Diff(), func(x float32) bool { return x != 0 }) {
					t.Errorf("parameter %s has no gradient", p.Name)
				}
			}
			test, err := Load(filepath.Join(dir, c.file), Options{Phase: proto.Phase_TEST, Rewrite: Synthetic(1, c.channels, c.size, c.size)})
			if err != nil {
				t.Fatal(err)
			}
			defer test.Close()
			if err := test.ShareWith(n); err != nil {
				t.Fatal(err)
			}
			if _, err := test.Forward(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
