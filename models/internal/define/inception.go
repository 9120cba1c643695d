package define

import (
	"fmt"

	pb "google.golang.org/protobuf/proto"

	"github.com/scaffe/scaffe/caffe/proto"
)

// inceptionV3 is the net of Szegedy et al. 2015, "Rethinking the Inception
// Architecture for Computer Vision", section 6, in the sizes of TensorFlow's
// implementation, which Poseidon and others train; modules have its names.
func inceptionV3() model {
	n := &builder{name: "Inception-V3", filler: "msra", eps: 0.001, freeScale: true}
	n.about = `Inception-V3 of Szegedy et al. 2015 (arXiv:1512.00567), section 6, in the sizes of TensorFlow's
implementation: 27,161,264 learned parameters with the auxiliary classifier, which is
for training alone, 23,834,568 without.

Images must be 299x299 at least: make the data set with scaffe data images --height 320
--width 320. They are scaled to between -1 and 1.

What Caffe has not, and this net therefore lacks: label smoothing (section 7).
Averages that reach into the padding count it, as is usual in Caffe.` + generated
	x := n.images(source{
		train: "examples/imagenet/ilsvrc12_train_320_lmdb", test: "examples/imagenet/ilsvrc12_val_320_lmdb",
		trainBatch: 32, testBatch: 50, crop: 299, mean: []float32{127.5}, scale: 1 / 127.5,
	})
	x = n.stem(x)
	n.section("Three modules of figure 5 on 35x35: factorized 5x5 convolutions")
	for _, m := range []struct {
		id   string
		pool uint32
	}{{"5b", 32}, {"5c", 64}, {"5d", 64}} {
		x = n.module35("mixed_"+m.id, x, m.pool)
	}
	n.section("Figure 10: from 35x35 to 17x17")
	x = n.reduce35("mixed_6a", x)
	n.section("Four modules of figure 6 on 17x17: 1x7 and 7x1 convolutions")
	for _, m := range []struct {
		id    string
		inner uint32
	}{{"6b", 128}, {"6c", 160}, {"6d", 160}, {"6e", 192}} {
		x = n.module17("mixed_"+m.id, x, m.inner)
	}
	n.section("The auxiliary classifier, figure 8")
	n.only(proto.Phase_TRAIN, func() { n.auxiliary(x) })
	n.section("From 17x17 to 8x8")
	x = n.reduce17("mixed_7a", x)
	n.section("Two modules of figure 7 on 8x8: expanded filter banks")
	for _, id := range []string{"7b", "7c"} {
		x = n.module8("mixed_"+id, x)
	}
	x = n.globalPool("pool", x)
	n.dropout("drop", x, 0.2)
	x = n.fc("logits", x, 1000)
	n.accuracies(x, 1, 5)
	n.loss("loss", x, 1)
	return model{n, []solver{inceptionSolver()}}
}

// unit is what the paper calls a convolution: without a bias, normalized, and
// a ReLU (section 6).
func (n *builder) unit(name, bottom string, out uint32, w window) string {
	x := n.bareConv(name, bottom, out, w)
	n.normalize(name+"/bn", name+"/scale", x)
	return n.relu(name+"/relu", x)
}

// stem is what table 1 has before the first Inception module.
func (n *builder) stem(x string) string {
	n.section("From 299x299 to 35x35")
	x = n.unit("conv_1a", x, 32, square(3, 2, 0))
	x = n.unit("conv_2a", x, 32, square(3, 1, 0))
	x = n.unit("conv_2b", x, 64, same(3, 3))
	x = n.maxPool("pool_3a", x, 3, 2)
	x = n.unit("conv_3b", x, 80, square(1, 1, 0))
	x = n.unit("conv_4a", x, 192, square(3, 1, 0))
	return n.maxPool("pool_5a", x, 3, 2)
}

// module35 is figure 5: 5×5 convolutions, and their factorization into two of
// 3×3.
func (n *builder) module35(id, x string, pool uint32) string {
	one := n.unit(id+"/1x1", x, 64, same(1, 1))
	five := n.unit(id+"/5x5_reduce", x, 48, same(1, 1))
	five = n.unit(id+"/5x5", five, 64, same(5, 5))
	double := n.unit(id+"/double3x3_reduce", x, 64, same(1, 1))
	double = n.unit(id+"/double3x3_1", double, 96, same(3, 3))
	double = n.unit(id+"/double3x3_2", double, 96, same(3, 3))
	proj := n.unit(id+"/pool_proj", n.avePool(id+"/pool", x, 3, 1, 1), pool, same(1, 1))
	return n.concat(id, one, five, double, proj)
}

// reduce35 is figure 10: convolutions and a pooling of stride 2 side by side.
func (n *builder) reduce35(id, x string) string {
	three := n.unit(id+"/3x3", x, 384, square(3, 2, 0))
	double := n.unit(id+"/double3x3_reduce", x, 64, same(1, 1))
	double = n.unit(id+"/double3x3_1", double, 96, same(3, 3))
	double = n.unit(id+"/double3x3_2", double, 96, square(3, 2, 0))
	return n.concat(id, three, double, n.maxPool(id+"/pool", x, 3, 2))
}

