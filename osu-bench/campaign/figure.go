package campaign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/scaffe/scaffe/internal/atomicfile"
	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/replay/workload"
)

// replayer measures a cell at a rate of the lab's links, in Mbit/s.
type replayer func(ctx context.Context, x figureCell, rate int) ([]FigureRow, error)

// Figure measures a figure of the papers in the lab: its rows go to c.Out, a picture of them beside
// it, and a table to stdout. root is the repository's, whose programs are built.
func Figure(ctx context.Context, c FigureConfig, root string, stdout, log io.Writer) error {
	if os.Getenv("SCAFFE_MPI_DIR") == "" {
		return errors.New("no MPI here: run it as scripts/with-mpi openmpi scripts/bench-papers " + c.Name)
	}
	l := newLab(root, log)
	if _, err := execute(ctx, os.Environ(), []string{l.path, "check"}); err != nil {
		return fmt.Errorf("this machine cannot have a lab: %w", err)
	}
	defer l.down()
	return c.measure(ctx, c.inLab(&l, root), stdout, log)
}

// inLab returns what measures cells in the lab.
func (c *FigureConfig) inLab(l *lab, root string) replayer {
	iterations := "6"
	if c.Quick {
		iterations = "3"
	}
	return func(ctx context.Context, x figureCell, rate int) ([]FigureRow, error) {
		if err := l.up(ctx, x.layout, fmt.Sprintf("%dmbit", rate)); err != nil {
			return nil, err
		}
		var args []string
		samples := c.Out + ".port"
		if x.ratio > 0 {
			args = []string{l.path, "watch", "--node", "1", "--out", samples, "--"}
		}
		args = append(args, []string{
			l.path, "run", "--np", fmt.Sprint(x.layout.Ranks()), "--ppn", fmt.Sprint(x.layout.PPN), "--", filepath.Join(root, "bin", "scaffe"), "replay", "--profile", x.profile,
			"--systems", strings.Join(x.systems, ","), "--size-scale", fmt.Sprint(x.sizes),
			"--iterations", iterations, "--turn", "3", "--warmup", "1", "--deadline", "5m", "--format", "json",
		}...)
		args = append(args, x.pieces()...)
		if x.ratio > 0 {
			args = append(args, "--ratio", fmt.Sprint(x.ratio))
		} else {
			args = append(args, "--compute-scale", fmt.Sprint(x.slower(rate)))
		}
		if x.ahead != nil {
			args = append(args, "--predict", strings.Trim(strings.ReplaceAll(fmt.Sprint(x.ahead), " ", ","), "[]"))
		}
		out, err := execute(ctx, os.Environ(), args)
		if err != nil {
			return nil, err
		}
		rows, err := x.rows(c.Name, rate, out)
		if err != nil || x.ratio == 0 {
			return rows, err
		}
		defer os.Remove(samples)
		port, err := readSamples(samples)
		if err != nil {
			return nil, err
		}
		return rows, watched(rows, port)
	}
}

