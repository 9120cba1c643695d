package net

import (
	"time"

	"github.com/scaffe/scaffe/caffe/gpu"
	"github.com/scaffe/scaffe/caffe/layers"
)

// decideBackward settles which layers run Backward and which bottoms take a
// gradient, as Caffe's Net::Init does. Building forward has marked what
// depends on a parameter; going back from the losses takes away what no loss
// depends on, and what is cut off by propagate_down.
func (b *builder) decideBackward(force bool) {
	underLoss, skip := map[string]bool{}, map[string]bool{}
	for i := len(b.nodes) - 1; i >= 0; i-- {
		nd := b.nodes[i]
		contributes, cut := false, true
		for j, name := range nd.topName {
			contributes = contributes || nd.weights[j] != 0 || underLoss[name]
			cut = cut && skip[name]
		}
		if nd.backward && cut {
			nd.backward = false
			clear(nd.propagate)
		}
		if !contributes {
			nd.backward = false
			clear(nd.propagate)
		}
		for j, name := range nd.bottomName {
			if contributes {
				underLoss[name] = true
			}
			if !nd.propagate[j] {
				skip[name] = true
			}
		}
	}
	if force {
		b.forceBackward()
	}
}

// forceBackward makes every bottom that can take a gradient take one, down to
// the inputs (force_backward in the net).
func (b *builder) forceBackward() {
	for _, nd := range b.nodes {
		nd.backward = true
		for j := range nd.propagate {
			nd.propagate[j] = nd.propagate[j] || !noBackward(nd, j)
		}
	}
}

func noBackward(nd *node, bottom int) bool { return nd.layer.(layers.Blobs).NoBackward(bottom) }

// checkNoBackward refuses a net that asks for a gradient where there is none.
func (b *builder) checkNoBackward() error {
	for _, nd := range b.nodes {
		for j, p := range nd.propagate {
			if p && noBackward(nd, j) {
				return nd.errorf("gives no gradient to bottom %d (%q), which depends on learnable parameters: set propagate_down: false for it",
					j, nd.bottomName[j])
			}
		}
	}
	return nil
}

// Backward runs the backward pass: the gradients of the last Forward's loss,
// weighed by BatchShare, are added to the parameters' diffs. Hooks run around
// every layer, in reverse order.
func (n *Net) Backward() error {
	for i := len(n.nodes) - 1; i >= 0; i-- {
		nd := n.nodes[i]
		if nd.backward {
			nd.seed(n.BatchShare)
			n.passage.Pass(time.Now())
			if err := nd.runBackward(n.gpu); err != nil {
				return nd.wrap(err)
			}
			n.clearFrozen(nd)
		}
		if n.Hooks.AfterBackward != nil {
			if err := n.Hooks.AfterBackward(i); err != nil {
				return err
			}
		}
	}
	return n.Err()
}

// runBackward runs the layer's Backward, where it is computed.
func (nd *node) runBackward(d *gpu.Device) error {
	if d != nil {
		return nd.backwardOn(d)
	}
	return nd.layer.Backward(nd.top, nd.propagate, nd.bottom)
}

// clearFrozen drops the gradients of parameters that do not learn (lr_mult 0),
// so that they count nowhere, as in Caffe, which does not compute them.
func (n *Net) clearFrozen(nd *node) {
	if !nd.frozen {
		return
	}
	for _, i := range nd.params {
		if n.learnable[n.params[i].learn].LRMult == 0 {
			n.params[i].blob.ClearDiff()
		}
	}
}
