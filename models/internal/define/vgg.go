package define

import (
	"fmt"

	pb "google.golang.org/protobuf/proto"

	"github.com/scaffe/scaffe/caffe/proto"
)

// vgg19 is configuration E of Simonyan and Zisserman 2014, "Very Deep
// Convolutional Networks for Large-Scale Image Recognition", table 1.
func vgg19() model {
	n := vgg("VGG19", "fc8", 1000, source{train: imagenetTrain, test: imagenetTest})
	n.about = `VGG19: configuration E, table 1, of Simonyan and Zisserman 2014 (arXiv:1409.1556).
16 convolutions of 3x3 and three fully connected layers; 143,667,240 parameters.

Weights are drawn as Glorot and Bengio 2010 say, with which section 3.1 found
that no training of a shallower net need come first.` + generated
	return model{n, []solver{vggSolver(`VGG19, trained as Simonyan and Zisserman 2014, section 3.1: batches of 256, momentum
0.9, weight decay 0.0005, a learning rate of 0.01 that falls three times by a
factor of 10, 370,000 iterations. The paper lowers it when the validation accuracy
no longer improves; here it falls every 100,000 iterations.

The ranks divide the batch. If 256 images are too many for their memory, lower
batch_size and raise iter_size by the same factor.`, wholeTest)}}
}

// vgg19With22K is Poseidon's VGG19-22K (Zhang et al. 2017, section 5): VGG19
// with a classifier for the 21,841 categories of ImageNet-22K.
func vgg19With22K() model {
	n := vgg("VGG19-22K", "fc8_22k", 21841, source{
		train: "examples/imagenet/imagenet22k_train_lmdb", test: "examples/imagenet/imagenet22k_val_lmdb",
	})
	n.about = `VGG19-22K of Poseidon (Zhang et al. 2017, arXiv:1706.03292, section 5): VGG19 with a
classifier for the 21,841 categories of ImageNet-22K; 229,052,817 parameters.

All layers but the classifier, fc8_22k, have the names of VGG19's, so that its
weights can be what training starts from.` + generated
	return model{n, []solver{vggSolver(`VGG19-22K. Poseidon (Zhang et al. 2017) measures throughput and gives no rates: these are
VGG19's (Simonyan and Zisserman 2014, section 3.1). 370,000 batches of 256 are
6.7 passes over the 14.2 million images.

Poseidon has 32 images on each of its nodes (table 3): batch_size: 32 and
--scal weak.`, "50,000 images. ImageNet-22K has no validation set: keep some images apart.")}}
}

// vgg is configuration E with a classifier of that name and size.
func vgg(name, classifier string, classes uint32, data source) *builder {
	n := &builder{name: name, filler: "xavier"}
	data.trainBatch, data.testBatch, data.crop, data.mean = 256, 50, 224, channelMeans
	x := n.images(data)
	for i, s := range []struct {
		convs int
		out   uint32
	}{{2, 64}, {2, 128}, {4, 256}, {4, 512}, {4, 512}} {
		for k := range s.convs {
			id := fmt.Sprintf("%d_%d", i+1, k+1)
			x = n.conv("conv"+id, x, s.out, square(3, 1, 1))
			n.relu("relu"+id, x)
		}
		x = n.maxPool(fmt.Sprintf("pool%d", i+1), x, 2, 2)
	}
	for _, id := range []string{"6", "7"} {
		x = n.fc("fc"+id, x, 4096)
		n.relu("relu"+id, x)
		n.dropout("drop"+id, x, 0.5)
	}
	x = n.fc(classifier, x, classes)
	n.accuracies(x, 1, 5)
	n.loss("loss", x, 1)
	return n
}

func vggSolver(about, tests string) solver {
	return solver{
		file:  "solver.prototxt",
		about: about + generated,
		notes: map[string]string{"test_iter": tests},
		param: &proto.SolverParameter{
			TestIter: []int32{1000}, TestInterval: pb.Int32(5000), TestInitialization: pb.Bool(false),
			MaxIter: pb.Int32(370000), Display: pb.Int32(20), AverageLoss: pb.Int32(20),
			BaseLr: pb.Float32(0.01), LrPolicy: pb.String("step"), Gamma: pb.Float32(0.1), Stepsize: pb.Int32(100000),
			Momentum: pb.Float32(0.9), WeightDecay: pb.Float32(0.0005),
			Snapshot: pb.Int32(10000),
		},
	}
}
