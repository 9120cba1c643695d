package net

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pb "google.golang.org/protobuf/proto"

	"github.com/scaffe/scaffe/caffe/data"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/mem"
)

// wantError checks that err contains all the words.
func wantError(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}

func TestHooksRunAroundEveryLayer(t *testing.T) {
	n := build(t, small, Options{})
	setInputs(n)
	var got []string
	n.Hooks = Hooks{
		BeforeForward: func(l int) error { got = append(got, fmt.Sprint("f", l)); return nil },
		AfterBackward: func(l int) error { got = append(got, fmt.Sprint("b", l)); return nil },
	}
	if _, err := n.ForwardBackward(); err != nil {
		t.Fatal(err)
	}
	var want []string
	layers := len(n.Layers())
	for i := range layers {
		want = append(want, fmt.Sprint("f", i))
	}
	for i := layers - 1; i >= 0; i-- {
		want = append(want, fmt.Sprint("b", i))
	}
	if !slices.Equal(got, want) {
		t.Errorf("hooks ran as %v, want %v", got, want)
	}
}

func TestHookErrorEndsThePass(t *testing.T) {
	n := build(t, small, Options{})
	setInputs(n)
	stop := errors.New("stop")
	n.Hooks.BeforeForward = func(l int) error {
		if l == 3 {
			return stop
		}
		return nil
	}
	if _, err := n.Forward(); !errors.Is(err, stop) {
		t.Errorf("Forward returned %v", err)
	}
	n.Hooks = Hooks{AfterBackward: func(int) error { return stop }}
	if _, err := n.ForwardBackward(); !errors.Is(err, stop) {
		t.Errorf("ForwardBackward returned %v", err)
	}
}

// When AfterBackward runs for the layer that owns a parameter, nothing is
// added to its gradient any more, also where layers share it.
func TestGradientsAreCompleteAfterTheOwner(t *testing.T) {
	n := build(t, small, Options{Seed: 2})
	setInputs(n)
	n.ClearDiffs()
	at := map[int][]float32{}
	infos := n.Layers()
	n.Hooks.AfterBackward = func(l int) error {
		for _, p := range infos[l].Params {
			at[p] = slices.Clone(n.Learnable()[p].Blob.Diff())
		}
		return nil
	}
	if _, err := n.ForwardBackward(); err != nil {
		t.Fatal(err)
	}
	for i, p := range n.Learnable() {
		if !slices.Equal(at[i], p.Blob.Diff()) {
			t.Errorf("the gradient of %s changed after its owner's hook", p.Name)
		}
	}
}

// TestSCaffe_ParametersAndGradientsArePacked: as in the packed_comm_buffer and the
// packed_reduce_buffer (section 2.2), which keep what was there before.
func TestSCaffe_ParametersAndGradientsArePacked(t *testing.T) {
	n := build(t, small, Options{Seed: 4})
	setInputs(n)
	before, err := n.ForwardBackward()
	if err != nil {
		t.Fatal(err)
	}
	var values, diffs [][]float32
	for _, p := range n.Learnable() {
		values, diffs = append(values, slices.Clone(p.Blob.Data())), append(diffs, slices.Clone(p.Blob.Diff()))
	}
	var asked []int
	data, diff, err := n.Pack(func(b int) (mem.Buffer, error) { asked = append(asked, b); return mem.Alloc(b), nil })
	if err != nil {
		t.Fatal(err)
	}
	defer data.Free()
	defer diff.Free()
	if want := mem.Float32.Bytes(n.PackedCount()); !slices.Equal(asked, []int{want, want}) {
		t.Errorf("asked for %v bytes, want %d twice", asked, want)
	}
	flat, flatDiff := mem.Float32s(data), mem.Float32s(diff)
	end := 0
	for i, p := range n.Learnable() {
		if p.Offset%Alignment != 0 {
			t.Errorf("%s lies at %d", p.Name, p.Offset)
		}
		for k := end; k < p.Offset; k++ {
			if flat[k] != 0 || flatDiff[k] != 0 {
				t.Errorf("padding at %d is not zero", k)
			}
		}
		end = p.Offset + p.Blob.Count()
		if !slices.Equal(flat[p.Offset:end], values[i]) || !slices.Equal(flatDiff[p.Offset:end], diffs[i]) {
			t.Errorf("%s is not in the packed buffers", p.Name)
		}
	}
	n.ClearDiffs()
	after, err := n.ForwardBackward()
	if err != nil || after != before {
		t.Errorf("loss %v after packing, %v before; error %v", after, before, err)
	}
	for i, p := range n.Learnable() {
		if !slices.Equal(flatDiff[p.Offset:p.Offset+p.Blob.Count()], diffs[i]) {
			t.Errorf("the gradient of %s did not arrive in the packed buffer", p.Name)
		}
	}
}

