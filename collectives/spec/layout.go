package spec

import "fmt"

// Layout is how many ranks lie on how many nodes.
type Layout struct {
	Ranks int
	Nodes int
	PPN   int // ranks per node: the most that any node has
}

// LayoutOf returns the layout of ranks whose nodes are given.
func LayoutOf(nodes []int) Layout {
	l := Layout{Ranks: len(nodes)}
	on := map[int]int{}
	for _, n := range nodes {
		on[n]++
		l.PPN = max(l.PPN, on[n])
	}
	l.Nodes = len(on)
	return l
}

// NodesOf returns the node of every rank where ppn ranks lie on each of n
// nodes, side by side.
func NodesOf(n, ppn int) []int {
	nodes := make([]int, 0, n*ppn)
	for i := range n {
		for range ppn {
			nodes = append(nodes, i)
		}
	}
	return nodes
}

// String returns such as "4 nodes × 2 ranks".
func (l Layout) String() string {
	s := func(n int) string {
		if n == 1 {
			return ""
		}
		return "s"
	}
	text := fmt.Sprintf("%d node%s × %d rank%s", l.Nodes, s(l.Nodes), l.PPN, s(l.PPN))
	if l.Ranks != l.Nodes*l.PPN {
		text += fmt.Sprintf(" at most, %d in all", l.Ranks)
	}
	return text
}
