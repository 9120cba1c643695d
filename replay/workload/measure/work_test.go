package measure

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scaffe/scaffe/caffe/net"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/replay/workload"
)

// The tables of work are what the nets themselves make.
func TestWorkOfNets(t *testing.T) {
	for _, b := range BuiltinNets() {
		t.Run(b.Name, func(t *testing.T) {
			f, err := b.File(os.Getenv("SCAFFE_CAFFE_NETS"))
			if err != nil {
				t.Fatal(err)
			}
			if f == nil {
				t.Skip("SCAFFE_CAFFE_NETS is not set: point it at a folder with the prototxt files that BVLC Caffe ships")
			}
			w, err := WorkOf(f)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("..", "nets", b.Name+".work")
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), w.String()); diff != "" {
				t.Errorf("%s is not what the net makes: run go generate ./replay/workload\n%s", path, diff)
			}
		})
	}
}

const smallNet = `
name: "small"
layer { name: "data" type: "Data" top: "data" top: "label" data_param { source: "none" batch_size: 2 backend: LMDB } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 4 kernel_size: 3 group: 1 } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "conv2" type: "Convolution" bottom: "conv" top: "conv2" convolution_param { num_output: 4 kernel_size: 1 group: 2 bias_term: false } }
layer { name: "ip" type: "InnerProduct" bottom: "conv2" top: "ip" param { lr_mult: 1 } param { lr_mult: 0 } inner_product_param { num_output: 5 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
`

// What a net's work is, counted by hand.
func TestWorkCounts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "net.prototxt")
	if err := os.WriteFile(path, []byte(smallNet), 0o644); err != nil {
		t.Fatal(err)
	}
	n, err := net.Load(path, net.Options{Phase: proto.Phase_TRAIN, Rewrite: net.Synthetic(0, 3, 8, 8)})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	w, err := Work(n, 2)
	if err != nil {
		t.Fatal(err)
	}
	want := []workload.LayerWork{
		{Name: "conv", Type: "Convolution", Params: []int{4 * 3 * 9, 4}, MACs: 4 * 36 * 27, Values: 3*64 + 4*36, Weights: true},
		{Name: "relu", Type: "ReLU", Values: 2 * 4 * 36, Data: true},
		{Name: "conv2", Type: "Convolution", Params: []int{8}, MACs: 4 * 36 * 2, Values: 2 * 4 * 36, Data: true, Weights: true},
		{Name: "ip", Type: "InnerProduct", Params: []int{5 * 144}, Rows: 5, Cols: 144, MACs: 5 * 144, Values: 149, Data: true, Weights: true},
		{Name: "loss", Type: "SoftmaxWithLoss", Values: 6, Data: true},
	}
	if diff := cmp.Diff(want, w.Layers); diff != "" {
		t.Error(diff)
	}
}
