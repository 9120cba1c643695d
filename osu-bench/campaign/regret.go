package campaign

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat"

	"github.com/scaffe/scaffe/internal/atomicfile"
	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/internal/units"
)

// Regret measures what a choice without a table costs: for each collective, layout and
// size, the time of tuned over that of the fastest of all specs that a tuning run would
// measure and of the MPI library. The rows go to c.Out, the regrets to a file beside it
// and as a table to stdout.
func Regret(ctx context.Context, config Config, root string, stdout, log io.Writer) error {
	c, err := newCampaign(config, root, log)
	if err != nil {
		return err
	}
	layouts := c.possible(ctx)
	var jobs []*job
	for _, l := range layouts {
		for _, collective := range c.Collectives {
			for _, b := range c.bands(collective, l, c.cores, 0) {
				if collective != "barrier" {
					jobs = append(jobs, c.osu(regretJob, collective, l, registered, b, "tuned", "mpi", "candidates"))
				}
			}
		}
	}
	if err := c.all(ctx, jobs); err != nil {
		return err
	}
	t := c.regretTable(regrets(c.rows))
	path := strings.TrimSuffix(c.Out, ".csv") + "-cells.csv"
	if err := atomicfile.Stream(atomicfile.OS, path, func(w io.Writer) error { return t.Write(w, report.CSV) }); err != nil {
		return err
	}
	if err := t.Write(stdout, report.Text); err != nil {
		return err
	}
	fmt.Fprintf(log, "rows: %s, regrets: %s\n", c.Out, path)
	return c.end()
}

// regret is that of one collective, layout and size.
type regret struct {
	layout      Layout
	tuned, best Row
}

// ratio is the regret: at least 1.
func (r regret) ratio() float64 { return r.tuned.Time / r.best.Time }

// certain is what of it the 95 % intervals leave: by how much the choice is slower for
// sure, or 1.
func (r regret) certain() float64 {
	if r.tuned.Low == 0 || r.best.High == 0 {
		return 1
	}
	return max(1, r.tuned.Low/r.best.High)
}

// regrets finds the fastest of each cell, in the order of the rows. The spec that was
// selected is measured twice, as tuned and by its name: its time is the mean of both, so that
// a twin that was lucky is no regret.
func regrets(rows []Row) []regret {
	type key struct {
		collective         string
		nodes, ranks, size int
	}
	cells := map[key][]Row{}
	var order []key
	for _, r := range rows {
		if r.Job != regretJob {
			continue
		}
		k := key{r.Collective, r.Nodes, r.Ranks, r.Size}
		if cells[k] == nil {
			order = append(order, k)
		}
		cells[k] = append(cells[k], r)
	}
	var all []regret
	for _, k := range order {
		at := slices.IndexFunc(cells[k], func(r Row) bool { return r.Asked == "tuned" })
		if at < 0 {
			continue
		}
		r := regret{layout: Layout{k.nodes, k.ranks / k.nodes}, tuned: cells[k][at]}
		// The library was called as a program would, not as the spec mpi is.
		twins := func(o Row) bool { return o.Asked == r.tuned.Algorithm && o.Asked != "mpi" }
		if i := slices.IndexFunc(cells[k], twins); i >= 0 {
			twin := cells[k][i]
			r.tuned.Time = (r.tuned.Time + twin.Time) / 2
			r.tuned.Low, r.tuned.High = min(r.tuned.Low, twin.Low), max(r.tuned.High, twin.High)
		}
		r.best = r.tuned
		for _, o := range cells[k] {
			if o.Asked != "tuned" && !twins(o) && o.Time < r.best.Time {
				r.best = o
			}
		}
		all = append(all, r)
	}
	return all
}

// worstShown is how many cells the table's end names.
const worstShown = 5

