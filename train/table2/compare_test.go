package table2_test

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/train"
	"github.com/scaffe/scaffe/train/table2"
)

// The rate of lr_policy poly is a number up to max_iter only; tests and
// snapshots would be seen in the folder and the times.
const solverText = `
net_param {
  name: "line"
  layer { name: "data" type: "DummyData" top: "data" top: "target" dummy_data_param {
    shape { dim: 4 dim: 3 } shape { dim: 4 dim: 1 }
    data_filler { type: "constant" value: 1 } data_filler { type: "constant" value: 2 } } }
  layer { name: "ip1" type: "InnerProduct" bottom: "data" top: "ip1" inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
  layer { name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2" inner_product_param { num_output: 1 weight_filler { type: "xavier" } } }
  layer { name: "loss" type: "EuclideanLoss" bottom: "ip2" bottom: "target" top: "loss" }
}
base_lr: 0.01
lr_policy: "poly"
power: 0.5
max_iter: 5
test_iter: 1
test_interval: 1
snapshot: 1
snapshot_prefix: "%s/s"
`

func run(t *testing.T, ranks int, c train.Config, rows []table2.Row, o table2.Options) (reports []*table2.Report, err error) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "solver.prototxt")
	if err := os.WriteFile(path, fmt.Appendf(nil, solverText, dir), 0o644); err != nil {
		t.Fatal(err)
	}
	reports = make([]*table2.Report, ranks)
	err = launch.Run(context.Background(), launch.Options{Local: ranks}, func(ctx context.Context, comm *collectives.Comm) error {
		c := c
		var err error
		if c.Solver, err = proto.ReadSolver(path); err != nil {
			return err
		}
		before := c.Solver.Solver.String()
		reports[comm.Rank()], err = table2.Run(ctx, comm, c, rows, o)
		if c.Solver.Solver.String() != before {
			t.Error("the caller's solver has changed")
		}
		return err
	})
	if left, _ := filepath.Glob(filepath.Join(dir, "s_iter*")); len(left) > 0 {
		t.Errorf("it has written %v", left)
	}
	return reports, err
}

