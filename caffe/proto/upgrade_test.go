package proto

import (
	"errors"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	pb "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
)

// upgraded parses a net, and holds it against another in today's form.
func upgraded(t *testing.T, old, want string) *NetFile {
	t.Helper()
	f, err := ParseNet("old", []byte(old))
	if err != nil {
		t.Fatal(err)
	}
	w, err := ParseNet("want", []byte(want))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(w.Net, f.Net, protocmp.Transform()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	return f
}

// A net in the form of 2014, with every field whose name or place has changed.
const v1Net = `name: "old"
layers {
  name: "data" type: DATA top: "data" top: "label"
  data_param { source: "x" batch_size: 8 backend: LMDB
    scale: 0.5
    mean_file: "m" crop_size: 20 mirror: true }
  include { phase: TRAIN }
}
layers {
  name: "conv1" type: CONVOLUTION bottom: "data" top: "conv1"
  param: "shared"
  blobs_lr: 1
  blobs_lr: 2
  weight_decay: 3
  weight_decay: 0
  blob_share_mode: PERMISSIVE
  convolution_param { num_output: 4 kernel_size: 3 }
}
layers { name: "loss" type: SOFTMAX_LOSS bottom: "conv1" bottom: "label" loss_weight: 0.25 exclude { stage: "deploy" } }
`

func TestUpgradeV1(t *testing.T) {
	f := upgraded(t, v1Net, `name: "old"
layer {
  name: "data" type: "Data" top: "data" top: "label" include { phase: TRAIN }
  data_param { source: "x" batch_size: 8 backend: LMDB }
  transform_param { scale: 0.5 mean_file: "m" crop_size: 20 mirror: true }
}
layer {
  name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  param { name: "shared" share_mode: PERMISSIVE lr_mult: 1 decay_mult: 3 }
  param { lr_mult: 2 decay_mult: 0 }
  convolution_param { num_output: 4 kernel_size: 3 }
}
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "conv1" bottom: "label" loss_weight: 0.25 exclude { stage: "deploy" } }
`)
	if err := f.Validate(); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		layer int
		path  []string
		want  string
	}{
		{0, []string{"transform_param", "scale"}, "old:5:5"},
		{0, []string{"transform_param", "crop_size"}, "old:6:20"},
		{1, nil, "old:9:1"},
		{1, []string{"param[0]", "name"}, "old:11:3"},
		{1, []string{"param[1]", "lr_mult"}, "old:13:3"},
		{1, []string{"param[1]", "decay_mult"}, "old:15:3"},
		{1, []string{"param[0]", "share_mode"}, "old:16:3"},
		{1, []string{"convolution_param", "num_output"}, "old:17:23"},
		{2, []string{"type"}, "old:19:23"},
	} {
		if got := f.LayerPos(c.layer, c.path...).String(); got != c.want {
			t.Errorf("layer %d, %q stands at %s, want %s", c.layer, c.path, got, c.want)
		}
	}
}

// Every V1 type has a name, and the layers that scaffe has can be reached from
// the form of 2014 if Caffe's could.
func TestV1Types(t *testing.T) {
	for n := range V1LayerParameter_LayerType_name {
		if typ := V1LayerParameter_LayerType(n); (v1Types[typ] == "") != (typ == V1LayerParameter_NONE) {
			t.Errorf("%v becomes %q", typ, v1Types[typ])
		}
	}
	for typ, v1 := range v0Types {
		if v1Types[v1] == "" {
			t.Errorf("%s becomes %v, which has no name", typ, v1)
		}
	}
	// What the table of V0 fields names must be there.
	v0 := (&V0LayerParameter{}).ProtoReflect().Descriptor().Fields()
	v1 := (&V1LayerParameter{}).ProtoReflect().Descriptor().Fields()
	for name, x := range v0Fields {
		if v0.ByName(protoreflect.Name(name)) == nil {
			t.Errorf("V0LayerParameter has no field %s", name)
		}
		types := x.types
		if len(types) == 0 {
			types = []string{"conv"}
		}
		for _, typ := range types {
			message, field, ok := x.target(typ)
			fields := v1
			if message != "" {
				fields = v1.ByName(protoreflect.Name(message)).Message().Fields()
			}
			if !ok || fields.ByName(protoreflect.Name(field)) == nil {
				t.Errorf("%s of a layer of type %s becomes %s in %q, which is not there", name, typ, field, message)
			}
		}
	}
}

