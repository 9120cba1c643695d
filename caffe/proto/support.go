package proto

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// layerParams lists the layer types and which of the XXX_param messages each of
// them reads. Other messages are an error.
var layerParams = map[string][]string{
	"Accuracy":                {"accuracy_param"},
	"BatchNorm":               {"batch_norm_param"},
	"Concat":                  {"concat_param"},
	"Convolution":             {"convolution_param"},
	"Data":                    {"data_param", "transform_param"},
	"Dropout":                 {"dropout_param"},
	"DummyData":               {"dummy_data_param"},
	"Eltwise":                 {"eltwise_param"},
	"EuclideanLoss":           {},
	"Flatten":                 {"flatten_param"},
	"ImageData":               {"image_data_param", "transform_param"},
	"InnerProduct":            {"inner_product_param"},
	"Input":                   {"input_param"},
	"LRN":                     {"lrn_param"},
	"MemoryData":              {"memory_data_param", "transform_param"},
	"Pooling":                 {"pooling_param"},
	"Power":                   {"power_param"},
	"ReLU":                    {"relu_param"},
	"Reshape":                 {"reshape_param"},
	"Scale":                   {"scale_param"},
	"Sigmoid":                 {"sigmoid_param"},
	"SigmoidCrossEntropyLoss": {"loss_param"},
	"Silence":                 {},
	"Slice":                   {"slice_param"},
	"Softmax":                 {"softmax_param"},
	"SoftmaxWithLoss":         {"softmax_param", "loss_param"},
	"Split":                   {},
	"TanH":                    {"tanh_param"},
}

// LayerTypes lists the supported layer types in alphabetical order.
func LayerTypes() []string {
	var ts []string
	for t := range layerParams {
		ts = append(ts, t)
	}
	sort.Strings(ts)
	return ts
}

// Effect is the effect of a field that a file sets.
type Effect string

// The effects. A field that Support does not list has its effect in Caffe.
const (
	// NoEffect fields select an implementation; any value is accepted.
	NoEffect Effect = "no effect"
	// Limited fields have their effect, but not every value is accepted.
	Limited Effect = "limited"
	// Refused fields are an error.
	Refused Effect = "refused"
)

// Rule is what Support says of one field.
type Rule struct {
	Field  string // its full name, as in "caffe.PoolingParameter.pool"
	Effect Effect
	Why    string // the reason, or what to do instead
}

// rule is a Rule with its check, which returns what to do about a value that is
// not accepted, or "".
type rule struct {
	effect Effect
	why    string
	check  func(protoreflect.Value) string
}

const (
	sameResult = "selects an implementation, with the same result"
	oldPlace   = "Caffe ignores it here: set it in transform_param"
)

