// Package blob holds Blob, the N-dimensional array that flows through a net:
// values (data) next to their gradients (diff), both float32, row-major, the
// first axis outermost (Caffe's N×C×H×W).
//
// A blob's bytes lie in mem.Buffers, so that a learnable parameter can be
// laid into one packed communication buffer (S-Caffe section 2.2, the
// packed_comm_buffer and packed_reduce_buffer) and be sent without a copy.
package blob

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/scaffe/scaffe/caffe/gpu"
	"github.com/scaffe/scaffe/mem"
)

// Blob is a shaped pair of equally long float32 buffers: data and diff.
// Memory is allocated at first use and grows, never shrinks, on Reshape.
type Blob struct {
	shape      []int
	count      int
	data, diff mem.Buffer // capacity, at least count elements once used

	device         *gpu.Device // nil: the blob lies in the host's memory
	onData, onDiff *gpu.Memory // of a device, instead of data and diff
}

// MaxCount is how many elements a blob has at most, as in Caffe.
const MaxCount = math.MaxInt32

// New returns a blob of a shape that is known to be good: it panics where
// Reshape fails. A blob without axes is a scalar of one element, as in Caffe
// (the shape of a loss).
func New(shape ...int) *Blob {
	b := &Blob{}
	if err := b.Reshape(shape...); err != nil {
		panic("blob: " + err.Error())
	}
	return b
}

// Reshape gives the blob a new shape, and allocates nothing. The contents are
// kept where the element count does not grow past what was allocated, and
// undefined otherwise. A negative extent, and more than MaxCount elements, are
// an error, and then nothing has changed.
func (b *Blob) Reshape(shape ...int) error {
	n, err := count(shape)
	if err != nil {
		return err
	}
	b.shape = append(b.shape[:0], shape...)
	b.count = n
	return nil
}

// count returns how many elements a shape has.
func count(shape []int) (int, error) {
	n := 1
	for _, d := range shape {
		if d < 0 {
			return 0, fmt.Errorf("shape %v has a negative extent", shape)
		}
		if d > 0 && n > MaxCount/d && !slices.Contains(shape, 0) {
			bytes := float64(mem.Float32.Size())
			for _, d := range shape {
				bytes *= float64(d)
			}
			return 0, fmt.Errorf("shape %v takes %.4g bytes: a blob has at most %d elements", shape, bytes, MaxCount)
		}
		n *= d
	}
	return n, nil
}

// ReshapeLike gives b the shape of o.
func (b *Blob) ReshapeLike(o *Blob) {
	b.shape = append(b.shape[:0], o.shape...)
	b.count = o.count
}

// Shape returns the extents, outermost first. The caller must not change it.
func (b *Blob) Shape() []int { return b.shape }

// NumAxes returns the number of axes.
func (b *Blob) NumAxes() int { return len(b.shape) }

// Count returns the number of elements.
func (b *Blob) Count() int { return b.count }

// CountFrom returns the product of the extents of axes [from, to).
func (b *Blob) CountFrom(from, to int) int {
	n := 1
	for _, d := range b.shape[from:to] {
		n *= d
	}
	return n
}

// Axis returns the canonical index of axis i, which may count from the end
// (-1 is the innermost), and whether there is one.
func (b *Blob) Axis(i int) (int, bool) {
	if i < 0 {
		i += len(b.shape)
	}
	return i, i >= 0 && i < len(b.shape)
}

// Dim returns the extent of axis i, and 1 for an axis past the last: the
// legacy N, C, H, W of a blob with fewer than four axes.
func (b *Blob) Dim(i int) int {
	if i >= len(b.shape) {
		return 1
	}
	return b.shape[i]
}

// Data returns the values.
func (b *Blob) Data() []float32 { return mem.Float32s(b.DataBuffer()) }

// Diff returns the gradients.
func (b *Blob) Diff() []float32 { return mem.Float32s(b.DiffBuffer()) }

// DataBuffer returns the values' memory, exactly Count elements long.
func (b *Blob) DataBuffer() mem.Buffer {
	if b.device != nil {
		return b.side(&b.onData).Host().Slice(0, mem.Float32.Bytes(b.count))
	}
	return grow(&b.data, b.count)
}

// DiffBuffer returns the gradients' memory, exactly Count elements long.
func (b *Blob) DiffBuffer() mem.Buffer {
	if b.device != nil {
		return b.side(&b.onDiff).Host().Slice(0, mem.Float32.Bytes(b.count))
	}
	return grow(&b.diff, b.count)
}

// grow makes sure that buf holds n float32 and returns that prefix.
func grow(buf *mem.Buffer, n int) mem.Buffer {
	need := mem.Float32.Bytes(n)
	if buf.Len() < need {
		*buf = mem.Of(make([]float32, n))
	}
	return buf.Slice(0, need)
}

// Bind moves the blob into the given memory, each at least Count elements
// long: the present contents are copied there, and the blob lives there from
// now on. It is how a net packs its parameters.
func (b *Blob) Bind(data, diff mem.Buffer) {
	n := mem.Float32.Bytes(b.count)
	copy(mem.Bytes(data.Slice(0, n)), mem.Bytes(b.DataBuffer()))
	if b.diff.Len() < n { // never used
		clear(mem.Bytes(diff.Slice(0, n)))
	} else {
		copy(mem.Bytes(diff.Slice(0, n)), mem.Bytes(b.DiffBuffer()))
	}
	b.data, b.diff = data.Slice(0, n), diff.Slice(0, n)
}

// ShareData makes b's values those of o, which must have as many elements.
func (b *Blob) ShareData(o *Blob) {
	if o.device != nil {
		b.device, b.onData, b.data = o.device, o.side(&o.onData), mem.Buffer{}
		return
	}
	b.data = o.DataBuffer().Slice(0, mem.Float32.Bytes(b.count))
}

// ShareDiff makes b's gradients those of o, which must have as many elements.
func (b *Blob) ShareDiff(o *Blob) {
	if o.device != nil {
		b.device, b.onDiff, b.diff = o.device, o.side(&o.onDiff), mem.Buffer{}
		return
	}
	b.diff = o.DiffBuffer().Slice(0, mem.Float32.Bytes(b.count))
}

// ShapeString returns the shape and count as Caffe logs them: "100 3 32 32 (307200)".
func (b *Blob) ShapeString() string {
	var s strings.Builder
	for _, d := range b.shape {
		s.WriteString(strconv.Itoa(d))
		s.WriteByte(' ')
	}
	fmt.Fprintf(&s, "(%d)", b.count)
	return s.String()
}