// A net in the form of 2013: all settings side by side, and padding as a layer
// of its own.
const v0Net = `name: "older"
input: "data" input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 8
layers { layer { name: "pad1" type: "padding" pad: 2 } bottom: "data" top: "pad1" }
layers {
  layer { name: "conv1" type: "conv" num_output: 6 kernelsize: 5 stride: 3 group: 3 biasterm: false
    weight_filler { type: "gaussian" std: 0.01 }
    bias_filler { type: "constant" value: 1 }
    blobs_lr: 1 blobs_lr: 2 weight_decay: 1 weight_decay: 0 }
  bottom: "pad1" top: "conv1"
}
layers { layer { name: "pad2" type: "padding" pad: 1 } bottom: "conv1" top: "pad2" }
layers { layer { name: "pool1" type: "pool" pool: AVE kernelsize: 3 stride: 2 } bottom: "pad2" top: "pool1" }
layers { layer { name: "norm1" type: "lrn" local_size: 3 alpha: 0.1 beta: 0.5 k: 2 } bottom: "pool1" top: "norm1" }
layers { layer { name: "drop" type: "dropout" dropout_ratio: 0.3 } bottom: "norm1" top: "norm1" }
layers { layer { name: "cat" type: "concat" concat_dim: 0 } bottom: "norm1" bottom: "pool1" top: "cat" }
layers { layer { name: "fc" type: "innerproduct" num_output: 10 } bottom: "cat" top: "fc" }
`

func TestUpgradeV0(t *testing.T) {
	f := upgraded(t, v0Net, `name: "older"
layer { name: "input" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 8 dim: 8 } } }
layer {
  name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  param { lr_mult: 1 decay_mult: 1 } param { lr_mult: 2 decay_mult: 0 }
  convolution_param {
    num_output: 6 pad: 2 kernel_size: 5 stride: 3 group: 3 bias_term: false
    weight_filler { type: "gaussian" std: 0.01 } bias_filler { type: "constant" value: 1 }
  }
}
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1" pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 } }
layer { name: "norm1" type: "LRN" bottom: "pool1" top: "norm1" lrn_param { local_size: 3 alpha: 0.1 beta: 0.5 k: 2 } }
layer { name: "drop" type: "Dropout" bottom: "norm1" top: "norm1" dropout_param { dropout_ratio: 0.3 } }
layer { name: "cat" type: "Concat" bottom: "norm1" bottom: "pool1" top: "cat" concat_param { concat_dim: 0 } }
layer { name: "fc" type: "InnerProduct" bottom: "cat" top: "fc" inner_product_param { num_output: 10 } }
`)
	if err := f.Validate(); err != nil {
		t.Error(err)
	}
	if got := f.LayerPos(1, "convolution_param", "weight_filler", "std").String(); got != "old:6:38" {
		t.Errorf("std stands at %s", got)
	}
	if got := f.LayerPos(1, "param[1]", "lr_mult").String(); got != "old:8:17" {
		t.Errorf("lr_mult stands at %s", got)
	}
	if len(f.Warnings()) != 0 {
		t.Errorf("warnings: %q", f.Warnings())
	}
}

func TestUpgradeV0Data(t *testing.T) {
	upgraded(t, `layers { layer { name: "d" type: "images" source: "list" batchsize: 4 rand_skip: 1 shuffle_images: true new_height: 5 new_width: 6
  scale: 2 meanfile: "m" cropsize: 3 mirror: true } top: "d" }
layers { layer { name: "w" type: "window_data" source: "s" det_fg_threshold: 0.1 det_bg_threshold: 0.2 det_fg_fraction: 0.3 det_context_pad: 4 det_crop_mode: "square" } }
layers { layer { name: "o" type: "hdf5_output" hdf5_output_param { file_name: "f" } } }`,
		`layer { name: "d" type: "ImageData" top: "d"
  image_data_param { source: "list" batch_size: 4 rand_skip: 1 shuffle: true new_height: 5 new_width: 6 }
  transform_param { scale: 2 mean_file: "m" crop_size: 3 mirror: true } }
layer { name: "w" type: "WindowData" window_data_param { source: "s" fg_threshold: 0.1 bg_threshold: 0.2 fg_fraction: 0.3 context_pad: 4 crop_mode: "square" } }
layer { name: "o" type: "HDF5Output" hdf5_output_param { file_name: "f" } }`)
}

