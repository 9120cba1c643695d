package selection

import (
	"fmt"
	"hash/fnv"
	"os"
	"runtime"
	"strings"

	"github.com/scaffe/scaffe/collectives/spec"
)

// Machine is the fingerprint of what a table depends on besides the layout.
type Machine struct {
	Host string // processor and number of cores
	MPI  string // library and version; or "none"
}

// Cores returns the number of cores of this machine; unlike runtime.NumCPU, of
// all, not only of those that mpirun bound this rank to, and unlike what the
// processor says of itself, of all sockets.
func Cores() int {
	text, err := os.ReadFile("/proc/cpuinfo")
	n := strings.Count("\n"+string(text), "\nprocessor\t")
	if err != nil || n == 0 {
		return runtime.NumCPU()
	}
	return n
}

// Kernel returns a number that tells the kernel which runs here from those of other
// machines and of other times, but not from that of another container; 0 where there is
// none.
func Kernel() int64 {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write(id)
	return int64(h.Sum64() >> 1)
}

// Warnings says where the table was made for something else than what it is
// used on. What is not known is not compared.
func (t *Table) Warnings(m Machine, l spec.Layout) (w []string) {
	differ := func(what, made, here string) {
		if made != "" && here != "" && made != here {
			w = append(w, fmt.Sprintf("%s was tuned on another machine (%s: %s; here: %s): its choices may not be the best ones; scaffe tune makes a new table", t.Name, what, made, here))
		}
	}
	differ("host", t.Made.Machine.Host, m.Host)
	differ("MPI", t.Made.Machine.MPI, m.MPI)
	if made := t.Made.Layout; made.Ranks > 0 && made != l {
		w = append(w, fmt.Sprintf("%s was tuned for %v, this is %v: scaffe tune makes a table for it", t.Name, made, l))
	}
	served := false
	for i := range t.Rules {
		served = served || t.Rules[i].Nodes.Has(l.Nodes) && t.Rules[i].PPN.Has(l.PPN)
	}
	if !served {
		w = append(w, fmt.Sprintf("%s has no line for %v: the cost model decides", t.Name, l))
	}
	return w
}
