package define

import (
	"strings"

	pb "google.golang.org/protobuf/proto"

	"github.com/scaffe/scaffe/caffe/proto"
)

// builder is a net under construction. Methods that add a layer return the
// name of its top, so that a net reads as its data flows.
type builder struct {
	name   string
	about  string  // the comment at the top of the file
	filler string  // of all weights: xavier, msra, gaussian
	std    float32 // of gaussian
	// How normalize works: what is added to the variance, 0 for Caffe's
	// default, and whether factor and shift are free of weight decay.
	eps       float32
	freeScale bool

	parts []part
	phase *proto.Phase // that the layers are for, nil for both
}

// part is a layer, or a comment between layers.
type part struct {
	comment string
	layer   *proto.LayerParameter
}

// text returns the net in Caffe's text form.
func (n *builder) text() []byte {
	var b strings.Builder
	comment(&b, n.about)
	b.WriteString("name: " + `"` + n.name + `"` + "\n")
	for _, p := range n.parts {
		if p.layer == nil {
			comment(&b, p.comment)
			continue
		}
		b.WriteString("layer {\n")
		text(&b, "  ", p.layer.ProtoReflect(), nil)
		b.WriteString("}\n")
	}
	return []byte(b.String())
}

// message returns the net.
func (n *builder) message() *proto.NetParameter {
	m := &proto.NetParameter{Name: pb.String(n.name)}
	for _, p := range n.parts {
		if p.layer != nil {
			m.Layer = append(m.Layer, p.layer)
		}
	}
	return m
}

// section begins a section with a comment.
func (n *builder) section(about string) { n.parts = append(n.parts, part{comment: about}) }

// only adds the layers that add makes for one phase alone.
func (n *builder) only(phase proto.Phase, add func()) {
	n.phase = &phase
	add()
	n.phase = nil
}

// layer adds a layer and returns its first top. p brings what is particular to
// the type.
func (n *builder) layer(name, typ string, bottoms, tops []string, p *proto.LayerParameter) string {
	p.Name, p.Type, p.Bottom, p.Top = pb.String(name), pb.String(typ), bottoms, tops
	if n.phase != nil {
		p.Include = []*proto.NetStateRule{{Phase: n.phase}}
	}
	n.parts = append(n.parts, part{layer: p})
	return tops[0]
}

// last is the layer that was added last.
func (n *builder) last() *proto.LayerParameter { return n.parts[len(n.parts)-1].layer }

// simple adds a layer of one bottom whose top has the layer's name.
func (n *builder) simple(name, typ, bottom string, p *proto.LayerParameter) string {
	return n.layer(name, typ, []string{bottom}, []string{name}, p)
}

// inPlace adds a layer that changes a blob.
func (n *builder) inPlace(name, typ, blob string, p *proto.LayerParameter) string {
	return n.layer(name, typ, []string{blob}, []string{blob}, p)
}

// source is a data set and what is done to its images.
type source struct {
	train, test           string // LMDBs
	trainBatch, testBatch uint32
	crop                  uint32
	mean                  []float32 // of each channel; or
	meanFile              string    // of each pixel
	scale                 float32   // after the mean, 0 for 1
}

// images adds the data layers of both phases, with tops data and label.
// Training images are mirrored at random, and cropped at random places;
// testing takes their center.
func (n *builder) images(s source) string {
	add := func(phase proto.Phase, db string, batch uint32) {
		t := &proto.TransformationParameter{
			Mirror: pb.Bool(phase == proto.Phase_TRAIN), CropSize: pb.Uint32(s.crop), MeanValue: s.mean,
		}
		if s.meanFile != "" {
			t.MeanFile = pb.String(s.meanFile)
		}
		if s.scale != 0 {
			t.Scale = pb.Float32(s.scale)
		}
		n.only(phase, func() {
			n.layer("data", "Data", nil, []string{"data", "label"}, &proto.LayerParameter{
				TransformParam: t,
				DataParam: &proto.DataParameter{
					Source: pb.String(db), BatchSize: pb.Uint32(batch), Backend: proto.DataParameter_LMDB.Enum(),
				},
			})
		})
	}
	add(proto.Phase_TRAIN, s.train, s.trainBatch)
	add(proto.Phase_TEST, s.test, s.testBatch)
	return "data"
}

// window is a kernel's extent, its stride and the padding around its input.
type window struct{ h, w, stride, padH, padW uint32 }

// square is k×k with a stride and padding.
func square(k, stride, pad uint32) window { return window{k, k, stride, pad, pad} }

// same is h×w at stride 1, padded so that the output is as large as the input.
func same(h, w uint32) window { return window{h, w, 1, (h - 1) / 2, (w - 1) / 2} }

// multipliers are those of weights and biases in Caffe's own nets: biases
// learn twice as fast and do not decay.
func multipliers(bias bool) []*proto.ParamSpec {
	p := []*proto.ParamSpec{{LrMult: pb.Float32(1), DecayMult: pb.Float32(1)}}
	if bias {
		p = append(p, &proto.ParamSpec{LrMult: pb.Float32(2), DecayMult: pb.Float32(0)})
	}
	return p
}

// weights is the filler of all weights.
func (n *builder) weights() *proto.FillerParameter {
	f := &proto.FillerParameter{Type: pb.String(n.filler)}
	if n.std != 0 {
		f.Std = pb.Float32(n.std)
	}
	return f
}

func constant(v float32) *proto.FillerParameter {
	return &proto.FillerParameter{Type: pb.String("constant"), Value: pb.Float32(v)}
}

