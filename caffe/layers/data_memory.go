package layers

import (
	"errors"

	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/data"
	"github.com/scaffe/scaffe/caffe/proto"
)

func init() { register("MemoryData", newMemoryData) }

// MemoryData gives the samples of arrays that the program sets, in order and
// over and over: data (batch × C × H × W) and labels (batch).
type MemoryData struct {
	dataBase
	part         data.Part
	batch        int
	shape        data.Shape
	data, labels []float32
	next         int64 // the global batch that Forward gives
}

func newMemoryData(p *proto.LayerParameter, env Env) (Layer, error) {
	d := p.GetMemoryDataParam()
	l := &MemoryData{
		dataBase: newDataBase(p, env), part: env.Data.Part, batch: int(d.GetBatchSize()),
		shape: data.Shape{C: int(d.GetChannels()), H: int(d.GetHeight()), W: int(d.GetWidth())},
	}
	if l.shape.C <= 0 || l.shape.H <= 0 || l.shape.W <= 0 {
		return nil, l.errorf("memory_data_param: channels, height and width must be positive, they are %v", l.shape)
	}
	if err := l.part.Check(l.batch); err != nil {
		return nil, l.errorf("memory_data_param: %w", err)
	}
	if p.GetTransformParam() != nil {
		return nil, l.errorf("transform_param: MemoryData takes its arrays as they are: transform them before Set")
	}
	return l, nil
}

// Set gives the layer its samples, which it borrows: data holds N × C × H × W
// values, labels N, and N is a multiple of the global batch. All parts are
// given the same arrays, and each takes its samples of them. The next Forward
// begins with the first.
func (l *MemoryData) Set(data, labels []float32) error {
	n, b := len(labels), l.GlobalBatch()
	switch {
	case n == 0 || n%b != 0:
		return l.errorf("%d labels are not a positive multiple of the batch size %d", n, b)
	case len(data) != n*l.shape.Count():
		return l.errorf("%d values for %d samples of %v, which have %d", len(data), n, l.shape, n*l.shape.Count())
	}
	l.data, l.labels, l.next = data, labels, 0
	return nil
}

// Tops returns two: the data and the labels.
func (l *MemoryData) Tops() Bounds { return Bounds{2, 2} }

// GlobalBatch implements Batcher.
func (l *MemoryData) GlobalBatch() int { return l.part.Global(l.batch) }

// LocalBatch implements Batcher.
func (l *MemoryData) LocalBatch() int { return l.part.Local(l.batch) }

// SeekBatch implements Seeker.
func (l *MemoryData) SeekBatch(k int64) error {
	if k < 0 {
		return l.errorf("there is no global batch %d", k)
	}
	l.next = k
	return nil
}

// Setup gives the tops their shapes.
func (l *MemoryData) Setup(bottom, top []*blob.Blob) error { return l.Reshape(bottom, top) }

// Reshape gives the tops their shapes.
func (l *MemoryData) Reshape(_, top []*blob.Blob) error {
	n := l.LocalBatch()
	if err := l.reshape(0, top[0], n, l.shape.C, l.shape.H, l.shape.W); err != nil {
		return err
	}
	return l.reshape(1, top[1], n)
}

var errNotSet = errors.New("MemoryData has no samples: call Set before Forward")

// Forward copies the part's samples of the next batch to the tops.
func (l *MemoryData) Forward(_, top []*blob.Blob) error {
	if len(l.labels) == 0 {
		return l.errorf("%w", errNotSet)
	}
	lo, hi := l.part.Range(l.batch)
	batches := int64(len(l.labels) / l.GlobalBatch())
	at := int(l.next%batches) * l.GlobalBatch()
	size := l.shape.Count()
	copy(top[0].Data(), l.data[(at+lo)*size:(at+hi)*size])
	copy(top[1].Data(), l.labels[at+lo:at+hi])
	l.next++
	return nil
}
