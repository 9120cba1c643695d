package measure

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	pb "google.golang.org/protobuf/proto"

	"github.com/scaffe/scaffe/caffe/net"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/models"
	"github.com/scaffe/scaffe/replay/workload"
)

var update = flag.Bool("update", false, "write the files replay/workload/nets/*.work")

// builtinNets are the nets of built-in profiles, and from where they come.
var builtinNets = []struct {
	name  string
	caffe string // a file of SCAFFE_CAFFE_NETS; "": the net is in package models
}{
	{"alexnet", "bvlc_alexnet_train_val.prototxt"},
	{"googlenet", "bvlc_googlenet_train_val.prototxt"},
	{"vgg19", ""},
	{"vgg19_22k", ""},
	{"inception_v3", ""},
	{"resnet50", ""},
	{"resnet152", ""},
}

// file returns the definition of a net.
func file(t *testing.T, name, caffe string) *proto.NetFile {
	t.Helper()
	if caffe == "" {
		f, err := models.Net(name)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	dir := os.Getenv("SCAFFE_CAFFE_NETS")
	if dir == "" {
		t.Skip("SCAFFE_CAFFE_NETS is not set: point it at a folder with the prototxt files that BVLC Caffe ships")
	}
	f, err := proto.ReadNet(filepath.Join(dir, caffe))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// synthetic replaces data by one image, and all fillers by zeros, which leaves
// the memory of large parameters untouched.
func synthetic() func(*proto.LayerParameter) error {
	data := net.Synthetic(1, 3, 1, 1) // all have a crop_size
	zero := func(f **proto.FillerParameter) {
		if *f != nil {
			*f = &proto.FillerParameter{Type: pb.String("constant")}
		}
	}
	return func(p *proto.LayerParameter) error {
		if c := p.ConvolutionParam; c != nil {
			zero(&c.WeightFiller)
			zero(&c.BiasFiller)
		}
		if c := p.InnerProductParam; c != nil {
			zero(&c.WeightFiller)
			zero(&c.BiasFiller)
		}
		return data(p)
	}
}

// The tables of work are what the nets themselves make.
func TestWorkOfNets(t *testing.T) {
	for _, b := range builtinNets {
		t.Run(b.name, func(t *testing.T) {
			n, err := net.New(file(t, b.name, b.caffe), net.Options{Phase: proto.Phase_TRAIN, Rewrite: synthetic()})
			if err != nil {
				t.Fatal(err)
			}
			defer n.Close()
			w, err := Work(n, 1)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("..", "nets", b.name+".work")
			if *update {
				if err := os.WriteFile(path, []byte(w.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), w.String()); diff != "" {
				t.Errorf("%s is not what the net makes: run with -update\n%s", path, diff)
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
		{Name: "ip", Type: "InnerProduct", Params: []int{5 * 144}, MACs: 5 * 144, Values: 149, Data: true, Weights: true},
		{Name: "loss", Type: "SoftmaxWithLoss", Values: 6, Data: true},
	}
	if diff := cmp.Diff(want, w.Layers); diff != "" {
		t.Error(diff)
	}
}
