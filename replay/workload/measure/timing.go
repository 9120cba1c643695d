package measure

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/scaffe/scaffe/replay/workload"
)

// Formats are what Timing.Write writes.
var Formats = []string{"text", "json", "csv"}

// Write writes the times as text (a table such as caffe time's), json (one
// object) or csv (a row a layer, then one of the net). Times are milliseconds.
func (t *Timing) Write(w io.Writer, format string) error {
	switch format {
	case "text":
		return t.writeText(w)
	case "json":
		return json.NewEncoder(w).Encode(t.json())
	case "csv":
		return t.writeCSV(w)
	}
	return fmt.Errorf("format %q is unknown: use text, json or csv", format)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (t Times) text() string {
	return fmt.Sprintf("%.3f\t%.3f\t%.3f\t", ms(t.Mean), ms(t.Min), ms(t.Max))
}

func (t *Timing) writeText(to io.Writer) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "# forward ms\tmin\tmax\tbackward ms\tmin\tmax\tparameters\t  layer (type)\n")
	for _, l := range t.Layers {
		fmt.Fprintf(w, "%s%s%d\t  %s (%s)\n", l.Forward.text(), l.Backward.text(), l.elements(), l.Name, l.Type)
	}
	fmt.Fprintf(w, "%s%s%d\t  all layers but those that read data\n", t.Forward.text(), t.Backward.text(), t.elements())
	if err := w.Flush(); err != nil {
		return err
	}
	w = tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\n# ms\tmin\tmax\t")
	for _, s := range []struct {
		name string
		Times
	}{{"forward-backward", t.Both}, {"update (SGD with momentum)", t.Update}, {"reading data, not counted", t.Input}} {
		fmt.Fprintf(w, "%s  %s\n", s.text(), s.name)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(to, "\n%s: batch %d, %d iterations, %.4g images/s with the update\n", t.Net, t.Batch, t.Iterations, t.Rate())
	return err
}

func (l LayerTiming) elements() int { return workload.Layer{Params: l.Params}.Elements() }

func (t *Timing) elements() int {
	sum := 0
	for _, l := range t.Layers {
		sum += l.elements()
	}
	return sum
}

type timesJSON struct {
	Mean float64 `json:"mean_ms"`
	Min  float64 `json:"min_ms"`
	Max  float64 `json:"max_ms"`
}

func (t Times) json() timesJSON { return timesJSON{ms(t.Mean), ms(t.Min), ms(t.Max)} }

type layerJSON struct {
	Layer    string    `json:"layer"`
	Type     string    `json:"type"`
	Params   []int     `json:"parameters"`
	Input    bool      `json:"input,omitempty"`
	Forward  timesJSON `json:"forward"`
	Backward timesJSON `json:"backward"`
}

func (t *Timing) json() any {
	var layers []layerJSON
	for _, l := range t.Layers {
		layers = append(layers, layerJSON{l.Name, l.Type, l.Params, l.Input, l.Forward.json(), l.Backward.json()})
	}
	return struct {
		Net        string      `json:"net"`
		Batch      int         `json:"batch"`
		Iterations int         `json:"iterations"`
		Rate       float64     `json:"images_per_second"`
		Parameters int         `json:"parameters"`
		Forward    timesJSON   `json:"forward"`
		Backward   timesJSON   `json:"backward"`
		Both       timesJSON   `json:"forward_backward"`
		Update     timesJSON   `json:"update"`
		Input      timesJSON   `json:"input"`
		Layers     []layerJSON `json:"layers"`
	}{
		t.Net, t.Batch, t.Iterations, t.Rate(), t.elements(), t.Forward.json(), t.Backward.json(), t.Both.json(),
		t.Update.json(), t.Input.json(), layers,
	}
}

func (t *Timing) writeCSV(to io.Writer) error {
	w := csv.NewWriter(to)
	row := func(name, typ string, params int, forward, backward Times) {
		r := []string{name, typ, strconv.Itoa(params)}
		for _, d := range []time.Duration{forward.Mean, forward.Min, forward.Max, backward.Mean, backward.Min, backward.Max} {
			r = append(r, strconv.FormatFloat(ms(d), 'f', -1, 64))
		}
		_ = w.Write(r) // Error tells
	}
	_ = w.Write([]string{
		"layer", "type", "parameters", "forward_ms", "forward_min_ms", "forward_max_ms",
		"backward_ms", "backward_min_ms", "backward_max_ms",
	})
	for _, l := range t.Layers {
		row(l.Name, l.Type, l.elements(), l.Forward, l.Backward)
	}
	row("", "net", t.elements(), t.Forward, t.Backward)
	w.Flush()
	return w.Error()
}
