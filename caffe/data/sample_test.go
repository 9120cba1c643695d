package data

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	pb "google.golang.org/protobuf/proto"

	"github.com/scaffe/scaffe/caffe/proto"
)

func marshal(t testing.TB, m pb.Message) []byte {
	t.Helper()
	b, err := pb.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// rawDatum is a Datum whose bytes are 0, 1, 2, ...
func rawDatum(c, h, w int32) *proto.Datum {
	b := make([]byte, c*h*w)
	for i := range b {
		b[i] = byte(i)
	}
	return &proto.Datum{Channels: &c, Height: &h, Width: &w, Data: b, Label: pb.Int32(7)}
}

func TestDecoder_EqualsGeneratedParser(t *testing.T) {
	floats := rawDatum(2, 3, 4)
	floats.Data, floats.FloatData = nil, make([]float32, 24)
	for i := range floats.FloatData {
		floats.FloatData[i] = float32(i)*0.25 - 3
	}
	negative := rawDatum(1, 1, 5)
	negative.Label = pb.Int32(-2)
	unlabelled := rawDatum(3, 2, 2)
	unlabelled.Label = nil
	var d Decoder
	var s Sample
	for i, m := range []*proto.Datum{rawDatum(3, 4, 5), floats, negative, unlabelled} {
		if err := d.Datum(marshal(t, m), &s); err != nil {
			t.Fatalf("datum %d: %v", i, err)
		}
		want := Shape{int(m.GetChannels()), int(m.GetHeight()), int(m.GetWidth())}
		if s.Shape != want || !bytes.Equal(s.Bytes, m.Data) || s.Label != m.GetLabel() || s.HasLabel != (m.Label != nil) {
			t.Errorf("datum %d: %+v", i, s)
		}
		if s.Bytes == nil && !slices.Equal(s.Floats, m.FloatData) {
			t.Errorf("datum %d: floats %v, want %v", i, s.Floats, m.FloatData)
		}
		var back proto.Datum
		if err := pb.Unmarshal(AppendDatum(nil, &s), &back); err != nil || !pb.Equal(&back, m) {
			t.Errorf("datum %d: AppendDatum gives %v (%v), want %v", i, &back, err, m)
		}
	}
}

func TestDecoder_PackedFloats(t *testing.T) {
	raw := []byte{1 << 3, 1, 2 << 3, 1, 3 << 3, 2, 6<<3 | 2, 8, 0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0}
	var s Sample
	if err := new(Decoder).Datum(raw, &s); err != nil || !slices.Equal(s.Floats, []float32{1, -2}) {
		t.Errorf("%v, %v", s.Floats, err)
	}
}

func TestDecoder_CorruptDatums(t *testing.T) {
	edit := func(f func(*proto.Datum)) []byte {
		m := rawDatum(3, 4, 5)
		f(m)
		return marshal(t, m)
	}
	for name, c := range map[string]struct {
		raw   []byte
		color Color
		want  string
	}{
		"empty":         {nil, Native, "shape 0x0x0"},
		"not protobuf":  {[]byte("JFIF\xff\xff"), Native, "not a Datum"},
		"cut":           {edit(func(*proto.Datum) {})[:20], Native, "not a Datum"},
		"short data":    {edit(func(m *proto.Datum) { m.Data = m.Data[:59] }), Native, "data holds 59 bytes, but its shape 3x4x5 needs 60"},
		"no data":       {edit(func(m *proto.Datum) { m.Data = nil }), Native, "holds no data"},
		"few floats":    {edit(func(m *proto.Datum) { m.Data = nil; m.FloatData = []float32{1} }), Native, "float_data holds 1 values"},
		"both":          {edit(func(m *proto.Datum) { m.FloatData = []float32{1} }), Native, "both data and float_data"},
		"negative":      {edit(func(m *proto.Datum) { m.Width = pb.Int32(-5) }), Native, "3x4x-5"},
		"huge":          {edit(func(m *proto.Datum) { m.Width = pb.Int32(math.MaxInt32) }), Native, "invalid sample shape"},
		"overflowing":   {edit(func(m *proto.Datum) { m.Height, m.Width = pb.Int32(1<<20), pb.Int32(1<<20) }), Native, "larger than a sample"},
		"empty image":   {edit(func(m *proto.Datum) { m.Data, m.Encoded = nil, pb.Bool(true) }), Native, "holds no image"},
		"no image":      {edit(func(m *proto.Datum) { m.Encoded = pb.Bool(true) }), Native, "neither JPEG nor PNG"},
		"raw to gray":   {edit(func(*proto.Datum) {}), Gray, "force_gray"},
		"raw to color":  {marshal(t, rawDatum(1, 4, 5)), BGR, "force_color"},
		"odd floats":    {[]byte{6<<3 | 2, 3, 0, 0, 0}, Native, "whole number of floats"},
		"wrong wire":    {[]byte{4 << 3, 1, 6 << 3, 1, 4<<3 | 5, 0, 0, 0, 0}, Native, "wire type"},
		"endless group": {[]byte{9<<3 | 3}, Native, "not a Datum"},
	} {
		var s Sample
		err := (&Decoder{Color: c.color}).Datum(c.raw, &s)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestDecoder_RawDatumAllocatesNothing(t *testing.T) {
	raw := marshal(t, rawDatum(3, 32, 32))
	var d Decoder
	var s Sample
	if n := testing.AllocsPerRun(100, func() {
		if err := d.Datum(raw, &s); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a Datum", n)
	}
}

// FuzzDatumDecode: whatever bytes a Datum holds, decoding and transforming it
// gives Count values or an error.
func FuzzDatumDecode(f *testing.F) {
	f.Add(marshal(f, rawDatum(3, 4, 5)))
	m := rawDatum(1, 2, 2)
	m.Data, m.FloatData = nil, []float32{1, 2, 3, 4}
	f.Add(marshal(f, m))
	for _, file := range [][]byte{pngFile(f, picture(5, 4)), jpegFile(f, picture(9, 3))} {
		f.Add(marshal(f, &proto.Datum{Data: file, Encoded: pb.Bool(true), Label: pb.Int32(1)}))
		f.Add(marshal(f, &proto.Datum{Data: file[:len(file)/2], Encoded: pb.Bool(true)}))
	}
	f.Add([]byte{})
	tr := &Transformer{scale: 0.5, mirror: true, train: true}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, color := range []Color{Native, BGR, Gray} {
			var s Sample
			if err := (&Decoder{Color: color}).Datum(raw, &s); err != nil {
				continue
			}
			n := s.Count()
			if len(s.Bytes) != n && (s.Bytes != nil || len(s.Floats) != n) {
				t.Fatalf("%v with %d bytes, %d floats", s.Shape, len(s.Bytes), len(s.Floats))
			}
			if err := tr.Apply(make([]float32, n), &s, 3); err != nil {
				t.Fatal(err)
			}
		}
	})
}
