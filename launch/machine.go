package launch

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/klauspost/cpuid/v2"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/internal/host"
	"github.com/scaffe/scaffe/internal/version"
	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/mpi"
)

// Machine returns the fingerprint of this machine and, unless the ranks run in
// one process, of the MPI library: what a tuning table depends on.
func Machine(local int) selection.Machine {
	m := selection.Machine{Host: fmt.Sprintf("%s, %d cores", processor(), host.Cores()), MPI: "none"}
	if built := mpi.Built(); built != "" && local == 0 {
		m.MPI = built
	}
	return m
}

// Node returns what measurements of this machine depend on.
func Node(local int) selection.Node {
	n := selection.Node{Machine: Machine(local), Cache: kernels.PrivateCache()}
	between := "ranks in one process"
	if local == 0 {
		between = "SCAFFE_SHM=" + cmp.Or(os.Getenv("SCAFFE_SHM"), "on")
	}
	v := version.Get()
	n.How = fmt.Sprintf("%s %s, %s, caches of %d, %d and %d bytes", v.Version, v.Revision, between, cpuid.CPU.Cache.L1D, cpuid.CPU.Cache.L2, cpuid.CPU.Cache.L3)
	return n
}

// processor returns the processor's name, as /proc/cpuinfo has it.
func processor() string {
	if name := strings.Join(strings.Fields(cpuid.CPU.BrandName), " "); name != "" {
		return name
	}
	return runtime.GOARCH
}
