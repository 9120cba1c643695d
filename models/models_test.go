package models

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	pb "google.golang.org/protobuf/proto"

	"github.com/scaffe/scaffe/caffe/net"
	"github.com/scaffe/scaffe/caffe/proto"
)

// conv, fc and norm count learned parameters: of a convolution without a bias,
// of a fully connected layer, and of the factors and shifts of a
// normalization.
func conv(in, out, kh, kw int) int { return in * out * kh * kw }
func fc(in, out int) int           { return in*out + out }
func norm(channels int) int        { return 2 * channels }

// unit is a convolution with its normalization.
func unit(in, out, kh, kw int) int { return conv(in, out, kh, kw) + norm(out) }

// vgg counts configuration E (Simonyan and Zisserman 2014, table 1) with a
// classifier of so many classes.
func vgg(classes int) int {
	sum, in := 0, 3
	for _, out := range []int{64, 64, 128, 128, 256, 256, 256, 256, 512, 512, 512, 512, 512, 512, 512, 512} {
		sum += conv(in, out, 3, 3) + out
		in = out
	}
	return sum + fc(512*7*7, 4096) + fc(4096, 4096) + fc(4096, classes)
}

// resnet counts a column of table 1 of He et al. 2015.
func resnet(blocks ...int) int {
	sum, in := unit(3, 64, 7, 7), 64
	for i, count := range blocks {
		inner := 64 << i
		for k := range count {
			sum += unit(in, inner, 1, 1) + unit(inner, inner, 3, 3) + unit(inner, 4*inner, 1, 1)
			if k == 0 {
				sum += unit(in, 4*inner, 1, 1)
			}
			in = 4 * inner
		}
	}
	return sum + fc(2048, 1000)
}

// cifar counts the net of He et al. 2015, section 4.2, of 6n + 2 layers.
func cifar(n int) int {
	sum, in := unit(3, 16, 3, 3), 16
	for _, out := range []int{16, 32, 64} {
		for range n {
			sum += unit(in, out, 3, 3) + unit(out, out, 3, 3)
			in = out
		}
	}
	return sum + fc(64, 10)
}

// inception counts Inception-V3 without its auxiliary classifier, the modules
// by the figures of Szegedy et al. 2015.
func inception() int {
	figure5 := func(in, pool int) int {
		return unit(in, 64, 1, 1) + unit(in, 48, 1, 1) + unit(48, 64, 5, 5) +
			unit(in, 64, 1, 1) + unit(64, 96, 3, 3) + unit(96, 96, 3, 3) + unit(in, pool, 1, 1)
	}
	figure6 := func(n int) int {
		return unit(768, 192, 1, 1) +
			unit(768, n, 1, 1) + unit(n, n, 1, 7) + unit(n, 192, 7, 1) +
			unit(768, n, 1, 1) + 3*unit(n, n, 7, 1) + unit(n, 192, 1, 7) + unit(768, 192, 1, 1)
	}
	figure7 := func(in int) int {
		return unit(in, 320, 1, 1) + unit(in, 384, 1, 1) + 2*unit(384, 384, 1, 3) +
			unit(in, 448, 1, 1) + unit(448, 384, 3, 3) + 2*unit(384, 384, 1, 3) + unit(in, 192, 1, 1)
	}
	stem := unit(3, 32, 3, 3) + unit(32, 32, 3, 3) + unit(32, 64, 3, 3) + unit(64, 80, 1, 1) + unit(80, 192, 3, 3)
	to17 := unit(288, 384, 3, 3) + unit(288, 64, 1, 1) + unit(64, 96, 3, 3) + unit(96, 96, 3, 3)
	to8 := unit(768, 192, 1, 1) + unit(192, 320, 3, 3) +
		unit(768, 192, 1, 1) + unit(192, 192, 1, 7) + unit(192, 192, 7, 1) + unit(192, 192, 3, 3)
	return stem + figure5(192, 32) + figure5(256, 64) + figure5(288, 64) +
		to17 + figure6(128) + 2*figure6(160) + figure6(192) +
		to8 + figure7(1280) + figure7(2048) + fc(2048, 1000)
}

