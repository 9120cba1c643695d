package exchange

import (
	"fmt"
	"strings"
)

// Design is when parameters and gradients move. The zero value is SCOBR.
type Design uint8

// The designs of S-Caffe.
const (
	SCOBR     Design = iota // section 4.3: reductions under backward, broadcasts under forward
	SCOB                    // section 4.2, Figure 5: all broadcasts at once, under forward
	SCOBNaive               // section 4.2, Figure 4: one broadcast ahead
	SCB                     // section 4.1: phases one after another
)

var designs = [...]string{"SC-OBR", "SC-OB", "SC-OB-naive", "SC-B"}

// All returns the designs, from the basic one to the one that overlaps the most.
func All() []Design { return []Design{SCB, SCOBNaive, SCOB, SCOBR} }

// String returns the paper's name, such as "SC-OBR".
func (d Design) String() string {
	if int(d) < len(designs) {
		return designs[d]
	}
	return fmt.Sprintf("design(%d)", uint8(d))
}

// Parse is the inverse of String; case does not matter.
func Parse(s string) (Design, error) {
	for d, name := range designs {
		if strings.EqualFold(s, name) {
			return Design(d), nil
		}
	}
	return 0, fmt.Errorf("design %q is unknown: use SC-B, SC-OB-naive, SC-OB or SC-OBR", s)
}

// Scheme is how the gradients become new parameters everywhere.
type Scheme uint8

const (
	// Reduce sums at the root, which updates and broadcasts, as in S-Caffe.
	Reduce Scheme = iota
	// Allreduce sums everywhere, and every rank updates.
	Allreduce
)

// String returns reduce or allreduce.
func (s Scheme) String() string {
	if s == Reduce {
		return "reduce"
	}
	return "allreduce"
}

// ParseScheme is the inverse of String.
func ParseScheme(s string) (Scheme, error) {
	switch s {
	case "reduce":
		return Reduce, nil
	case "allreduce":
		return Allreduce, nil
	}
	return 0, fmt.Errorf("aggregation %q is unknown: use reduce (the root updates and broadcasts) or allreduce (every rank updates)", s)
}
