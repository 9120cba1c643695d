package layers

import (
	"errors"
	"fmt"

	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/data"
	"github.com/scaffe/scaffe/caffe/proto"
)

func init() {
	register("Data", newData)
	register("ImageData", newImageData)
}

// dataBase is what all data layers have in common: no bottoms, and so nothing
// to compute backward.
type dataBase struct{ base }

func newDataBase(p *proto.LayerParameter, env Env) dataBase { return dataBase{newBase(p, env)} }

// Bottoms returns none.
func (dataBase) Bottoms() Bounds { return Bounds{0, 0} }

// NoBackward says that nothing takes a gradient.
func (dataBase) NoBackward(int) bool { return true }

// Backward does nothing.
func (dataBase) Backward([]*blob.Blob, []bool, []*blob.Blob) error { return nil }

// loaded is a layer whose tops a data.Loader fills: data (batch × C × H × W)
// and, where there is a second top, the labels (batch).
type loaded struct {
	dataBase
	open   func(labels bool) (*data.Loader, error)
	loader *data.Loader
}

// Tops returns one or two: the data and the labels.
func (l *loaded) Tops() Bounds { return Bounds{1, 2} }

// Setup opens the data set and reads its first sample, whose shape the data
// top takes.
func (l *loaded) Setup(_, top []*blob.Blob) error {
	if l.loader != nil {
		return l.errorf("set up twice")
	}
	loader, err := l.open(len(top) > 1)
	if err != nil {
		return l.errorf("%w", err)
	}
	l.loader = loader
	return l.Reshape(nil, top)
}

func (l *loaded) Reshape(_, top []*blob.Blob) error {
	n, s := l.loader.LocalBatch(), l.loader.Shape()
	if err := l.reshape(0, top[0], n, s.C, s.H, s.W); err != nil {
		return err
	}
	if len(top) > 1 {
		return l.reshape(1, top[1], n)
	}
	return nil
}

// Forward waits for the next batch and copies it to the tops.
func (l *loaded) Forward(_, top []*blob.Blob) error {
	var labels []float32
	if len(top) > 1 {
		labels = top[1].Data()
	}
	if err := l.loader.Next(top[0].Data(), labels); err != nil {
		return l.errorf("%w", err)
	}
	return nil
}

// GlobalBatch implements Batcher.
func (l *loaded) GlobalBatch() int { return l.loader.GlobalBatch() }

// LocalBatch implements Batcher.
func (l *loaded) LocalBatch() int { return l.loader.LocalBatch() }

// SeekBatch implements Seeker.
func (l *loaded) SeekBatch(k int64) error { return l.loader.SeekBatch(k) }

// Stats says how well the reading kept up with the net.
func (l *loaded) Stats() data.Stats { return l.loader.Stats() }

// Buffered implements Bufferer.
func (l *loaded) Buffered() int64 { return l.loader.Buffered() }

// Close ends the reading and closes the data set.
func (l *loaded) Close() error {
	if l.loader == nil {
		return nil
	}
	return l.loader.Close()
}

// oldTransform refuses the transformation fields of before transform_param.
const oldTransform = "%s: scale, mean_file, crop_size and mirror belong into transform_param"

// Data: batches of an LMDB of Datum.
func newData(p *proto.LayerParameter, env Env) (Layer, error) {
	l, d := &loaded{dataBase: newDataBase(p, env)}, p.GetDataParam()
	if d == nil {
		return nil, l.errorf("a Data layer needs a data_param")
	}
	if d.GetBackend() != proto.DataParameter_LMDB {
		return nil, l.errorf("data_param: backend LEVELDB (Caffe's default) is not supported: convert the data set to LMDB and write backend: LMDB")
	}
	if d.Scale != nil || d.MeanFile != nil || d.CropSize != nil || d.Mirror != nil {
		return nil, l.errorf(oldTransform, "data_param")
	}
	l.open = func(labels bool) (*data.Loader, error) {
		color := data.ColorOf(p.GetTransformParam())
		if d.GetForceEncodedColor() {
			if color == data.Gray {
				return nil, errors.New("data_param force_encoded_color and transform_param force_gray cannot be used together")
			}
			color = data.BGR
		}
		t, err := data.NewTransformer(p.GetTransformParam(), env.Phase, env.Data.Seed)
		if err != nil {
			return nil, err
		}
		src, err := data.OpenLMDB(d.GetSource(), color)
		if err != nil {
			return nil, fmt.Errorf("data_param: source: %w", err)
		}
		return data.NewLoader(data.Config{
			Source: src, Transform: t, Labels: labels,
			BatchSize: int(d.GetBatchSize()), RandSkip: int(d.GetRandSkip()), Prefetch: int(d.GetPrefetch()),
			Options: env.Data,
		})
	}
	return l, nil
}

// ImageData: batches of a list of image files.
func newImageData(p *proto.LayerParameter, env Env) (Layer, error) {
	l, d := &loaded{dataBase: newDataBase(p, env)}, p.GetImageDataParam()
	if d == nil {
		return nil, l.errorf("an ImageData layer needs an image_data_param")
	}
	if d.Scale != nil || d.MeanFile != nil || d.CropSize != nil || d.Mirror != nil {
		return nil, l.errorf(oldTransform, "image_data_param")
	}
	if tp := p.GetTransformParam(); tp.GetForceColor() || tp.GetForceGray() {
		return nil, l.errorf("transform_param: force_color and force_gray have no effect on ImageData: use image_data_param is_color")
	}
	color := data.BGR
	if !d.GetIsColor() {
		color = data.Gray
	}
	l.open = func(labels bool) (*data.Loader, error) {
		t, err := data.NewTransformer(p.GetTransformParam(), env.Phase, env.Data.Seed)
		if err != nil {
			return nil, err
		}
		src, err := data.OpenList(d.GetSource(), data.ListOptions{
			Root: d.GetRootFolder(), Height: int(d.GetNewHeight()), Width: int(d.GetNewWidth()),
			Color: color, Shuffle: d.GetShuffle(), Seed: env.Data.Seed,
		})
		if err != nil {
			return nil, fmt.Errorf("image_data_param: source: %w", err)
		}
		return data.NewLoader(data.Config{
			Source: src, Transform: t, Labels: labels,
			BatchSize: int(d.GetBatchSize()), RandSkip: int(d.GetRandSkip()),
			Options: env.Data,
		})
	}
	return l, nil
}
