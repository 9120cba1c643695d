package exchange

import (
	"fmt"

	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/syncer/ps"
)

// deal cuts the buckets of PS into KV pairs and gives these, and the layers of Adam, to servers,
// as the book says. What lies around the parameters of a bucket is its first and last pair's.
func (x *Exchange) deal() error {
	inBook := InBook(x.c.Layers)
	buckets, members, whole := served(x.buckets, inBook)
	switch {
	case buckets == nil:
		return nil
	case x.c.Book == nil:
		return fmt.Errorf("scheme %v needs an information book", buckets[0].Scheme)
	}
	for _, b := range buckets {
		for _, l := range b.Layers {
			if inBook[l] >= len(x.c.Book.Layers) || x.c.Book.Layers[inBook[l]].Name != x.c.Layers[l].Name {
				return fmt.Errorf("layer %q is not in its place in the information book", x.c.Layers[l].Name)
			}
		}
	}
	x.c.Book.Deal(members, whole...)
	left := x.c.Book.Pairs
	for _, b := range buckets {
		first := len(x.pairs)
		for ; len(left) > 0 && left[0].Off < b.End(); left = left[1:] {
			x.pairs = append(x.pairs, ps.Pair{Range: left[0].Range, Server: left[0].Server})
		}
		front, back := &x.pairs[first], &x.pairs[len(x.pairs)-1]
		front.Off, front.Len = b.Off, front.End()-b.Off
		back.Len = b.End() - back.Off
	}
	return nil
}

// served returns those of buckets that servers update, the layers of each by their places in the book, and the layers that have one server
// each.
func served(buckets []Bucket, inBook []int) (of []*Bucket, members [][]int, whole []int) {
	for i := range buckets {
		b := &buckets[i]
		if !b.Scheme.Served() {
			continue
		}
		var layers []int
		for _, l := range b.Layers {
			layers = append(layers, inBook[l])
		}
		of, members = append(of, b), append(members, layers)
		if b.Scheme == Adam {
			whole = append(whole, layers...)
		}
	}
	return of, members, whole
}

// pairsOf returns the pairs of what moves as one, from its own front on.
func (x *Exchange) pairsOf(r Range) (pairs []ps.Pair) {
	for _, p := range x.pairs {
		if p.Off >= r.Off && p.Off < r.End() {
			p.Off -= r.Off
			pairs = append(pairs, p)
		}
	}
	return pairs
}

// slicesOf returns the slices of what moves as one by Reduce or Allreduce, from its own front on; nil where it is not
// cut. Each is of one bucket, whatever moves as one: so all designs have the same bits.
func (x *Exchange) slicesOf(m moved) (all []Range) {
	if m.Scheme != Reduce && m.Scheme != Allreduce || x.c.Slice <= 0 {
		return nil
	}
	for i := range x.buckets {
		b := &x.buckets[i]
		if b.Off < m.Off || b.Off >= m.End() {
			continue
		}
		var params []Range
		for _, l := range b.Layers {
			params = append(params, x.c.Layers[l].Params...)
		}
		slices := x.c.Slice.Cut(params)
		if len(slices) == 0 { // of no elements
			slices = []Range{b.Range}
		}
		front, back := &slices[0], &slices[len(slices)-1] // which have what lies around the parameters
		front.Off, front.Len = b.Off, front.End()-b.Off
		back.Len = b.End() - back.Off
		for _, s := range slices {
			all = append(all, Range{Off: s.Off - m.Off, Len: s.Len})
		}
	}
	return all
}

// called returns what the parts of what moves as one are called, by their first element: each is a slice, or
// a KV pair where nothing is cut to slices, of the layer that it begins in.
func (x *Exchange) called(m moved) func(element int) string {
	unit := "slice"
	if x.c.Slice <= 0 {
		unit = "KV pair"
	}
	var starts []int // of all parts, ascending
	if m.Scheme.Served() {
		for _, p := range x.pairsOf(m.Range) {
			starts = append(starts, p.Off)
		}
	} else {
		for _, s := range x.slicesOf(m) {
			starts = append(starts, s.Off)
		}
	}
	layerOf := func(element int) int { // the last that begins there, or before
		at := 0
		for i, l := range m.Layers {
			if x.c.Layers[l].Params[0].Off <= m.Off+element {
				at = i
			}
		}
		return at
	}
	number := make(map[int]int, len(starts))
	for k, before, n := 0, -1, 0; k < len(starts); k, n = k+1, n+1 {
		if l := layerOf(starts[k]); l != before {
			before, n = l, 0
		}
		number[starts[k]] = n
	}
	return func(element int) string {
		return fmt.Sprintf("%s %d of %s", unit, number[element], x.c.Layers[m.Layers[layerOf(element)]].Name)
	}
}

// linear is what serves gathers, and all that the schemes OneBit and DGC move.
var linear = spec.Spec{Levels: []spec.Level{{Algorithm: "linear"}}}

// specOf returns how collectives of a scheme are asked for.
func (x *Exchange) specOf(s Scheme) spec.Spec {
	switch {
	case s.Served():
		return ps.Spec(x.team.Layout())
	case s == OneBit, s == DGC:
		return linear
	}
	return x.c.Spec
}