// auxiliary counts figure 8.
func auxiliary() int { return unit(768, 128, 1, 1) + unit(128, 768, 5, 5) + fc(768, 1000) }

// alexnetCount counts section 3.5 of Krizhevsky et al. 2012.
func alexnetCount() int {
	return conv(3, 96, 11, 11) + 96 + conv(48, 256, 5, 5) + 256 + conv(256, 384, 3, 3) + 384 +
		conv(192, 384, 3, 3) + 384 + conv(192, 256, 3, 3) + 256 + fc(6*6*256, 4096) + fc(4096, 4096) + fc(4096, 1000)
}

// googlenetCount counts table 1 of Szegedy et al. 2014, and googlenetAux section 5.
func googlenetCount() int {
	c := func(in, out, k int) int { return conv(in, out, k, k) + out }
	sum, in := c(3, 64, 7)+c(64, 64, 1)+c(64, 192, 3), 192
	for _, m := range [][6]int{
		{64, 96, 128, 16, 32, 32},
		{128, 128, 192, 32, 96, 64},
		{192, 96, 208, 16, 48, 64},
		{160, 112, 224, 24, 64, 64},
		{128, 128, 256, 24, 64, 64},
		{112, 144, 288, 32, 64, 64},
		{256, 160, 320, 32, 128, 128},
		{256, 160, 320, 32, 128, 128},
		{384, 192, 384, 48, 128, 128},
	} {
		sum += c(in, m[0], 1) + c(in, m[1], 1) + c(m[1], m[2], 3) + c(in, m[3], 1) + c(m[3], m[4], 5) + c(in, m[5], 1)
		in = m[0] + m[2] + m[4] + m[5]
	}
	return sum + fc(1024, 1000)
}

func googlenetAux() int {
	sum := 0
	for _, in := range []int{512, 528} {
		sum += conv(in, 128, 1, 1) + 128 + fc(4*4*128, 1024) + fc(1024, 1000)
	}
	return sum
}

// expected is what is known of a net.
type expected struct {
	train, test int // learned parameters, by hand
	published   int // and as a number
	statistics  int // of BatchNorm, in the test phase
	// shapes of blobs without the batch, for images of the net's own size.
	shapes map[string][]int
	// small is a crop at which a training pass is quick, 0 for the net's own.
	small int
}

// batch is how many images a training pass needs: one, or two where a channel
// may have a single value an image, which normalization would make 0.
func (e expected) batch() int {
	if e.statistics > 0 {
		return 2
	}
	return 1
}