// module17 is figure 6 with n = 7: n×n convolutions as 1×n and n×1.
func (n *builder) module17(id, x string, inner uint32) string {
	one := n.unit(id+"/1x1", x, 192, same(1, 1))
	seven := n.unit(id+"/7x7_reduce", x, inner, same(1, 1))
	seven = n.unit(id+"/1x7", seven, inner, same(1, 7))
	seven = n.unit(id+"/7x1", seven, 192, same(7, 1))
	double := n.unit(id+"/double7x7_reduce", x, inner, same(1, 1))
	double = n.unit(id+"/double7x1_1", double, inner, same(7, 1))
	double = n.unit(id+"/double1x7_1", double, inner, same(1, 7))
	double = n.unit(id+"/double7x1_2", double, inner, same(7, 1))
	double = n.unit(id+"/double1x7_2", double, 192, same(1, 7))
	proj := n.unit(id+"/pool_proj", n.avePool(id+"/pool", x, 3, 1, 1), 192, same(1, 1))
	return n.concat(id, one, seven, double, proj)
}

// auxiliary is figure 8. Its loss weighs 0.4, as in TensorFlow.
func (n *builder) auxiliary(x string) {
	x = n.avePool("aux/pool", x, 5, 3, 0)
	x = n.unit("aux/1x1", x, 128, same(1, 1))
	x = n.unit("aux/5x5", x, 768, square(5, 1, 0))
	n.loss("aux/loss", n.fc("aux/logits", x, 1000), 0.4)
}

// reduce17 is figure 10 once more, with a 7×7 convolution before one of the
// two of stride 2.
func (n *builder) reduce17(id, x string) string {
	three := n.unit(id+"/3x3_reduce", x, 192, same(1, 1))
	three = n.unit(id+"/3x3", three, 320, square(3, 2, 0))
	seven := n.unit(id+"/7x7_reduce", x, 192, same(1, 1))
	seven = n.unit(id+"/1x7", seven, 192, same(1, 7))
	seven = n.unit(id+"/7x1", seven, 192, same(7, 1))
	seven = n.unit(id+"/7x7_3x3", seven, 192, square(3, 2, 0))
	return n.concat(id, three, seven, n.maxPool(id+"/pool", x, 3, 2))
}

// module8 is figure 7: 1×3 and 3×1 convolutions side by side.
func (n *builder) module8(id, x string) string {
	pair := func(name, x string) []string {
		return []string{n.unit(id+"/"+name+"1x3", x, 384, same(1, 3)), n.unit(id+"/"+name+"3x1", x, 384, same(3, 1))}
	}
	parts := []string{n.unit(id+"/1x1", x, 320, same(1, 1))}
	three := n.unit(id+"/3x3_reduce", x, 384, same(1, 1))
	parts = append(parts, pair("", three)...)
	double := n.unit(id+"/double3x3_reduce", x, 448, same(1, 1))
	double = n.unit(id+"/double3x3", double, 384, same(3, 3))
	parts = append(parts, pair("double", double)...)
	proj := n.unit(id+"/pool_proj", n.avePool(id+"/pool", x, 3, 1, 1), 192, same(1, 1))
	return n.concat(id, append(parts, proj)...)
}

func inceptionSolver() solver {
	const images, batch, epochs = 1281167, 50 * 32, 100
	return solver{
		file: "solver.prototxt",
		about: `Inception-V3, trained as Szegedy et al. 2015, section 8: RMSProp with a decay of 0.9 and an
epsilon of 1.0, a learning rate of 0.045 that falls by a factor of 0.94 every two epochs,
gradients clipped at 2.0, 100 epochs on 50 replicas with 32 images each:
mpirun -np 50 scaffe train --scal weak. The weight decay is that of TensorFlow's
implementation.

An epoch is ` + fmt.Sprint(images/batch) + ` iterations of 50 x 32 images. With R replicas, stepsize and max_iter
are 50/R times as many; most then have a lower base_lr too.

Caffe's RMSProp adds delta to the root, TensorFlow's adds epsilon below it, and has a
momentum besides, which Caffe's has not.` + generated,
		notes: map[string]string{
			"test_iter":           wholeTest,
			"test_initialization": noStatistics,
			"max_iter":            "100 epochs.",
			"stepsize":            "Two epochs.",
		},
		param: &proto.SolverParameter{
			TestIter: []int32{1000}, TestInterval: pb.Int32(1600), TestInitialization: pb.Bool(false),
			MaxIter: pb.Int32(epochs * images / batch), Display: pb.Int32(20), AverageLoss: pb.Int32(20),
			BaseLr: pb.Float32(0.045), LrPolicy: pb.String("step"), Gamma: pb.Float32(0.94), Stepsize: pb.Int32(2 * images / batch),
			Type: pb.String("RMSProp"), RmsDecay: pb.Float32(0.9), Delta: pb.Float32(1),
			WeightDecay: pb.Float32(0.00004), ClipGradients: pb.Float32(2),
			Snapshot: pb.Int32(8000),
		},
	}
}
