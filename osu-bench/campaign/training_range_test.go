package campaign

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestP3_AccuracyOfFiveSettings (section 5.5): P3 and DGC are trained with each of five settings, in folders of their own, and what is shown
// is the range of their accuracy.
func TestP3_AccuracyOfFiveSettings(t *testing.T) {
	c := TrainingConfig{Name: "p3-11", Iterations: 4, Batch: 25, Out: filepath.Join(t.TempDir(), "rows.csv")}
	var asked, folders []string
	fake := func(_ context.Context, r trainingRun, folder string) error {
		asked = append(asked, strings.Join(r.arguments(), " "))
		if slices.Contains(folders, folder) {
			t.Errorf("%s is used twice", folder)
		}
		folders = append(folders, folder)
		text := logged(0, "4", "2", "1", "0.5")
		if r.scheme == "dgc" && r.rate == 0.002 { // one setting is worse
			text = strings.ReplaceAll(text, `"accuracy","value":0.5`, `"accuracy","value":0.25`)
		}
		return os.WriteFile(filepath.Join(folder, logName), []byte(text), 0o666)
	}
	var out bytes.Buffer
	for range 2 {
		out.Reset()
		if err := c.measure(t.Context(), fake, &out, io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	if len(asked) != 10 || asked[0] != "--scheme ps --slice 50000" || asked[9] != "--scheme dgc --warmup 0" {
		t.Errorf("%q", asked)
	}
	rows, err := readTraining(c.Out)
	if err != nil || len(rows) != 30 {
		t.Fatal(len(rows), err)
	}
	want := []accuracyRange{{P3, 5, 4, 0.5, 0.5, 0.5}, {"dgc", 5, 4, 0.25, 0.45, 0.5}}
	if d := cmp.Diff(want, ranges(rows)); d != "" {
		t.Error(d)
	}
	if !strings.Contains(out.String(), "accuracy: worst") || !strings.Contains(out.String(), "0.4500") {
		t.Error(out.String())
	}
	picture, err := os.ReadFile(strings.TrimSuffix(c.Out, ".csv") + ".svg")
	if err != nil || strings.Count(string(picture), ` band" d="M`) != 2 || strings.Contains(string(picture), "NaN") {
		t.Errorf("%v\n%s", err, picture)
	}
	if s := drawRanges("nothing", nil); strings.Contains(s, "NaN") || strings.Contains(s, "Inf") {
		t.Error(s)
	}
	if got := (&trainingRun{scheme: "dgc", iterations: 4000}).arguments(); strings.Join(got, " ") != "--scheme dgc --warmup 100" {
		t.Error(got)
	}
	if _, err := ParseTrained("p4"); err == nil {
		t.Error("p4 is read")
	}
}
