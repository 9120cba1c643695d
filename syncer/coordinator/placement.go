package coordinator

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// Placement is which parameters are a KV pair, and who serves it.
type Placement uint8

const (
	// PlaceEven, the zero value, deals pairs of a size in turn, the largest first, so that servers have equal shares:
	// Poseidon (section 4.1). Slices, which are small, it deals in their order as PlaceRoundRobin does, so that servers have equal
	// shares of each layer, too.
	PlaceEven Placement = iota
	// PlaceRoundRobin deals them in their order, each to the first of the servers that have the least so far: P3 (section 4.2). Where all
	// are equal that is pair i to server i modulo P2. Not all are: layers end with what is left of a slice, and many have a few values, as
	// batch normalization does, by which every other server had nothing but those.
	PlaceRoundRobin
	// PlaceKVStore gives a whole parameter of less than 10^6 elements to a server that is drawn, and divides a larger one evenly
	// among all: MXNet's KVStore, as P3 describes it (section 4.1).
	PlaceKVStore
	// PlaceTensor deals whole parameters in their order: TensorFlow, as Poseidon describes it (section 5.1).
	PlaceTensor
)

// kvstoreSplits is how many elements a parameter has that PlaceKVStore divides.
const kvstoreSplits = 1_000_000

var placements = []string{"even", "round-robin", "kvstore", "tensor"}

// Placements lists what ParsePlacement reads.
func Placements() []string { return slices.Clone(placements) }

// ParsePlacement is the inverse of String.
func ParsePlacement(text string) (Placement, error) {
	if i := slices.Index(placements, text); i >= 0 {
		return Placement(i), nil
	}
	return 0, fmt.Errorf("unknown placement %q: want %s", text, or(placements))
}

// String returns the placement's name, such as "round-robin".
func (p Placement) String() string {
	if int(p) < len(placements) {
		return placements[p]
	}
	return fmt.Sprintf("placement(%d)", uint8(p))
}

// cuts reports whether pairs are of the size that is asked for.
func (p Placement) cuts() bool { return p == PlaceEven || p == PlaceRoundRobin }

// kvstore returns the pairs of neighboring layers as PlaceKVStore has them. Each parameter's server is drawn by the
// seed and its place in the net alone, so that it stays whichever layers share a bucket.
func (b *Book) kvstore(members []int) (pairs []Pair) {
	for _, i := range members {
		for k, p := range b.Layers[i].Params {
			if p.Len == 0 {
				continue
			}
			if n := len(pairs); n > 0 {
				pairs[n-1].Len = p.Off - pairs[n-1].Off
			}
			if p.Len < kvstoreSplits {
				draw := rand.New(rand.NewPCG(uint64(b.Seed), uint64(i)<<32|uint64(k)))
				pairs = append(pairs, Pair{Layer: i, Range: p, Server: draw.IntN(len(b.Servers))})
				continue
			}
			for s, n := 0, len(b.Servers); s < n; s++ {
				from, to := p.Len*s/n/Cut*Cut, p.Len*(s+1)/n/Cut*Cut
				if s == n-1 {
					to = p.Len
				}
				if from < to {
					pairs = append(pairs, Pair{Layer: i, Range: Range{Off: p.Off + from, Len: to - from}, Server: s})
				}
			}
		}
	}
	return pairs
}
