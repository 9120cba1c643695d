package selection

import (
	"fmt"

	"github.com/scaffe/scaffe/collectives/spec"
)

// Machine is the fingerprint of what a table depends on besides the layout.
type Machine struct {
	Host string // processor and number of cores
	MPI  string // library and version; or "none"
	GPU  string // the first rank's, as Kept has it; "" where ranks have none
}

func (m Machine) String() string {
	s := m.Host + " with " + m.MPI
	if m.GPU != "" {
		s += " and a GPU (" + m.GPU + ")"
	}
	return s
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
	differ("GPU", t.Made.Machine.GPU, m.GPU)
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
