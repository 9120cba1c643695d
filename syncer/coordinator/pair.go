package coordinator

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/scaffe/scaffe/internal/units"
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

// cutPairs cuts neighboring layers' parameters into pairs of at most so many
// elements, a multiple of Cut: at the ends of parameters, and within them at
// multiples of Cut from their start. The gaps between parameters belong to the pair
// around them.
func cutPairs(layers []Layer, members []int, elements int) []Pair {
	var params []Range
	var owners []int
	for _, i := range members {
		for _, p := range layers[i].Params {
			params, owners = append(params, p), append(owners, i)
		}
	}
	if len(params) == 0 {
		return nil
	}
	var pairs []Pair
	end := params[len(params)-1].End()
	for at, in := params[0].Off, 0; at < end; {
		to := end
		if at+elements < end {
			k := sort.Search(len(params), func(k int) bool { return params[k].Off > at+elements }) - 1
			to = params[k].Off + (at+elements-params[k].Off)/Cut*Cut
		}
		for in+1 < len(params) && params[in+1].Off <= at {
			in++
		}
		pairs = append(pairs, Pair{Layer: owners[in], Range: Range{Off: at, Len: to - at}})
		at = to
	}
	return pairs
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
			pairs = append(pairs, Pair{Layer: i, Range: p})
		}
	}
	return pairs
}

// largestFirst orders pairs for being dealt in turn, so that no server has more than one pair
// more than another, nor more elements than one pair has more.
func largestFirst(order []int, pairs []Pair) {
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(pairs[j].Len, pairs[i].Len) })
}