func TestPackSaysWhatFailed(t *testing.T) {
	n := build(t, small, Options{})
	full := errors.New("window is full")
	_, _, err := n.Pack(func(int) (mem.Buffer, error) { return mem.Buffer{}, full })
	if !errors.Is(err, full) {
		t.Errorf("Pack returned %v", err)
	}
}

const ip = `
input: "data" input_shape { dim: 2 dim: 3 }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: %d weight_filler { type: "gaussian" } } }
`

func TestTestNetFollowsTheTrainingNet(t *testing.T) {
	train, test := build(t, fmt.Sprintf(ip, 4), Options{Seed: 1}), build(t, fmt.Sprintf(ip, 4), Options{Seed: 2, Phase: proto.Phase_TEST})
	if err := test.ShareWith(train); err != nil {
		t.Fatal(err)
	}
	check := func(when string) {
		t.Helper()
		for i, p := range train.Learnable() {
			p.Blob.Data()[0]++
			if !p.Blob.DataBuffer().Same(test.Learnable()[i].Blob.DataBuffer()) {
				t.Errorf("%s: the test net has another %s", when, p.Name)
			}
		}
	}
	check("shared")
	if _, _, err := train.Pack(nil); err != nil {
		t.Fatal(err)
	}
	check("shared, then packed")
}

func TestShareWithAnotherNet(t *testing.T) {
	train, test := build(t, fmt.Sprintf(ip, 4), Options{}), build(t, fmt.Sprintf(ip, 5), Options{})
	wantError(t, test.ShareWith(train), `net.prototxt:3:1: layer "ip" (InnerProduct): cannot share parameter 0: its shape is 5 3 (15), but 4 3 (12) in the training net`)
}

func TestCopyFromRoundTrip(t *testing.T) {
	from, to := build(t, small, Options{Seed: 1}), build(t, small, Options{Seed: 2})
	b, err := pb.Marshal(from.ToProto())
	if err != nil {
		t.Fatal(err)
	}
	m := &proto.NetParameter{}
	if err := pb.Unmarshal(b, m); err != nil {
		t.Fatal(err)
	}
	if err := to.CopyFrom(m, true); err != nil {
		t.Fatal(err)
	}
	for i, p := range from.Learnable() {
		if !slices.Equal(p.Blob.Data(), to.Learnable()[i].Blob.Data()) {
			t.Errorf("%s differs", p.Name)
		}
	}
}

func TestCopyFromAnotherNet(t *testing.T) {
	four, five := build(t, fmt.Sprintf(ip, 4), Options{Seed: 1}), build(t, fmt.Sprintf(ip, 5), Options{Seed: 2})
	before := slices.Clone(five.Learnable()[0].Blob.Data())
	wantError(t, five.CopyFrom(four.ToProto(), false), `net.prototxt:3:1: layer "ip" (InnerProduct): parameter 0 has shape [4 3] in the model, but [5 3] in the net`)
	other := build(t, strings.ReplaceAll(fmt.Sprintf(ip, 5), `"ip"`, `"fc"`), Options{})
	if err := five.CopyFrom(other.ToProto(), false); err != nil {
		t.Errorf("fine-tuning from a model without the layer: %v", err)
	}
	wantError(t, five.CopyFrom(other.ToProto(), true), `layer "ip"`, "has no layer of this name")
	both := five.ToProto()
	both.Layer = append(both.Layer, other.ToProto().Layer...)
	wantError(t, five.CopyFrom(both, true), `has no layer "fc"`)
	one := five.ToProto()
	for _, l := range one.Layer {
		l.Blobs = l.Blobs[:len(l.Blobs)/2]
	}
	wantError(t, five.CopyFrom(one, false), `the model has 1 parameter of this layer, the net 2`)
	cut := five.ToProto()
	for _, l := range cut.Layer {
		for _, b := range l.Blobs {
			b.Data = b.Data[:2]
		}
	}
	wantError(t, five.CopyFrom(cut, false), `parameter 0 of the model`)
	if !slices.Equal(before, five.Learnable()[0].Blob.Data()) {
		t.Error("a refused model changed the net")
	}
}