func (c *campaign) regretTable(all []regret) *report.Table[regret] {
	type column = report.Column[regret]
	return &report.Table[regret]{
		Above: []string{c.title() + "; times in µs, medians of the slowest rank", ""},
		Columns: []column{
			{Name: "layout", Left: true, Value: func(r regret) any { return r.layout.String() }},
			{Name: "collective", Left: true, Value: func(r regret) any { return r.tuned.Collective }},
			{Name: "size", Value: func(r regret) any { return units.FormatBytes(r.tuned.Size) }},
			{Name: "tuned", Left: true, Value: func(r regret) any { return r.tuned.Algorithm }},
			{Name: "tuned_us", Title: "measured", Digits: 2, Value: func(r regret) any { return r.tuned.Time }},
			{Name: "tuned_predicted_us", Title: "predicted", Digits: 2, Value: func(r regret) any { return microseconds(r.tuned.Predicted) }},
			{Name: "best", Left: true, Value: func(r regret) any { return r.best.Asked }},
			{Name: "best_us", Title: "measured", Digits: 2, Value: func(r regret) any { return r.best.Time }},
			{Name: "best_predicted_us", Title: "predicted", Digits: 2, Value: func(r regret) any { return microseconds(r.best.Predicted) }},
			{Name: "regret", Digits: 3, Value: func(r regret) any { return r.ratio() }},
			{Name: "certain", Digits: 3, Value: func(r regret) any { return r.certain() }},
			{Name: "machine", Hidden: true, Value: func(r regret) any { return r.tuned.Machine }},
			{Name: "mpi", Hidden: true, Value: func(r regret) any { return r.tuned.MPI }},
			{Name: "version", Hidden: true, Value: func(r regret) any { return r.tuned.Version }},
		},
		Rows:  all,
		Below: c.summary(all),
	}
}

// summary returns the median and the worst of all regrets, the worst cells, and how far
// the model is off.
func (c *campaign) summary(all []regret) []string {
	if len(all) == 0 {
		return []string{"nothing measured"}
	}
	of := func(what string, all []regret) string {
		var ratios, certain []float64
		for _, r := range all {
			ratios, certain = append(ratios, r.ratio()), append(certain, r.certain())
		}
		return fmt.Sprintf("regret of %s%d cells: median %.3f, worst %.3f; beyond the intervals: median %.3f, worst %.3f",
			what, len(all), median(ratios), slices.Max(ratios), median(certain), slices.Max(certain))
	}
	lines := []string{"", of("", all)}
	layouts := map[Layout][]regret{}
	for _, r := range all {
		layouts[r.layout] = append(layouts[r.layout], r)
	}
	several := len(layouts) > 1
	for _, r := range all {
		if cells := layouts[r.layout]; several && cells != nil {
			lines = append(lines, "  "+of(r.layout.String()+", ", cells))
			delete(layouts, r.layout)
		}
	}
	var off []float64
	for _, r := range c.rows {
		if r.Job == regretJob && r.Predicted > 0 {
			off = append(off, math.Exp(math.Abs(math.Log(r.Predicted/r.Time))))
		}
	}
	if len(off) > 0 {
		slices.Sort(off)
		lines = append(lines, fmt.Sprintf("model: predicted and measured differ by a factor of %.2f in the median, %.2f in the worst tenth of %d rows",
			stat.Quantile(0.5, stat.Empirical, off, nil), stat.Quantile(0.9, stat.Empirical, off, nil), len(off)))
	}
	worst := slices.Clone(all)
	slices.SortStableFunc(worst, func(a, b regret) int { return cmp.Compare(b.ratio(), a.ratio()) })
	for _, r := range worst[:min(worstShown, len(worst))] {
		lines = append(lines, fmt.Sprintf("  %.2f  %v, %s of %s: %s %.1f µs, %s %.1f µs", r.ratio(), r.layout, r.tuned.Collective, units.FormatBytes(r.tuned.Size),
			r.tuned.Algorithm, r.tuned.Time, r.best.Asked, r.best.Time))
	}
	return lines
}

func median(xs []float64) float64 {
	sorted := slices.Sorted(slices.Values(xs))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
