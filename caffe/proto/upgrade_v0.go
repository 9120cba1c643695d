package proto

import (
	"maps"
	"slices"
	"strings"

	pb "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// v0Types are the V1 types of the types of 2013. The type padding has none:
// its layers become the pad of the layer after them.
var v0Types = map[string]V1LayerParameter_LayerType{
	"accuracy":                  V1LayerParameter_ACCURACY,
	"bnll":                      V1LayerParameter_BNLL,
	"concat":                    V1LayerParameter_CONCAT,
	"conv":                      V1LayerParameter_CONVOLUTION,
	"data":                      V1LayerParameter_DATA,
	"dropout":                   V1LayerParameter_DROPOUT,
	"euclidean_loss":            V1LayerParameter_EUCLIDEAN_LOSS,
	"flatten":                   V1LayerParameter_FLATTEN,
	"hdf5_data":                 V1LayerParameter_HDF5_DATA,
	"hdf5_output":               V1LayerParameter_HDF5_OUTPUT,
	"im2col":                    V1LayerParameter_IM2COL,
	"images":                    V1LayerParameter_IMAGE_DATA,
	"infogain_loss":             V1LayerParameter_INFOGAIN_LOSS,
	"innerproduct":              V1LayerParameter_INNER_PRODUCT,
	"lrn":                       V1LayerParameter_LRN,
	"multinomial_logistic_loss": V1LayerParameter_MULTINOMIAL_LOGISTIC_LOSS,
	"pool":                      V1LayerParameter_POOLING,
	"relu":                      V1LayerParameter_RELU,
	"sigmoid":                   V1LayerParameter_SIGMOID,
	"softmax":                   V1LayerParameter_SOFTMAX,
	"softmax_loss":              V1LayerParameter_SOFTMAX_LOSS,
	"split":                     V1LayerParameter_SPLIT,
	"tanh":                      V1LayerParameter_TANH,
	"window_data":               V1LayerParameter_WINDOW_DATA,
}

// v0Params is the V1 message of each V0 type that has one.
var v0Params = map[string]string{
	"concat": "concat_param", "conv": "convolution_param", "data": "data_param", "dropout": "dropout_param",
	"hdf5_data": "hdf5_data_param", "hdf5_output": "", "images": "image_data_param", "infogain_loss": "infogain_loss_param",
	"innerproduct": "inner_product_param", "lrn": "lrn_param", "pool": "pooling_param", "window_data": "window_data_param",
}

// v0Field is the target of a field of a V0 layer.
type v0Field struct {
	name  string   // in the V1 message
	in    string   // that message; "": that of the layer's type
	types []string // that have the field; none: all
}

// v0Fields holds the fields that not every V1 layer has itself.
var v0Fields = map[string]v0Field{
	"num_output":    {name: "num_output", types: []string{"conv", "innerproduct"}},
	"biasterm":      {name: "bias_term", types: []string{"conv", "innerproduct"}},
	"weight_filler": {name: "weight_filler", types: []string{"conv", "innerproduct"}},
	"bias_filler":   {name: "bias_filler", types: []string{"conv", "innerproduct"}},

	"pad":        {name: "pad", types: []string{"conv", "pool"}},
	"kernelsize": {name: "kernel_size", types: []string{"conv", "pool"}},
	"stride":     {name: "stride", types: []string{"conv", "pool"}},
	"group":      {name: "group", types: []string{"conv"}},
	"pool":       {name: "pool", types: []string{"pool"}},

	"dropout_ratio": {name: "dropout_ratio", types: []string{"dropout"}},
	"local_size":    {name: "local_size", types: []string{"lrn"}},
	"alpha":         {name: "alpha", types: []string{"lrn"}},
	"beta":          {name: "beta", types: []string{"lrn"}},
	"k":             {name: "k", types: []string{"lrn"}},
	"concat_dim":    {name: "concat_dim", types: []string{"concat"}},

	"scale":          {name: "scale", in: "transform_param"},
	"meanfile":       {name: "mean_file", in: "transform_param"},
	"cropsize":       {name: "crop_size", in: "transform_param"},
	"mirror":         {name: "mirror", in: "transform_param"},
	"source":         {name: "source", types: []string{"data", "hdf5_data", "images", "infogain_loss", "window_data"}},
	"batchsize":      {name: "batch_size", types: []string{"data", "hdf5_data", "images", "window_data"}},
	"rand_skip":      {name: "rand_skip", types: []string{"data", "images"}},
	"shuffle_images": {name: "shuffle", types: []string{"images"}},
	"new_height":     {name: "new_height", types: []string{"images"}},
	"new_width":      {name: "new_width", types: []string{"images"}},

	"hdf5_output_param": {name: "hdf5_output_param", types: []string{"hdf5_output"}},

	"det_fg_threshold": {name: "fg_threshold", types: []string{"window_data"}},
	"det_bg_threshold": {name: "bg_threshold", types: []string{"window_data"}},
	"det_fg_fraction":  {name: "fg_fraction", types: []string{"window_data"}},
	"det_context_pad":  {name: "context_pad", types: []string{"window_data"}},
	"det_crop_mode":    {name: "crop_mode", types: []string{"window_data"}},
}

// upgradeV0 makes V1 layers of V0 ones. As in Caffe, a field that has no meaning
// for a layer's type is ignored, with a warning.
func (f *NetFile) upgradeV0(old []oldLayer) ([]oldLayer, error) {
	old, err := f.foldPadding(old)
	if err != nil {
		return nil, err
	}
	for i, l := range old {
		v0 := l.param.GetLayer()
		if v0 == nil {
			if !f.model {
				return nil, errorAt(l.at.pos, `layer %q has the form of 2014 in a net of 2013, in which every layer is "layers { layer { ... } }": use one form`, l.param.GetName())
			}
			continue
		}
		typ, ok := v0Types[v0.GetType()]
		if !ok && !f.model {
			return nil, errorAt(l.at.find("layer", "type").pos, "layer %q: %q is not a layer type of 2013: those are %s",
				v0.GetName(), v0.GetType(), strings.Join(slices.Sorted(maps.Keys(v0Types)), ", "))
		}
		u := &V1LayerParameter{
			Bottom: l.param.Bottom, Top: l.param.Top, Name: v0.Name, Type: typ.Enum(),
			Blobs: v0.Blobs, BlobsLr: v0.BlobsLr, WeightDecay: v0.WeightDecay,
		}
		f.upgradeV0Fields(l, u)
		old[i] = oldLayer{u, upgradeV0Node(l.at, v0.GetType())}
	}
	return old, nil
}

// target returns the target of a field of a V0 layer of some type: a message of a
// V1 layer, "" for the layer itself, and a field of it. ok is false if the
// field means nothing to the type.
func (x v0Field) target(typ string) (message, field string, ok bool) {
	if len(x.types) > 0 && !slices.Contains(x.types, typ) {
		return "", "", false
	}
	if x.in != "" {
		return x.in, x.name, true
	}
	return v0Params[typ], x.name, true
}

// upgradeV0Fields moves the fields of a V0 layer into the messages of u.
func (f *NetFile) upgradeV0Fields(l oldLayer, u *V1LayerParameter) {
	v0 := l.param.Layer
	from := v0.ProtoReflect()
	fields := from.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		x, ok := v0Fields[string(fd.Name())]
		if !ok || !from.Has(fd) {
			continue
		}
		message, field, ok := x.target(v0.GetType())
		if !ok {
			f.warn(l.at.find("layer", string(fd.Name())).pos, "layer %q: %s has no meaning for a layer of type %s and is ignored", v0.GetName(), fd.Name(), v0.GetType())
			continue
		}
		to := u.ProtoReflect()
		if message != "" {
			to = to.Mutable(to.Descriptor().Fields().ByName(protoreflect.Name(message))).Message()
		}
		setField(to, to.Descriptor().Fields().ByName(protoreflect.Name(field)), from.Get(fd))
	}
}

