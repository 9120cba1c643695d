package launch

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/mpi"
)

// Machine returns the fingerprint of this machine and, unless the ranks run in
// one process, of the MPI library: what a tuning table depends on.
func Machine(local int) collectives.Machine {
	m := collectives.Machine{Host: fmt.Sprintf("%s, %d cores", processor(), collectives.Cores()), MPI: "none"}
	if built := mpi.Built(); built != "" && local == 0 {
		m.MPI = built
	}
	return m
}

// processor returns the processor's name.
func processor() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, value, _ := strings.Cut(lines.Text(), ":"); strings.TrimSpace(key) == "model name" {
			return strings.Join(strings.Fields(value), " ")
		}
	}
	return runtime.GOARCH
}
