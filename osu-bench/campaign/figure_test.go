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
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scaffe/scaffe/replay"
)

// Every figure has nets and systems that there are, and cells whose computation is as long as
// is wanted: the bandwidth over the lab's rate slower than the paper's, and scaled by size.
func TestFigureCells(t *testing.T) {
	names, titles := Figures()
	if len(names) != len(titles) || !slices.Contains(names, "poseidon-8") {
		t.Fatal(names, titles)
	}
	for _, name := range names {
		f, cells, err := (&FigureConfig{Name: name}).cells()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := replay.ParseSystems(strings.Join(f.systems, ",")); err != nil {
			t.Error(err)
		}
		if len(cells) < len(f.nodes)*len(f.nets) {
			t.Errorf("%s: %d cells", name, len(cells))
		}
	}
	_, cells, err := (&FigureConfig{Name: "poseidon-8", Nodes: []int{8}, Gbit: []float64{10}, Nets: []string{"vgg19-titanx"}, Systems: []string{"auto"}}).cells()
	if err != nil || len(cells) != 1 {
		t.Fatal(cells, err)
	}
	// 32 images at 35.5 a second, ten times as slow at 1 Gbit/s.
	if x := cells[0]; x.systems[0] != "auto" || x.layout.Nodes != 8 || math.Abs(x.sizes*x.slower(1000)*32/35.5-1) > 0.05 || x.slower(500) != 20 {
		t.Errorf("%+v", x)
	}
	// Beside the paper's nodes there are 32 that are predicted, from the most that run, and 4 of 2 ranks.
	_, cells, err = (&FigureConfig{Name: "poseidon-5", Nodes: []int{4, 16}, Nets: []string{"vgg19-titanx"}}).cells()
	if err != nil || len(cells) != 3 || cells[1].layout != (Layout{4, 2}) || cells[1].ahead != nil || cells[0].ahead != nil || !slices.Equal(cells[2].ahead, []int{32}) {
		t.Errorf("%+v, %v", cells, err)
	}
	// Figures 5 to 8 have these; 7 is of eight nodes besides.
	for _, name := range []string{"poseidon-5", "poseidon-6", "poseidon-7", "poseidon-8"} {
		f, cells, err := (&FigureConfig{Name: name, Nodes: []int{4, 8}}).cells()
		if err != nil {
			t.Fatal(err)
		}
		layouts := map[Layout]int{}
		for _, x := range cells {
			layouts[x.layout]++
		}
		if n := layouts[Layout{8, 1}]; n == 0 || layouts[Layout{4, 2}] != n || (name == "poseidon-7") == (layouts[Layout{4, 1}] == n) {
			t.Errorf("%s: %v", name, layouts)
		}
		if title := drawFigure(f, []FigureRow{{Figure: name, Nodes: 4, PerNode: 2, Iterations: 1}}); (f.value.against == systems) != strings.Contains(title, ", 4 nodes of 2 ranks<") {
			t.Error(title)
		}
	}
	if _, _, err := (&FigureConfig{Name: "poseidon-8", Nodes: []int{3}}).cells(); err == nil || !strings.Contains(err.Error(), "nothing of poseidon-8 is asked for: it has googlenet-titanx at [2 5 10] Gbit/s") {
		t.Error(err)
	}
	if _, _, err := (&FigureConfig{Name: "poseidon-4"}).cells(); err == nil || !strings.Contains(err.Error(), `unknown figure "poseidon-4"`) {
		t.Error(err)
	}
}

// P3's figures have ResNet-50, VGG19 and Sockeye; Figure 10 has sentences of different length.
func TestP3_FiguresOfThreeNets(t *testing.T) {
	nets := []string{"resnet50-titanx", "vgg19-titanx", "sockeye-p4000"}
	for name, jittered := range map[string]bool{"p3-8": false, "p3-9": false, "p3-10": true} {
		_, cells, err := (&FigureConfig{Name: name, Nodes: []int{4}}).cells()
		if err != nil || len(cells) != len(nets) {
			t.Fatal(name, cells, err)
		}
		for i, x := range cells {
			jitter := slices.Contains(x.pieces(), "--jitter")
			if x.profile != nets[i] || jitter != (jittered && nets[i] == "sockeye-p4000") {
				t.Errorf("%s: %s with %v", name, x.profile, x.pieces())
			}
		}
	}
}