// Models of before 2014's BlobShape have four extents, outer ones 1.
func TestCopyFromLegacyShape(t *testing.T) {
	n := build(t, fmt.Sprintf(ip, 2), Options{})
	m := &proto.NetParameter{Layer: []*proto.LayerParameter{{Name: pb.String("ip"), Blobs: []*proto.BlobProto{
		{Num: pb.Int32(1), Channels: pb.Int32(1), Height: pb.Int32(2), Width: pb.Int32(3), Data: []float32{1, 2, 3, 4, 5, 6}},
		{Num: pb.Int32(1), Channels: pb.Int32(1), Height: pb.Int32(1), Width: pb.Int32(2), DoubleData: []float64{7, 8}},
	}}}}
	if err := n.CopyFrom(m, true); err != nil {
		t.Fatal(err)
	}
	if got := n.Learnable()[1].Blob.Data(); !slices.Equal(got, []float32{7, 8}) {
		t.Errorf("biases are %v", got)
	}
	m.Layer[0].Blobs[0].Channels = pb.Int32(2)
	wantError(t, n.CopyFrom(m, true), "[1 2 2 3] in the model")
}

// The gradients of two parts add up to the gradient of the whole batch, also
// where the parts differ in size, whether a loss is a mean over the batch, a sum,
// or some of both.
func TestPartsAddUpToTheWhole(t *testing.T) {
	const head = `
layer { name: "data" type: "DummyData" top: "data" top: "target" top: "label"
  dummy_data_param { shape { dim: 5 dim: 3 } shape { dim: 5 dim: 2 } shape { dim: 5 }
    data_filler { type: "gaussian" } data_filler { type: "gaussian" } data_filler { value: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 2 weight_filler { type: "gaussian" } } }
`
	const (
		softmax   = `layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" %s } `
		sigmoid   = `layer { name: "loss2" type: "SigmoidCrossEntropyLoss" bottom: "ip" bottom: "target" top: "loss2" %s } `
		euclidean = `layer { name: "loss3" type: "EuclideanLoss" bottom: "ip" bottom: "target" top: "loss3" } `
		none      = `loss_param { normalization: NONE }`
	)
	silence := func(blobs ...string) string {
		return fmt.Sprintf(`layer { name: "silence" type: "Silence" bottom: "%s" } `, strings.Join(blobs, `" bottom: "`))
	}
	for name, text := range map[string]string{
		"euclidean":           euclidean + silence("label"),
		"softmax":             fmt.Sprintf(softmax, "") + silence("target"),
		"softmax, FULL":       fmt.Sprintf(softmax, "loss_param { normalization: FULL }") + silence("target"),
		"softmax, BATCH_SIZE": fmt.Sprintf(softmax, "loss_param { normalization: BATCH_SIZE }") + silence("target"),
		"softmax, NONE":       fmt.Sprintf(softmax, none) + silence("target"),
		"sigmoid":             fmt.Sprintf(sigmoid, "") + silence("label"),
		"sigmoid, NONE":       fmt.Sprintf(sigmoid, none+" loss_weight: 0.5") + silence("label"),
		"means and sums":      fmt.Sprintf(softmax, none) + fmt.Sprintf(sigmoid, "loss_weight: 3") + euclidean,
		"a top that is none": `layer { name: "tanh" type: "TanH" bottom: "ip" top: "tanh" loss_weight: 0.3 } ` +
			silence("label", "target"),
		"a sum read by two":       fmt.Sprintf(softmax, none) + `layer { name: "twice" type: "Power" bottom: "loss" top: "twice" loss_weight: 1 power_param { scale: 2 } } ` + silence("target"),
		"a mean read by two":      euclidean + `layer { name: "twice" type: "Power" bottom: "loss3" top: "twice" loss_weight: 1 power_param { scale: 2 } } ` + silence("label"),
		"with probabilities":      `layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" top: "prob" } ` + silence("target"),
		"a mean changed in place": euclidean + `layer { name: "half" type: "Power" bottom: "loss3" top: "loss3" loss_weight: 2 power_param { scale: 0.5 } } ` + silence("label"),
	} {
		run := func(part data.Part) ([]float32, float64) {
			n := build(t, head+text, Options{Seed: 5, Data: data.Options{Part: part, Seed: 9}})
			if n.GlobalBatch() != 5 {
				t.Errorf("global batch %d", n.GlobalBatch())
			}
			n.BatchShare = float32(n.LocalBatch()) / float32(n.GlobalBatch())
			if _, _, err := n.Pack(nil); err != nil {
				t.Fatal(err)
			}
			if _, err := n.ForwardBackward(); err != nil {
				t.Fatal(name, err)
			}
			_, diff := n.Packed()
			return mem.Float32s(diff), n.Loss().Of(n.BatchShare)
		}
		whole, loss := run(data.Part{})
		if !slices.ContainsFunc(whole, func(g float32) bool { return g != 0 }) {
			t.Errorf("%s: no gradient", name)
		}
		sum, sumLoss := make([]float32, len(whole)), 0.0
		for i := range 2 {
			d, l := run(data.Part{Index: i, Of: 2})
			sumLoss += l
			for k := range d {
				sum[k] += d[k]
			}
		}
		if math.Abs(sumLoss-loss) > 1e-6*math.Max(1, math.Abs(loss)) {
			t.Errorf("%s: the parts' losses add up to %v, the whole has %v", name, sumLoss, loss)
		}
		for k := range whole {
			if math.Abs(float64(sum[k]-whole[k])) > 2e-6 {
				t.Errorf("%s: gradient %d of the parts is %v, of the whole %v", name, k, sum[k], whole[k])
			}
		}
	}
}

