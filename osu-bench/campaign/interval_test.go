package campaign

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scaffe/scaffe/osu-bench/port"
)

// recorded is a replay's report of two systems with two turns of 100 ms each, in turns, the second system's first.
const recorded = `{"version": "v1", "batch": 32, "compute_ms": 500, "rows": [
 {"system": "kvstore", "system_schemes": "ps", "row_nodes": 4, "predicted_ms": 990, "iterations": 6, "iteration_ms": 1000, "stall": 0.5, "speedup": 2,
  "waits_late_ms": 0, "carrying_ms": 400, "turns_unix_ms": ["1100.000-1200.000", "1300.000-1400.000"]},
 {"system": "p3", "system_schemes": "ps", "row_nodes": 4, "iterations": 6, "iteration_ms": 500, "stall": 0, "speedup": 4,
  "waits_late_ms": 0, "turns_unix_ms": ["1000.000-1100.000", "1200.000-1300.000"]}]}`

// port10 is samples every 10 ms from 995 on: a third of those of kvstore's turns are of a port that sends at 4 %, p3's port always sends at 80 %.
func port10() (all []port.Sample) {
	for i := range 45 {
		s := port.Sample{Unix: 995 + 10*float64(i), Time: 10 * float64(i), Length: 10, Sent: 1_000_000, Received: 1_250_000, Rate: 1e9}
		if turn := int(s.Unix-1000) / 100; turn%2 == 1 && i%3 == 0 {
			s.Sent = 50_000
		}
		all = append(all, s)
	}
	return all
}

// TestP3_UseOfAPort (section 5.3): rows say in which part of the measured iterations the port was quiet, by the samples that lie within
// them alone, and the samples stand in a file of their own, by which turn they are of.
func TestP3_UseOfAPort(t *testing.T) {
	_, cells, err := (&FigureConfig{Name: "p3-8", Nets: []string{"resnet50-titanx"}}).cells()
	if err != nil || len(cells) != 1 || cells[0].ratio != 1 || cells[0].layout != (Layout{4, 1}) || !cells[0].asks("kvstore", "tensorflow") {
		t.Fatalf("%+v, %v", cells, err)
	}
	if _, _, err := (&FigureConfig{Name: "p3-9", Gbit: []float64{4}}).cells(); err == nil || !strings.Contains(err.Error(), "vgg19-titanx at a ratio of 1, sockeye-p4000 at a ratio of 1, on [4] nodes") {
		t.Error(err)
	}
	c := FigureConfig{Name: "p3-9", Nets: []string{"resnet50-titanx"}, Out: filepath.Join(t.TempDir(), "rows.csv")}
	asked := 0
	fake := func(_ context.Context, x figureCell, rate int) ([]FigureRow, error) {
		asked++
		if !x.asks("kvstore", "p3") || x.more() != ", ratio 1" {
			t.Errorf("%+v", x)
		}
		rows, err := x.rows(c.Name, rate, recorded)
		if err != nil {
			return nil, err
		}
		return rows, watched(rows, port10())
	}
	// What an interrupted run has left of this cell's intervals does not stand there twice.
	if _, err := addIntervals(c.intervals(), nil, []FigureRow{{Port: []Interval{
		{"p3-9", "resnet50-titanx", "p3", 1, port.Sample{Unix: 1}}, {"p3-9", "vgg19-titanx", "p3", 1, port.Sample{Unix: 2}},
	}}}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.measure(context.Background(), fake, io.Discard, io.Discard); err != nil || asked != 1 {
			t.Fatal(asked, err)
		}
	}
	rows, err := readFigure(c.Out)
	if err != nil || len(rows) != 2 {
		t.Fatal(rows, err)
	}
	// Of each turn's ten intervals the first and the last reach out of it, by 5 ms: nine are left of each.
	kvstore, p3 := rows[0], rows[1]
	if kvstore.Intervals != 18 || math.Abs(kvstore.SendsQuiet-6.0/18) > 1e-6 || kvstore.ReceivesQuiet != 0 || math.Abs(kvstore.Sends-(12*0.8+6*0.04)/18) > 1e-6 {
		t.Errorf("%+v", kvstore)
	}
	if p3.Intervals != 18 || p3.SendsQuiet != 0 || p3.Sends != 0.8 || p3.Ratio != 1 {
		t.Errorf("%+v", p3)
	}
	// The paper's GPUs take 32 images' time; the lab's iteration is so many times as long, at 1 Gbit/s.
	if one := p3.Images / p3.Speedup; math.Abs(p3.Gbit-500/cells[0].sizes/(32e3/one)) > 0.05*p3.Gbit {
		t.Errorf("%+v", p3)
	}
	all, err := readIntervals(c.intervals())
	if err != nil || len(all) != 37 {
		t.Fatal(len(all), err)
	}
	if d := cmp.Diff(Interval{"p3-9", "vgg19-titanx", "p3", 1, port.Sample{Unix: 2}}, all[0]); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(Interval{"p3-9", "resnet50-titanx", "kvstore", 2, port.Sample{Unix: 1305, Time: 5, Length: 10, Sent: 1_000_000, Received: 1_250_000, Rate: 1e9}}, all[10]); d != "" {
		t.Error(d)
	}
	picture, err := os.ReadFile(strings.TrimSuffix(c.intervals(), ".csv") + ".svg")
	if err != nil || !strings.Contains(string(picture), "kvstore at 1000 Mbit/s: sends at under 5 % in 33.3 % of the time, receives in 0.0 %") || strings.Count(string(picture), "class=\"line1\"") != 2 {
		t.Errorf("%v\n%s", err, picture)
	}
	for d := xml.NewDecoder(bytes.NewReader(picture)); ; {
		if _, err := d.Token(); err != nil {
			if !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			break
		}
	}
}

// asks reports whether a cell compares these systems.
func (x *figureCell) asks(systems ...string) bool {
	return strings.Join(x.systems, ",") == strings.Join(systems, ",")
}

// Samples of another time, turns that are none and files that are none are errors.
func TestIntervalErrors(t *testing.T) {
	rows := []FigureRow{{System: "p3", Turns: [][2]float64{{5000, 6000}}}}
	if err := watched(rows, port10()); err == nil || !strings.Contains(err.Error(), "no sample of the port lies within the measured iterations of p3") {
		t.Error(err)
	}
	for _, word := range []string{"", "5", "5-", "x-7", "7-7", "8-7"} {
		if got, err := parseTurns([]string{word}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q is no turn", word)) {
			t.Errorf("%q: %v, %v", word, got, err)
		}
	}
	path := filepath.Join(t.TempDir(), "port.csv")
	if _, err := readSamples(path); err == nil || !strings.Contains(err.Error(), "no samples") {
		t.Error(err)
	}
	if err := writeRows(path, port.Columns, port10()); err != nil {
		t.Fatal(err)
	}
	got, err := readSamples(path)
	if d := cmp.Diff(port10(), got); d != "" || err != nil {
		t.Error(err, d)
	}
	if err := os.WriteFile(path, []byte("time_ms,unix_ms\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := readSamples(path); err == nil {
		t.Error("a file of another program is read")
	}
}
