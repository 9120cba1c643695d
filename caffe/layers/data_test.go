package layers

import (
	"fmt"
	"image"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pb "google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/data"
	"github.com/scaffe/scaffe/caffe/proto"
)

// fataler is a test or a property's run.
type fataler interface {
	Helper()
	Fatal(...any)
}

// dataTops makes the layer and sets it up with n tops.
func dataTops(t fataler, p *proto.LayerParameter, o DataOptions, n int) (Layer, []*blob.Blob) {
	t.Helper()
	l, tops, err := tryDataTops(p, o, n)
	if err != nil {
		t.Fatal(err)
	}
	return l, tops
}

func tryDataTops(p *proto.LayerParameter, o DataOptions, n int) (Layer, []*blob.Blob, error) {
	l, err := New(p, Env{Phase: proto.Phase_TRAIN, Data: o})
	if err != nil {
		return nil, nil, err
	}
	var tops []*blob.Blob
	for range n {
		tops = append(tops, &blob.Blob{})
	}
	return l, tops, l.Setup(nil, tops)
}

func wantRefusal(t *testing.T, p *proto.LayerParameter, o DataOptions, tops int, want string) {
	t.Helper()
	l, _, err := tryDataTops(p, o, tops)
	if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `"`+p.GetName()+`"`) {
		t.Errorf("error %v, want %q and the layer's name in it", err, want)
	}
	if c, ok := l.(io.Closer); ok {
		_ = c.Close()
	}
}

func layerParam(typ string) *proto.LayerParameter {
	return &proto.LayerParameter{Name: pb.String("in"), Type: pb.String(typ)}
}

