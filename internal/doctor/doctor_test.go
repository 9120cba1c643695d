package doctor

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
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