// As in Caffe, fields that have no meaning for a layer of 2013 are ignored, with a
// warning.
func TestUpgradeV0Warns(t *testing.T) {
	f := upgraded(t, "layers { layer { name: 'r' type: 'relu'\n stride: 2 } }", `layer { name: "r" type: "ReLU" }`)
	want := []string{`old:2:2: layer "r": stride has no meaning for a layer of type relu and is ignored`}
	if diff := cmp.Diff(want, f.Warnings()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestUpgradeErrors(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"both forms", "layer { name: 'a' type: 'Silence' }\nlayers { name: 'b' type: RELU }", `n:2:1: "layer" and "layers" (the form of 2014) cannot be used together: write all layers as "layer { type: \"Name\" ... }"`},
		{"typo of 2014", "layers { name: 'a' type: RELU\n blobs_rl: 1 }", `n:2:2: unknown field "blobs_rl" in layer "a" (did you mean "blobs_lr"?)`},
		{"typo of 2013", "layers { layer { name: 'a' type: 'conv'\n num_outputs: 1 } }", `n:2:2: unknown field "num_outputs" in layer "a" (did you mean "num_output"?)`},
		{"type of 2013", "layers { layer { name: 'a' type: 'convolution' } }", `n:1:28: layer "a": "convolution" is not a layer type of 2013: those are accuracy, bnll, `},
		{"no type", "layers { name: 'a' }", `n:1:1: layer "a": has no type`},
		{"not supported", "layers { name: 'a' type: BNLL }", `n:1:20: layer "a": type "BNLL" is not supported`},
		{
			"two forms", "layers { layer { name: 'a' type: 'relu' } }\nlayers { name: 'b' type: RELU }",
			`n:2:1: layer "b" has the form of 2014 in a net of 2013, in which every layer is "layers { layer { ... } }": use one form`,
		},
		{
			"padding of another layer", "layers { layer { name: 'p' type: 'padding' pad: 1 } bottom: 'x' top: 'y' }\nlayers { layer { name: 'a' type: 'relu' } bottom: 'y' }",
			`n:2:1: layer "a" of type relu reads the padding "p": only conv and pool can`,
		},
		{
			"padding of several", "layers { layer { name: 'p' type: 'padding' } bottom: 'x' top: 'y' }\nlayers { layer { name: 'a' type: 'conv' } bottom: 'y' bottom: 'y' }",
			`n:2:1: layer "a" has 2 bottoms: a layer that reads a padding ("p") has one`,
		},
		{
			"padding with two tops", "layers { layer { name: 'p' type: 'padding' } bottom: 'x' top: 'y' top: 'z' }\nlayers { layer { name: 'a' type: 'conv' } bottom: 'y' }",
			`n:1:1: the padding "p" has 1 bottoms and 2 tops: it must have one of each`,
		},
		{"value inside", "layers {\n name: 'a' type: POOLING pooling_param {\n pool: STOCHASTIC } }", `n:3:2: layer "a": pool: STOCHASTIC pooling is not supported: use MAX or AVE`},
		{"wrong kind of value", "layers {\n name: 'a' type: POOLING\n blobs_lr: 'x' }", `n:3:12: invalid value for float type: 'x' in layer "a"`},
	} {
		if got := validated(c.text); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, got, c.want)
		}
	}
}

// A net that stands in a solver may have the old form too.
func TestUpgradeInlineNet(t *testing.T) {
	s, err := ParseSolver("s", []byte("lr_policy: 'fixed' net_param {\n"+v1Net+"}"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
	f, err := s.TrainNet()
	if err != nil || f.Net.Layer[1].GetType() != "Convolution" || f.LayerPos(1).Line != 10 {
		t.Errorf("%v, %v", f, err)
	}
	if s.Solver.NetParam.Layers == nil {
		t.Error("the solver itself was changed")
	}
}

func wireField(num protowire.Number, b []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), b)
}

func wireInt(num protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), v)
}