func TestFrozenParametersHaveNoGradient(t *testing.T) {
	n := build(t, strings.Replace(small, `top: "conv"`, `top: "conv" param { lr_mult: 0 }`, 1), Options{Seed: 1})
	setInputs(n)
	n.ClearDiffs()
	if _, err := n.ForwardBackward(); err != nil {
		t.Fatal(err)
	}
	zero := func(i int) bool {
		return !slices.ContainsFunc(n.Learnable()[i].Blob.Diff(), func(x float32) bool { return x != 0 })
	}
	if !zero(0) {
		t.Error("the frozen weights have a gradient")
	}
	if zero(1) || zero(2) {
		t.Error("parameters that learn have no gradient")
	}
}

func TestForwardReshapesWhenAnInputChanges(t *testing.T) {
	n := build(t, fmt.Sprintf(ip, 4), Options{Seed: 1})
	if _, err := n.Forward(); err != nil {
		t.Fatal(err)
	}
	n.Blob("data").Reshape(5, 3)
	n.Blob("data").Data()[14] = 1
	if err := func() error { // the Input layer itself keeps its shape: run the rest
		nd := n.nodes[1]
		_, _, err := nd.forward(nil)
		return err
	}(); err != nil {
		t.Fatal(err)
	}
	if got := n.Blob("ip").Shape(); !slices.Equal(got, []int{5, 4}) {
		t.Errorf("top has shape %v", got)
	}
	n.Blob("data").Reshape(5, 7)
	_, err := n.Forward()
	wantError(t, err, `net.prototxt:3:1: layer "ip" (InnerProduct)`)
}