// imagesAndList writes n gray images, image i full of i, and a list.
func imagesAndList(t testing.TB, n int) (root, list string) {
	root = t.TempDir() + "/"
	var lines strings.Builder
	for i := range n {
		img := image.NewGray(image.Rect(0, 0, 5, 4))
		for j := range img.Pix {
			img.Pix[j] = byte(10*i + j)
		}
		f, err := os.Create(fmt.Sprintf("%s%d.png", root, i))
		if err != nil {
			t.Fatal(err)
		}
		if err := png.Encode(f, img); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&lines, "%d.png %d\n", i, i)
	}
	list = filepath.Join(root, "list")
	if err := os.WriteFile(list, []byte(lines.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return root, list
}

func TestImageData(t *testing.T) {
	root, list := imagesAndList(t, 5)
	p := layerParam("ImageData")
	p.ImageDataParam = &proto.ImageDataParameter{Source: &list, RootFolder: &root, BatchSize: pb.Uint32(3), IsColor: pb.Bool(false), NewHeight: pb.Uint32(2), NewWidth: pb.Uint32(2)}
	p.TransformParam = &proto.TransformationParameter{Scale: pb.Float32(0.5), MeanValue: []float32{4}}
	l, tops := dataTops(t, p, DataOptions{}, 2)
	defer l.(io.Closer).Close()
	if !slices.Equal(tops[0].Shape(), []int{3, 1, 2, 2}) || !slices.Equal(tops[1].Shape(), []int{3}) {
		t.Fatalf("tops %v %v", tops[0].Shape(), tops[1].Shape())
	}
	for range 2 {
		if err := l.Forward(nil, tops); err != nil {
			t.Fatal(err)
		}
	}
	if got := tops[1].Data(); !slices.Equal(got, []float32{3, 4, 0}) {
		t.Errorf("labels of batch 1: %v", got)
	}
	// Row 0 at 0.75, column 0 of 5 pixels over 2 at 0.75: between 0 and 6.
	if got, want := tops[0].Data()[0], float32((30+3-4)*0.5); got != want {
		t.Errorf("first value %v, want %v", got, want)
	}
	if err := l.(Seeker).SeekBatch(0); err != nil {
		t.Fatal(err)
	}
	if err := l.Forward(nil, tops); err != nil || tops[1].Data()[0] != 0 {
		t.Errorf("after the seek: %v %v", tops[1].Data(), err)
	}
	if b := l.(Batcher); b.GlobalBatch() != 3 || b.LocalBatch() != 3 {
		t.Errorf("batches of %d and %d", b.GlobalBatch(), b.LocalBatch())
	}
}

func TestDataLayers_Refusals(t *testing.T) {
	root, list := imagesAndList(t, 2)
	images := func(f func(p *proto.LayerParameter, d *proto.ImageDataParameter)) *proto.LayerParameter {
		p := layerParam("ImageData")
		p.ImageDataParam = &proto.ImageDataParameter{Source: &list, RootFolder: &root}
		f(p, p.ImageDataParam)
		return p
	}
	lmdb := func(f func(p *proto.LayerParameter, d *proto.DataParameter)) *proto.LayerParameter {
		p := layerParam("Data")
		p.DataParam = &proto.DataParameter{Source: pb.String("no/such_lmdb"), BatchSize: pb.Uint32(1), Backend: proto.DataParameter_LMDB.Enum()}
		f(p, p.DataParam)
		return p
	}
	for _, c := range []struct {
		p    *proto.LayerParameter
		part data.Part
		want string
	}{
		{layerParam("Data"), data.Part{}, "needs a data_param"},
		{layerParam("ImageData"), data.Part{}, "needs an image_data_param"},
		{lmdb(func(_ *proto.LayerParameter, d *proto.DataParameter) { d.Backend = nil }), data.Part{}, "write backend: LMDB"},
		{lmdb(func(_ *proto.LayerParameter, d *proto.DataParameter) { d.Mirror = pb.Bool(true) }), data.Part{}, "transform_param"},
		{lmdb(func(p *proto.LayerParameter, d *proto.DataParameter) {
			p.TransformParam = &proto.TransformationParameter{MeanFile: pb.String("no/such.binaryproto")}
		}), data.Part{}, "no/such.binaryproto"},
		{images(func(_ *proto.LayerParameter, d *proto.ImageDataParameter) { d.CropSize = pb.Uint32(1) }), data.Part{}, "transform_param"},
		{images(func(_ *proto.LayerParameter, d *proto.ImageDataParameter) { d.Source = pb.String("no/such_list") }), data.Part{}, "no/such_list"},
		{images(func(_ *proto.LayerParameter, d *proto.ImageDataParameter) { d.NewWidth = pb.Uint32(1) }), data.Part{}, "both or neither"},
		{images(func(_ *proto.LayerParameter, d *proto.ImageDataParameter) { d.BatchSize = pb.Uint32(0) }), data.Part{}, "batch_size must be at least 1"},
		{images(func(_ *proto.LayerParameter, d *proto.ImageDataParameter) {}), data.Part{Of: 2}, "batch_size 1 cannot be divided"},
		{images(func(_ *proto.LayerParameter, d *proto.ImageDataParameter) { d.BatchSize = pb.Uint32(9) }), data.Part{Of: 3}, "2 samples, fewer than the 3 workers"},
		{images(func(p *proto.LayerParameter, d *proto.ImageDataParameter) {
			p.TransformParam = &proto.TransformationParameter{ForceGray: pb.Bool(true)}
		}), data.Part{}, "is_color"},
	} {
		wantRefusal(t, c.p, DataOptions{Part: c.part}, 2, c.want)
	}
	wantRefusal(t, lmdb(func(*proto.LayerParameter, *proto.DataParameter) {}), DataOptions{}, 1, "source")
}

func gaussian() *proto.FillerParameter {
	return &proto.FillerParameter{Type: pb.String("gaussian"), Std: pb.Float32(1)}
}

// Whatever layer gives the batch, the parts of it make up the whole one, in
// every batch.
func TestDataLayers_PartsMakeUpTheGlobalBatch(t *testing.T) {
	values, labels := make([]float32, 60*6), make([]float32, 60)
	for i := range values {
		values[i], labels[i/6] = float32(i), float32(i/6)
	}
	rapid.Check(t, func(t *rapid.T) {
		of := rapid.IntRange(1, 5).Draw(t, "of")
		batch := rapid.SampledFrom([]int{5, 6, 10, 12, 15, 30}).Draw(t, "batch")
		var p *proto.LayerParameter
		if rapid.Bool().Draw(t, "memory") {
			p = layerParam("MemoryData")
			p.MemoryDataParam = &proto.MemoryDataParameter{BatchSize: pb.Uint32(uint32(batch)), Channels: pb.Uint32(1), Height: pb.Uint32(2), Width: pb.Uint32(3)}
		} else {
			p = layerParam("DummyData")
			p.DummyDataParam = &proto.DummyDataParameter{
				Shape:      []*proto.BlobShape{{Dim: []int64{int64(batch), 1, 2, 3}}, {Dim: []int64{int64(batch)}}},
				DataFiller: []*proto.FillerParameter{gaussian(), {Value: pb.Float32(4)}},
			}
		}
		open := func(part data.Part) (Layer, []*blob.Blob) {
			l, tops := dataTops(t, p, DataOptions{Part: part, Seed: 3}, 2)
			if m, ok := l.(*MemoryData); ok {
				if err := m.Set(values, labels); err != nil {
					t.Fatal(err)
				}
			}
			return l, tops
		}
		k := rapid.Int64Range(0, 20).Draw(t, "batch number")
		one, want := open(data.Part{})
		var got [2][]float32
		for _, step := range []string{"sought", "next"} {
			if step == "sought" {
				if err := one.(Seeker).SeekBatch(k); err != nil {
					t.Fatal(err)
				}
			}
			if err := one.Forward(nil, want); err != nil {
				t.Fatal(err)
			}
		}
		for i := range of {
			l, tops := open(data.Part{Index: i, Of: of})
			if err := l.(Seeker).SeekBatch(k); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := l.Forward(nil, tops); err != nil {
					t.Fatal(err)
				}
			}
			if b := l.(Batcher); b.GlobalBatch() != batch || b.LocalBatch() != tops[0].Shape()[0] {
				t.Fatalf("batches of %d and %d", b.GlobalBatch(), b.LocalBatch())
			}
			for j := range tops {
				got[j] = append(got[j], tops[j].Data()...)
			}
		}
		for j := range got {
			if !slices.Equal(got[j], want[j].Data()) {
				t.Fatalf("top %d of batch %d: %d parts have %v, one has %v", j, k, of, got[j], want[j].Data())
			}
		}
	})
}

