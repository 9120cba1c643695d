package proto

import (
	"fmt"

	pb "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// v1Types are the names that LayerParameter.type has for each V1 type.
var v1Types = map[V1LayerParameter_LayerType]string{
	V1LayerParameter_ABSVAL:                     "AbsVal",
	V1LayerParameter_ACCURACY:                   "Accuracy",
	V1LayerParameter_ARGMAX:                     "ArgMax",
	V1LayerParameter_BNLL:                       "BNLL",
	V1LayerParameter_CONCAT:                     "Concat",
	V1LayerParameter_CONTRASTIVE_LOSS:           "ContrastiveLoss",
	V1LayerParameter_CONVOLUTION:                "Convolution",
	V1LayerParameter_DATA:                       "Data",
	V1LayerParameter_DECONVOLUTION:              "Deconvolution",
	V1LayerParameter_DROPOUT:                    "Dropout",
	V1LayerParameter_DUMMY_DATA:                 "DummyData",
	V1LayerParameter_ELTWISE:                    "Eltwise",
	V1LayerParameter_EUCLIDEAN_LOSS:             "EuclideanLoss",
	V1LayerParameter_EXP:                        "Exp",
	V1LayerParameter_FLATTEN:                    "Flatten",
	V1LayerParameter_HDF5_DATA:                  "HDF5Data",
	V1LayerParameter_HDF5_OUTPUT:                "HDF5Output",
	V1LayerParameter_HINGE_LOSS:                 "HingeLoss",
	V1LayerParameter_IM2COL:                     "Im2col",
	V1LayerParameter_IMAGE_DATA:                 "ImageData",
	V1LayerParameter_INFOGAIN_LOSS:              "InfogainLoss",
	V1LayerParameter_INNER_PRODUCT:              "InnerProduct",
	V1LayerParameter_LRN:                        "LRN",
	V1LayerParameter_MEMORY_DATA:                "MemoryData",
	V1LayerParameter_MULTINOMIAL_LOGISTIC_LOSS:  "MultinomialLogisticLoss",
	V1LayerParameter_MVN:                        "MVN",
	V1LayerParameter_POOLING:                    "Pooling",
	V1LayerParameter_POWER:                      "Power",
	V1LayerParameter_RELU:                       "ReLU",
	V1LayerParameter_SIGMOID:                    "Sigmoid",
	V1LayerParameter_SIGMOID_CROSS_ENTROPY_LOSS: "SigmoidCrossEntropyLoss",
	V1LayerParameter_SILENCE:                    "Silence",
	V1LayerParameter_SLICE:                      "Slice",
	V1LayerParameter_SOFTMAX:                    "Softmax",
	V1LayerParameter_SOFTMAX_LOSS:               "SoftmaxWithLoss",
	V1LayerParameter_SPLIT:                      "Split",
	V1LayerParameter_TANH:                       "TanH",
	V1LayerParameter_THRESHOLD:                  "Threshold",
	V1LayerParameter_WINDOW_DATA:                "WindowData",
}

// oldLayer is a layer of NetParameter.layers with its position.
type oldLayer struct {
	param *V1LayerParameter
	at    *node // never nil; without fields if positions are not known
}

// upgradeLayers replaces layers of 2013 and 2014 (layers) by today's (layer).
func (f *NetFile) upgradeLayers() error {
	if len(f.Net.Layers) == 0 {
		return nil
	}
	if len(f.Net.Layer) > 0 {
		return errorAt(f.FieldPos("layers"), `"layer" and "layers" (the form of 2014) cannot be used together: write all layers as "layer { type: \"Name\" ... }"`)
	}
	nodes := f.root.all("layers")
	old := make([]oldLayer, len(f.Net.Layers))
	v0 := false
	for i, l := range f.Net.Layers {
		old[i] = oldLayer{l, &node{pos: f.root.pos}}
		if len(nodes) == len(old) {
			old[i].at = nodes[i]
		}
		v0 = v0 || l.Layer != nil
	}
	if v0 {
		var err error
		if old, err = f.upgradeV0(old); err != nil {
			return err
		}
	}
	f.Net.Layers, f.layers = nil, nil
	for _, l := range old {
		l.upgradeTransform()
		f.Net.Layer = append(f.Net.Layer, upgradeV1(l.param))
		f.layers = append(f.layers, upgradeV1Node(l.at))
	}
	return nil
}

// upgradeV1 makes today's message of a V1 layer. It keeps the blobs without a
// copy.
func upgradeV1(old *V1LayerParameter) *LayerParameter {
	l := &LayerParameter{}
	to, fields := l.ProtoReflect(), l.ProtoReflect().Descriptor().Fields()
	old.ProtoReflect().Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch fd.Name() {
		case "layer", "type", "param", "blob_share_mode", "blobs_lr", "weight_decay":
		default:
			setField(to, fields.ByName(fd.Name()), v)
		}
		return true
	})
	if old.Type != nil {
		l.Type = pb.String(v1Types[old.GetType()])
	}
	spec := func(i int) *ParamSpec {
		for len(l.Param) <= i {
			l.Param = append(l.Param, &ParamSpec{})
		}
		return l.Param[i]
	}
	for i, name := range old.Param {
		spec(i).Name = pb.String(name)
	}
	for i, mode := range old.BlobShareMode {
		spec(i).ShareMode = ParamSpec_DimCheckMode(mode).Enum()
	}
	for i, mult := range old.BlobsLr {
		spec(i).LrMult = pb.Float32(mult)
	}
	for i, mult := range old.WeightDecay {
		spec(i).DecayMult = pb.Float32(mult)
	}
	return l
}

