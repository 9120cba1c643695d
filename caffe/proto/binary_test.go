package proto

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	pb "google.golang.org/protobuf/proto"

	"github.com/scaffe/scaffe/internal/atomicfile/errorfs"
)

func testModel() *NetParameter {
	return &NetParameter{Name: pb.String("net"), Layer: []*LayerParameter{
		{Name: pb.String("ip"), Type: pb.String("InnerProduct"), Blobs: []*BlobProto{
			NewBlob([]int{2, 3}, []float32{1, 2, 3, 4, 5, 6}, nil),
			NewBlob([]int{2}, []float32{7, 8}, []float32{0.5, 0.25}),
		}},
		{Name: pb.String("relu"), Type: pb.String("ReLU")},
	}}
}

func TestModelComesBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.caffemodel")
	want := testModel()
	if err := (Writer{}).Model(path, want); err != nil {
		t.Fatal(err)
	}
	got, err := ReadModel(path)
	if err != nil || !pb.Equal(want, got) {
		t.Errorf("got %v, %v", got, err)
	}
}

// TestBytesAreCaffes writes the bytes of a model out by hand, from Caffe's
// field numbers: packed values, a shape message, layer as field 100.
func TestBytesAreCaffes(t *testing.T) {
	field := func(num protowire.Number, b []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), b)
	}
	values := protowire.AppendFixed32(protowire.AppendFixed32(nil, math.Float32bits(1.5)), math.Float32bits(-2))
	blob := append(field(5, values), field(7, field(1, []byte{2}))...)
	layer := append(append(field(1, []byte("ip")), field(2, []byte("InnerProduct"))...), field(7, blob)...)
	want := append(field(1, []byte("net")), field(100, layer)...)

	path := filepath.Join(t.TempDir(), "m")
	err := Writer{}.Model(path, &NetParameter{Name: pb.String("net"), Layer: []*LayerParameter{
		{Name: pb.String("ip"), Type: pb.String("InnerProduct"), Blobs: []*BlobProto{NewBlob([]int{2}, []float32{1.5, -2}, nil)}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != string(want) {
		t.Errorf("got  %x, %v\nwant %x", got, err, want)
	}
}

func TestUnknownFieldsArePassedOver(t *testing.T) {
	b, err := pb.Marshal(testModel())
	if err != nil {
		t.Fatal(err)
	}
	b = protowire.AppendBytes(protowire.AppendTag(b, 4000, protowire.BytesType), []byte("of another Caffe"))
	path := filepath.Join(t.TempDir(), "m")
	write(t, path, string(b))
	got, err := ReadModel(path)
	if err != nil || !pb.Equal(testModel(), got) {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestStateAndBlobComeBack(t *testing.T) {
	dir := t.TempDir()
	state := &SolverState{Iter: pb.Int32(7), LearnedNet: pb.String("m"), CurrentStep: pb.Int32(1), History: []*BlobProto{NewBlob([]int{1}, []float32{3}, nil)}}
	if err := (Writer{}).State(filepath.Join(dir, "s"), state); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadState(filepath.Join(dir, "s")); err != nil || !pb.Equal(state, got) {
		t.Errorf("got %v, %v", got, err)
	}
	mean := &BlobProto{Num: pb.Int32(1), Channels: pb.Int32(3), Height: pb.Int32(1), Width: pb.Int32(2), Data: make([]float32, 6)}
	if err := (Writer{}).Blob(filepath.Join(dir, "b"), mean); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadBlob(filepath.Join(dir, "b")); err != nil || !pb.Equal(mean, got) {
		t.Errorf("got %v, %v", got, err)
	}
}

// TestLargeModel is past the 64 MB at which C++ readers stop by default.
func TestLargeModel(t *testing.T) {
	const n = 20 << 20
	m := &NetParameter{Layer: []*LayerParameter{{Blobs: []*BlobProto{NewBlob([]int{n}, make([]float32, n), nil)}}}}
	m.Layer[0].Blobs[0].Data[n-1] = 42
	path := filepath.Join(t.TempDir(), "m")
	if err := (Writer{}).Model(path, m); err != nil {
		t.Fatal(err)
	}
	got, err := ReadModel(path)
	if err != nil || BlobData(got.Layer[0].Blobs[0])[n-1] != 42 {
		t.Errorf("the last value did not come back: %v", err)
	}
}

// TestEveryTruncationIsAnError cuts a model at every byte. Where the cut falls
// between two layers, the rest is a model of fewer layers, as in Caffe.
func TestEveryTruncationIsAnError(t *testing.T) {
	m := testModel()
	b, err := pb.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	m.Layer = m.Layer[:1]
	between := pb.Size(m)
	path := filepath.Join(t.TempDir(), "m")
	for n := range len(b) {
		write(t, path, string(b[:n]))
		_, err := ReadModel(path)
		if n == between {
			if err != nil {
				t.Errorf("cut between layers: %v", err)
			}
			continue
		}
		if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), path) {
			t.Errorf("cut at byte %d of %d: %v", n, len(b), err)
		}
	}
	write(t, path, string(b[:len(b)-1]))
	if _, err := ReadModel(path); !strings.Contains(err.Error(), "field 100 at byte 87 needs 12 bytes, 11 are left") {
		t.Errorf("got %v", err)
	}
}

func TestWrongFilesAreNamed(t *testing.T) {
	dir := t.TempDir()
	bytesOf := func(m pb.Message) string {
		b, err := pb.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	model := func(b *BlobProto) string {
		return bytesOf(&NetParameter{Layer: []*LayerParameter{{Name: pb.String("conv1"), Blobs: []*BlobProto{b}}}})
	}
	readModel := func(p string) error { _, err := ReadModel(p); return err }
	readState := func(p string) error { _, err := ReadState(p); return err }
	readBlob := func(p string) error { _, err := ReadBlob(p); return err }
	for _, c := range []struct {
		name, bytes string
		read        func(string) error
		want        string
	}{
		{"empty", "", readModel, "it is empty"},
		{"hdf5", "\x89HDF\r\n\x1a\n....", readState, "HDF5"},
		{"text", "name: 'LeNet'\nlayer {\n}\n", readModel, "corrupt"},
		{"state as model", bytesOf(&SolverState{Iter: pb.Int32(1)}), readModel, "no layer"},
		{"model as state", bytesOf(testModel()), readState, "no iteration"},
		{"negative iteration", bytesOf(&SolverState{Iter: pb.Int32(-1)}), readState, "no iteration"},
		{"bad history", bytesOf(&SolverState{Iter: pb.Int32(1), History: []*BlobProto{NewBlob([]int{2}, []float32{1}, nil)}}), readState, "history blob 0: shape [2] has 2 elements, but 1 values"},
		{"too few values", model(NewBlob([]int{2, 2}, make([]float32, 3), nil)), readModel, `layer "conv1", blob 0: shape [2 2] has 4 elements, but 3 values`},
		{"too few gradients", model(NewBlob([]int{2}, make([]float32, 2), make([]float32, 1))), readModel, `but 1 gradients`},
		{"negative", model(&BlobProto{Num: pb.Int32(-1)}), readModel, "negative extent"},
		{"overflow", model(NewBlob([]int{1 << 40, 1 << 40}, nil, nil)), readModel, "more than"},
		{"wraps to zero", model(NewBlob([]int{1 << 31, 1 << 31, 4}, nil, nil)), readModel, "more than"},
		{"axes", model(NewBlob(make([]int, 33), nil, nil)), readModel, "33 axes"},
		{"mean without values", bytesOf(NewBlob([]int{3}, nil, nil)), readBlob, "but 0 values"},
	} {
		path := filepath.Join(dir, "x")
		write(t, path, c.bytes)
		err := c.read(path)
		if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v, want %q and the path", c.name, err, c.want)
		}
	}
	if err := readModel(dir); !errors.Is(err, ErrFormat) {
		t.Errorf("a directory: got %v", err)
	}
	if err := readModel(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: got %v", err)
	}
}

// TestFullDiskKeepsTheEarlierSnapshot is the errorfs beneath the same code.
func TestFullDiskKeepsTheEarlierSnapshot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	if err := (Writer{}).Model(path, testModel()); err != nil {
		t.Fatal(err)
	}
	other := testModel()
	other.Name = pb.String("another")
	for k := range int64(pb.Size(other)) {
		err := Writer{FS: &errorfs.FS{Fault: errorfs.Write, After: k}}.Model(path, other)
		if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("full at byte %d: got %v", k, err)
		}
	}
	if got, err := ReadModel(path); err != nil || got.GetName() != "net" {
		t.Errorf("the earlier snapshot is gone: %v, %v", got, err)
	}
}

func TestBlobForms(t *testing.T) {
	for _, c := range []struct {
		b    *BlobProto
		want []int
	}{
		{&BlobProto{}, []int{}},
		{NewBlob([]int{5, 0, 2}, nil, nil), []int{5, 0, 2}},
		{&BlobProto{Channels: pb.Int32(3)}, []int{0, 3, 0, 0}},
		{&BlobProto{Num: pb.Int32(1), Channels: pb.Int32(2), Height: pb.Int32(3), Width: pb.Int32(4), Shape: &BlobShape{Dim: []int64{9}}}, []int{1, 2, 3, 4}},
	} {
		got := BlobShapeOf(c.b)
		if len(got) != len(c.want) {
			t.Fatalf("%v: got %v, want %v", c.b, got, c.want)
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%v: got %v, want %v", c.b, got, c.want)
			}
		}
	}
	doubles := &BlobProto{DoubleData: []float64{1, 0.1}, DoubleDiff: []float64{2}}
	if d := BlobData(doubles); len(d) != 2 || d[1] != 0.1 {
		t.Errorf("data is %v", d)
	}
	if d := BlobDiff(doubles); len(d) != 1 || d[0] != 2 {
		t.Errorf("diff is %v", d)
	}
}

func TestDatum(t *testing.T) {
	image := func(c, h, w int32, data []byte) *Datum {
		return &Datum{Channels: &c, Height: &h, Width: &w, Data: data, Label: pb.Int32(3)}
	}
	floats := image(1, 1, 2, nil)
	floats.FloatData = []float32{1, 2}
	for _, good := range []*Datum{image(3, 2, 2, make([]byte, 12)), floats, {Encoded: pb.Bool(true), Data: []byte("png")}} {
		b, err := MarshalDatum(good)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ParseDatum(b); err != nil || !pb.Equal(good, got) {
			t.Errorf("%v: got %v, %v", good, got, err)
		}
	}
	for _, bad := range []*Datum{
		{},
		image(3, 2, 2, make([]byte, 11)), image(-1, -1, 1, []byte{1}), image(0, 1, 1, nil),
		{Encoded: pb.Bool(true)},
		image(1<<30, 1<<30, 16, nil), // whose product wraps to zero
	} {
		b, err := MarshalDatum(bad)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseDatum(b); !errors.Is(err, ErrFormat) {
			t.Errorf("%v: got %v", bad, err)
		}
	}
}
