package campaign

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/scaffe/scaffe/internal/atomicfile"
	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/internal/units"
)

// Names of jobs.
const (
	registered   = "registered"
	unregistered = "unregistered"
	regretJob    = "regret"
	ownAlgorithm = "library " // and its setting
)

// Sizes measures time against size for tuned and everything that it is compared with.
// root is the repository's, whose programs are built. The rows go to c.Out, a picture of
// them beside it, and a table to stdout.
func Sizes(ctx context.Context, config Config, root string, stdout, log io.Writer) error {
	c, err := newCampaign(config, root, log)
	if err != nil {
		return err
	}
	if c.uccPerftest == "" {
		fmt.Fprintln(log, "UCC: skipped: no ucc_perftest for this MPI library (UCC_PERFTEST=PATH names it)")
	}
	layouts := c.possible(ctx)
	if err := c.all(ctx, c.sizesJobs(layouts)); err != nil {
		return err
	}
	cells := c.cells(layouts)
	picture := strings.TrimSuffix(c.Out, ".csv") + ".svg"
	if err := atomicfile.Write(atomicfile.OS, picture, []byte(draw(cells, c.title()))); err != nil {
		return err
	}
	if err := c.table(cells).Write(stdout, report.Text); err != nil {
		return err
	}
	fmt.Fprintf(log, "rows: %s, picture: %s\n", c.Out, picture)
	return c.end()
}

// title says where the rows are from.
func (c *campaign) title() string {
	for _, r := range c.rows {
		if r.Machine != "" && r.MPI != "" {
			return r.Machine + ", " + r.MPI
		}
	}
	return library()
}

// sizesJobs returns all jobs in the order in which they run.
func (c *campaign) sizesJobs(layouts []Layout) (all []*job) {
	for _, l := range layouts {
		if l.Nodes > 1 {
			all = append(all, c.wire(l)...)
		}
		for _, collective := range c.Collectives {
			for _, b := range c.bands(collective, l, c.cores, 0) {
				all = append(all, c.osu(registered, collective, l, registered, b, "tuned", "mpi"))
				if collective != "barrier" {
					all = append(all, c.osu(unregistered, collective, l, unregistered, b, "tuned", "mpi"))
				}
				for _, v := range variants(library(), collective, c.Quick) {
					if b.sizes[len(b.sizes)-1] < v.above {
						continue
					}
					j := c.osu(ownAlgorithm+v.name, collective, l, registered, b, "tuned", "mpi")
					j.mpirun, j.env = v.mpirun, v.env
					all = append(all, j)
				}
				if l.Nodes == 1 && collective != "barrier" {
					all = append(all, c.floor(collective, l, b))
				}
				if l.Nodes == 1 && l.PPN <= c.cores && c.uccPerftest != "" { // it polls
					all = append(all, c.ucc(collective, l, b))
				}
			}
		}
	}
	return all
}

// cell is what is known of a collective, layout and size; a Row without a time is not.
type cell struct {
	collective string
	layout     Layout
	size       int

	limit                      float64 // µs, 0: not known
	library, best, ucc         Row
	tuned                      Row // registered, in turns with library
	unregistered, libraryThere Row // in turns
}

// cells returns all that have a time of tuned.
func (c *campaign) cells(layouts []Layout) (all []*cell) {
	for _, l := range layouts {
		for _, collective := range c.Collectives {
			for _, b := range c.bands(collective, l, c.cores, 0) {
				for _, size := range b.sizes {
					if x := c.cell(collective, l, size); x.tuned.Time > 0 {
						all = append(all, x)
					}
				}
			}
		}
	}
	return all
}