// rows reads what a replay has written.
func (x *figureCell) rows(name string, rate int, out string) (rows []FigureRow, err error) {
	var doc struct {
		Version string
		Batch   float64
		Compute float64 `json:"compute_ms"`
		Rows    []struct {
			System     string
			Schemes    string   `json:"system_schemes"`
			Nodes      int      `json:"row_nodes"`
			Predicted  float64  `json:"predicted_ms"`
			Iterations int      `json:"iterations"`
			Iteration  float64  `json:"iteration_ms"`
			Low        *float64 `json:"iteration_low_ms"`
			High       *float64 `json:"iteration_high_ms"`
			Stall      float64
			Speedup    float64
			Least      float64  `json:"node_bytes_least"`
			Most       float64  `json:"node_bytes_most"`
			Products   float64  `json:"products_ms"`
			Late       float64  `json:"waits_late_ms"`
			Carrying   float64  `json:"carrying_ms"`
			Turns      []string `json:"turns_unix_ms"`
		}
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		return nil, fmt.Errorf("the replay's report: %w", err)
	}
	// Sizes and times are scaled; the ratio of bytes to computation is the paper's.
	gbit := func(bytes float64) float64 { return bytes * 8 / 1e9 / x.sizes }
	slower, bandwidth := x.slower(rate), x.gbit
	if x.ratio > 0 { // the bandwidth at which the paper's GPUs would have it
		p, err := workload.Builtin(x.profile)
		if err != nil {
			return nil, err
		}
		slower = doc.Compute / x.sizes / report.Milliseconds(p.Compute())
		bandwidth = rounded(slower * float64(rate) / 1000)
	}
	one := doc.Batch / (doc.Compute / 1e3 / x.sizes / slower) // images a second of one GPU
	for _, r := range doc.Rows {
		row := FigureRow{
			Figure: name, Profile: x.profile, Gbit: bandwidth, Ratio: x.ratio, Nodes: r.Nodes, PerNode: x.layout.PPN, System: r.System, Schemes: r.Schemes, SizeScale: x.sizes, Rate: rate,
			Iterations: r.Iterations, Iteration: r.Iteration, Predicted: r.Predicted, Compute: doc.Compute, Products: r.Products, Stall: r.Stall, Speedup: r.Speedup,
			Apart: x.apart, Slice: x.slice, Images: one * r.Speedup, GbitLeast: gbit(r.Least), GbitMost: gbit(r.Most), Late: r.Late, Carrying: r.Carrying, MPI: library(), Version: doc.Version,
		}
		if r.Low != nil && r.High != nil {
			row.Low, row.High = *r.Low, *r.High
		}
		if x.ratio > 0 {
			if row.Turns, err = parseTurns(r.Turns); err != nil {
				return nil, err
			}
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// measure measures the cells that there are no rows of yet.
func (c *FigureConfig) measure(ctx context.Context, replay replayer, stdout, log io.Writer) error {
	f, cells, err := c.cells()
	if err != nil {
		return err
	}
	rows, err := readFigure(c.Out)
	if err != nil {
		return err
	}
	var intervals []Interval
	if f.ratio > 0 {
		if intervals, err = readIntervals(c.intervals()); err != nil {
			return err
		}
	}
	failed := 0
	for i, x := range cells {
		missing := x
		missing.systems = slices.DeleteFunc(slices.Clone(x.systems), func(s string) bool {
			return slices.ContainsFunc(rows, func(r FigureRow) bool {
				return r.Figure == c.Name && r.Profile == x.profile && r.Ratio == x.ratio && (x.ratio > 0 || r.Gbit == x.gbit) && r.Nodes == x.layout.Nodes && r.PerNode == x.layout.PPN && r.Apart == x.apart && r.Slice == x.slice && r.System == s
			})
		})
		if len(missing.systems) == 0 {
			continue
		}
		fmt.Fprintf(log, "%d of %d: %s, %s%s\n", i+1, len(cells), x.profile, nodesOf(x.layout.Nodes, x.layout.PPN), x.more())
		got, err := missing.settle(ctx, missing.begin(rows), replay, log)
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted: the same command goes on from %s", c.Out)
		}
		if err != nil {
			failed++
			fmt.Fprintf(log, "  failed: %v\n", err)
			continue
		}
		if f.ratio > 0 { // before the rows, which say that the cell is done
			if intervals, err = addIntervals(c.intervals(), intervals, got); err != nil {
				return err
			}
		}
		rows = append(rows, got...)
		if err := writeFigure(c.Out, rows); err != nil {
			return err
		}
	}
	if f.ratio > 0 {
		if err := atomicfile.Write(atomicfile.OS, strings.TrimSuffix(c.intervals(), ".csv")+".svg", []byte(drawIntervals(f, rows, intervals))); err != nil {
			return err
		}
		fmt.Fprintf(log, "intervals: %s, with a picture\n", c.intervals())
	}
	picture := strings.TrimSuffix(c.Out, ".csv") + ".svg"
	if err := atomicfile.Write(atomicfile.OS, picture, []byte(drawFigure(f, rows))); err != nil {
		return err
	}
	t := report.Table[FigureRow]{Columns: figureColumns, Rows: rows}
	if err := t.Write(stdout, report.Text); err != nil {
		return err
	}
	fmt.Fprintf(log, "rows: %s, picture: %s\n", c.Out, picture)
	if failed > 0 {
		return fmt.Errorf("%d replays failed, see above; the same command tries them again", failed)
	}
	return nil
}
