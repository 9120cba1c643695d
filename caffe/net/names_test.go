package net

import (
	"slices"
	"testing"

	pb "google.golang.org/protobuf/proto"

	"github.com/scaffe/scaffe/caffe/proto"
)

// sameNames has two layers named "ip", with parameters of different shapes.
const sameNames = `input: "a" input_shape { dim: 4 dim: 6 }
layer { name: "ip" type: "InnerProduct" bottom: "a" top: "b" inner_product_param { num_output: 3 weight_filler { type: "gaussian" } } }
layer { name: "ip" type: "InnerProduct" bottom: "b" top: "c" inner_product_param { num_output: 2 weight_filler { type: "gaussian" } } }
`

// A snapshot of a net whose layers share a name restores all of them, and a
// test net uses the parameters of all of them. (Caffe gives the parameters of
// both to the first one.)
func TestLayersOfOneName(t *testing.T) {
	from, to, test := build(t, sameNames, Options{Seed: 1}), build(t, sameNames, Options{Seed: 2}), build(t, sameNames, Options{Phase: proto.Phase_TEST, Seed: 3})
	if err := test.ShareWith(to); err != nil {
		t.Fatal(err)
	}
	if err := to.CopyFrom(from.ToProto(), true); err != nil {
		t.Fatal(err)
	}
	if len(from.Learnable()) != 4 {
		t.Fatalf("%d parameters, want 4", len(from.Learnable()))
	}
	for i, p := range from.Learnable() {
		for what, n := range map[string]*Net{"restored": to, "test": test} {
			if !slices.Equal(p.Blob.Data(), n.Learnable()[i].Blob.Data()) {
				t.Errorf("parameter %d of the %s net differs", i, what)
			}
		}
	}
}

// A model may have more or fewer layers of a name than the net.
func TestOtherNumberOfLayersOfOneName(t *testing.T) {
	ip := func(weight float32) *proto.LayerParameter {
		return &proto.LayerParameter{Name: pb.String("ip"), Blobs: []*proto.BlobProto{
			proto.NewBlob([]int{1, 1}, []float32{weight}, nil), proto.NewBlob([]int{1}, []float32{0}, nil),
		}}
	}
	model := &proto.NetParameter{Layer: []*proto.LayerParameter{ip(1), ip(2)}}
	const one = `input: "a" input_shape { dim: 4 dim: 1 }
layer { name: "ip" type: "InnerProduct" bottom: "a" top: "b" inner_product_param { num_output: 1 } }
`
	const three = one + `layer { name: "ip" type: "InnerProduct" bottom: "b" top: "c" inner_product_param { num_output: 1 } }
layer { name: "ip" type: "InnerProduct" bottom: "c" top: "d" inner_product_param { num_output: 1 } }
`
	n := build(t, one, Options{})
	wantError(t, n.CopyFrom(model, true), `has no layer "ip"`)
	if err := n.CopyFrom(model, false); err != nil || n.Learnable()[0].Blob.Data()[0] != 2 {
		t.Errorf("the weight is %v, want the last one's, 2 (%v)", n.Learnable()[0].Blob.Data(), err)
	}
	n = build(t, three, Options{})
	wantError(t, n.CopyFrom(model, true), "net.prototxt:4:1", "has no layer of this name")
	if err := n.CopyFrom(model, false); err != nil {
		t.Fatal(err)
	}
	for i, want := range []float32{1, 2, 0} {
		if got := n.Learnable()[2*i].Blob.Data()[0]; got != want {
			t.Errorf("weight %d is %v, want %v", i, got, want)
		}
	}
}

func TestWarningNamesLayersOfOneName(t *testing.T) {
	if got := build(t, small, Options{}).Warnings(); len(got) != 0 {
		t.Errorf("warnings about names that are unique: %q", got)
	}
	want := `net "" has 2 layers named "ip": net.prototxt:2:1 (InnerProduct), net.prototxt:3:1 (InnerProduct); weights are copied between layers of one name in their order`
	if got := build(t, sameNames, Options{}).Warnings(); !slices.Equal(got, []string{want}) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	// A name that another phase uses too is no cause for a warning.
	phases := `layer { name: "d" type: "Input" top: "a" include { phase: TRAIN } input_param { shape { dim: 1 } } }
layer { name: "d" type: "Input" top: "a" include { phase: TEST } input_param { shape { dim: 2 } } }`
	if got := build(t, phases, Options{}).Warnings(); len(got) != 0 {
		t.Errorf("warnings about layers of two phases: %q", got)
	}
}
