package define

import (
	"fmt"

	pb "google.golang.org/protobuf/proto"

	"github.com/scaffe/scaffe/caffe/proto"
)

// resnet50 and resnet152 are columns of table 1 of He et al. 2015, "Deep
// Residual Learning for Image Recognition".
func resnet50() model {
	return resnet("ResNet-50", "25,557,032", [4]int{3, 4, 6, 3})
}

func resnet152() model {
	return resnet("ResNet-152", "60,192,808", [4]int{3, 8, 36, 3})
}

// resnet is a net of table 1 with so many bottlenecks in conv2_x to conv5_x.
func resnet(name, parameters string, blocks [4]int) model {
	n := &builder{name: name, filler: "msra"}
	n.about = name + ` of He et al. 2015 (arXiv:1512.03385), table 1; ` + parameters + ` learned parameters.

Batch normalization is a BatchNorm and a Scale layer. conv3_x to conv5_x halve their
planes in their first bottleneck, by its first convolution; where the size or depth of
planes changes, the shortcut is a 1x1 convolution (option B).` + generated
	x := n.images(source{
		train: imagenetTrain, test: imagenetTest, trainBatch: 256, testBatch: 50, crop: 224, meanFile: imagenetMean,
	})
	n.section("conv1, and the pooling that begins conv2_x")
	x = n.bareConv("conv1", x, 64, square(7, 2, 3))
	n.normalize("bn_conv1", "scale_conv1", x)
	n.relu("conv1_relu", x)
	x = n.maxPool("pool1", x, 3, 2)
	for i, count := range blocks {
		stage, inner := i+2, uint32(64)<<i
		n.section(fmt.Sprintf("conv%d_x: %d bottlenecks of %d, %d and %d channels", stage, count, inner, inner, 4*inner))
		for k := range count {
			stride := uint32(1)
			if k == 0 && stage > 2 {
				stride = 2
			}
			x = n.bottleneck(block(stage, k, count), x, inner, stride, k == 0)
		}
	}
	x = n.fc("fc1000", n.globalPool("pool5", x), 1000)
	n.accuracies(x, 1, 5)
	n.loss("loss", x, 1)
	return model{n, []solver{resnetSolver(name)}}
}

// block names bottleneck k of a stage: 2a, 2b and so on, and 4b1 to 4b35 where
// letters could run out.
func block(stage, k, count int) string {
	if k == 0 || count <= 6 {
		return fmt.Sprintf("%d%c", stage, 'a'+k)
	}
	return fmt.Sprintf("%db%d", stage, k)
}

// bottleneck is figure 5, right: 1×1, 3×3 and 1×1 convolutions with a
// shortcut, which is the identity or, with project, a 1×1 convolution.
func (n *builder) bottleneck(id, x string, inner, stride uint32, project bool) string {
	shortcut := x
	if project {
		shortcut = n.bareConv("res"+id+"_branch1", x, 4*inner, square(1, stride, 0))
		n.normalize("bn"+id+"_branch1", "scale"+id+"_branch1", shortcut)
	}
	step := func(part, bottom string, out uint32, w window) string {
		name := id + "_branch2" + part
		top := n.bareConv("res"+name, bottom, out, w)
		return n.normalize("bn"+name, "scale"+name, top)
	}
	y := n.relu("res"+id+"_branch2a_relu", step("a", x, inner, square(1, stride, 0)))
	y = n.relu("res"+id+"_branch2b_relu", step("b", y, inner, square(3, 1, 1)))
	y = step("c", y, 4*inner, square(1, 1, 0))
	return n.relu("res"+id+"_relu", n.sum("res"+id, shortcut, y))
}

func resnetSolver(name string) solver {
	return solver{
		file: "solver.prototxt",
		about: name + `, trained as He et al. 2015, section 3.4: batches of 256, momentum 0.9, weight
decay 0.0001, a learning rate of 0.1 that falls by a factor of 10 when the error no
longer improves, at most 600,000 iterations. Here it falls every 150,000, which is
every 30 passes over the images.

Unlike the paper, which resizes each image at random before it crops it, this takes
crops of images of one size.

The ranks divide the batch. If 256 images are too many for their memory, lower
batch_size and raise iter_size by the same factor.` + generated,
		notes: map[string]string{"test_iter": wholeTest, "test_initialization": noStatistics},
		param: &proto.SolverParameter{
			TestIter: []int32{1000}, TestInterval: pb.Int32(5000), TestInitialization: pb.Bool(false),
			MaxIter: pb.Int32(600000), Display: pb.Int32(20), AverageLoss: pb.Int32(20),
			BaseLr: pb.Float32(0.1), LrPolicy: pb.String("multistep"), Gamma: pb.Float32(0.1),
			Stepvalue: []int32{150000, 300000, 450000},
			Momentum:  pb.Float32(0.9), WeightDecay: pb.Float32(0.0001),
			Snapshot: pb.Int32(10000),
		},
	}
}
