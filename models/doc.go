// Package models has the nets of the papers that scaffe follows: within the
// program (Net), and with their solvers as Caffe's text, for people and for
// Caffe (Write, which is `scaffe models`).
//
//	name             learned parameters   input      source
//	alexnet                  60,965,224   3×227×227  Krizhevsky et al. 2012, section 3
//	googlenet                13,378,280   3×224×224  Szegedy et al. 2014, table 1
//	vgg19                   143,667,240   3×224×224  Simonyan and Zisserman 2014, configuration E
//	vgg19_22k               229,052,817   3×224×224  Zhang et al. 2017 (Poseidon), section 5
//	resnet50                 25,557,032   3×224×224  He et al. 2015, table 1
//	resnet152                60,192,808   3×224×224  He et al. 2015, table 1
//	inception_v3             27,161,264   3×299×299  Szegedy et al. 2015, section 6, as in TensorFlow
//	resnet110_cifar           1,727,962   3×32×32    He et al. 2015, section 4.2, n = 18
//
// Inception-V3 has 23,834,568 without its auxiliary classifier, which is for
// training alone, GoogLeNet 6,998,552 without its two. Learned parameters are what a solver updates and ranks must
// exchange. The three parameters of each BatchNorm layer are not among them:
// they are running statistics (lr_mult 0), which Costs counts apart, though a
// net.Net holds them and a .caffemodel stores them.
//
//	f, err := models.Net("resnet50")
//	...
//	n, err := net.New(f, net.Options{Phase: proto.Phase_TRAIN, Rewrite: net.Synthetic(32, 3, 224, 224)})
//
// The nets are defined in package models/internal/define, which is where to
// read and change one.
package models
