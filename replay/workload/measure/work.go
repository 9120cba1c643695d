package measure

import (
	"fmt"

	"github.com/scaffe/scaffe/caffe/net"
	"github.com/scaffe/scaffe/models"
	"github.com/scaffe/scaffe/replay/workload"
)

// Work returns the work of a net of which one pass reads batch samples.
// Layers that neither compute nor have parameters (data, scores) are left out.
func Work(n *net.Net, batch int) (*workload.Work, error) {
	if batch < 1 {
		return nil, fmt.Errorf("batch size must be at least 1 (got %d)", batch)
	}
	w := &workload.Work{Net: n.Name()}
	backward := map[string]bool{} // by blob: the last layer that wrote it has a backward pass
	costs := models.Costs(n)
	for i, l := range n.Layers() {
		y := workload.LayerWork{Name: l.Name, Type: l.Type, Params: learning(n, l.Params), MACs: int(costs[i].MultiplyAdds) / batch}
		y.Rows, y.Cols = matrix(n, i, batch)
		for _, names := range [][]string{l.Bottoms, l.Tops} {
			for _, b := range names {
				if blob := n.Blob(b); blob != nil { // not the tops that losses are given
					y.Values += blob.Count() / batch
				}
			}
		}
		for _, b := range l.Bottoms {
			y.Data = y.Data || l.Backward && backward[b]
		}
		y.Weights = l.Backward && len(learning(n, l.Params))+len(learning(n, l.Shared)) > 0
		for _, t := range l.Tops {
			backward[t] = l.Backward
		}
		if len(l.Bottoms) > 0 && (l.Backward || len(y.Params) > 0) {
			w.Layers = append(w.Layers, y)
		}
	}
	if len(w.Layers) == 0 {
		return nil, fmt.Errorf("net %q has no layer with parameters", n.Name())
	}
	return w, nil
}

// learning returns the sizes of those parameters that learn.
func learning(n *net.Net, params []int) (sizes []int) {
	for _, i := range params {
		if p := n.Learnable()[i]; p.LRMult != 0 {
			sizes = append(sizes, p.Blob.Count())
		}
	}
	return sizes
}

// matrix returns the extents of layer i's weights where sufficient factors with a row
// a sample can stand for their gradient.
func matrix(n *net.Net, i, batch int) (rows, cols int) {
	f, err := n.Factors(i)
	if err != nil {
		return 0, 0
	}
	s, samples := f.Shape()
	switch {
	case samples != batch: // an axis other than 1
		return 0, 0
	case s.Transposed:
		return s.In, s.Out
	}
	return s.Out, s.In
}
