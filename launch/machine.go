package launch

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/klauspost/cpuid/v2"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/mpi"
)

// Machine returns the fingerprint of this machine and, unless the ranks run in
// one process, of the MPI library: what a tuning table depends on.
func Machine(local int) selection.Machine {
	m := selection.Machine{Host: fmt.Sprintf("%s, %d cores", processor(), selection.Cores()), MPI: "none"}
	if built := mpi.Built(); built != "" && local == 0 {
		m.MPI = built
	}
	return m
}

// processor returns the processor's name, as /proc/cpuinfo has it.
func processor() string {
	if name := strings.Join(strings.Fields(cpuid.CPU.BrandName), " "); name != "" {
		return name
	}
	return runtime.GOARCH
}