// conv adds a convolution to out channels, with a bias.
func (n *builder) conv(name, bottom string, out uint32, w window) string {
	p := convolution(out, w)
	p.WeightFiller, p.BiasFiller = n.weights(), constant(0)
	return n.simple(name, "Convolution", bottom, &proto.LayerParameter{Param: multipliers(true), ConvolutionParam: p})
}

// bareConv adds a convolution without a bias, for a normalization to follow,
// whose shift is one.
func (n *builder) bareConv(name, bottom string, out uint32, w window) string {
	p := convolution(out, w)
	p.BiasTerm, p.WeightFiller = pb.Bool(false), n.weights()
	return n.simple(name, "Convolution", bottom, &proto.LayerParameter{Param: multipliers(false), ConvolutionParam: p})
}

func convolution(out uint32, w window) *proto.ConvolutionParameter {
	p := &proto.ConvolutionParameter{NumOutput: pb.Uint32(out)}
	if w.h == w.w {
		p.KernelSize = []uint32{w.h}
		if w.padH != 0 {
			p.Pad = []uint32{w.padH}
		}
	} else {
		p.KernelH, p.KernelW = pb.Uint32(w.h), pb.Uint32(w.w)
		p.PadH, p.PadW = pb.Uint32(w.padH), pb.Uint32(w.padW)
	}
	if w.stride != 1 {
		p.Stride = []uint32{w.stride}
	}
	return p
}

// normalize adds BatchNorm and Scale, which together are batch normalization
// (Ioffe and Szegedy 2015), in place.
func (n *builder) normalize(norm, scale, blob string) string {
	bn := &proto.LayerParameter{}
	if n.eps != 0 {
		bn.BatchNormParam = &proto.BatchNormParameter{Eps: pb.Float32(n.eps)}
	}
	n.inPlace(norm, "BatchNorm", blob, bn)
	p := &proto.LayerParameter{ScaleParam: &proto.ScaleParameter{BiasTerm: pb.Bool(true)}}
	if n.freeScale {
		for range 2 {
			p.Param = append(p.Param, &proto.ParamSpec{LrMult: pb.Float32(1), DecayMult: pb.Float32(0)})
		}
	}
	return n.inPlace(scale, "Scale", blob, p)
}

// relu adds a ReLU in place.
func (n *builder) relu(name, blob string) string {
	return n.inPlace(name, "ReLU", blob, &proto.LayerParameter{})
}

// dropout adds a Dropout in place that drops this share of its inputs.
func (n *builder) dropout(name, blob string, ratio float32) string {
	return n.inPlace(name, "Dropout", blob, &proto.LayerParameter{DropoutParam: &proto.DropoutParameter{DropoutRatio: pb.Float32(ratio)}})
}

// maxPool adds the maximum of k×k windows.
func (n *builder) maxPool(name, bottom string, k, stride uint32) string {
	return n.simple(name, "Pooling", bottom, &proto.LayerParameter{PoolingParam: &proto.PoolingParameter{
		Pool: proto.PoolingParameter_MAX.Enum(), KernelSize: pb.Uint32(k), Stride: pb.Uint32(stride),
	}})
}

// avePool adds the average of k×k windows.
func (n *builder) avePool(name, bottom string, k, stride, pad uint32) string {
	p := &proto.PoolingParameter{
		Pool: proto.PoolingParameter_AVE.Enum(), KernelSize: pb.Uint32(k), Stride: pb.Uint32(stride),
	}
	if pad != 0 {
		p.Pad = pb.Uint32(pad)
	}
	return n.simple(name, "Pooling", bottom, &proto.LayerParameter{PoolingParam: p})
}

// globalPool adds the average of each channel.
func (n *builder) globalPool(name, bottom string) string {
	return n.simple(name, "Pooling", bottom, &proto.LayerParameter{PoolingParam: &proto.PoolingParameter{
		Pool: proto.PoolingParameter_AVE.Enum(), GlobalPooling: pb.Bool(true),
	}})
}

// fc adds a fully connected layer.
func (n *builder) fc(name, bottom string, out uint32) string {
	return n.simple(name, "InnerProduct", bottom, &proto.LayerParameter{
		Param: multipliers(true),
		InnerProductParam: &proto.InnerProductParameter{
			NumOutput: pb.Uint32(out), WeightFiller: n.weights(), BiasFiller: constant(0),
		},
	})
}

// sum adds a sum of two blobs.
func (n *builder) sum(name, a, b string) string {
	return n.layer(name, "Eltwise", []string{a, b}, []string{name}, &proto.LayerParameter{
		EltwiseParam: &proto.EltwiseParameter{Operation: proto.EltwiseParameter_SUM.Enum()},
	})
}

// concat joins blobs along their channels.
func (n *builder) concat(name string, bottoms ...string) string {
	return n.layer(name, "Concat", bottoms, []string{name}, &proto.LayerParameter{})
}

// loss adds the loss of a classifier, with a weight.
func (n *builder) loss(name, scores string, weight float32) {
	p := &proto.LayerParameter{}
	if weight != 1 {
		p.LossWeight = []float32{weight}
	}
	n.layer(name, "SoftmaxWithLoss", []string{scores, "label"}, []string{name}, p)
}

// accuracies adds, for testing, the share of samples whose class is among the
// k highest scores, for each k.
func (n *builder) accuracies(scores string, topK ...uint32) {
	n.only(proto.Phase_TEST, func() {
		for _, k := range topK {
			name, p := "accuracy", &proto.LayerParameter{}
			if k != 1 {
				name, p.AccuracyParam = "accuracy_top5", &proto.AccuracyParameter{TopK: pb.Uint32(k)}
			}
			n.layer(name, "Accuracy", []string{scores, "label"}, []string{name}, p)
		}
	})
}
