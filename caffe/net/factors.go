package net

import (
	"errors"
	"fmt"

	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/layers"
	"github.com/scaffe/scaffe/kernels/factors"
)

// Factors are the sufficient factors of one layer's weights (layers.Factored), for
// a trainer that moves them instead of the gradient:
//
//	f, err := n.Factors(layer)                           // an error: this layer cannot
//	shape, rows := f.Shape()
//	stack, err := factors.NewStack(shape, ranks, passes) // ranks[r] is rows of rank r
//	f.Leave(true)
//	…                                                    // in Hooks.AfterBackward(layer), every pass:
//	f.Put(stack, stacked, rank, pass)
//	…                                                    // when the others' have come:
//	err = f.Rebuild(stack, stacked)                      // into the parameters' diffs
type Factors struct {
	node          *node
	layer         layers.Factored
	weights, bias *blob.Blob // bias is nil where there is none or it does not learn
}

// Factors returns the factors of layer i, or an error that says why they cannot
// stand for its gradients.
func (n *Net) Factors(i int) (*Factors, error) {
	nd := n.nodes[i]
	l, ok := nd.layer.(layers.Factored)
	if !ok {
		return nil, nd.wrap(none(errors.New("InnerProduct layers alone have them")))
	}
	if !nd.backward {
		return nil, nd.wrap(none(errors.New("it has no backward pass")))
	}
	for _, k := range nd.params {
		if err := n.alone(k); err != nil {
			return nil, nd.wrap(none(err))
		}
	}
	f := &Factors{node: nd, layer: l}
	for index, k := range nd.params {
		switch p := &n.learnable[n.params[k].learn]; {
		case p.LRMult == 0 && index == 0:
			return nil, nd.wrap(none(errors.New("its weights do not learn (lr_mult 0)")))
		case p.LRMult == 0:
		case index == 0:
			f.weights = p.Blob
		default:
			f.bias = p.Blob
		}
	}
	return f, nil
}

// none says why a layer has no factors.
func none(why error) error { return fmt.Errorf("has no sufficient factors: %w", why) }

// alone makes sure that a parameter is one layer's only: the gradient of a
// shared one is a sum over layers.
func (n *Net) alone(k int) error {
	for other, p := range n.params {
		if other != k && p.learn == n.params[k].learn {
			return fmt.Errorf("parameter %q is shared with layer %q", n.learnable[p.learn].Name, n.nodes[p.node].name)
		}
	}
	return nil
}

// Shape returns the shape of the weights, and how many rows the factors have in a
// pass here.
func (f *Factors) Shape() (factors.Shape, int) { return f.layer.FactorShape() }

// Leave says whether the backward pass leaves the layer's gradients out.
func (f *Factors) Leave(leave bool) { f.layer.LeaveGradients(leave) }

// Put writes the factors of the last backward pass to their place in a stack, as
// those of one part and pass. It is for Hooks.AfterBackward of the layer.
func (f *Factors) Put(s *factors.Stack, stacked []float32, part, pass int) {
	u, v := f.layer.Factors(f.node.top, f.node.bottom)
	s.Put(stacked, part, pass, u, v)
}

// Rebuild writes the gradients that all parts amount to into the parameters' diffs.
func (f *Factors) Rebuild(s *factors.Stack, stacked []float32) error {
	var bias []float32
	if f.bias != nil {
		bias = f.bias.Diff()
	}
	return f.node.wrap(s.Rebuild(stacked, f.weights.Diff(), bias))
}
