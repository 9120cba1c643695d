package data

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Shape is the extents of one sample: channels, height, width.
type Shape struct{ C, H, W int }

// Count returns the number of values.
func (s Shape) Count() int { return s.C * s.H * s.W }

// String returns the extents as "3x32x32".
func (s Shape) String() string { return fmt.Sprintf("%dx%dx%d", s.C, s.H, s.W) }

// maxValues bounds the values of one sample, so that a corrupt header cannot
// ask for all memory: 64 Mi values are an image of 4700 by 4700.
const maxValues = 64 << 20

// check reports extents that no sample can have.
func (s Shape) check() error {
	for _, d := range [...]int{s.C, s.H, s.W} {
		if d <= 0 || d > maxValues {
			return fmt.Errorf("invalid sample shape %v", s)
		}
	}
	if int64(s.C)*int64(s.H) > maxValues || int64(s.C)*int64(s.H)*int64(s.W) > maxValues {
		return fmt.Errorf("the shape %v is larger than a sample may be (%d values)", s, maxValues)
	}
	return nil
}

// Sample is one decoded sample. Its values are in Bytes or, if that is nil, in
// Floats: Shape.Count of them, each channel a plane of rows. They are
// borrowed from the Decoder or Source and valid until it decodes the next
// sample.
type Sample struct {
	Shape
	Bytes  []byte
	Floats []float32
	// Label is the class; HasLabel reports whether the source has one.
	Label    int32
	HasLabel bool
	// Encoded means that the values were decoded from an image file's bytes.
	Encoded bool
	// Stored is how many bytes the sample takes in its data set.
	Stored int
}

// Color says what an encoded image is decoded to.
type Color uint8

const (
	// Native keeps what the file holds: one plane for a gray image, three otherwise.
	Native Color = iota
	// BGR makes three planes of any image.
	BGR
	// Gray makes one plane of any image.
	Gray
)

// Decoder turns stored bytes into samples, reusing its buffers.
type Decoder struct {
	// Color is what encoded images are decoded to.
	Color Color
	// Height and Width, unless 0, are what image files (not Datums) are
	// resized to.
	Height, Width int

	bytes, sized []byte
	floats       []float32
	taps         []tap
}

// datum is a Datum in its wire form; data aliases the message.
type datum struct {
	shape    Shape
	data     []byte
	label    int32
	hasLabel bool
	floats   []float32
	encoded  bool
}

// Datum decodes one Datum message into s. Raw bytes are not copied: s borrows
// them from raw. Nothing is allocated for raw bytes.
func (d *Decoder) Datum(raw []byte, s *Sample) error {
	m := datum{floats: d.floats[:0]}
	if err := m.parse(raw); err != nil {
		return fmt.Errorf("not a Datum: %w", err)
	}
	d.floats = m.floats
	s.Label, s.HasLabel, s.Encoded, s.Stored = m.label, m.hasLabel, m.encoded, len(raw)
	if m.encoded {
		if len(m.data) == 0 {
			return errors.New("the Datum is marked as encoded but holds no image")
		}
		if err := d.image(m.data, s); err != nil {
			return fmt.Errorf("the Datum's image: %w", err)
		}
		return nil
	}
	if err := m.shape.check(); err != nil {
		return fmt.Errorf("the Datum is corrupt: %w", err)
	}
	s.Shape, s.Bytes, s.Floats = m.shape, nil, nil
	n := m.shape.Count()
	switch {
	case len(m.data) > 0 && len(m.floats) > 0:
		return errors.New("the Datum is corrupt: it holds both data and float_data")
	case len(m.data) > 0 && len(m.data) != n:
		return fmt.Errorf("the Datum is corrupt: data holds %d bytes, but its shape %v needs %d", len(m.data), m.shape, n)
	case len(m.data) > 0:
		s.Bytes = m.data
	case len(m.floats) == 0:
		return fmt.Errorf("the Datum is corrupt: it holds no data, but its shape %v needs %d values", m.shape, n)
	case len(m.floats) != n:
		return fmt.Errorf("the Datum is corrupt: float_data holds %d values, but its shape %v needs %d", len(m.floats), m.shape, n)
	default:
		s.Floats = m.floats
	}
	return d.checkColor(s)
}

