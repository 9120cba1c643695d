package layers

import (
	"fmt"
	"math/rand/v2"

	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/mem"
)

// base is what every layer has: embed it and override what differs. Its
// defaults are a layer without parameters, which is not in place and takes a
// gradient for each bottom.
type base struct {
	name   string
	typ    string
	phase  proto.Phase
	rand   *rand.Rand
	params []*blob.Blob
	memory Memory // may be nil
}

// newBase takes what p and env say about every layer.
func newBase(p *proto.LayerParameter, env Env) base {
	return base{name: p.GetName(), typ: p.GetType(), phase: env.Phase, rand: env.Rand, memory: env.Memory}
}

// Params returns the learnable parameters.
func (l *base) Params() []*blob.Blob { return l.params }

// InPlace says that no top may be a bottom.
func (l *base) InPlace() bool { return false }

// NoBackward says that every bottom takes a gradient.
func (l *base) NoBackward(int) bool { return false }

// errorf makes an error that names the layer and its type:
//
//	layer "conv1" (Convolution): kernel_size 0 is not positive
func (l *base) errorf(format string, args ...any) error {
	return fmt.Errorf("layer %q (%s): %w", l.name, l.typ, fmt.Errorf(format, args...))
}

// axis returns the canonical index of axis i of bottom b, or an error that
// names the field and the range.
func (l *base) axis(field string, i int, b *blob.Blob) (int, error) {
	if a, ok := b.Axis(i); ok {
		return a, nil
	}
	n := b.NumAxes()
	return 0, l.errorf("%s %d is out of range [%d, %d) for a bottom of shape %v", field, i, -n, n, b.Shape())
}

// newParam appends a parameter of the given shape to Params, filled by f (nil
// is the constant 0). A layer's Setup calls it once a parameter.
func (l *base) newParam(f *proto.FillerParameter, shape ...int) error {
	b := &blob.Blob{}
	if err := b.Reshape(shape...); err != nil {
		return l.errorf("parameter %d: %w", len(l.params), err)
	}
	if l.memory != nil {
		if err := l.memory.Params(bytes(b.Count())); err != nil {
			return l.errorf("parameter %d of shape %v: %w", len(l.params), shape, err)
		}
	}
	if err := fill(f, b, l.rand); err != nil {
		return l.errorf("%w", err)
	}
	l.params = append(l.params, b)
	return nil
}

// fits is an error where there is no memory for n float32.
func (l *base) fits(n int) error {
	if l.memory == nil {
		return nil
	}
	return l.memory.Fits(bytes(n))
}

func bytes(n int) int64 { return int64(mem.Float32.Bytes(n)) }

// reshape gives top number i its shape.
func (l *base) reshape(i int, top *blob.Blob, shape ...int) error {
	if err := top.Reshape(shape...); err != nil {
		return l.errorf("top %d: %w", i, err)
	}
	return nil
}
