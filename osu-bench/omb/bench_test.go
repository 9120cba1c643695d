package omb

import "testing"

// Nodes that share a machine share its cores.
func TestCoreEach(t *testing.T) {
	for _, c := range []struct {
		name          string
		nodes         []int
		hosted, cores int
		want          bool
	}{
		{"two ranks, two cores", []int{0, 0}, 1, 2, true},
		{"four ranks, two cores", []int{0, 0, 0, 0}, 1, 2, false},
		{"four machines", []int{0, 1, 2, 3}, 1, 1, true},
		{"four nodes of one machine", []int{0, 1, 2, 3}, 4, 2, false},
		{"of one with a core for each", []int{0, 1, 2, 3}, 4, 4, true},
		{"two and two nodes on two machines", []int{0, 1, 2, 3}, 2, 2, true},
		{"uneven nodes, two on a machine", []int{0, 0, 0, 1, 2, 2}, 2, 4, false},
		{"more said to be hosted than there are", []int{0, 1}, 8, 2, true},
	} {
		if got := coreEach(c.nodes, c.hosted, c.cores); got != c.want {
			t.Errorf("%s: a core for each rank: %v, want %v", c.name, got, c.want)
		}
	}
}
