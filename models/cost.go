package models

import (
	"github.com/scaffe/scaffe/caffe/net"
)

// Cost is what a layer, or a net, costs: what it must send, and what it must
// compute.
type Cost struct {
	// Learned counts the parameters that a solver changes (lr_mult not 0); a
	// float32 gradient each is what ranks exchange in an iteration.
	Learned int
	// Statistics counts the others, such as the running means of BatchNorm.
	Statistics int
	// MultiplyAdds are those of the forward pass over the net's batch, in
	// convolutions and inner products. A backward pass takes twice as many, or
	// once where no gradient of the input is needed. Other layers count as 0.
	MultiplyAdds int64
}

// Costs returns the cost of every layer of a net, in the order of n.Layers(). A
// parameter that layers share is counted with the layer that owns it.
func Costs(n *net.Net) []Cost {
	layers, params := n.Layers(), n.Learnable()
	costs := make([]Cost, len(layers))
	for i, l := range layers {
		for _, k := range l.Params {
			if p := &params[k]; p.LRMult != 0 {
				costs[i].Learned += p.Blob.Count()
			} else {
				costs[i].Statistics += p.Blob.Count()
			}
		}
		if l.Type == "Convolution" || l.Type == "InnerProduct" {
			costs[i].MultiplyAdds = multiplyAdds(n, l)
		}
	}
	return costs
}

// multiplyAdds counts, for each element of the tops, the weights in its sum.
func multiplyAdds(n *net.Net, l net.Layer) int64 {
	weights := l.Layer.Params()[0]
	var sum int64
	for _, name := range l.Tops {
		top := n.Blob(name)
		outputs := weights.Dim(0)
		if l.Type == "InnerProduct" { // whose weights may be transposed
			outputs = top.Dim(top.NumAxes() - 1)
		}
		sum += int64(top.Count()) * int64(weights.Count()/outputs)
	}
	return sum
}

// Total adds costs up.
func Total(costs []Cost) Cost {
	var t Cost
	for _, c := range costs {
		t.Learned += c.Learned
		t.Statistics += c.Statistics
		t.MultiplyAdds += c.MultiplyAdds
	}
	return t
}
