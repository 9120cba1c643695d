package measure

import (
	"path/filepath"

	pb "google.golang.org/protobuf/proto"

	"github.com/scaffe/scaffe/caffe/net"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/models"
	"github.com/scaffe/scaffe/replay/workload"
)

// BuiltinNet is a net of which built-in profiles are made.
type BuiltinNet struct {
	Name  string
	caffe string // the file that Caffe ships; "": the net is in package models
}

// BuiltinNets lists them.
func BuiltinNets() []BuiltinNet {
	return []BuiltinNet{
		{"alexnet", "bvlc_alexnet_train_val.prototxt"},
		{"googlenet", "bvlc_googlenet_train_val.prototxt"},
		{"inception_v3", ""},
		{"resnet152", ""},
		{"resnet50", ""},
		{"vgg19", ""},
		{"vgg19_22k", ""},
	}
}

// File returns the definition of a net. Those that Caffe ships are in the folder
// caffe; without one it returns nil for them.
func (b BuiltinNet) File(caffe string) (*proto.NetFile, error) {
	if b.caffe == "" {
		return models.Net(b.Name)
	}
	if caffe == "" {
		return nil, nil
	}
	return proto.ReadNet(filepath.Join(caffe, b.caffe))
}

// WorkOf builds a net, of which each data layer has a crop_size, for training
// with one image, and returns its work.
func WorkOf(f *proto.NetFile) (*workload.Work, error) {
	n, err := net.New(f, net.Options{Phase: proto.Phase_TRAIN, Rewrite: oneImage})
	if err != nil {
		return nil, err
	}
	defer n.Close()
	return Work(n, 1)
}

// oneImage replaces data by one image, and all fillers by zeros, which leaves
// the memory of large parameters untouched.
func oneImage(p *proto.LayerParameter) error {
	zero := func(f **proto.FillerParameter) {
		if *f != nil {
			*f = &proto.FillerParameter{Type: pb.String("constant")}
		}
	}
	if c := p.ConvolutionParam; c != nil {
		zero(&c.WeightFiller)
		zero(&c.BiasFiller)
	}
	if c := p.InnerProductParam; c != nil {
		zero(&c.WeightFiller)
		zero(&c.BiasFiller)
	}
	return net.Synthetic(1, 3, 1, 1)(p)
}
