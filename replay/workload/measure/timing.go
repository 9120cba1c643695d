package measure

import (
	"fmt"
	"io"
	"time"

	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/internal/version"
	"github.com/scaffe/scaffe/replay/workload"
)

// Write writes the times: a row for each layer, as caffe time does, and one for
// the net.
func (t *Timing) Write(w io.Writer, f report.Format) error {
	table := report.Table[LayerTiming]{
		Head:    t.head(),
		Columns: columns(),
		Rows:    append(t.Layers[:len(t.Layers):len(t.Layers)], t.sum()),
		Below: []string{
			"",
			"forward-backward: " + t.Both.String(),
			"update (SGD with momentum): " + t.Update.String(),
			"reading data, not counted: " + t.Input.String(),
			fmt.Sprintf("%s: batch %d, %d iterations, %.4g images/s with the update", t.Net, t.Batch, t.Iterations, t.Rate()),
		},
	}
	return table.Write(w, f)
}

// netType is the type of the row that is the sum of the layers.
const netType = "net"

// sum returns the row of the net.
func (t *Timing) sum() LayerTiming {
	sum := LayerTiming{Name: "all layers but those that read data", Type: netType, Forward: t.Forward, Backward: t.Backward}
	for _, l := range t.Layers {
		sum.Params = append(sum.Params, l.Params...)
	}
	return sum
}

func (t *Timing) head() []report.Field {
	head := []report.Field{
		{Name: "net", Value: t.Net},
		{Name: "version", Value: version.String()},
		{Name: "batch", Value: t.Batch},
		{Name: "iterations", Value: t.Iterations},
		{Name: "images_per_second", Value: t.Rate()},
	}
	for _, x := range []struct {
		name string
		Times
	}{{"forward_backward", t.Both}, {"update", t.Update}, {"input", t.Input}} {
		head = append(head,
			report.Field{Name: x.name + "_ms", Value: x.Mean},
			report.Field{Name: x.name + "_min_ms", Value: x.Min},
			report.Field{Name: x.name + "_max_ms", Value: x.Max})
	}
	return head
}

func columns() []report.Column[LayerTiming] {
	type column = report.Column[LayerTiming]
	isLayer := func(l LayerTiming) bool { return l.Type != netType }
	return []column{
		{Name: "layer", Hidden: true, Value: func(l LayerTiming) any { return report.Optional(l.Name, isLayer(l)) }},
		{Name: "type", Hidden: true, Value: func(l LayerTiming) any { return l.Type }},
		{Name: "input", Hidden: true, Value: func(l LayerTiming) any { return l.Input }},
		{Name: "parameters", Hidden: true, Value: func(l LayerTiming) any { return l.elements() }},
		{Name: "forward_ms", Digits: 3, Value: func(l LayerTiming) any { return l.Forward.Mean }},
		{Name: "forward_min_ms", Title: "min", Digits: 3, Value: func(l LayerTiming) any { return l.Forward.Min }},
		{Name: "forward_max_ms", Title: "max", Digits: 3, Value: func(l LayerTiming) any { return l.Forward.Max }},
		{Name: "backward_ms", Digits: 3, Value: func(l LayerTiming) any { return l.Backward.Mean }},
		{Name: "backward_min_ms", Title: "min", Digits: 3, Value: func(l LayerTiming) any { return l.Backward.Min }},
		{Name: "backward_max_ms", Title: "max", Digits: 3, Value: func(l LayerTiming) any { return l.Backward.Max }},
		{Title: "parameters", Value: func(l LayerTiming) any { return l.elements() }},
		{Title: "layer (type)", Left: true, Value: func(l LayerTiming) any {
			if !isLayer(l) {
				return l.Name
			}
			return fmt.Sprintf("%s (%s)", l.Name, l.Type)
		}},
	}
}

// String returns the times in milliseconds.
func (t Times) String() string {
	ms := func(d time.Duration) string { return fmt.Sprintf("%.3f", report.Milliseconds(d)) }
	return ms(t.Mean) + " ms (" + ms(t.Min) + " to " + ms(t.Max) + ")"
}

func (l LayerTiming) elements() int { return workload.Layer{Params: l.Params}.Elements() }
