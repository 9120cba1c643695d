package proto

import (
	"fmt"
	"math"

	pb "google.golang.org/protobuf/proto"
)

// BlobShapeOf returns the shape of a stored blob, slowest axis first, whether
// it is stored as a shape or as the four extents of old files. A blob with
// neither is a scalar, without axes.
func BlobShapeOf(b *BlobProto) []int {
	shape := []int{}
	for _, d := range storedDims(b) {
		shape = append(shape, int(d))
	}
	return shape
}

// storedDims prefers, as Caffe does, the four extents if any of them is set.
func storedDims(b *BlobProto) []int64 {
	if b.Num != nil || b.Channels != nil || b.Height != nil || b.Width != nil {
		return []int64{int64(b.GetNum()), int64(b.GetChannels()), int64(b.GetHeight()), int64(b.GetWidth())}
	}
	return b.GetShape().GetDim()
}

// CheckBlob reports an impossible shape, or numbers of values or gradients that
// do not fit it. Values are required, gradients are not.
func CheckBlob(b *BlobProto) error {
	n, err := CheckShape(storedDims(b))
	if err != nil {
		return err
	}
	data, diff := len(b.GetData()), len(b.GetDiff())
	if doubles := len(b.GetDoubleData()); doubles > 0 {
		data = doubles
	}
	if doubles := len(b.GetDoubleDiff()); doubles > 0 {
		diff = doubles
	}
	if data != n {
		return fmt.Errorf("shape %v has %d elements, but %d values are stored", storedDims(b), n, data)
	}
	if diff != 0 && diff != n {
		return fmt.Errorf("shape %v has %d elements, but %d gradients are stored", storedDims(b), n, diff)
	}
	return nil
}

// BlobData returns the values of a stored blob, rounded if they are stored in
// double precision; nil if it has none. The caller must not change them.
func BlobData(b *BlobProto) []float32 { return single(b.GetData(), b.GetDoubleData()) }

// BlobDiff returns the gradients of a stored blob, as BlobData does.
func BlobDiff(b *BlobProto) []float32 { return single(b.GetDiff(), b.GetDoubleDiff()) }

// single prefers doubles, as Caffe does.
func single(floats []float32, doubles []float64) []float32 {
	if len(doubles) == 0 {
		return floats
	}
	out := make([]float32, len(doubles))
	for i, v := range doubles {
		out[i] = float32(v)
	}
	return out
}

// NewBlob makes a blob to be stored, with today's kind of shape. It keeps data
// and diff, either of which may be nil, without a copy.
func NewBlob(shape []int, data, diff []float32) *BlobProto {
	b := &BlobProto{Shape: &BlobShape{}, Data: data, Diff: diff}
	for _, d := range shape {
		b.Shape.Dim = append(b.Shape.Dim, int64(d))
	}
	return b
}

// ParseDatum reads one record of a data set and checks it: see Datum.Check.
func ParseDatum(b []byte) (*Datum, error) {
	d := &Datum{}
	if err := unmarshal(b, "record (Datum)", d); err != nil {
		return nil, err
	}
	return d, d.Check()
}

// MarshalDatum returns a record's binary form; equal records have equal bytes.
func MarshalDatum(d *Datum) ([]byte, error) {
	return pb.MarshalOptions{Deterministic: true}.Marshal(d)
}

// Check reports a record whose values do not fit its extents. An encoded
// record must hold an image file; its extents come from that.
func (d *Datum) Check() error {
	if d.GetEncoded() {
		if len(d.GetData()) == 0 {
			return fmt.Errorf("%w: an encoded record (Datum) without data", ErrFormat)
		}
		return nil
	}
	c, h, w := int64(d.GetChannels()), int64(d.GetHeight()), int64(d.GetWidth())
	n, err := CheckShape([]int64{c, h, w})
	if err != nil {
		return fmt.Errorf("%w: record (Datum): %w", ErrFormat, err)
	}
	values := len(d.GetData())
	if values == 0 {
		values = len(d.GetFloatData())
	}
	if n == 0 || values != n {
		return fmt.Errorf("%w: a record (Datum) of %d channels, height %d, width %d holds %d values", ErrFormat, c, h, w, min(values, math.MaxInt32))
	}
	return nil
}
