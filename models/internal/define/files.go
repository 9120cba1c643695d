package define

import (
	"maps"
	"path"
	"slices"
	"strings"

	pb "google.golang.org/protobuf/proto"

	"github.com/scaffe/scaffe/caffe/proto"
)

// catalog holds the nets, by name.
var catalog = map[string]struct {
	title string
	build func() model
}{
	"alexnet":         {"AlexNet (Krizhevsky, Sutskever and Hinton 2012)", alexnet},
	"googlenet":       {"GoogLeNet (Szegedy et al. 2014)", googlenet},
	"inception_v3":    {"Inception-V3 (Szegedy et al. 2015)", inceptionV3},
	"resnet110_cifar": {"ResNet-110 for CIFAR-10 (He et al. 2015)", resnet110},
	"resnet152":       {"ResNet-152 (He et al. 2015)", resnet152},
	"resnet50":        {"ResNet-50 (He et al. 2015)", resnet50},
	"vgg19":           {"VGG19, configuration E (Simonyan and Zisserman 2014)", vgg19},
	"vgg19_22k":       {"VGG19 with 21,841 classes (Zhang et al. 2017, Poseidon)", vgg19With22K},
}

// Names lists the nets, in alphabetical order.
func Names() []string { return slices.Sorted(maps.Keys(catalog)) }

// Title says in a few words what the net of that name is; "" if there is none.
func Title(name string) string { return catalog[name].title }

// Net returns the net of that name, for all phases; ok is false if there is
// none.
func Net(name string) (net *proto.NetParameter, ok bool) {
	m, ok := catalog[name]
	if !ok {
		return nil, false
	}
	return m.build().net.message(), true
}

// File is a file of a net.
type File struct {
	Path string // with slashes
	Text []byte
}

// Files returns the files of the net of that name for the directory dir/name:
// train_val.prototxt, solver.prototxt and what other solvers it has, none if
// there is no such net. Solvers name their net and snapshots by paths that begin
// with dir.
func Files(dir, name string) []File {
	c, ok := catalog[name]
	if !ok {
		return nil
	}
	m, dir := c.build(), path.Join(dir, name)
	files := []File{{path.Join(dir, "train_val.prototxt"), m.net.text()}}
	for _, s := range m.solvers {
		files = append(files, File{path.Join(dir, s.file), s.text(dir, name)})
	}
	return files
}

// model is a net and how to train it.
type model struct {
	net     *builder
	solvers []solver
}

// solver is a solver's file.
type solver struct {
	file  string
	about string            // the comment at its top; {dir} is the file's directory
	notes map[string]string // comments above fields
	param *proto.SolverParameter
}

// text returns the solver of the net of that name in Caffe's text form.
func (s solver) text(dir, name string) []byte {
	s.param.Net = pb.String(path.Join(dir, "train_val.prototxt"))
	s.param.SnapshotPrefix = pb.String(path.Join(dir, name))
	s.param.SolverMode = proto.SolverParameter_GPU.Enum()
	var b strings.Builder
	comment(&b, strings.ReplaceAll(s.about, "{dir}", dir))
	text(&b, "", s.param.ProtoReflect(), s.notes)
	return []byte(b.String())
}

const generated = "\n\nWritten by scaffe models."

// The data sets of ImageNet where Caffe's examples have them.
const (
	imagenetTrain = "examples/imagenet/ilsvrc12_train_lmdb"
	imagenetTest  = "examples/imagenet/ilsvrc12_val_lmdb"
	imagenetMean  = "data/ilsvrc12/imagenet_mean.binaryproto"
)

// channelMeans are ImageNet's mean blue, green and red, as Caffe's nets use
// them.
var channelMeans = []float32{104, 117, 123}

// wholeTest is the note about test_iter.
const wholeTest = "1000 batches of 50 are ImageNet's 50,000 validation images."

// noStatistics is the note about test_initialization.
const noStatistics = "Before training, BatchNorm has no statistics to test with."
