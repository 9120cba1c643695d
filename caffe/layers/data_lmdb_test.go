//go:build cgo

package layers

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"testing"

	pb "google.golang.org/protobuf/proto"

	"github.com/scaffe/scaffe/caffe/data"
	"github.com/scaffe/scaffe/caffe/proto"
)

func TestData(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lmdb")
	w, err := data.Create(path, false)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for i := range 9 {
		s := data.Sample{Shape: data.Shape{C: 1, H: 2, W: 2}, Bytes: []byte{byte(i), 1, 2, 3}, Label: int32(i), HasLabel: i != 8}
		if err := w.Put(fmt.Sprintf("%05d", i), data.AppendDatum(nil, &s)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	mean := filepath.Join(t.TempDir(), "mean.binaryproto")
	if err := data.WriteMean(mean, []float32{1, 1, 1, 1}, data.Shape{C: 1, H: 2, W: 2}); err != nil {
		t.Fatal(err)
	}
	p := layerParam("Data")
	p.DataParam = &proto.DataParameter{Source: &path, BatchSize: pb.Uint32(4), Backend: proto.DataParameter_LMDB.Enum()}
	p.TransformParam = &proto.TransformationParameter{MeanFile: &mean}
	l, tops := dataTops(t, p, DataOptions{Part: data.Part{Index: 1, Of: 2}, Prefetch: 1}, 2)
	for _, want := range [][]float32{{2, 3}, {6, 7}} {
		if err := l.Forward(nil, tops); err != nil {
			t.Fatal(err)
		}
		if got := tops[1].Data(); !slices.Equal(got, want) {
			t.Errorf("labels %v, want %v", got, want)
		}
		if got := tops[0].Data(); !slices.Equal(got, []float32{want[0] - 1, 0, 1, 2, want[1] - 1, 0, 1, 2}) {
			t.Errorf("data %v", got)
		}
	}
	if b := l.(Batcher); b.GlobalBatch() != 4 || b.LocalBatch() != 2 {
		t.Errorf("batches of %d and %d", b.GlobalBatch(), b.LocalBatch())
	}
	if err := l.(io.Closer).Close(); err != nil {
		t.Error(err)
	}
	if err := l.Forward(nil, tops); !errors.Is(err, data.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}

	p.DataParam.ForceEncodedColor = pb.Bool(true)
	wantRefusal(t, p, DataOptions{}, 2, `key "00000": force_color or force_encoded_color is set and the Datum holds 1 raw channels`)
	p.TransformParam.ForceGray = pb.Bool(true)
	wantRefusal(t, p, DataOptions{}, 2, "cannot be used together")

	// The ninth sample has no label: an error only where labels are wanted.
	p.DataParam.ForceEncodedColor, p.TransformParam.ForceGray, p.DataParam.BatchSize = nil, nil, pb.Uint32(9)
	l, tops = dataTops(t, p, DataOptions{}, 1)
	if err := errors.Join(l.Forward(nil, tops), l.(io.Closer).Close()); err != nil {
		t.Error(err)
	}
	l, tops = dataTops(t, p, DataOptions{}, 2)
	if err := l.Forward(nil, tops); err == nil {
		t.Error("a missing label is accepted")
	}
	if err := l.(io.Closer).Close(); err != nil {
		t.Error(err)
	}
}
