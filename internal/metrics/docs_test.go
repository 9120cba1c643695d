package metrics

import (
	"os"
	"strings"
	"testing"
)

// Every metric is in docs/training.md, with its labels.
func TestDocs(t *testing.T) {
	docs, err := os.ReadFile("../../docs/training.md")
	if err != nil {
		t.Fatal(err)
	}
	m := NewTraining()
	m.Info.WithLabelValues("SC-B", "reduce", "net")
	m.TestScore.WithLabelValues("loss")
	for _, g := range []Gauge{m.Ranks, m.Loss, m.LearningRate, m.ImagesPerSecond, m.ReaderQueue, m.LongestWait} {
		g.Set(1)
	}
	families, err := m.Registry.Gather()
	if err != nil || len(families) != 22 {
		t.Fatalf("%d metrics, %v", len(families), err)
	}
	for _, f := range families {
		name := f.GetName()
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
			if !strings.Contains(string(docs), l.GetName()) {
				t.Errorf("docs/training.md does not mention label %s of %s", l.GetName(), name)
			}
		}
		if len(labels) > 0 {
			name += "{"
		} else {
			name += "`"
		}
		if !strings.Contains(string(docs), "| `"+name) {
			t.Errorf("docs/training.md does not mention %s", name)
		}
	}
}
