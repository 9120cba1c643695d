package selection_test

import (
	"fmt"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/schedule"
)

// A table decides where it has a rule; beyond, the cost model does.
func Example() {
	table, err := selection.ParseTable("table", `scaffe-table 2
collective=reduce nodes=2-8 bytes=64K..1M spec=chain:2/binomial
`)
	if err != nil {
		fmt.Println(err)
		return
	}
	s := selection.Default()
	s.Sources = []selection.Source{{Name: table.Name, Table: table}}
	for _, bytes := range []int{256 << 10, 1 << 20} {
		choice, err := s.Select(spec.LayoutOf(spec.NodesOf(4, 1)), selection.Query{Collective: schedule.Reduce, Bytes: bytes}, spec.Spec{})
		fmt.Println(choice.Spec, choice.Source, err)
	}
	// Output:
	// chain:2/binomial table:2 <nil>
	// chain,chunk=128K model <nil>
}
