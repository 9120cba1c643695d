package layers

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/data"
	"github.com/scaffe/scaffe/caffe/proto"
)

func init() {
	register("Input", newInput)
	register("DummyData", newDummyData)
}

// shaped is a layer whose tops have the shapes that its message gives. Axis 0
// of the first top is the batch; every top with the same axis 0 is divided
// among the parts, the others are whole in each.
type shaped struct {
	dataBase
	shapes []*proto.BlobShape
	part   data.Part
	batch  int     // axis 0 of the first top as the message gives it
	global [][]int // the tops' shapes in all parts together
	local  [][]int // and in this one
}

func newShaped(p *proto.LayerParameter, env Env, shapes []*proto.BlobShape) shaped {
	return shaped{dataBase: newDataBase(p, env), shapes: shapes, part: env.Data.Part}
}

// Tops returns one or more.
func (l *shaped) Tops() Bounds { return Bounds{1, -1} }

// GlobalBatch implements Batcher.
func (l *shaped) GlobalBatch() int { return l.part.Global(l.batch) }

// LocalBatch implements Batcher.
func (l *shaped) LocalBatch() int { return l.part.Local(l.batch) }

func (l *shaped) Setup(_, top []*blob.Blob) error {
	if n := len(l.shapes); n != 1 && n != len(top) {
		return l.errorf("%d shapes for %d tops: give one, or one per top", n, len(top))
	}
	l.global, l.local = nil, nil
	for i := range top {
		shape, err := shapeDims(l.shapes[min(i, len(l.shapes)-1)])
		if err != nil {
			return l.errorf("top %d: %w", i, err)
		}
		if i == 0 {
			l.batch = 1
			if len(shape) > 0 {
				l.batch = shape[0]
			}
			if err := l.part.Check(l.batch); err != nil {
				return l.errorf("%w", err)
			}
		}
		global, local := append([]int{}, shape...), append([]int{}, shape...)
		if len(shape) > 0 && shape[0] == l.batch {
			global[0], local[0] = l.part.Global(l.batch), l.part.Local(l.batch)
		}
		l.global, l.local = append(l.global, global), append(l.local, local)
	}
	return l.Reshape(nil, top)
}

func (l *shaped) Reshape(_, top []*blob.Blob) error {
	for i, t := range top {
		if err := l.reshape(i, t, l.local[i]...); err != nil {
			return err
		}
	}
	return nil
}

// shapeDims checks a shape from a message.
func shapeDims(s *proto.BlobShape) ([]int, error) {
	shape, count := []int{}, int64(1)
	for _, d := range s.GetDim() {
		if d <= 0 || d > math.MaxInt32 || count*d > math.MaxInt32 {
			return nil, fmt.Errorf("shape %v: extents must be positive and their product below 2^31", s.GetDim())
		}
		count *= d
		shape = append(shape, int(d))
	}
	return shape, nil
}

// Input's tops are set from outside: Forward leaves them as they are.
type inputLayer struct{ shaped }

func newInput(p *proto.LayerParameter, env Env) (Layer, error) {
	l := &inputLayer{newShaped(p, env, p.GetInputParam().GetShape())}
	if len(l.shapes) == 0 {
		return nil, l.errorf("an Input layer needs a shape in its input_param")
	}
	return l, nil
}

func (l *inputLayer) Forward(_, _ []*blob.Blob) error { return nil }

// dummyData fills its tops: constants once, random numbers anew for each
// batch. The numbers are a function of (seed, layer name, batch, top) for the
// global batch, of which the part keeps its samples: parts with one seed make
// up the batch that one reader would fill.
type dummyData struct {
	shaped
	fillers []*proto.FillerParameter
	seed    uint64
	source  *rand.PCG
	random  *rand.Rand // over source
	next    int64      // the batch that Forward fills
	scratch *blob.Blob
}

func newDummyData(p *proto.LayerParameter, env Env) (Layer, error) {
	d := p.GetDummyDataParam()
	shapes, err := dummyShapes(d)
	h := fnv.New64a()
	_, _ = h.Write([]byte(p.GetName())) // never fails
	source := rand.NewPCG(0, 0)
	l := &dummyData{
		shaped:  newShaped(p, env, shapes),
		fillers: d.GetDataFiller(),
		seed:    env.Data.Seed ^ h.Sum64(),
		source:  source,
		random:  rand.New(source),
		scratch: &blob.Blob{},
	}
	if err != nil {
		return nil, l.errorf("dummy_data_param: %w", err)
	}
	return l, nil
}

// dummyShapes reads the shapes in either form, new (shape) or legacy (num,
// channels, height, width).
func dummyShapes(d *proto.DummyDataParameter) ([]*proto.BlobShape, error) {
	n := len(d.GetNum())
	legacy := n + len(d.GetChannels()) + len(d.GetHeight()) + len(d.GetWidth())
	switch {
	case len(d.GetShape()) > 0 && legacy > 0:
		return nil, errors.New("shape cannot be used together with num, channels, height and width")
	case len(d.GetShape()) > 0:
		return d.GetShape(), nil
	case n == 0 || len(d.Channels) != n || len(d.Height) != n || len(d.Width) != n:
		return nil, errors.New("want shape, or as many num as channels, height and width")
	}
	var shapes []*proto.BlobShape
	for i := range n {
		shapes = append(shapes, &proto.BlobShape{Dim: []int64{
			int64(d.Num[i]), int64(d.Channels[i]), int64(d.Height[i]), int64(d.Width[i]),
		}})
	}
	return shapes, nil
}

func (l *dummyData) Setup(bottom, top []*blob.Blob) error {
	if n := len(l.fillers); n > 1 && n != len(top) {
		return l.errorf("%d data_fillers for %d tops: give none, one, or one per top", n, len(top))
	}
	if err := l.shaped.Setup(bottom, top); err != nil {
		return err
	}
	for i, t := range top { // constants are filled now
		if err := l.fits(t.Count()); err != nil {
			return l.errorf("top %d of shape %v: %w", i, t.Shape(), err)
		}
	}
	return l.fill(top, true)
}

func (l *dummyData) Forward(_, top []*blob.Blob) error {
	if err := l.fill(top, false); err != nil {
		return err
	}
	l.next++
	return nil
}

// SeekBatch implements Seeker.
func (l *dummyData) SeekBatch(k int64) error {
	if k < 0 {
		return l.errorf("there is no global batch %d", k)
	}
	l.next = k
	return nil
}

// fill fills the tops with the batch next, those of a constant only at first.
func (l *dummyData) fill(top []*blob.Blob, first bool) error {
	lo, _ := l.part.Range(l.batch)
	for i, t := range top {
		f := l.filler(i)
		constant := f.GetType() == "constant"
		if constant && !first {
			continue
		}
		to, offset := t, 0
		if !constant && t.Count() > 0 && !slices.Equal(l.global[i], l.local[i]) {
			to = l.scratch
			if err := to.Reshape(l.global[i]...); err != nil {
				return l.errorf("top %d of all parts: %w", i, err)
			}
			offset = lo * (t.Count() / l.local[i][0])
		}
		l.source.Seed(l.seed, uint64(l.next)<<16+uint64(i))
		if err := fill(f, to, l.random); err != nil {
			return l.errorf("top %d: %w", i, err)
		}
		if to != t {
			copy(t.Data(), to.Data()[offset:])
		}
	}
	return nil
}

// filler returns top i's filler: nil, as where none is given, is the constant 0.
func (l *dummyData) filler(i int) *proto.FillerParameter {
	if len(l.fillers) == 0 {
		return nil
	}
	return l.fillers[min(i, len(l.fillers)-1)]
}