// checkColor refuses to turn raw values into another number of channels:
// which of a raw Datum's channels is which color is not known.
func (d *Decoder) checkColor(s *Sample) error {
	switch {
	case d.Color == BGR && s.C != 3:
		return fmt.Errorf("force_color or force_encoded_color is set and the Datum holds %d raw channels: only encoded images can be converted", s.C)
	case d.Color == Gray && s.C != 1:
		return fmt.Errorf("force_gray is set and the Datum holds %d raw channels: only encoded images can be converted", s.C)
	}
	return nil
}

// parse reads the wire form. As protocol buffers require, the last of a repeated
// scalar field wins. Unknown fields are skipped.
func (m *datum) parse(b []byte) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		switch {
		case typ == protowire.VarintType:
			var v uint64
			if v, n = protowire.ConsumeVarint(b); n >= 0 {
				m.setInt(num, v)
			}
		case num == 4 && typ == protowire.BytesType:
			m.data, n = protowire.ConsumeBytes(b)
		case num == 6 && typ == protowire.BytesType:
			var packed []byte
			if packed, n = protowire.ConsumeBytes(b); n >= 0 {
				if len(packed)%4 != 0 {
					return fmt.Errorf("float_data of %d bytes is not a whole number of floats", len(packed))
				}
				for ; len(packed) > 0; packed = packed[4:] {
					m.addFloat(binary.LittleEndian.Uint32(packed))
				}
			}
		case num == 6 && typ == protowire.Fixed32Type:
			var v uint32
			if v, n = protowire.ConsumeFixed32(b); n >= 0 {
				m.addFloat(v)
			}
		case num >= 1 && num <= 7:
			return fmt.Errorf("field %d has wire type %d", num, typ)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
	}
	return nil
}

func (m *datum) setInt(num protowire.Number, v uint64) {
	switch num {
	case 1:
		m.shape.C = int(int32(v))
	case 2:
		m.shape.H = int(int32(v))
	case 3:
		m.shape.W = int(int32(v))
	case 5:
		m.label, m.hasLabel = int32(v), true
	case 7:
		m.encoded = v != 0
	}
}

func (m *datum) addFloat(bits uint32) { m.floats = append(m.floats, math.Float32frombits(bits)) }

// AppendDatum appends to b the Datum of s, whose values are raw.
func AppendDatum(b []byte, s *Sample) []byte {
	for i, v := range [...]int{s.C, s.H, s.W} {
		b = protowire.AppendTag(b, protowire.Number(i+1), protowire.VarintType)
		b = protowire.AppendVarint(b, uint64(v))
	}
	if s.Bytes != nil {
		b = appendBytes(b, s.Bytes)
	}
	b = appendLabel(b, s)
	for _, v := range s.Floats {
		b = protowire.AppendTag(b, 6, protowire.Fixed32Type)
		b = protowire.AppendFixed32(b, math.Float32bits(v))
	}
	return b
}

// AppendEncoded appends to b the Datum of an image file's bytes with the
// label of s; the shape, which decoding finds, is written if s has one.
func AppendEncoded(b []byte, s *Sample, file []byte) []byte {
	if s.C > 0 {
		for i, v := range [...]int{s.C, s.H, s.W} {
			b = protowire.AppendTag(b, protowire.Number(i+1), protowire.VarintType)
			b = protowire.AppendVarint(b, uint64(v))
		}
	}
	b = appendBytes(b, file)
	b = appendLabel(b, s)
	b = protowire.AppendTag(b, 7, protowire.VarintType)
	return protowire.AppendVarint(b, 1)
}

func appendBytes(b, data []byte) []byte {
	b = protowire.AppendTag(b, 4, protowire.BytesType)
	return protowire.AppendBytes(b, data)
}

func appendLabel(b []byte, s *Sample) []byte {
	if !s.HasLabel {
		return b
	}
	b = protowire.AppendTag(b, 5, protowire.VarintType)
	return protowire.AppendVarint(b, uint64(int64(s.Label)))
}
