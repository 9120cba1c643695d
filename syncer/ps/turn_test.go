package ps

import (
	"slices"
	"testing"
)

// TestP3_WorkersBeginWithDifferentServers: among equally urgent slices every worker begins with another server, and goes
// round them, so that no port takes all workers at once (section 4.2: slices are dealt to the servers in turn, and each
// worker pushes the same ones at the same time).
func TestP3_WorkersBeginWithDifferentServers(t *testing.T) {
	servers := []int{0, 1, 2, 3, 0, 1, 2, 3, 2, 2, 1}
	for k := range 4 { // at each turn
		var at []int
		for place := range 4 {
			order := inTurn(servers, place)
			if all := slices.Sorted(slices.Values(order)); len(all) != len(servers) || all[0] != 0 || all[len(all)-1] != len(servers)-1 || len(slices.Compact(all)) != len(servers) {
				t.Fatalf("worker %d pushes %v", place, order)
			}
			at = append(at, servers[order[k]])
			if k == 0 && at[place] == place {
				t.Errorf("worker %d begins with itself", place)
			}
		}
		if slices.Sort(at); !slices.Equal(at, []int{0, 1, 2, 3}) {
			t.Errorf("turn %d of four workers is at servers %v", k, at)
		}
	}
	if got := inTurn(servers, 5); !slices.Equal(got, inTurn(servers, 1)) {
		t.Errorf("a fifth worker begins as %v", got)
	}
	if got := inTurn([]int{2, 2}, 1); got != nil {
		t.Errorf("pushes of one server are reordered: %v", got)
	}
}
