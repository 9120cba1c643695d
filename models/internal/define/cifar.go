package define

import (
	"fmt"

	pb "google.golang.org/protobuf/proto"

	"github.com/scaffe/scaffe/caffe/proto"
)

// resnet110 is the net of He et al. 2015, section 4.2, with n = 18: 6n + 2
// layers.
func resnet110() model {
	const blocks = 18
	n := &builder{name: "ResNet-110", filler: "msra"}
	n.about = `ResNet-110 for CIFAR-10: He et al. 2015 (arXiv:1512.03385), section 4.2, with n = 18, which is
6n + 2 = 110 layers; 1,727,962 learned parameters.

Shortcuts are identities (option A): where planes halve and channels double, every
second row and column is taken and channels of zeros are joined to it. They have no
parameters.

The paper pads the 32x32 images by 4 on every side before it crops them at random:
crop_size: 32 does so on a data set of images padded to 40x40, whose centers are what
testing takes. On one of 32x32 it takes the images as they are.` + generated
	x := n.images(source{
		train: "examples/cifar10/cifar10_train_lmdb", test: "examples/cifar10/cifar10_test_lmdb",
		trainBatch: 128, testBatch: 100, crop: 32, meanFile: "examples/cifar10/mean.binaryproto",
	})
	x = n.bareConv("conv1", x, 16, same(3, 3))
	n.normalize("bn1", "scale1", x)
	n.relu("relu1", x)
	for stage := range 3 {
		out, size := uint32(16)<<stage, 32>>stage
		n.section(fmt.Sprintf("Maps of %dx%d, %d channels", size, size, out))
		for k := range blocks {
			x = n.basicBlock(fmt.Sprintf("block%d_%d", stage+1, k+1), x, out, stage > 0 && k == 0)
		}
	}
	x = n.fc("fc10", n.globalPool("pool", x), 10)
	n.accuracies(x, 1)
	n.loss("loss", x, 1)
	return model{n, []solver{cifarSolver(), cifarWarmUp()}}
}

// basicBlock is figure 5, left: two 3×3 convolutions with a shortcut without
// parameters; halve says that planes halve and channels double.
func (n *builder) basicBlock(id, x string, out uint32, halve bool) string {
	shortcut, stride := x, uint32(1)
	if halve {
		shortcut, stride = n.paddedShortcut(id, x), 2
	}
	y := n.bareConv(id+"/conv1", x, out, square(3, stride, 1))
	n.normalize(id+"/bn1", id+"/scale1", y)
	n.relu(id+"/relu1", y)
	y = n.bareConv(id+"/conv2", y, out, same(3, 3))
	n.normalize(id+"/bn2", id+"/scale2", y)
	return n.relu(id+"/relu2", n.sum(id+"/sum", shortcut, y))
}

// paddedShortcut is the shortcut of option A (section 3.3): a pooling of 1×1
// windows takes every second row and column; what that gives times 0 are the
// channels of zeros, whatever the batch. Rounding down keeps 32 to 16 in every
// implementation.
func (n *builder) paddedShortcut(id, x string) string {
	half := n.simple(id+"/every2nd", "Pooling", x, &proto.LayerParameter{PoolingParam: &proto.PoolingParameter{
		Pool: proto.PoolingParameter_AVE.Enum(), KernelSize: pb.Uint32(1), Stride: pb.Uint32(2),
		RoundMode: proto.PoolingParameter_FLOOR.Enum(),
	}})
	zeros := n.simple(id+"/zeros", "Power", half, &proto.LayerParameter{PowerParam: &proto.PowerParameter{Scale: pb.Float32(0)}})
	return n.concat(id+"/shortcut", half, zeros)
}

func cifarSolver() solver {
	return solver{
		file: "solver.prototxt",
		about: `ResNet-110 on CIFAR-10, trained as He et al. 2015, section 4.2: batches of 128, momentum
0.9, weight decay 0.0001, a learning rate of 0.1 that falls by a factor of 10 after
32,000 and 48,000 iterations of 64,000.

The paper begins with 0.01 for about 400 iterations, since 0.1 is too much for
this depth at first: train with warmup_solver.prototxt, then with this file and
--snapshot {dir}/resnet110_cifar_iter_400.solverstate.` + generated,
		notes: map[string]string{"test_iter": "100 batches of 100 are the 10,000 test images.", "test_initialization": noStatistics},
		param: &proto.SolverParameter{
			TestIter: []int32{100}, TestInterval: pb.Int32(1000), TestInitialization: pb.Bool(false),
			MaxIter: pb.Int32(64000), Display: pb.Int32(100), AverageLoss: pb.Int32(100),
			BaseLr: pb.Float32(0.1), LrPolicy: pb.String("multistep"), Gamma: pb.Float32(0.1),
			Stepvalue: []int32{32000, 48000},
			Momentum:  pb.Float32(0.9), WeightDecay: pb.Float32(0.0001),
			Snapshot: pb.Int32(8000),
		},
	}
}

func cifarWarmUp() solver {
	return solver{
		file: "warmup_solver.prototxt",
		about: `The first 400 iterations of ResNet-110, with the learning rate 0.01 (He et al. 2015,
section 4.2). solver.prototxt continues from the snapshot.` + generated,
		param: &proto.SolverParameter{
			MaxIter: pb.Int32(400), Display: pb.Int32(100), AverageLoss: pb.Int32(100),
			BaseLr: pb.Float32(0.01), LrPolicy: pb.String("fixed"),
			Momentum: pb.Float32(0.9), WeightDecay: pb.Float32(0.0001),
			Snapshot: pb.Int32(400),
		},
	}
}
