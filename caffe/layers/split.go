package layers

import (
	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/kernels/vec"
)

func init() {
	register("Split", func(p *proto.LayerParameter, env Env) (Layer, error) {
		return &split{newBase(p, env)}, nil
	})
	register("Silence", func(p *proto.LayerParameter, env Env) (Layer, error) {
		return &silence{newBase(p, env)}, nil
	})
}

// split gives its bottom to several layers: the tops share its values, and
// its gradient is the sum of theirs. The net puts one wherever a blob has
// more than one reader.
type split struct{ base }

func (l *split) Bottoms() Bounds { return Bounds{1, 1} }
func (l *split) Tops() Bounds    { return Bounds{1, -1} }

// SharesMemory says that the tops' values are the bottom's.
func (l *split) SharesMemory() (data, diff bool) { return true, false }

func (l *split) Setup(_, _ []*blob.Blob) error { return nil }

func (l *split) Reshape(bottom, top []*blob.Blob) error {
	for _, t := range top {
		t.ReshapeLike(bottom[0])
	}
	return nil
}

func (l *split) Forward(bottom, top []*blob.Blob) error {
	for _, t := range top {
		t.ShareData(bottom[0])
	}
	return nil
}

func (l *split) Backward(top []*blob.Blob, propagate []bool, bottom []*blob.Blob) error {
	if !propagate[0] {
		return nil
	}
	dx := bottom[0].Diff()
	if len(top) == 1 {
		copy(dx, top[0].Diff())
		return nil
	}
	inPieces(len(dx), func(i, j int) {
		vec.Add(dx[i:j], top[0].Diff()[i:j], top[1].Diff()[i:j])
		for _, t := range top[2:] {
			vec.Add(dx[i:j], dx[i:j], t.Diff()[i:j])
		}
	})
	return nil
}

// silence takes blobs that nothing else reads, and gives them no gradient.
type silence struct{ base }

func (l *silence) Bottoms() Bounds { return Bounds{1, -1} }
func (l *silence) Tops() Bounds    { return Bounds{0, 0} }

func (l *silence) Setup(_, _ []*blob.Blob) error   { return nil }
func (l *silence) Reshape(_, _ []*blob.Blob) error { return nil }
func (l *silence) Forward(_, _ []*blob.Blob) error { return nil }

func (l *silence) Backward(_ []*blob.Blob, propagate []bool, bottom []*blob.Blob) error {
	for i, b := range bottom {
		if propagate[i] {
			clear(b.Diff())
		}
	}
	return nil
}
