package doctor

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/scaffe/scaffe/mpi"
)

func TestPathOfUnregisteredMemory(t *testing.T) {
	for _, c := range []struct {
		scope string
		err   error
		want  string
	}{
		{"", nil, "read by its receiver"},
		{"1", nil, "read by its receiver"},
		{"2", nil, "ptrace_scope is 2"},
		{"0", unix.EPERM, "forbidden here (operation not permitted)"},
	} {
		if got := pathOfUnregistered(c.scope, c.err); !strings.Contains(got, c.want) || !strings.HasPrefix(got, "copied by its sender") {
			t.Errorf("scope %q, error %v: %q", c.scope, c.err, got)
		}
	}
	if f := unregistered(); f.Found == "" || f.Fatal {
		t.Errorf("here: %+v", f)
	}
}

// Ranks of other containers on the same cores are said to be there.
func TestTopology(t *testing.T) {
	n := mpi.Nodes{Of: []int{0, 0, 1, 1}, Count: 2, LocalSize: 2}
	if got, want := topology(n), "4 ranks on 2 nodes; 2 of them on this node"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	n.Rivals = 2
	if got, want := topology(n), "4 ranks on 2 nodes; 2 of them on this node, 2 more on its cores: containers of one machine"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