// wireBlob is a blob as it was written before there was BlobShape.
func wireBlob(num, channels, height, width int, values ...float32) []byte {
	var data []byte
	for _, v := range values {
		data = protowire.AppendFixed32(data, math.Float32bits(v))
	}
	b := append(wireInt(1, uint64(num)), wireInt(2, uint64(channels))...)
	b = append(append(b, wireInt(3, uint64(height))...), wireInt(4, uint64(width))...)
	return append(b, wireField(5, data)...)
}

func join(parts ...[]byte) []byte {
	var out []byte
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// The bytes of models of 2014 and of 2013, from Caffe's field numbers.
func TestOldModels(t *testing.T) {
	weights, bias := wireBlob(1, 1, 2, 3, 1, 2, 3, 4, 5, 6), wireBlob(1, 1, 1, 2, 7, 8)
	packed := wireField(7, protowire.AppendFixed32(nil, math.Float32bits(1))) // blobs_lr, as some programs write it
	for _, c := range []struct {
		form  string
		bytes []byte
	}{
		{"2014", join(
			wireField(1, []byte("net")), wireField(3, []byte("data")), wireInt(4, 1), wireInt(5, 1),
			wireField(2, join(wireField(4, []byte("relu")), wireInt(5, 18))),
			wireField(2, join(wireField(2, []byte("data")), wireField(3, []byte("ip")), wireField(4, []byte("ip")), wireInt(5, 14),
				wireField(6, weights), wireField(6, bias), packed, wireInt(900, 5))),
		)},
		{"2013", join(
			wireField(1, []byte("net")), wireField(3, []byte("data")),
			wireField(2, wireField(1, join(wireField(1, []byte("relu")), wireField(2, []byte("relu")), wireInt(3, 4)))), // a num_output that means nothing
			wireField(2, join(wireField(2, []byte("data")), wireField(3, []byte("ip")),
				wireField(1, join(wireField(1, []byte("ip")), wireField(2, []byte("innerproduct")), wireInt(3, 2),
					wireField(50, weights), wireField(50, bias))))),
			wireField(2, wireField(1, join(wireField(1, []byte("lost")), wireField(2, []byte("a type of another program"))))),
		)},
	} {
		path := filepath.Join(t.TempDir(), "m")
		write(t, path, string(c.bytes))
		m, err := ReadModel(path)
		if err != nil {
			t.Errorf("%s: %v", c.form, err)
			continue
		}
		if len(m.Layers) != 0 || len(m.Layer) < 2 || m.Layer[0].GetType() != "ReLU" {
			t.Fatalf("%s: %v", c.form, m)
		}
		ip := m.Layer[1]
		want := []*BlobProto{
			{Num: pb.Int32(1), Channels: pb.Int32(1), Height: pb.Int32(2), Width: pb.Int32(3), Data: []float32{1, 2, 3, 4, 5, 6}},
			{Num: pb.Int32(1), Channels: pb.Int32(1), Height: pb.Int32(1), Width: pb.Int32(2), Data: []float32{7, 8}},
		}
		if ip.GetName() != "ip" || ip.GetType() != "InnerProduct" {
			t.Errorf("%s: %v", c.form, ip)
		}
		if diff := cmp.Diff(want, ip.Blobs, protocmp.Transform()); diff != "" {
			t.Errorf("%s: -want +got:\n%s", c.form, diff)
		}
		// Written, it has today's form.
		if err := (Writer{}).Model(path, m); err != nil {
			t.Fatal(err)
		}
		if again, err := ReadModel(path); err != nil || !pb.Equal(m, again) {
			t.Errorf("%s: written and read again: %v, %v", c.form, again, err)
		}
	}
}

func TestOldModelErrors(t *testing.T) {
	bad := wireField(2, join(wireField(4, []byte("ip")), wireField(6, wireBlob(1, 1, 2, 2, 1))))
	both := join(bad, wireField(100, wireField(1, []byte("x"))))
	for want, b := range map[string][]byte{
		`layer "ip", blob 0: shape [1 1 2 2] has 4 elements, but 1 values`: bad,
		`"layer" and "layers" (the form of 2014) cannot be used together`:  both,
	} {
		path := filepath.Join(t.TempDir(), "m")
		write(t, path, string(b))
		_, err := ReadModel(path)
		if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "read "+path+": unexpected file format: ") {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
