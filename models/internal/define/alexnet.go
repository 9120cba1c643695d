package define

import (
	pb "google.golang.org/protobuf/proto"

	"github.com/scaffe/scaffe/caffe/proto"
)

// alexnet is the net of Krizhevsky, Sutskever and Hinton 2012, "ImageNet Classification with
// Deep Convolutional Neural Networks", section 3 and figure 2.
func alexnet() model {
	n := &builder{name: "AlexNet", filler: "gaussian", std: 0.01}
	n.about = `AlexNet: Krizhevsky, Sutskever and Hinton 2012, section 3, figure 2. Five convolutions and
three fully connected layers; 60,965,224 parameters. The second, fourth and fifth
convolution see half of the channels each, as on the paper's two GPUs.

The paper crops 224x224; its figures come out with 227x227, which this net takes.
Weights and biases begin as section 5 says.` + generated
	x := n.images(source{
		train: imagenetTrain, test: imagenetTest, trainBatch: 128, testBatch: 50, crop: 227, meanFile: imagenetMean,
	})
	x = n.grouped("1", x, 96, square(11, 4, 0), 1, 0)
	x = n.maxPool("pool1", n.respond("norm1", x), 3, 2)
	x = n.grouped("2", x, 256, same(5, 5), 2, 1)
	x = n.maxPool("pool2", n.respond("norm2", x), 3, 2)
	x = n.grouped("3", x, 384, same(3, 3), 1, 0)
	x = n.grouped("4", x, 384, same(3, 3), 2, 1)
	x = n.grouped("5", x, 256, same(3, 3), 2, 1)
	x = n.maxPool("pool5", x, 3, 2)
	for _, id := range []string{"6", "7"} {
		x = n.fc("fc"+id, x, 4096)
		n.last().InnerProductParam.BiasFiller = constant(1)
		n.relu("relu"+id, x)
		n.dropout("drop"+id, x, 0.5)
	}
	x = n.fc("fc8", x, 1000)
	n.accuracies(x, 1, 5)
	n.loss("loss", x, 1)
	return model{n, []solver{{
		file: "solver.prototxt",
		about: `AlexNet, trained as Krizhevsky, Sutskever and Hinton 2012, section 5: batches of 128, momentum
0.9, weight decay 0.0005, a learning rate of 0.01 that falls three times by a factor of
10, about 90 passes over the 1.2 million images. The paper lowers it when the validation
error no longer improves; here it falls every 225,000 iterations. Biases learn twice as
fast and do not decay, as is usual in Caffe.

The ranks divide the batch.` + generated,
		notes: map[string]string{"test_iter": wholeTest},
		param: &proto.SolverParameter{
			TestIter: []int32{1000}, TestInterval: pb.Int32(10000), TestInitialization: pb.Bool(false),
			MaxIter: pb.Int32(900000), Display: pb.Int32(20), AverageLoss: pb.Int32(20),
			BaseLr: pb.Float32(0.01), LrPolicy: pb.String("step"), Gamma: pb.Float32(0.1), Stepsize: pb.Int32(225000),
			Momentum: pb.Float32(0.9), WeightDecay: pb.Float32(0.0005),
			Snapshot: pb.Int32(10000),
		},
	}}}
}

// grouped adds a convolution whose channels are in so many groups, whose biases begin with
// a constant, and its ReLU.
func (n *builder) grouped(id, x string, out uint32, w window, groups uint32, bias float32) string {
	x = n.conv("conv"+id, x, out, w)
	p := n.last().ConvolutionParam
	p.BiasFiller = constant(bias)
	if groups > 1 {
		p.Group = pb.Uint32(groups)
	}
	return n.relu("relu"+id, x)
}

// respond adds the local response normalization of section 3.3, over five channels. (Caffe
// divides alpha by their number, the paper does not.)
func (n *builder) respond(name, bottom string) string {
	return n.simple(name, "LRN", bottom, &proto.LayerParameter{LrnParam: &proto.LRNParameter{
		LocalSize: pb.Uint32(5), Alpha: pb.Float32(5 * 1e-4), Beta: pb.Float32(0.75), K: pb.Float32(2),
	}})
}