// upgradeV0Node moves the positions of a V0 layer's fields to those of V1.
func upgradeV0Node(old *node, typ string) *node {
	n := &node{name: old.name, pos: old.pos}
	for _, k := range old.kids {
		if k.name != "layer" {
			n.kids = append(n.kids, k)
			continue
		}
		for _, field := range k.kids {
			x, known := v0Fields[field.name]
			message, name, ok := x.target(typ)
			switch {
			case !known:
				n.kids = append(n.kids, field)
			case ok && message == "":
				n.kids = append(n.kids, field)
			case ok:
				n.add(message, &node{name: name, value: field.value, pos: field.pos, kids: field.kids})
			}
		}
	}
	return n
}

// foldPadding removes the layers of type padding: the convolution or pooling
// that reads one takes its pad and its bottom.
func (f *NetFile) foldPadding(old []oldLayer) ([]oldLayer, error) {
	maker := map[string]*oldLayer{} // of each blob, the last layer that has it as a top
	var out []oldLayer
	for i := range old {
		l := &old[i]
		for j, bottom := range l.param.Bottom {
			pad := maker[bottom]
			if pad == nil || pad.param.GetLayer().GetType() != "padding" {
				continue
			}
			if err := checkPadding(pad, l); err != nil {
				if f.model { // only names and blobs matter
					continue
				}
				return nil, err
			}
			l.param.Layer.Pad = pb.Uint32(pad.param.Layer.GetPad())
			l.param.Bottom[j] = pad.param.Bottom[0]
		}
		if l.param.GetLayer().GetType() != "padding" {
			out = append(out, *l)
		}
		for _, top := range l.param.Top {
			maker[top] = l
		}
	}
	return out, nil
}

// checkPadding reports why a layer cannot take over the padding before it.
func checkPadding(pad, l *oldLayer) error {
	typ := l.param.GetLayer().GetType()
	name := pad.param.GetLayer().GetName()
	switch {
	case typ != "conv" && typ != "pool":
		return errorAt(l.at.pos, "layer %q of type %s reads the padding %q: only conv and pool can", l.param.GetLayer().GetName(), typ, name)
	case len(l.param.Bottom) != 1:
		return errorAt(l.at.pos, "layer %q has %d bottoms: a layer that reads a padding (%q) has one", l.param.GetLayer().GetName(), len(l.param.Bottom), name)
	case len(pad.param.Bottom) != 1 || len(pad.param.Top) != 1:
		return errorAt(pad.at.pos, "the padding %q has %d bottoms and %d tops: it must have one of each", name, len(pad.param.Bottom), len(pad.param.Top))
	}
	return nil
}
