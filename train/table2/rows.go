package table2

import (
	"errors"
	"regexp"
	"strings"

	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/exchange"
)

// specs are those of Table 2: the MPI library's own (its row "N/A") and the
// paper's combinations of chains and binomial trees; and what scaffe selects.
var specs = []string{"mpi", "CC-8", "CB-4", "CB-8", spec.Tuned}

// Rows returns every design with every spec. With none of either it is the
// paper's table, SC-B with each of its specs, and then what overlaps: SC-OB and
// SC-OBR as tuned. Without designs it is SC-B, SC-OB and SC-OBR with the specs
// given; without specs the paper's. library says that there is an MPI library,
// whose own collectives are one of these.
func Rows(designs, algorithms []string, library bool) ([]Row, error) {
	var all []string
	for _, s := range specs {
		if library || s != "mpi" {
			all = append(all, s)
		}
	}
	switch {
	case len(designs) == 0 && len(algorithms) == 0:
		table, err := product([]string{"SC-B"}, all)
		if err != nil {
			return nil, err
		}
		overlapping, err := product([]string{"SC-OB", "SC-OBR"}, []string{spec.Tuned})
		return append(table, overlapping...), err
	case len(designs) == 0:
		designs = []string{"SC-B", "SC-OB", "SC-OBR"}
	case len(algorithms) == 0:
		algorithms = all
	}
	return product(designs, algorithms)
}

func product(designs, algorithms []string) ([]Row, error) {
	var rows []Row
	for _, name := range designs {
		d, err := exchange.Parse(name)
		if err != nil {
			return nil, err
		}
		for _, a := range algorithms {
			r := Row{Design: d, Algorithm: a}
			if a != spec.Tuned {
				if r.Spec, err = spec.Parse(a); err != nil {
					return nil, err
				}
			}
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// option is a piece of a list that belongs to the spec before it.
var option = regexp.MustCompile(`^\s*[a-z]+=`)

// List takes a list apart at its commas, but for those within a spec
// (chain:4,chunk=512K/binomial).
func List(text string) ([]string, error) {
	if text == "" {
		return nil, nil
	}
	var list []string
	for piece := range strings.SplitSeq(text, ",") {
		switch {
		case len(list) > 0 && option.MatchString(piece):
			list[len(list)-1] += "," + piece
		case strings.TrimSpace(piece) == "":
			return nil, errors.New("empty item in the list")
		default:
			list = append(list, strings.TrimSpace(piece))
		}
	}
	return list, nil
}
