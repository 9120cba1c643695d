package net

import (
	"fmt"

	pb "google.golang.org/protobuf/proto"

	"github.com/scaffe/scaffe/caffe/proto"
)

// port is one top of one node: the i-th version of a blob when several layers
// write it in place.
type port struct{ node, top int }

// splits counts the readers of each port. A use as a loss counts as a reader,
// because it adds to the port's gradient as one.
type splits struct {
	readers map[port]int
	taken   map[port]int     // splits already handed out
	weight  map[port]float32 // loss weight, where not 0
	source  map[[2]int]port  // node, bottom → the port it reads
}

// insertSplits puts a Split layer behind every top that several layers read,
// so that their gradients are added up, with Caffe's names: blob x of layer l
// becomes x_l_0_split_0, x_l_0_split_1, ...
func insertSplits(nodes []*node) ([]*node, error) {
	s, err := countReaders(nodes)
	if err != nil {
		return nil, err
	}
	var out []*node
	for i, nd := range nodes {
		for j, bottom := range nd.param.GetBottom() {
			if src := s.source[[2]int{i, j}]; s.readers[src] > 1 {
				nd.param.Bottom[j] = splitBlob(nodes[src.node].name, bottom, src.top, s.taken[src])
				s.taken[src]++
			}
		}
		out = append(out, nd)
		for j, top := range nd.param.GetTop() {
			p := port{i, j}
			if s.readers[p] <= 1 {
				continue
			}
			out = append(out, split(nd, top, j, s.readers[p], s.weight[p]))
			if s.weight[p] != 0 { // the first split is the loss now
				s.taken[p]++
				nd.param.LossWeight = make([]float32, len(nd.param.GetTop()))
			}
		}
	}
	return out, nil
}

// countReaders finds which port every bottom reads and how many read each.
func countReaders(nodes []*node) (*splits, error) {
	s := &splits{map[port]int{}, map[port]int{}, map[port]float32{}, map[[2]int]port{}}
	last := map[string]port{}
	for i, nd := range nodes {
		for j, bottom := range nd.param.GetBottom() {
			src, ok := last[bottom]
			if !ok {
				return nil, nd.errorIn(path("bottom", j), "unknown bottom blob %q (bottom %d): no layer before it has it as a top", bottom, j)
			}
			s.source[[2]int{i, j}] = src
			s.readers[src]++
		}
		for j, top := range nd.param.GetTop() {
			last[top] = port{i, j}
		}
		for j, w := range nd.param.GetLossWeight() {
			if w != 0 && j < len(nd.param.GetTop()) {
				p := last[nd.param.GetTop()[j]]
				s.weight[p] = w
				s.readers[p]++
			}
		}
	}
	return s, nil
}

// splitName is Caffe's name of the Split layer behind top number i, called
// blob, of a layer.
func splitName(layer, blob string, i int) string {
	return fmt.Sprintf("%s_%s_%d_split", blob, layer, i)
}

// splitBlob is Caffe's name of that layer's k-th top.
func splitBlob(layer, blob string, i, k int) string {
	return fmt.Sprintf("%s_%d", splitName(layer, blob, i), k)
}

// split makes the node of a Split layer with n tops.
func split(src *node, blob string, i, n int, weight float32) *node {
	p := &proto.LayerParameter{
		Name: pb.String(splitName(src.name, blob, i)), Type: pb.String("Split"), Bottom: []string{blob},
	}
	for k := range n {
		p.Top = append(p.Top, splitBlob(src.name, blob, i, k))
	}
	if weight != 0 {
		p.LossWeight = make([]float32, n)
		p.LossWeight[0] = weight
	}
	return &node{name: p.GetName(), typ: p.GetType(), param: p, place: src.place}
}
