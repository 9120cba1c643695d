package progress

import (
	"os"
	"strings"
	"testing"
)

func TestWanted(t *testing.T) {
	for when, want := range map[string]bool{"always": true, "never": false, "auto": OnTerminal()} {
		if got, err := Wanted(when); got != want || err != nil {
			t.Errorf("%s: %v, %v", when, got, err)
		}
	}
	if _, err := Wanted("sometimes"); err == nil || !strings.Contains(err.Error(), `invalid --progress "sometimes": want auto, always or never`) {
		t.Error(err)
	}
}

func TestParent(t *testing.T) {
	if got := parent(os.Getpid()); got != os.Getppid() {
		t.Errorf("parent %d, want %d", got, os.Getppid())
	}
	if got := parent(-1); got != 0 {
		t.Errorf("a process that does not exist has parent %d", got)
	}
}

func TestIsLauncher(t *testing.T) {
	for name, want := range map[string]bool{"mpirun.openmpi": true, "mpiexec.hydra": true, "orterun": true, "prterun": true, "bash": false} {
		if isLauncher(name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
}