var nets = map[string]expected{
	"alexnet": {
		train: alexnetCount(), test: alexnetCount(), published: 60965224,
		shapes: map[string][]int{
			"data": {3, 227, 227}, "conv1": {96, 55, 55}, "pool1": {96, 27, 27}, "conv2": {256, 27, 27}, "pool2": {256, 13, 13},
			"conv4": {384, 13, 13}, "conv5": {256, 13, 13}, "pool5": {256, 6, 6}, "fc7": {4096}, "fc8": {1000},
		},
	},
	"googlenet": {
		train: googlenetCount() + googlenetAux(), test: googlenetCount(), published: 13378280,
		shapes: map[string][]int{
			"data": {3, 224, 224}, "conv1/7x7": {64, 112, 112}, "pool1": {64, 56, 56}, "conv2/3x3": {192, 56, 56}, "pool2": {192, 28, 28},
			"inception_3a": {256, 28, 28}, "inception_3b": {480, 28, 28}, "pool3": {480, 14, 14}, "inception_4a": {512, 14, 14},
			"inception_4d": {528, 14, 14}, "inception_4e": {832, 14, 14}, "pool4": {832, 7, 7}, "inception_5b": {1024, 7, 7},
			"pool5": {1024, 1, 1}, "classifier": {1000},
		},
	},
	"vgg19": {
		train: vgg(1000), test: vgg(1000), published: 143667240,
		shapes: map[string][]int{
			"data": {3, 224, 224}, "conv1_2": {64, 224, 224}, "pool1": {64, 112, 112}, "pool2": {128, 56, 56},
			"pool3": {256, 28, 28}, "conv4_4": {512, 28, 28}, "pool4": {512, 14, 14}, "pool5": {512, 7, 7}, "fc7": {4096}, "fc8": {1000},
		},
	},
	"vgg19_22k": {
		train: vgg(21841), test: vgg(21841), published: 229052817,
		shapes: map[string][]int{"pool5": {512, 7, 7}, "fc8_22k": {21841}},
	},
	"resnet50": {
		train: resnet(3, 4, 6, 3), test: resnet(3, 4, 6, 3), published: 25557032, statistics: 53120 + 53,
		shapes: map[string][]int{
			"conv1": {64, 112, 112}, "pool1": {64, 56, 56}, "res2c": {256, 56, 56}, "res3d": {512, 28, 28},
			"res4f": {1024, 14, 14}, "res5c": {2048, 7, 7}, "pool5": {2048, 1, 1}, "fc1000": {1000},
		},
		small: 64,
	},
	"resnet152": {
		train: resnet(3, 8, 36, 3), test: resnet(3, 8, 36, 3), published: 60192808, statistics: 151424 + 155,
		shapes: map[string][]int{
			"pool1": {64, 56, 56}, "res2c": {256, 56, 56}, "res3b7": {512, 28, 28}, "res4b35": {1024, 14, 14},
			"res5c": {2048, 7, 7}, "pool5": {2048, 1, 1}, "fc1000": {1000},
		},
		small: 64,
	},
	"inception_v3": {
		train: inception() + auxiliary(), test: inception(), published: 27161264, statistics: 2*17216 + 94,
		shapes: map[string][]int{
			"data": {3, 299, 299}, "conv_1a": {32, 149, 149}, "conv_2b": {64, 147, 147}, "pool_3a": {64, 73, 73},
			"conv_4a": {192, 71, 71}, "pool_5a": {192, 35, 35}, "mixed_5b": {256, 35, 35}, "mixed_5d": {288, 35, 35},
			"mixed_6a": {768, 17, 17}, "mixed_6e": {768, 17, 17}, "mixed_7a": {1280, 8, 8}, "mixed_7c": {2048, 8, 8},
			"pool": {2048, 1, 1}, "logits": {1000},
		},
	},
	"resnet110_cifar": {
		train: cifar(18), test: cifar(18), published: 1727962, statistics: 8096 + 109,
		shapes: map[string][]int{
			"data": {3, 32, 32}, "block1_18/sum": {16, 32, 32}, "block2_1/shortcut": {32, 16, 16}, "block2_18/sum": {32, 16, 16},
			"block3_18/sum": {64, 8, 8}, "pool": {64, 1, 1}, "fc10": {10},
		},
	},
}

func TestNames(t *testing.T) {
	names := Names()
	if len(names) != len(nets) || !slices.IsSorted(names) {
		t.Errorf("%q", names)
	}
	for _, n := range names {
		if _, ok := nets[n]; !ok {
			t.Errorf("%s is not tested", n)
		}
	}
	_, err := Net("vgg")
	_, err2 := Files("models", "vgg")
	for _, err := range []error{err, err2} {
		if err == nil || !strings.Contains(err.Error(), `no built-in net "vgg": there are `+strings.Join(names, ", ")) {
			t.Error(err)
		}
	}
}

