package coordinator

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"

	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/internal/units"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
)

// Range is elements of the packed buffers.
type Range = schedule.Range

// Pair is a KV pair: elements that are pushed to one server and pulled from it.
type Pair struct {
	// Layer is the layer that the pair begins in.
	Layer int
	Range
	Server int // a rank
}

// Sizes of pairs.
const (
	DefaultPair = 2 << 20 // bytes, as in the paper
	// Cut is what pairs are cut at multiples of, in elements from the start of a
	// parameter: 4 KiB.
	Cut = 1024
)

// Slice is what parameters are cut into, each part of which is pushed, summed, updated and pulled
// by itself (P3, section 4.2): at most so many elements, a multiple of Cut. With ps a slice is a KV pair, with
// reduce and allreduce a part of a bucket; factors and quantised gradients are not cut.
type Slice int

const (
	// AutoSlice, the zero value, has KV pairs of Config.Pair, and cuts nothing else.
	AutoSlice Slice = 0
	// LayerSlice cuts nothing: all of a bucket is one KV pair.
	LayerSlice Slice = -1
	// DefaultSlice is P3's (section 5.7).
	DefaultSlice Slice = 50_000
)

const (
	// LeastCredit is the least that DefaultCredit comes to.
	LeastCredit = 2
	// FewPeers is up to how many other nodes DefaultCredit is less than two for each.
	FewPeers = 4
	// NoCredit, where a credit is asked for, is none.
	NoCredit = -1
)

// DefaultCredit returns how many slices a rank has under way to other nodes, so that its
// port does not stand still when all ranks send to the few servers that have the most urgent ones: one for each node that it sends to, half as many more where
// servers have nodes of their own, and two for each of more than FewPeers. What is urgent waits behind each: on four nodes that work and serve a slice of the first
// layer is at its server within six slices' time. Of so many nodes some work: a rank sends to all others, or, where some only serve, to these or to those.
func DefaultCredit(nodes, working int) int {
	apart := working < nodes
	peers := nodes - 1
	if apart {
		peers = max(working, nodes-working)
	}
	switch {
	case peers > FewPeers:
		return 2 * peers
	case apart:
		peers += (peers + 1) / 2
	}
	return max(LeastCredit, peers)
}

// Credit returns how many slices a rank has under way to other nodes, where so many are asked for, parameters are
// cut by s, and so many nodes of all work: DefaultCredit where 0 is asked for and there are slices; 0 if each link is bound by itself.
func Credit(asked int, s Slice, nodes, working int) int {
	if asked == 0 && s > 0 {
		return DefaultCredit(nodes, working)
	}
	return max(0, asked)
}

// The words for AutoSlice and LayerSlice.
const (
	wordAuto  = "auto"
	wordLayer = "layer"
)

// ParseSlice reads the value of --slice.
func ParseSlice(text string) (Slice, error) {
	switch text {
	case wordAuto:
		return AutoSlice, nil
	case wordLayer:
		return LayerSlice, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < Cut || n > math.MaxInt32 {
		return 0, fmt.Errorf("invalid slice %q: want at least %d elements, such as 50000, or %s, or %s to cut nothing", text, Cut, wordAuto, wordLayer)
	}
	return Slice(n), nil
}

// String is the inverse of ParseSlice.
func (s Slice) String() string {
	switch s {
	case AutoSlice:
		return wordAuto
	case LayerSlice:
		return wordLayer
	}
	return strconv.Itoa(int(s))
}

// Scale returns s for a net whose sizes are multiplied by factor, at most 1.
func (s Slice) Scale(factor float64) Slice {
	if s <= 0 {
		return s
	}
	return max(Cut, Slice(float64(s)*factor))
}

// CreditBytes returns how many bytes n slices have, as far as each is one message: what is larger, or not cut, is sent in chunks, and n of those count.
func (s Slice) CreditBytes(n int) int {
	if bytes := mem.Float32.Bytes(int(s)); s > 0 && bytes < spec.DefaultChunk {
		return n * bytes
	}
	return n * spec.DefaultChunk
}

func (s Slice) check() error {
	if s != AutoSlice && s != LayerSlice && s < Cut {
		return fmt.Errorf("slice of %d elements: want at least %d", int(s), Cut)
	}
	return nil
}

// Cut cuts parameters, neighbors in the packed buffers, as KV pairs are cut. s is neither AutoSlice nor
// LayerSlice.
func (s Slice) Cut(params []Range) []Range { return cut(params, int(s)) }

// ParsePair reads the value of --pair, in bytes.
func ParsePair(text string) (int, error) {
	n, err := units.ParseBytes(text)
	if err != nil {
		return 0, err
	}
	return n, checkPair(n)
}

// ScalePair returns a size of pairs multiplied by a factor, as pairs can be: those of a net
// whose sizes are multiplied by it.
func ScalePair(bytes int, factor float64) int {
	return max(1, int(math.Round(float64(bytes)*factor/(4*Cut)))) * 4 * Cut
}

func checkPair(bytes int) error {
	if bytes < 4*Cut || bytes%(4*Cut) != 0 {
		return fmt.Errorf("pair size %s: want a multiple of %s, at least that", units.FormatBytes(bytes), units.FormatBytes(4*Cut))
	}
	return nil
}

// cutPairs cuts neighboring layers' parameters into pairs of at most so many elements.
func cutPairs(layers []Layer, members []int, elements int) []Pair {
	var params []Range
	var owners []int
	for _, i := range members {
		for _, p := range layers[i].Params {
			params, owners = append(params, p), append(owners, i)
		}
	}
	var pairs []Pair
	in := 0
	for _, r := range cut(params, elements) {
		for in+1 < len(params) && params[in+1].Off <= r.Off {
			in++
		}
		pairs = append(pairs, Pair{Layer: owners[in], Range: r, Server: -1})
	}
	return pairs
}

// cut cuts neighboring parameters into at most so many elements each, at least Cut: at the ends of parameters,
// and within them at multiples of Cut from their start. The gaps between parameters
// belong to what is around them.
func cut(params []Range, elements int) (all []Range) {
	if len(params) == 0 {
		return nil
	}
	end := params[len(params)-1].End()
	for at := params[0].Off; at < end; {
		to := end
		if at+elements < end {
			k := sort.Search(len(params), func(k int) bool { return params[k].Off > at+elements }) - 1
			to = params[k].Off + (at+elements-params[k].Off)/Cut*Cut
		}
		all = append(all, Range{Off: at, Len: to - at})
		at = to
	}
	return all
}

// tensors returns a pair for each parameter of neighboring layers, with the gap behind it.
func tensors(layers []Layer, members []int) (pairs []Pair) {
	for _, i := range members {
		for _, p := range layers[i].Params {
			if p.Len == 0 {
				continue
			}
			if n := len(pairs); n > 0 {
				pairs[n-1].Len = p.Off - pairs[n-1].Off
			}
			pairs = append(pairs, Pair{Layer: i, Range: p, Server: -1})
		}
	}
	return pairs
}

// largestFirst orders pairs for being dealt in turn, so that no server has more than one pair
// more than another, nor more elements than one pair has more.
func largestFirst(order []int, pairs []Pair) {
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(pairs[j].Len, pairs[i].Len) })
}