// report is a replay's, of two systems on two nodes.
const replayed = `{"version": "v1", "batch": 32, "compute_ms": 500, "rows": [
 {"system": "caffe+wfbp", "system_schemes": "ps", "row_nodes": %[2]d, "predicted_ms": 990, "iterations": 6, "iteration_ms": 1000, "iteration_low_ms": 900, "iteration_high_ms": 1100,
  "stall": 0.5, "speedup": 1, "node_bytes_least": 1e6, "node_bytes_most": 2e6, "products_ms": 0, "waits_late_ms": %[1]g, "carrying_ms": 4},
 {"system": "poseidon", "system_schemes": "ps,fc6=sfb", "row_nodes": %[2]d, "iterations": 3, "iteration_ms": 500, "stall": 0, "speedup": 2,
  "node_bytes_least": 5e5, "node_bytes_most": 5e5, "products_ms": 7, "waits_late_ms": 1},
 {"system": "poseidon", "system_schemes": "ps,fc6=sfb", "row_nodes": 32, "predicted_ms": 550, "iterations": 0, "iteration_ms": null,
  "stall": 0.1, "speedup": 29, "node_bytes_least": null, "waits_late_ms": null}]}`

// Bytes and rates are the paper's: sizes and times are scaled back.
func TestFigureRows(t *testing.T) {
	x := figureCell{profile: "vgg19-titanx", gbit: 10, layout: Layout{2, 1}, sizes: 0.05}
	rows, err := x.rows("poseidon-8", 500, fmt.Sprintf(replayed, 2.5, 2))
	if err != nil || len(rows) != 3 {
		t.Fatal(rows, err)
	}
	want := FigureRow{
		Figure: "poseidon-8", Profile: "vgg19-titanx", Gbit: 10, Nodes: 2, PerNode: 1, System: "caffe+wfbp", Schemes: "ps", SizeScale: 0.05, Rate: 500,
		Iterations: 6, Iteration: 1000, Low: 900, High: 1100, Predicted: 990, Compute: 500, Stall: 0.5, Speedup: 1,
		Images: 32 / 0.5, GbitLeast: 0.16, GbitMost: 0.32, Late: 2.5, Carrying: 4, MPI: library(), Version: "v1",
	}
	if d := cmp.Diff(want, rows[0]); d != "" {
		t.Error(d)
	}
	if rows[1].Low != 0 || rows[1].Images != 128 || rows[1].Products != 7 {
		t.Errorf("%+v", rows[1])
	}
	if r := rows[2]; r.Nodes != 32 || r.measured() || r.kind() != "predicted" || r.Predicted != 550 || r.Speedup != 29 || r.strained() {
		t.Errorf("%+v", r)
	}
	// Of 2 MB a node sends 8 Mbit, which takes the wire 8 ms at 1000 Mbit/s, however long the iteration is.
	for _, r := range []struct {
		late, carrying float64
		rate           int
		strained       bool
	}{{10, 4.7, 1000, false}, {10.1, 0, 1000, true}, {0, 4.9, 1000, true}, {0, 16, 500, false}, {10.1, 0, 500, true}} {
		row := rows[0]
		if row.Late, row.Carrying, row.Rate = r.late, r.carrying, r.rate; row.strained() != r.strained {
			t.Errorf("%+v: %v", r, row.strained())
		}
	}
	if _, err := x.rows("poseidon-8", 500, "mpirun: no"); err == nil {
		t.Error("no report is no error")
	}
	path := filepath.Join(t.TempDir(), "rows.csv")
	if err := writeFigure(path, rows); err != nil {
		t.Fatal(err)
	}
	got, err := readFigure(path)
	if d := cmp.Diff(rows, got); d != "" || err != nil {
		t.Error(err, d)
	}
	header, _, _ := strings.Cut(first(t, path), "\n")
	swapped := strings.Replace(header, "iteration_low_ms,iteration_high_ms", "iteration_high_ms,iteration_low_ms", 1)
	for _, text := range []string{"job,collective\n", swapped + "\n", strings.Repeat(",", len(figureColumns)-1) + "\n", "\"", strings.Replace(first(t, path), "\n", "\nf,p,x", 1)} {
		bad := filepath.Join(t.TempDir(), "bad.csv")
		if err := os.WriteFile(bad, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := readFigure(bad); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}

func first(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	header, _, _ := strings.Cut(string(data), "\n")
	return header + "\n" + strings.Repeat(",", len(figureColumns)-3) + "\n"
}

// Rates at which messages would keep the cores too busy while ports are full are passed over; the first one is
// that at which they would not by what fewer nodes took, wherever those served.
func TestFigureSettles(t *testing.T) {
	x := figureCell{profile: "vgg19-titanx", gbit: 10, layout: Layout{8, 1}, systems: []string{"caffe+wfbp", "poseidon"}, sizes: 0.05}
	var asked []int
	carrying := 8.0 // ms, of 8 that the wire needs at the first rate
	fake := func(_ context.Context, x figureCell, rate int) ([]FigureRow, error) {
		asked = append(asked, rate)
		rows, err := x.rows("poseidon-8", rate, fmt.Sprintf(replayed, 0.0, 8))
		rows[0].Carrying = carrying
		return rows, err
	}
	if _, err := x.settle(context.Background(), x.begin(nil), fake, io.Discard); err != nil || !slices.Equal(asked, []int{1000, 500}) {
		t.Error(asked, err)
	}
	carrying, asked = 14.4, nil
	var log bytes.Buffer
	rows, err := x.settle(context.Background(), x.begin(nil), fake, &log)
	if err != nil || len(rows) != 3 || rows[0].Rate != 250 || !slices.Equal(asked, []int{1000, 250}) {
		t.Error(rows, asked, err)
	}
	if !strings.Contains(log.String(), "up to 180 % of the cores busy while ports were full: again at 250 Mbit/s") {
		t.Error(log.String())
	}
	for _, c := range []struct {
		x    figureCell
		rate int
	}{
		{figureCell{profile: "vgg19-titanx", gbit: 10, layout: Layout{16, 1}}, 125}, // twice as many ports
		{figureCell{profile: "vgg19-titanx", gbit: 10, layout: Layout{16, 1}, apart: true}, 125},
		{figureCell{profile: "vgg19-titanx", gbit: 20, layout: Layout{16, 1}}, 1000}, // nothing is known
	} {
		if got := c.x.begin(rows); got != c.rate {
			t.Errorf("%v at %g Gbit/s begins at %d Mbit/s, want %d", c.x.layout, c.x.gbit, got, c.rate)
		}
	}
}

// A row whose waits ended later than 1 % of its iteration is measured again at half the rate;
// what is in the file is not measured again; a replay that fails is tried again by the next run.
func TestFigureIsMeasured(t *testing.T) {
	c := FigureConfig{
		Name: "poseidon-8", Nodes: []int{2, 8}, Gbit: []float64{10}, Nets: []string{"vgg19-titanx"}, Systems: []string{"caffe+wfbp", "poseidon"},
		Out: filepath.Join(t.TempDir(), "rows.csv"),
	}
	var asked []string
	fails := true
	fake := func(_ context.Context, x figureCell, rate int) ([]FigureRow, error) {
		asked = append(asked, fmt.Sprintf("%d@%d %s", x.layout.Nodes, rate, strings.Join(x.systems, ",")))
		switch {
		case x.layout.Nodes == 8 && fails:
			return nil, errors.New("a node is gone")
		case x.layout.Nodes == 8:
			return x.rows(c.Name, rate, fmt.Sprintf(replayed, 1e9, x.layout.Nodes)) // always late
		}
		late := 10.1
		if rate <= 500 {
			late = 9.9
		}
		return x.rows(c.Name, rate, fmt.Sprintf(replayed, late, x.layout.Nodes))
	}
	var out, log bytes.Buffer
	if err := c.measure(context.Background(), fake, &out, &log); err == nil || !strings.Contains(err.Error(), "1 replays failed") {
		t.Fatal(err)
	}
	if want := "2@1000 caffe+wfbp,poseidon; 2@500 caffe+wfbp,poseidon; 8@125 caffe+wfbp,poseidon"; strings.Join(asked, "; ") != want {
		t.Errorf("%q, want %q", asked, want)
	}
	if !strings.Contains(log.String(), "late, messages kept up to 50 % of the cores busy while ports were full: again at 500 Mbit/s") || !strings.Contains(log.String(), "failed: a node is gone") {
		t.Error(log.String())
	}
	asked, fails = nil, false
	if err := c.measure(context.Background(), fake, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	if want := "8@125 caffe+wfbp,poseidon"; strings.Join(asked, "; ") != want {
		t.Errorf("%q", asked)
	}
	asked = nil
	if err := c.measure(context.Background(), fake, &out, io.Discard); err != nil || asked != nil {
		t.Error(asked, err)
	}
	picture, err := os.ReadFile(strings.TrimSuffix(c.Out, ".csv") + ".svg")
	if err != nil || !strings.Contains(string(picture), "vgg19-titanx, 10 Gbit/s") || !strings.Contains(string(picture), `class="line1 predicted"`) || !strings.Contains(string(picture), "; dashed: predicted<") {
		t.Error(err)
	}
	rows, err := readFigure(c.Out)
	if err != nil || len(rows) != 6 {
		t.Fatal(rows, err)
	}
	for _, f := range figures {
		for i := range rows {
			rows[i].Figure = f.name
		}
		text := drawFigure(&f, rows)
		for d := xml.NewDecoder(strings.NewReader(text)); ; {
			if _, err := d.Token(); err != nil {
				if !errors.Is(err, io.EOF) {
					t.Errorf("%s: %v\n%s", f.name, err, text)
				}
				break
			}
		}
		if !strings.Contains(text, ">poseidon<") || strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
			t.Errorf("%s:\n%s", f.name, text)
		}
	}
}

// P3's figures have servers apart on as many nodes again, and slices of several sizes.
func TestFigureOfP3(t *testing.T) {
	_, cells, err := (&FigureConfig{Name: "p3-7", Nets: []string{"resnet50-titanx"}, Gbit: []float64{8}}).cells()
	if err != nil || len(cells) != 2 || cells[0].layout != (Layout{4, 1}) || cells[0].pieces() != nil || cells[1].layout != (Layout{8, 1}) ||
		strings.Join(cells[1].pieces(), " ") != "--workers 0,1,2,3 --servers 4,5,6,7" {
		t.Fatalf("%+v, %v", cells, err)
	}
	apart := cells[1]
	rows, err := apart.rows("p3-7", 1000, fmt.Sprintf(replayed, 0.0, 8))
	if err != nil || !rows[0].Apart || rows[0].servers() != "apart" {
		t.Fatalf("%+v, %v", rows, err)
	}
	beside, err := cells[0].rows("p3-7", 500, fmt.Sprintf(replayed, 0.0, 4))
	if err != nil || beside[0].Apart || cells[0].begin(rows) != firstRate || apart.begin(beside) != 250 {
		t.Errorf("%+v, %v", beside, err)
	}
	f, cells, err := (&FigureConfig{Name: "p3-12", Nets: []string{"vgg19-titanx"}}).cells()
	if err != nil || len(cells) != 8 || cells[0].sizes != 0.5 || strings.Join(cells[7].pieces(), " ") != "--slice 1000000" {
		t.Fatalf("%+v, %v", cells, err)
	}
	c := FigureConfig{Name: "p3-12", Nets: []string{"vgg19-titanx"}, Systems: []string{"poseidon"}, Out: filepath.Join(t.TempDir(), "rows.csv")}
	asked := 0
	fake := func(_ context.Context, x figureCell, rate int) ([]FigureRow, error) {
		asked++
		all, err := x.rows(c.Name, rate, fmt.Sprintf(replayed, 0.0, 4))
		return all[1:2], err
	}
	for range 2 {
		if err := c.measure(context.Background(), fake, io.Discard, io.Discard); err != nil || asked != 8 {
			t.Fatal(asked, err)
		}
	}
	got, err := readFigure(c.Out)
	if err != nil || len(got) != 8 || got[2].Slice != 20_000 {
		t.Fatalf("%+v, %v", got, err)
	}
	if text := drawFigure(f, got); !strings.Contains(text, ">1000k<") || !strings.Contains(text, ">5k<") {
		t.Error(text)
	}
}
