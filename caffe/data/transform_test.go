package data

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pb "google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/scaffe/scaffe/caffe/proto"
)

// caffeTransform is DataTransformer::Transform of BVLC Caffe as its formula:
// one value at a time, for given random choices.
func caffeTransform(t *Transformer, s *Sample, top, left int, mirror bool) []float32 {
	out, _ := t.Out(s.Shape)
	dst := make([]float32, out.Count())
	for c := range out.C {
		for h := range out.H {
			for w := range out.W {
				from := (c*s.H+top+h)*s.W + left + w
				to := (c*out.H+h)*out.W + w
				if mirror {
					to = (c*out.H+h)*out.W + out.W - 1 - w
				}
				var x, mean float32
				if s.Bytes != nil {
					x = float32(s.Bytes[from])
				} else {
					x = s.Floats[from]
				}
				switch {
				case t.mean != nil:
					mean = t.mean[from]
				case len(t.means) > 0:
					mean = t.means[c%len(t.means)]
				}
				dst[to] = (x - mean) * t.scale
			}
		}
	}
	return dst
}

func drawSample(t *rapid.T) *Sample {
	s := &Sample{Shape: Shape{
		rapid.IntRange(1, 4).Draw(t, "c"), rapid.IntRange(1, 9).Draw(t, "h"), rapid.IntRange(1, 9).Draw(t, "w"),
	}}
	if n := s.Count(); rapid.Bool().Draw(t, "bytes") {
		s.Bytes = rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "values")
	} else {
		s.Floats = rapid.SliceOfN(rapid.Float32Range(-9, 9), n, n).Draw(t, "values")
	}
	return s
}

func TestTransformer_EqualsCaffesFormula(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSample(t)
		tr := &Transformer{
			scale:  rapid.Float32Range(-2, 2).Draw(t, "scale"),
			mirror: rapid.Bool().Draw(t, "mirror"),
			crop:   rapid.IntRange(0, min(s.H, s.W)).Draw(t, "crop"),
			train:  rapid.Bool().Draw(t, "train"),
			seed:   rapid.Uint64().Draw(t, "seed"),
		}
		floats := rapid.Float32Range(-9, 200)
		switch rapid.IntRange(0, 3).Draw(t, "mean") {
		case 1:
			tr.means = []float32{floats.Draw(t, "mean")}
		case 2:
			tr.means = rapid.SliceOfN(floats, s.C, s.C).Draw(t, "means")
		case 3:
			tr.mean, tr.meanShape = rapid.SliceOfN(floats, s.Count(), s.Count()).Draw(t, "mean image"), s.Shape
		}
		out, err := tr.Out(s.Shape)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]float32, out.Count())
		if err := tr.Apply(got, s, rapid.Int64Range(0, 1<<40).Draw(t, "n")); err != nil {
			t.Fatal(err)
		}
		for _, mirror := range []bool{false, true} {
			for top := range s.H - out.H + 1 {
				for left := range s.W - out.W + 1 {
					if mirror && !tr.mirror || !tr.train && (top != (s.H-out.H)/2 || left != (s.W-out.W)/2) {
						continue
					}
					if slices.Equal(got, caffeTransform(tr, s, top, left, mirror)) {
						return
					}
				}
			}
		}
		t.Fatalf("%v is no crop or mirror image of %+v", got, s)
	})
}

// Random choices differ from sample to sample, hit every crop about equally
// often, and are the same for the same sample.
func TestTransformer_ChoicesAreAFunctionOfSeedAndSample(t *testing.T) {
	s := &Sample{Shape: Shape{1, 3, 3}, Bytes: []byte{0, 1, 2, 3, 4, 5, 6, 7, 8}}
	tr := &Transformer{scale: 1, mirror: true, crop: 2, train: true, seed: 5}
	seen := map[[4]float32]int{}
	const n = 4000
	for i := range int64(n) {
		var a, b [4]float32
		if err := tr.Apply(a[:], s, i); err != nil {
			t.Fatal(err)
		}
		_ = tr.Apply(b[:], s, i+1)
		_ = tr.Apply(b[:], s, i)
		if a != b {
			t.Fatalf("sample %d: %v, then %v", i, a, b)
		}
		seen[a]++
	}
	for a, k := range seen {
		if k < n/8*3/4 || k > n/8*5/4 {
			t.Errorf("%v comes %d times of %d, expected about %d", a, k, n, n/8)
		}
	}
	if len(seen) != 8 {
		t.Errorf("%d of 8 choices seen", len(seen))
	}
}

func TestTransformer_Refusals(t *testing.T) {
	s := &Sample{Shape: Shape{3, 4, 4}, Bytes: make([]byte, 48)}
	for _, c := range []struct {
		p    *proto.TransformationParameter
		want string
	}{
		{&proto.TransformationParameter{CropSize: pb.Uint32(5)}, "crop_size 5 is larger than the sample of 3x4x4"},
		{&proto.TransformationParameter{MeanValue: []float32{1, 2}}, "2 mean_values for samples of 3 channels"},
	} {
		tr, err := NewTransformer(c.p, proto.Phase_TRAIN, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := tr.Apply(make([]float32, 48), s, 0); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.p, err, c.want)
		}
	}
	for _, c := range []struct {
		p    *proto.TransformationParameter
		want string
	}{
		{&proto.TransformationParameter{ForceColor: pb.Bool(true), ForceGray: pb.Bool(true)}, "cannot be used together"},
		{&proto.TransformationParameter{MeanFile: pb.String("x"), MeanValue: []float32{1}}, "cannot be used together"},
		{&proto.TransformationParameter{MeanFile: pb.String("no/such.binaryproto")}, "no/such.binaryproto"},
	} {
		if _, err := NewTransformer(c.p, proto.Phase_TRAIN, 1); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.p, err, c.want)
		}
	}
}

func TestMean_RoundTripAndDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "mean.binaryproto")
	want := []float32{1, 2, 3, 4.5, 5, 6}
	if err := WriteMean(path, want, Shape{3, 1, 2}); err != nil {
		t.Fatal(err)
	}
	got, shape, err := ReadMean(path)
	if err != nil || shape != (Shape{3, 1, 2}) || !slices.Equal(got, want) {
		t.Errorf("%v %v %v", got, shape, err)
	}
	for name, c := range map[string]struct {
		raw  []byte
		want string
	}{
		"text":      {[]byte("name: \"lenet\"\n"), "not a binary BlobProto"},
		"empty":     {nil, "not that of one mean image"},
		"two":       {marshal(t, &proto.BlobProto{Num: pb.Int32(2), Channels: pb.Int32(1), Height: pb.Int32(1), Width: pb.Int32(1), Data: []float32{1, 2}}), "not that of one mean image"},
		"few":       {marshal(t, &proto.BlobProto{Shape: &proto.BlobShape{Dim: []int64{3, 2, 2}}, Data: []float32{1, 2}}), "holds 2 values"},
		"overflows": {marshal(t, &proto.BlobProto{Shape: &proto.BlobShape{Dim: []int64{1 << 40, 2, 2}}}), "not that of one mean image"},
	} {
		file := writeFile(t, "mean", c.raw)
		if _, _, err := ReadMean(file); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	// A double-precision net writes another field.
	file := writeFile(t, "mean", marshal(t, &proto.BlobProto{Shape: &proto.BlobShape{Dim: []int64{1, 1, 2}}, DoubleData: []float64{1, 2}}))
	if got, _, err := ReadMean(file); err != nil || !slices.Equal(got, []float32{1, 2}) {
		t.Errorf("double: %v %v", got, err)
	}
}