func rows(t *testing.T, designs, specs string) []table2.Row {
	t.Helper()
	d, err := table2.List(designs)
	if err != nil {
		t.Fatal(err)
	}
	s, err := table2.List(specs)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := table2.Rows(d, s, false)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// Every design with every spec, both schemes; all ranks get the same report.
func TestRun(t *testing.T) {
	for _, scheme := range []exchange.Scheme{exchange.Reduce, exchange.Allreduce} {
		want := rows(t, "SC-B,SC-OB-naive,SC-OB,SC-OBR", "CB-2,tuned")
		reports, err := run(t, 3, train.Config{Scheme: scheme, Bucket: 1}, want, table2.Options{Iterations: 5, Rounds: 2})
		if err != nil {
			t.Fatal(err)
		}
		r := reports[0]
		if r.Net != "line" || r.Parameters != 26 || r.GlobalBatch != 4 || r.Layout.Ranks != 3 || r.Iterations != 5 || r.Rounds != 2 || r.Aggregate != scheme.String() {
			t.Errorf("%+v", r)
		}
		for i, x := range r.Results {
			if x.String() != want[i].String() || x.Buckets != 2 || x.Total <= 0 || x.InFlight <= 0 || x.Exposed < x.Aggregation || x.Aggregation < 0 {
				t.Errorf("row %d: %+v", i, x)
			}
		}
		for rank := range reports {
			if d := cmp.Diff(reports[0], reports[rank]); d != "" || len(r.Results) != len(want) {
				t.Errorf("rank %d has another report:\n%s", rank, d)
			}
		}
	}
}

func TestRunRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		ranks int
		rows  []table2.Row
		o     table2.Options
	}{
		"one rank": {1, rows(t, "SC-B", "tuned"), table2.Options{}},
		"0 rows":   {2, nil, table2.Options{}},
		"-1":       {2, rows(t, "SC-B", "tuned"), table2.Options{Iterations: -1}},
		"spec mpi": {2, rows(t, "SC-OB", "mpi"), table2.Options{}}, // there is none
	} {
		if _, err := run(t, c.ranks, train.Config{}, c.rows, c.o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// S-Caffe, Table 2, and what overlaps.
func TestRows(t *testing.T) {
	for _, c := range []struct {
		designs, specs string
		library        bool
		want           string
	}{
		{"", "", true, "SC-B mpi, SC-B CC-8, SC-B CB-4, SC-B CB-8, SC-B tuned, SC-OB tuned, SC-OBR tuned"},
		{"", "", false, "SC-B CC-8, SC-B CB-4, SC-B CB-8, SC-B tuned, SC-OB tuned, SC-OBR tuned"},
		{"sc-obr", "", false, "SC-OBR CC-8, SC-OBR CB-4, SC-OBR CB-8, SC-OBR tuned"},
		{"", "mpi", false, "SC-B mpi, SC-OB mpi, SC-OBR mpi"},
		{"SC-B, SC-OB-naive", "chain:4,chunk=64K/ring, CB-2", true, "SC-B chain:4,chunk=64K/ring, SC-B CB-2, SC-OB-naive chain:4,chunk=64K/ring, SC-OB-naive CB-2"},
		{"SC-C", "", true, `"SC-C"`},
		{"", "tree", true, `"tree"`},
		{"", "ring,,ring", true, "empty"},
	} {
		d, err := table2.List(c.designs)
		if err != nil {
			t.Fatal(err)
		}
		var rows []table2.Row
		s, err := table2.List(c.specs)
		if err == nil {
			rows, err = table2.Rows(d, s, c.library)
		}
		if err != nil {
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q × %q: %v", c.designs, c.specs, err)
			}
			continue
		}
		var got []string
		for _, r := range rows {
			got = append(got, r.String())
		}
		if g := strings.Join(got, ", "); g != c.want {
			t.Errorf("%q × %q: %s, want %s", c.designs, c.specs, g, c.want)
		}
	}
}

// The paper's own numbers give the paper's own speedups; but for CC-8, where it
// prints 1.47 and 1.11.
func TestWrite(t *testing.T) {
	ms := func(x float64) time.Duration { return time.Duration(x * 1e6) }
	r := &table2.Report{Net: "CaffeNet", Parameters: 60965224, GlobalBatch: 1024, Layout: spec.Layout{Ranks: 160, Nodes: 10, PPN: 16}, Iterations: 20, Rounds: 4}
	for _, x := range []struct {
		algorithm          string
		aggregation, total float64
	}{{"N/A", 40.6, 113.6}, {"CC-8", 28.6, 101.6}, {"CB-4", 19.8, 92.8}, {"CB-8", 17.6, 90.6}, {"none", 0, 73}} {
		r.Results = append(r.Results, table2.Result{
			Row: table2.Row{Design: exchange.SCB, Algorithm: x.algorithm}, Buckets: 1,
			Aggregation: ms(x.aggregation), Exposed: ms(x.aggregation + 10), InFlight: ms(x.aggregation + 11), Total: ms(x.total),
		})
	}
	out := map[report.Format]string{}
	for _, f := range []report.Format{report.Text, report.CSV, report.JSON} {
		var b bytes.Buffer
		if err := r.Write(&b, f); err != nil {
			t.Fatal(err)
		}
		out[f] = b.String()
	}
	for i, want := range []string{"N/A SC-B 40.60 50.60 51.60 113.60 1.00 1.00", "CC-8 SC-B 28.60 38.60 39.60 101.60 1.42 1.12", "CB-4 SC-B 19.80 29.80 30.80 92.80 2.05 1.22", "CB-8 SC-B 17.60 27.60 28.60 90.60 2.31 1.25", "none SC-B 0.00 10.00 11.00 73.00 hidden 1.56"} {
		if got := strings.Join(strings.Fields(strings.Split(out[report.Text], "\n")[4+i]), " "); got != want {
			t.Errorf("row %d is %q, want %q", i, got, want)
		}
	}
	table, err := csv.NewReader(strings.NewReader(out[report.CSV])).ReadAll()
	if err != nil || len(table) != 6 {
		t.Fatalf("%v\n%s", err, out[report.CSV])
	}
	for name, want := range map[string]string{"algorithm": "CB-8", "ranks": "160", "aggregation_ms": "17.6", "overall_speedup": "1.253863"} {
		if i := slices.Index(table[0], name); i < 0 || table[4][i] != want {
			t.Errorf("%s is in column %d of\n%s", name, i, out[report.CSV])
		}
	}
	var doc struct {
		Ranks int
		Rows  []struct {
			Algorithm string
			Total     float64  `json:"total_ms"`
			Speedup   *float64 `json:"aggregation_speedup"`
		}
	}
	if err := json.Unmarshal([]byte(out[report.JSON]), &doc); err != nil || doc.Ranks != 160 || len(doc.Rows) != 5 || doc.Rows[3].Total != 90.6 || doc.Rows[4].Speedup != nil {
		t.Errorf("%v\n%s", err, out[report.JSON])
	}
}
