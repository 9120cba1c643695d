package coordinator

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Places says which ranks have a role: the value of --servers and --workers.
type Places struct {
	// All is set for all ranks. Count, unless 0, is how many, spread over the nodes.
	All   bool
	Count int
	Ranks []int // else
}

// ParsePlaces reads all, count:N, or ranks separated by commas.
func ParsePlaces(text string) (Places, error) {
	wrong := fmt.Errorf("invalid ranks %q: want all, count:4 or ranks such as 0,4", text)
	if text == "all" {
		return Places{All: true}, nil
	}
	if n, found := strings.CutPrefix(text, "count:"); found {
		count, err := strconv.Atoi(n)
		if err != nil || count < 1 {
			return Places{}, wrong
		}
		return Places{Count: count}, nil
	}
	var p Places
	for word := range strings.SplitSeq(text, ",") {
		r, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || r < 0 {
			return Places{}, wrong
		}
		if slices.Contains(p.Ranks, r) {
			return Places{}, fmt.Errorf("invalid ranks %q: rank %d twice", text, r)
		}
		p.Ranks = append(p.Ranks, r)
	}
	slices.Sort(p.Ranks)
	return p, nil
}

// None reports whether p is the zero value, which names no rank.
func (p Places) None() bool { return !p.All && p.Count == 0 && p.Ranks == nil }

// OrAll returns p, and all ranks where that names none.
func (p Places) OrAll() Places {
	if p.None() {
		return Places{All: true}
	}
	return p
}

// String returns the text that ParsePlaces reads.
func (p Places) String() string {
	switch {
	case p.All:
		return "all"
	case p.Count > 0:
		return fmt.Sprintf("count:%d", p.Count)
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(p.Ranks), " ", ","), "[]")
}

// Of returns the ranks, ascending, where nodes are those of all ranks. role names
// them in errors: "servers".
func (p Places) Of(role string, nodes []int) ([]int, error) {
	switch {
	case p.All:
		return first(len(nodes)), nil
	case p.Count > len(nodes):
		return nil, fmt.Errorf("%d %s of %s: want at most as many", p.Count, role, ranks(len(nodes)))
	case p.Count > 0:
		return spread(p.Count, nodes), nil
	}
	for _, r := range p.Ranks {
		if r >= len(nodes) {
			return nil, fmt.Errorf("rank %d of the %s: there are %s, from 0 to %d", r, role, ranks(len(nodes)), len(nodes)-1)
		}
	}
	return p.Ranks, nil
}

func ranks(n int) string {
	if n == 1 {
		return "1 rank"
	}
	return fmt.Sprintf("%d ranks", n)
}

func first(n int) []int {
	var all []int
	for r := range n {
		all = append(all, r)
	}
	return all
}

// spread takes n ranks: as many of each node as of any other, and where that does
// not come out even, one more of nodes that lie evenly apart.
func spread(n int, nodes []int) []int {
	var order []int // nodes, by their lowest ranks
	on := map[int][]int{}
	for r, node := range nodes {
		if len(on[node]) == 0 {
			order = append(order, node)
		}
		on[node] = append(on[node], r)
	}
	var taken []int
	for turn := 0; n > 0; turn++ {
		var left []int // the rank of each node whose turn it is
		for _, node := range order {
			if turn < len(on[node]) {
				left = append(left, on[node][turn])
			}
		}
		now := min(n, len(left))
		for i := range now {
			taken = append(taken, left[i*len(left)/now])
		}
		n -= now
	}
	slices.Sort(taken)
	return taken
}
