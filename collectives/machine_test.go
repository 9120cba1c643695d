package collectives_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/selection"
)

// started returns the model of all ranks, and rank 0's warnings, of a start with the
// given options.
func started(t *testing.T, o collectives.Options) (model, from string, warnings []string) {
	t.Helper()
	for r, err := range configured(t, []collectives.Options{o, o}, func(c *collectives.Comm, w []string) error {
		if c.Rank() == 0 {
			model, from, warnings = c.Selector().Model.String(), c.Selector().From, w
		}
		return nil
	}) {
		if err != nil {
			t.Fatalf("rank %d: %v", r, err)
		}
	}
	return model, from, warnings
}

// A machine is measured by the first starts, and those that follow take what is kept. It is measured once, or again,
// where that is asked for, and where what is kept cannot be read; that nothing can be
// kept is a warning. No start fails for it.
func TestMachineIsMeasured(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv(selection.EnvMeasure, "")
	o := collectives.Options{Measure: true, Node: selection.Node{Machine: selection.Machine{Host: "a test, 2 cores"}}}
	files := func() []string {
		paths, err := filepath.Glob(filepath.Join(cache, "scaffe", "machine-*.json"))
		if err != nil {
			t.Fatal(err)
		}
		return paths
	}
	mark := func(change func(text string) string) {
		for _, path := range files() {
			text, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(path, []byte(change(string(text))), 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, from, warnings := started(t, o); !strings.Contains(from, "measured on 2") || len(warnings) > 0 || len(files()) == 0 {
		t.Fatalf("the first start has %s, warns of %q, and leaves %v", from, warnings, files())
	}
	dates := regexp.MustCompile(`"Date": "\d{4}-`)
	date := func(text string) string { return dates.ReplaceAllString(text, `"Date": "1999-`) }
	mark(date)
	t.Setenv(selection.EnvMeasure, selection.MeasureOnce)
	if _, from, _ := started(t, o); !strings.Contains(from, "measured on 1999") {
		t.Errorf("where once is enough, the second start has %s", from)
	}
	t.Setenv(selection.EnvMeasure, "")
	for n := 2; n <= selection.EnoughMeasured; n++ {
		if _, from, _ := started(t, o); !strings.Contains(from, fmt.Sprintf("measured %d times, last on 2", n)) {
			t.Fatalf("start %d has %s", n, from)
		}
	}
	mark(date)
	one, from, _ := started(t, o)
	if !strings.Contains(one, "hosted=2 ") { // the ranks say that they are on two nodes, and one kernel runs both
		t.Errorf("the two nodes' model is %s", one)
	}
	if two, _, _ := started(t, o); !strings.Contains(from, "measured 3 times, last on 1999") || networkless(one) != networkless(two) {
		t.Errorf("the next starts have %s: %s and %s", from, one, two)
	}
	t.Setenv(selection.EnvMeasure, selection.MeasureAgain)
	if _, from, _ = started(t, o); strings.Contains(from, "1999") {
		t.Errorf("asked to measure again, a start has %s", from)
	}
	t.Setenv(selection.EnvMeasure, selection.MeasureOff)
	if _, from, _ = started(t, o); !strings.Contains(from, "default parameters") {
		t.Errorf("asked not to measure, a start has %s", from)
	}
	t.Setenv(selection.EnvMeasure, "")
	mark(func(string) string { return "{" })
	if _, from, warnings := started(t, o); strings.Contains(from, "1999") || len(warnings) != 1 {
		t.Errorf("with a damaged file, a start has %s, and warns of %q", from, warnings)
	}
	if _, from, warnings := started(t, o); !strings.Contains(from, "measured 2 times") || len(warnings) > 0 {
		t.Errorf("after that, a start has %s, and warns of %q", from, warnings)
	}
	t.Setenv("XDG_CACHE_HOME", os.DevNull)
	if _, from, warnings := started(t, o); !strings.Contains(from, "measured on 2") || len(warnings) != 1 {
		t.Errorf("without a folder, a start has %s, and warns of %q", from, warnings)
	}
	t.Setenv(selection.EnvMeasure, "sometimes")
	for _, err := range configured(t, []collectives.Options{o, o}, nil) {
		if err == nil || !strings.Contains(err.Error(), `invalid SCAFFE_MEASURE="sometimes": want once, again or off`) {
			t.Errorf("an unknown value ends with %v", err)
		}
	}
}

// networkless is a model without what every start measures.
func networkless(model string) string {
	var words []string
	for _, w := range strings.Fields(model) {
		name, _, _ := strings.Cut(w, ".")
		name, _, _ = strings.Cut(name, "=")
		if !slices.Contains([]string{"inter", "library", "packet", "carry"}, name) {
			words = append(words, w)
		}
	}
	return strings.Join(words, " ")
}
