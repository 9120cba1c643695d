package tune_test

import (
	"os"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/sim"
	"github.com/scaffe/scaffe/tune"
)

// docs/tuning.md shows what explain prints, and a table with nothing wrong.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile("../docs/tuning.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.ReplaceAll("\n"+string(text), "\n    ", "\n")
	q := tune.Question{Nodes: spec.NodesOf(4, 2), Query: selection.Query{Collective: schedule.Reduce, Bytes: 64 << 20, Blocking: true}}
	var b strings.Builder
	if err := tune.Explain(&b, &selection.Selector{Model: sim.Default(), From: "default parameters"}, q); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(blocks, b.String()) {
		t.Errorf("explain reduce 64M --nodes 4 --ppn 2 prints\n%s", &b)
	}
	_, table, found := strings.Cut(blocks, "\nscaffe-table 2\n")
	table, _, _ = strings.Cut(table, "\n\n")
	if errs := selection.Lint("tuning.md", "scaffe-table 2\n"+table); !found || len(errs) > 0 {
		t.Errorf("the table: %v", errs)
	}
}