var rules = map[protoreflect.FullName]rule{
	// Layers.
	"caffe.LayerParameter.blobs":                 refused("parameters do not belong in a net's text: start from a model with --weights FILE.caffemodel"),
	"caffe.ConvolutionParameter.engine":          noEffect(sameResult),
	"caffe.ConvolutionParameter.force_nd_im2col": noEffect(sameResult),
	"caffe.LRNParameter.engine":                  noEffect(sameResult),
	"caffe.PoolingParameter.engine":              noEffect(sameResult),
	"caffe.ReLUParameter.engine":                 noEffect(sameResult),
	"caffe.SigmoidParameter.engine":              noEffect(sameResult),
	"caffe.SoftmaxParameter.engine":              noEffect(sameResult),
	"caffe.TanHParameter.engine":                 noEffect(sameResult),
	"caffe.PoolingParameter.pool":                notEnum(PoolingParameter_STOCHASTIC, "STOCHASTIC pooling is not supported: use MAX or AVE"),
	"caffe.DataParameter.backend":                notEnum(DataParameter_LEVELDB, levelDB),
	"caffe.DataParameter.rand_skip":              notNumber("Caffe's Data layer ignores it: remove it"),
	"caffe.DataParameter.force_encoded_color":    notTrue("Caffe ignores it: set force_color in transform_param"),
	"caffe.DataParameter.scale":                  refused(oldPlace),
	"caffe.DataParameter.mean_file":              refused(oldPlace),
	"caffe.DataParameter.crop_size":              refused(oldPlace),
	"caffe.DataParameter.mirror":                 refused(oldPlace),
	"caffe.ImageDataParameter.scale":             refused(oldPlace),
	"caffe.ImageDataParameter.mean_file":         refused(oldPlace),
	"caffe.ImageDataParameter.crop_size":         refused(oldPlace),
	"caffe.ImageDataParameter.mirror":            refused(oldPlace),
	"caffe.FillerParameter.type":                 oneOf("constant", "uniform", "gaussian", "xavier", "msra", "bilinear"),
	"caffe.NetParameter.debug_info":              notTrue("debug output is not supported: remove it"),
	"caffe.SolverParameter.debug_info":           notTrue("debug output is not supported: remove it"),
	"caffe.SolverParameter.snapshot_format":      notEnum(SolverParameter_HDF5, hdf5),
	"caffe.SolverParameter.snapshot_diff":        notTrue("snapshots hold no gradients: remove it"),
	"caffe.SolverParameter.solver_mode":          noEffect("where to compute is chosen on the command line"),
	"caffe.SolverParameter.device_id":            noEffect("devices are assigned to ranks by their position on the node"),
	"caffe.SolverParameter.layer_wise_reduce":    noEffect("when gradients are sent is chosen on the command line"),
	"caffe.SolverParameter.lr_policy":            oneOf("fixed", "step", "exp", "inv", "multistep", "poly", "sigmoid"),
	"caffe.SolverParameter.regularization_type":  oneOf("L1", "L2"),
	"caffe.SolverParameter.type":                 oneOf("SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam"),
	"caffe.SolverParameter.average_loss":         atLeast(1),
	"caffe.SolverParameter.iter_size":            atLeast(1),
	"caffe.SolverParameter.max_iter":             atLeast(0),
	"caffe.SolverParameter.display":              atLeast(0),
	"caffe.SolverParameter.snapshot":             atLeast(0),
	"caffe.SolverParameter.test_interval":        atLeast(0),
	"caffe.SolverParameter.test_iter":            atLeast(1),
}

const (
	levelDB = "LEVELDB is not supported: convert the data set to LMDB (scaffe data, or Caffe's convert_imageset) and set backend: LMDB"
	hdf5    = "HDF5 snapshots are not supported: set BINARYPROTO, or pass --snapshot-format binaryproto"
)

// Support lists the fields that scaffe does not fully support, by name.
func Support() []Rule {
	var out []Rule
	for name, r := range rules {
		out = append(out, Rule{string(name), r.effect, r.why})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Field < out[j].Field })
	return out
}

func noEffect(why string) rule {
	return rule{NoEffect, why, func(protoreflect.Value) string { return "" }}
}

func refused(why string) rule {
	return rule{Refused, why, func(protoreflect.Value) string { return why }}
}

func limited(why string, bad func(protoreflect.Value) bool) rule {
	return rule{Limited, why, func(v protoreflect.Value) string {
		if bad(v) {
			return why
		}
		return ""
	}}
}

func notTrue(why string) rule {
	return limited(why, func(v protoreflect.Value) bool { return v.Bool() })
}

func notNumber(why string) rule {
	return limited(why, func(v protoreflect.Value) bool { return v.Uint() != 0 })
}

func notEnum(e protoreflect.Enum, why string) rule {
	return limited(why, func(v protoreflect.Value) bool { return v.Enum() == e.Number() })
}

func atLeast(least int64) rule {
	why := fmt.Sprintf("must be at least %d", least)
	return limited(why, func(v protoreflect.Value) bool { return v.Int() < least })
}

func oneOf(names ...string) rule {
	why := "must be one of " + strings.Join(names, ", ")
	return rule{Limited, why, func(v protoreflect.Value) string {
		if slices.Contains(names, v.String()) {
			return ""
		}
		if guess := nearest(v.String(), names); guess != "" {
			return fmt.Sprintf("invalid value %q (did you mean %q?)", v.String(), guess)
		}
		return fmt.Sprintf("invalid value %q: %s", v.String(), why)
	}}
}