func (c *campaign) cell(collective string, l Layout, size int) *cell {
	x := &cell{collective: collective, layout: l, size: size}
	for _, r := range c.rows {
		if r.Collective != collective || r.Nodes != l.Nodes || r.Ranks != l.Ranks() || r.Size != size {
			continue
		}
		switch {
		case r.Job == registered && r.Asked == "tuned":
			x.tuned = r
		case r.Job == registered && r.Asked == "mpi":
			x.library = r
		case r.Job == unregistered && r.Asked == "tuned":
			x.unregistered = r
		case r.Job == unregistered && r.Asked == "mpi":
			x.libraryThere = r
		case r.Job == "ucc":
			x.ucc = r
		case r.Job == "floor":
			x.limit = r.Time
		}
		if r.Asked == "mpi" && r.Job != unregistered && (x.best.Time == 0 || r.Time < x.best.Time) {
			x.best = r
		}
	}
	if l.Nodes > 1 {
		x.limit = c.wireLimit(collective, l, size)
	}
	return x
}

// wireLimit returns what the wire allows in microseconds: a message's latency, and what
// must pass a node's port over its bandwidth.
func (c *campaign) wireLimit(collective string, l Layout, size int) float64 {
	var latency, each float64
	for _, r := range c.rows {
		switch {
		case r.Job != "wire" || r.Nodes != l.Nodes:
		case r.Collective == "latency":
			latency = r.Time
		default:
			each = r.Time
		}
	}
	if latency == 0 || each == 0 {
		return 0
	}
	buffers := 1.0
	if collective == "allreduce" {
		buffers = 2 * float64(l.Nodes-1) / float64(l.Nodes)
	}
	return latency + buffers*float64(size)/wireBytes*each
}

// over returns the ratio of two times, nil where one is not known.
func over(a, b float64) any { return report.Optional(a/b, a > 0 && b > 0) }

func microseconds(t float64) any { return report.Optional(t, t > 0) }

func (c *campaign) table(cells []*cell) *report.Table[*cell] {
	type column = report.Column[*cell]
	return &report.Table[*cell]{
		Above: []string{
			c.title() + "; times in µs, medians of the slowest rank",
			"limit: the plain C program on a node, the wire between nodes",
			"",
		},
		Columns: []column{
			{Name: "layout", Left: true, Value: func(x *cell) any { return x.layout.String() }},
			{Name: "collective", Left: true, Value: func(x *cell) any { return x.collective }},
			{Name: "size", Value: func(x *cell) any { return units.FormatBytes(x.size) }},
			{Name: "limit_us", Title: "limit", Digits: 2, Value: func(x *cell) any { return microseconds(x.limit) }},
			{Name: "library_us", Title: "library", Digits: 2, Value: func(x *cell) any { return microseconds(x.library.Time) }},
			{Name: "best_us", Title: "its best", Digits: 2, Value: func(x *cell) any { return microseconds(x.best.Time) }},
			{Name: "ucc_us", Title: "UCC", Digits: 2, Value: func(x *cell) any { return microseconds(x.ucc.Time) }},
			{Name: "tuned_us", Title: "tuned", Digits: 2, Value: func(x *cell) any { return microseconds(x.tuned.Time) }},
			{Name: "tuned_over_library", Title: "/library", Digits: 2, Value: func(x *cell) any { return over(x.tuned.Time, x.library.Time) }},
			{Name: "tuned_over_ucc", Title: "/UCC", Digits: 2, Value: func(x *cell) any { return over(x.tuned.Time, x.ucc.Time) }},
			{Name: "tuned_over_limit", Title: "/limit", Digits: 2, Value: func(x *cell) any { return over(x.tuned.Time, x.limit) }},
			{Name: "unregistered_us", Title: "unregistered", Digits: 2, Value: func(x *cell) any { return microseconds(x.unregistered.Time) }},
			{Name: "unregistered_over_library", Title: "/library", Digits: 2, Value: func(x *cell) any { return over(x.unregistered.Time, x.libraryThere.Time) }},
			{Name: "spec", Left: true, Value: func(x *cell) any { return x.tuned.Algorithm }},
		},
		Rows: slices.Clone(cells),
	}
}