func TestDummyData(t *testing.T) {
	p := layerParam("DummyData")
	p.DummyDataParam = &proto.DummyDataParameter{
		Num: []uint32{4, 2}, Channels: []uint32{3, 1}, Height: []uint32{2, 1}, Width: []uint32{1, 1},
		DataFiller: []*proto.FillerParameter{gaussian(), {Value: pb.Float32(7)}},
	}
	l, tops := dataTops(t, p, DataOptions{Part: data.Part{Index: 1, Of: 2}}, 2)
	if !slices.Equal(tops[0].Shape(), []int{2, 3, 2, 1}) || !slices.Equal(tops[1].Shape(), []int{2, 1, 1, 1}) {
		t.Fatalf("tops %v %v", tops[0].Shape(), tops[1].Shape())
	}
	if err := l.Forward(nil, tops); err != nil {
		t.Fatal(err)
	}
	first := slices.Clone(tops[0].Data())
	tops[1].Data()[0] = 8 // a constant is filled once
	if err := l.Forward(nil, tops); err != nil {
		t.Fatal(err)
	}
	if slices.Equal(first, tops[0].Data()) || tops[1].Data()[0] != 8 || tops[1].Data()[1] != 7 {
		t.Errorf("random %v then %v, constant %v", first, tops[0].Data(), tops[1].Data())
	}

	for want, d := range map[string]*proto.DummyDataParameter{
		"want shape":                  {},
		"as many num as channels":     {Num: []uint32{1}, Channels: []uint32{1, 2}},
		"cannot be used together":     {Num: []uint32{1}, Shape: []*proto.BlobShape{{Dim: []int64{1}}}},
		"2 shapes for 3 tops":         {Shape: []*proto.BlobShape{{Dim: []int64{1}}, {Dim: []int64{1}}}},
		"2 data_fillers for 3 tops":   {Shape: []*proto.BlobShape{{Dim: []int64{1}}}, DataFiller: []*proto.FillerParameter{{}, {}}},
		"extents must be positive":    {Shape: []*proto.BlobShape{{Dim: []int64{2, 0}}}},
		"product below 2^31":          {Shape: []*proto.BlobShape{{Dim: []int64{1 << 20, 1 << 20}}}},
		"type \"nosuch\" is not supp": {Shape: []*proto.BlobShape{{Dim: []int64{1}}}, DataFiller: []*proto.FillerParameter{{Type: pb.String("nosuch")}}},
	} {
		p.DummyDataParam = d
		wantRefusal(t, p, DataOptions{}, 3, want)
	}
}

