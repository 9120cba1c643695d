package define

import (
	"strings"

	pb "google.golang.org/protobuf/proto"

	"github.com/scaffe/scaffe/caffe/proto"
)

// File is a file that belongs below models/.
type File struct {
	Path string // with slashes, relative to models/
	Text []byte
}

// Files returns all files of all nets.
func Files() []File {
	var files []File
	for _, m := range []model{
		vgg19(), vgg19With22K(), resnet50(), resnet152(), inceptionV3(), resnet110(),
	} {
		files = append(files, File{m.dir + "/train_val.prototxt", m.net.text()})
		for _, s := range m.solvers {
			files = append(files, File{m.dir + "/" + s.file, s.text(m.dir)})
		}
	}
	return files
}

// model is a net and how to train it.
type model struct {
	dir     string
	net     *builder
	solvers []solver
}

// solver is a solver's file.
type solver struct {
	file  string
	about string            // stands at its top
	notes map[string]string // stand above fields
	param *proto.SolverParameter
}

// text returns the solver of the net in that folder in Caffe's text form.
func (s solver) text(dir string) []byte {
	s.param.Net = pb.String("models/" + dir + "/train_val.prototxt")
	s.param.SnapshotPrefix = pb.String("models/" + dir + "/" + dir)
	s.param.SolverMode = proto.SolverParameter_GPU.Enum()
	var b strings.Builder
	comment(&b, s.about)
	text(&b, "", s.param.ProtoReflect(), s.notes)
	return []byte(b.String())
}

const generated = "\n\nWritten by models/internal/define (go generate ./models): change it there."

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
