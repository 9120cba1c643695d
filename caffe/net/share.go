package net

import (
	"slices"

	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/mem"
)

// targets finds the layers that parameters are copied to, by name.
//
// Names need not be unique. Caffe copies every source layer to the first layer
// of its name, so that further layers of that name keep their fillers, even
// when a net resumes from its own snapshot. Here the k-th source layer of a
// name goes to the k-th layer of that name; source layers beyond the last go to
// the first, as in Caffe.
type targets struct {
	layers map[string][]*node
	used   map[string]int // source layers of each name so far
}

func (n *Net) targets() *targets {
	t := &targets{map[string][]*node{}, map[string]int{}}
	for _, nd := range n.nodes {
		t.layers[nd.name] = append(t.layers[nd.name], nd)
	}
	return t
}

// next returns the layer for the next source layer of that name, nil if there
// is none. own is false if the layer has been returned before.
func (t *targets) next(name string) (nd *node, own bool) {
	same, k := t.layers[name], t.used[name]
	t.used[name]++
	switch {
	case len(same) == 0:
		return nil, false
	case k >= len(same):
		return same[0], false
	}
	return same[k], true
}

// ShareWith makes this net (for testing) use the parameter memory of another
// (for training): every layer's parameters are those of train's layer of the
// same name, the k-th of a name those of the k-th. Layers that train lacks keep
// their own.
func (n *Net) ShareWith(train *Net) error {
	pairs, err := n.match(train)
	if err != nil {
		return err
	}
	follow := func() {
		for _, p := range pairs {
			p.to.ShareData(p.from)
		}
		n.reshare()
	}
	follow()
	train.followers = append(train.followers, follow)
	n.shared = pairs
	for _, p := range pairs { // the memory that they had
		n.memory.give(int64(mem.Float32.Bytes(p.to.Count())))
	}
	return nil
}

// OwnParams returns the learnable parameters that the net does not share with
// another (ShareWith): of a test net those of layers that the training net
// lacks.
func (n *Net) OwnParams() []Param {
	var own []Param
	for _, p := range n.learnable {
		if !slices.ContainsFunc(n.shared, func(s pair) bool { return s.to == p.Blob }) {
			own = append(own, p)
		}
	}
	return own
}

type pair struct{ from, to *blob.Blob }

// match pairs the parameters of layers of one name.
func (n *Net) match(train *Net) ([]pair, error) {
	var pairs []pair
	t := n.targets()
	for _, other := range train.nodes {
		nd, _ := t.next(other.name)
		if nd == nil {
			continue
		}
		mine, theirs := nd.layer.Params(), other.layer.Params()
		if len(mine) != len(theirs) {
			return nil, nd.errorf("cannot share parameters: has %d, but %d in the training net", len(mine), len(theirs))
		}
		for k := range mine {
			if !slices.Equal(mine[k].Shape(), theirs[k].Shape()) {
				return nil, nd.errorf("cannot share parameter %d: its shape is %s, but %s in the training net",
					k, mine[k].ShapeString(), theirs[k].ShapeString())
			}
			pairs = append(pairs, pair{theirs[k], mine[k]})
		}
	}
	return pairs, nil
}