func TestInput(t *testing.T) {
	p := layerParam("Input")
	wantRefusal(t, p, DataOptions{}, 1, "needs a shape")
	p.InputParam = &proto.InputParameter{Shape: []*proto.BlobShape{{Dim: []int64{7, 3}}, {Dim: []int64{2}}, {}}}
	l, tops := dataTops(t, p, DataOptions{Part: data.Part{Index: 2, Of: 3}}, 3)
	if !slices.Equal(tops[0].Shape(), []int{3, 3}) || !slices.Equal(tops[1].Shape(), []int{2}) || tops[2].NumAxes() != 0 {
		t.Errorf("tops %v %v %v", tops[0].Shape(), tops[1].Shape(), tops[2].Shape())
	}
	copy(tops[0].Data(), []float32{1, 2, 3})
	if err := l.Forward(nil, tops); err != nil || tops[0].Data()[2] != 3 {
		t.Errorf("Forward changes what was set: %v %v", tops[0].Data(), err)
	}
	wantRefusal(t, p, DataOptions{Part: data.Part{Of: 8}}, 3, "batch_size 7 cannot be divided")
}

func TestMemoryData_Refusals(t *testing.T) {
	p := layerParam("MemoryData")
	wantRefusal(t, p, DataOptions{}, 2, "must be positive")
	p.MemoryDataParam = &proto.MemoryDataParameter{BatchSize: pb.Uint32(2), Channels: pb.Uint32(1), Height: pb.Uint32(1), Width: pb.Uint32(3)}
	l, tops := dataTops(t, p, DataOptions{}, 2)
	if err := l.Forward(nil, tops); err == nil || !strings.Contains(err.Error(), "call Set") {
		t.Errorf("without samples: %v", err)
	}
	m := l.(*MemoryData)
	if err := m.Set(make([]float32, 9), make([]float32, 3)); err == nil || !strings.Contains(err.Error(), "multiple of the batch size 2") {
		t.Errorf("3 samples: %v", err)
	}
	if err := m.Set(make([]float32, 11), make([]float32, 4)); err == nil || !strings.Contains(err.Error(), "which have 12") {
		t.Errorf("11 values: %v", err)
	}
	p.TransformParam = &proto.TransformationParameter{Scale: pb.Float32(2)}
	wantRefusal(t, p, DataOptions{}, 2, "transform them before Set")
	p.TransformParam, p.MemoryDataParam.BatchSize = nil, nil
	wantRefusal(t, p, DataOptions{}, 2, "batch_size must be at least 1")
}

func TestDataLayers_HaveNoBottomsAndNoGradient(t *testing.T) {
	p := layerParam("Input")
	p.InputParam = &proto.InputParameter{Shape: []*proto.BlobShape{{Dim: []int64{1}}}}
	l, tops := dataTops(t, p, DataOptions{}, 1)
	b := l.(Blobs)
	if b.Bottoms() != (Bounds{0, 0}) || b.InPlace() || !b.NoBackward(0) || len(l.Params()) != 0 {
		t.Error("Input is not a layer without bottoms")
	}
	if err := l.Backward(tops, nil, nil); err != nil {
		t.Error(err)
	}
}