func TestSeedGivesTheSameWeightsAndMasks(t *testing.T) {
	text := `
input: "data" input_shape { dim: 4 dim: 30 }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 20 weight_filler { type: "xavier" } } }
layer { name: "drop" type: "Dropout" bottom: "ip" top: "drop" }`
	start := func(seed uint64, worker int) *Net {
		n := build(t, text, Options{Seed: seed, Data: data.Options{Part: data.Part{Index: worker, Of: 2, Weak: true}}})
		for i := range n.Blob("data").Data() {
			n.Blob("data").Data()[i] = float32(i + 1)
		}
		return n
	}
	mask := func(n *Net) []float32 {
		if _, err := n.Forward(); err != nil {
			t.Fatal(err)
		}
		out := slices.Clone(n.Blob("drop").Data())
		for i := range out {
			if out[i] != 0 {
				out[i] = 1
			}
		}
		return out
	}
	a, b, other, worker := start(1, 0), start(1, 0), start(2, 0), start(1, 1)
	if !slices.Equal(a.Learnable()[0].Blob.Data(), b.Learnable()[0].Blob.Data()) {
		t.Error("equal seeds gave different weights")
	}
	if slices.Equal(a.Learnable()[0].Blob.Data(), other.Learnable()[0].Blob.Data()) {
		t.Error("different seeds gave equal weights")
	}
	if !slices.Equal(a.Learnable()[0].Blob.Data(), worker.Learnable()[0].Blob.Data()) {
		t.Error("two workers start with different weights")
	}
	first, second := mask(a), mask(a)
	if slices.Equal(first, second) {
		t.Error("two passes drew the same mask")
	}
	if slices.Equal(first, mask(worker)) {
		t.Error("two workers drew the same mask")
	}
	if err := b.SeekBatch(1); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(second, mask(b)) {
		t.Error("after SeekBatch(1) the second pass drew another mask")
	}
	wantError(t, b.SeekBatch(-1), "cannot seek to batch -1")
}

func TestNotFiniteNamesTheFirst(t *testing.T) {
	n := build(t, small, Options{})
	setInputs(n)
	if _, err := n.Forward(); err != nil {
		t.Fatal(err)
	}
	if l, top, ok := n.NotFinite(); ok {
		t.Errorf("layer %q top %q is finite", l, top)
	}
	n.Learnable()[1].Blob.Data()[0] = float32(math.Inf(1))
	if _, err := n.Forward(); err != nil {
		t.Fatal(err)
	}
	if l, top, ok := n.NotFinite(); l != "conv" || top != "conv" || !ok {
		t.Errorf("got layer %q top %q %v", l, top, ok)
	}
}

func TestLoadNamesTheFile(t *testing.T) {
	_, err := Load("no/such/net.prototxt", Options{})
	wantError(t, err, "no/such/net.prototxt")
}

func TestSyntheticNeedsABatchSize(t *testing.T) {
	f, err := proto.ParseNet("net.prototxt", []byte(`layer { name: "d" type: "Data" top: "d" data_param { source: "x" backend: LMDB } }`))
	if err != nil {
		t.Fatal(err)
	}
	_, err = New(f, Options{Rewrite: Synthetic(0, 3, 8, 8)})
	wantError(t, err, `net.prototxt:1:1: layer "d" (Data): missing batch_size`)
	n, err := New(f, Options{Rewrite: Synthetic(2, 3, 8, 8)})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if got := n.Blob("d").Shape(); !slices.Equal(got, []int{2, 3, 8, 8}) {
		t.Errorf("shape %v", got)
	}
}

// A model of 2014, read from its bytes, gives its parameters to today's net.
func TestCopyFromModelOf2014(t *testing.T) {
	n := build(t, fmt.Sprintf(ip, 2), Options{})
	blob := func(height, width int32, values ...float32) *proto.BlobProto {
		return &proto.BlobProto{Num: pb.Int32(1), Channels: pb.Int32(1), Height: &height, Width: &width, Data: values}
	}
	b, err := pb.Marshal(&proto.NetParameter{Layers: []*proto.V1LayerParameter{{
		Name: pb.String("ip"), Type: proto.V1LayerParameter_INNER_PRODUCT.Enum(),
		Blobs: []*proto.BlobProto{blob(2, 3, 1, 2, 3, 4, 5, 6), blob(1, 2, 7, 8)},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "old.caffemodel")
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	m, err := proto.ReadModel(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.CopyFrom(m, true); err != nil {
		t.Fatal(err)
	}
	if w, b := n.Learnable()[0].Blob.Data(), n.Learnable()[1].Blob.Data(); !slices.Equal(w, []float32{1, 2, 3, 4, 5, 6}) || !slices.Equal(b, []float32{7, 8}) {
		t.Errorf("weights %v, biases %v", w, b)
	}
}