// setField sets a field of m to v, which comes from a field of the same type,
// or of int32 for a uint32; to a repeated field it adds.
func setField(m protoreflect.Message, fd protoreflect.FieldDescriptor, v protoreflect.Value) {
	if n, ok := v.Interface().(int32); ok && fd.Kind() == protoreflect.Uint32Kind {
		v = protoreflect.ValueOfUint32(uint32(n))
	}
	from, isList := v.Interface().(protoreflect.List)
	switch {
	case !fd.IsList():
		m.Set(fd, v)
	case !isList:
		m.Mutable(fd).List().Append(v)
	default:
		to := m.Mutable(fd).List()
		for i := range from.Len() {
			to.Append(from.Get(i))
		}
	}
}

// v1Specs maps the repeated fields of a V1 layer to fields of today's param
// messages.
var v1Specs = map[string]string{
	"param": "name", "blob_share_mode": "share_mode", "blobs_lr": "lr_mult", "weight_decay": "decay_mult",
}

// upgradeV1Node moves the positions of a V1 layer's fields to those of today's
// fields.
func upgradeV1Node(old *node) *node {
	n := &node{name: "layer", pos: old.pos}
	count := map[string]int{}
	for _, k := range old.kids {
		field, ok := v1Specs[k.name]
		if !ok {
			n.kids = append(n.kids, k)
			continue
		}
		i := count[k.name]
		count[k.name]++
		specs := n.all("param")
		for len(specs) <= i {
			spec := &node{name: "param", pos: k.pos}
			n.kids, specs = append(n.kids, spec), append(specs, spec)
		}
		specs[i].kids = append(specs[i].kids, &node{name: field, value: k.value, pos: k.pos})
	}
	return n
}

// transformed are the V1 types whose messages held what transform_param holds
// now.
var transformed = map[V1LayerParameter_LayerType]protoreflect.Name{
	V1LayerParameter_DATA:        "data_param",
	V1LayerParameter_IMAGE_DATA:  "image_data_param",
	V1LayerParameter_WINDOW_DATA: "window_data_param",
}

// upgradeTransform moves scale, mean_file, crop_size and mirror of a V1 data
// layer to its transform_param.
func (l oldLayer) upgradeTransform() {
	m := l.param.ProtoReflect()
	name, ok := transformed[l.param.GetType()]
	if !ok {
		return
	}
	fd := m.Descriptor().Fields().ByName(name)
	if !m.Has(fd) {
		return
	}
	from := m.Mutable(fd).Message()
	for _, field := range []protoreflect.Name{"scale", "mean_file", "crop_size", "mirror"} {
		old := from.Descriptor().Fields().ByName(field)
		if !from.Has(old) {
			continue
		}
		if l.param.TransformParam == nil {
			l.param.TransformParam = &TransformationParameter{}
		}
		to := l.param.TransformParam.ProtoReflect()
		to.Set(to.Descriptor().Fields().ByName(field), from.Get(old))
		from.Clear(old)
		for _, k := range l.at.find(string(name)).all(string(field)) {
			l.at.add("transform_param", k)
		}
	}
}

// add puts a field into the message of that name below n, which it creates if
// there is none.
func (n *node) add(message string, field *node) {
	for _, m := range n.all(message) {
		m.kids = append(m.kids, field)
		return
	}
	n.kids = append(n.kids, &node{name: message, pos: field.pos, kids: []*node{field}})
}

// warn records something that an upgrade left out.
func (f *NetFile) warn(at Pos, format string, args ...any) {
	f.warnings = append(f.warnings, (&Error{at, fmt.Errorf(format, args...)}).Error())
}