// The learned parameters are those counted by hand from the papers' tables,
// and stages end in the shapes that those give.
func TestParametersAndShapes(t *testing.T) {
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			want := nets[name]
			if want.train != want.published {
				t.Errorf("%d by hand, %d published", want.train, want.published)
			}
			defer debug.FreeOSMemory()
			train := Total(Costs(build(t, name, proto.Phase_TRAIN, 1, 0, true)))
			debug.FreeOSMemory()
			if train.Learned != want.train {
				t.Errorf("%d learned parameters in training, want %d", train.Learned, want.train)
			}
			n := build(t, name, proto.Phase_TEST, 2, 0, true)
			test := Total(Costs(n))
			if test.Learned != want.test || test.Statistics != want.statistics {
				t.Errorf("%d learned parameters and %d statistics in testing, want %d and %d", test.Learned, test.Statistics, want.test, want.statistics)
			}
			if test.Learned+test.Statistics != n.ParamCount() {
				t.Errorf("the net has %d parameters, of which %d are counted", n.ParamCount(), test.Learned+test.Statistics)
			}
			for blob, shape := range want.shapes {
				if b := n.Blob(blob); b == nil || !slices.Equal(b.Shape(), append([]int{2}, shape...)) {
					t.Errorf("blob %q is %v, want shape 2 × %v", blob, b, shape)
				}
			}
		})
	}
}

// Every net runs: forward and backward in training, after which all that it
// learns has a gradient, and forward in testing, with the same parameters.
func TestRun(t *testing.T) {
	for _, name := range Names() {
		if name == "vgg19_22k" { // 2 GB; vgg19 differs in its classifier alone
			continue
		}
		t.Run(name, func(t *testing.T) {
			want := nets[name]
			n := build(t, name, proto.Phase_TRAIN, want.batch(), want.small, false)
			test := build(t, name, proto.Phase_TEST, 1, want.small, true)
			if err := test.ShareWith(n); err != nil {
				t.Fatal(err)
			}
			debug.FreeOSMemory() // the test net's own parameters
			defer debug.FreeOSMemory()
			loss, err := n.ForwardBackward()
			if err != nil {
				t.Fatal(err)
			}
			if !(loss > 0 && loss < 100) {
				t.Errorf("loss %v", loss)
			}
			for _, p := range n.Learnable() {
				if p.LRMult != 0 && !slices.ContainsFunc(p.Blob.Diff(), func(x float32) bool { return x != 0 }) {
					t.Errorf("parameter %s has no gradient", p.Name)
				}
			}
			if _, err := test.Forward(); err != nil {
				t.Fatal(err)
			}
			if layer, top, bad := test.NotFinite(); bad {
				t.Errorf("%s of layer %s is not finite", top, layer)
			}
		})
	}
}

// build builds a net on random images, a crop of 0 being its own, and its
// weights all 0 where nobody looks at them.
func build(t *testing.T, name string, phase proto.Phase, batch, crop int, zero bool) *net.Net {
	t.Helper()
	f, err := Net(name)
	if err != nil {
		t.Fatal(err)
	}
	synthetic := net.Synthetic(batch, 3, 0, 0)
	n, err := net.New(f, net.Options{Phase: phase, Seed: 1, Rewrite: func(p *proto.LayerParameter) error {
		if p.GetType() == "Data" && crop != 0 {
			p.TransformParam.CropSize = pb.Uint32(uint32(crop))
		}
		if zero {
			if c := p.GetConvolutionParam(); c != nil {
				c.WeightFiller = nil
			}
			if c := p.GetInnerProductParam(); c != nil {
				c.WeightFiller = nil
			}
		}
		return synthetic(p)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// The costs of a layer are what its shape says.
func ExampleCosts() {
	f, err := Net("resnet50")
	if err != nil {
		fmt.Println(err)
		return
	}
	n, err := net.New(f, net.Options{Phase: proto.Phase_TEST, Rewrite: net.Synthetic(1, 3, 224, 224)})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer n.Close()
	for i, c := range Costs(n)[:5] {
		if c != (Cost{}) {
			fmt.Printf("%-12s%+v\n", n.Layers()[i].Name, c)
		}
	}
	// Output:
	// conv1       {Learned:9408 Statistics:0 MultiplyAdds:118013952}
	// bn_conv1    {Learned:0 Statistics:129 MultiplyAdds:0}
	// scale_conv1 {Learned:128 Statistics:0 MultiplyAdds:0}
}
