package define

import (
	pb "google.golang.org/protobuf/proto"

	"github.com/scaffe/scaffe/caffe/proto"
)

// googlenet is the net of Szegedy et al. 2014, "Going Deeper with Convolutions", table 1 and
// figure 3.
func googlenet() model {
	n := &builder{name: "GoogLeNet", filler: "xavier"}
	n.about = `GoogLeNet: Szegedy et al. 2014 (arXiv:1409.4842), table 1 and figure 3. Nine Inception
modules; 13,378,280 learned parameters with the two auxiliary classifiers, which are for
training alone, 6,998,552 without.` + generated
	x := n.images(source{
		train: imagenetTrain, test: imagenetTest, trainBatch: 128, testBatch: 50, crop: 224, mean: channelMeans,
	})
	x = n.active("conv1/7x7", x, 64, square(7, 2, 3))
	x = n.respond("norm1", n.maxPool("pool1", x, 3, 2))
	x = n.active("conv2/3x3_reduce", x, 64, same(1, 1))
	x = n.active("conv2/3x3", x, 192, same(3, 3))
	x = n.maxPool("pool2", n.respond("norm2", x), 3, 2)
	for _, m := range []struct {
		id                                    string
		one, reduce3, three, reduce5, five, p uint32
	}{
		{"3a", 64, 96, 128, 16, 32, 32},
		{"3b", 128, 128, 192, 32, 96, 64},
		{"4a", 192, 96, 208, 16, 48, 64},
		{"4b", 160, 112, 224, 24, 64, 64},
		{"4c", 128, 128, 256, 24, 64, 64},
		{"4d", 112, 144, 288, 32, 64, 64},
		{"4e", 256, 160, 320, 32, 128, 128},
		{"5a", 256, 160, 320, 32, 128, 128},
		{"5b", 384, 192, 384, 48, 128, 128},
	} {
		id := "inception_" + m.id
		one := n.active(id+"/1x1", x, m.one, same(1, 1))
		three := n.active(id+"/3x3", n.active(id+"/3x3_reduce", x, m.reduce3, same(1, 1)), m.three, same(3, 3))
		five := n.active(id+"/5x5", n.active(id+"/5x5_reduce", x, m.reduce5, same(1, 1)), m.five, same(5, 5))
		pool := n.maxPool(id+"/pool", x, 3, 1)
		n.last().PoolingParam.Pad = pb.Uint32(1)
		x = n.concat(id, one, three, five, n.active(id+"/pool_proj", pool, m.p, same(1, 1)))
		switch m.id {
		case "3b":
			x = n.maxPool("pool3", x, 3, 2)
		case "4a", "4d":
			n.section("An auxiliary classifier, section 5")
			n.only(proto.Phase_TRAIN, func() { n.classifier("aux_"+m.id, x) })
		case "4e":
			x = n.maxPool("pool4", x, 3, 2)
		}
	}
	x = n.globalPool("pool5", x)
	n.dropout("drop", x, 0.4)
	x = n.fc("classifier", x, 1000)
	n.accuracies(x, 1, 5)
	n.loss("loss", x, 1)
	return model{n, []solver{{
		file: "solver.prototxt",
		about: `GoogLeNet. Szegedy et al. 2014, section 6, train with a momentum of 0.9 and a learning rate
that falls by 4 % every eight epochs, and give no rate, batch, or length. Here the batch is
128, as in Poseidon (Zhang et al. 2017, table 3), the rate begins with 0.01, weights decay by 0.0002,
and training takes 60 epochs.

The ranks divide the batch.` + generated,
		notes: map[string]string{"test_iter": wholeTest, "stepsize": "Eight epochs."},
		param: &proto.SolverParameter{
			TestIter: []int32{1000}, TestInterval: pb.Int32(10000), TestInitialization: pb.Bool(false),
			MaxIter: pb.Int32(600000), Display: pb.Int32(40), AverageLoss: pb.Int32(40),
			BaseLr: pb.Float32(0.01), LrPolicy: pb.String("step"), Gamma: pb.Float32(0.96), Stepsize: pb.Int32(80000),
			Momentum: pb.Float32(0.9), WeightDecay: pb.Float32(0.0002),
			Snapshot: pb.Int32(40000),
		},
	}}}
}

// active adds a convolution and its ReLU.
func (n *builder) active(name, bottom string, out uint32, w window) string {
	return n.relu(name+"/relu", n.conv(name, bottom, out, w))
}

// classifier is what section 5 has for the outputs of 4a and 4d. Its loss weighs 0.3.
func (n *builder) classifier(id, x string) {
	x = n.avePool(id+"/pool", x, 5, 3, 0)
	x = n.active(id+"/1x1", x, 128, same(1, 1))
	x = n.fc(id+"/fc", x, 1024)
	n.relu(id+"/fc/relu", x)
	n.dropout(id+"/drop", x, 0.7)
	n.loss(id+"/loss", n.fc(id+"/classifier", x, 1000), 0.3)
}
