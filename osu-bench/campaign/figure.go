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
	"strconv"
	"strings"
	"time"

	"github.com/scaffe/scaffe/internal/atomicfile"
	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/replay/workload"
)

// figure is one of the Poseidon paper's (Zhang et al., USENIX ATC 2017, section 5), or of P3's (Jayarajan et al., SysML 2019,
// section 5).
type figure struct {
	name, title string
	nets        []figureNet
	nodes       []int
	ahead       []int    // nodes that the cost model predicts, once it has measured the most of nodes
	perNode     Layout   // one layout more, with several ranks a node; none: no nodes
	systems     []string // the paper's, and this runtime's
	value       value
	apart       bool    // once more with as many servers, on nodes of their own
	slices      []int   // elements of a slice; nil: the systems' own
	leastSizes  float64 // --size-scale at least: slices that are too small cost more than their bytes
	// ratio, unless 0, is communication alone over computation, in place of a bandwidth; then the port of the first
	// node is watched as well.
	ratio float64
}

// figureNet is a profile at some of the paper's bandwidths, in Gbit/s; none in a figure of a ratio.
type figureNet struct {
	profile string
	gbit    []float64
}

// value is what a figure shows of its rows.
type value struct {
	title   string
	of      func(r *FigureRow) (low, high float64)
	against axis
}

// axis is what a value is shown against.
type axis uint8

const (
	nodes     axis = iota // lines
	systems               // bars, a panel for each net
	bandwidth             // lines
	sliceSize             // lines
)

var (
	speedup    = value{"speed-up over one rank", func(r *FigureRow) (float64, float64) { return r.Speedup, r.Speedup }, nodes}
	stall      = value{"stall, % of the iteration", func(r *FigureRow) (float64, float64) { return 100 * r.Stall, 100 * r.Stall }, systems}
	traffic    = value{"Gbit of a node in an iteration, least and most", func(r *FigureRow) (float64, float64) { return r.GbitLeast, r.GbitMost }, systems}
	throughput = value{"images/s against Gbit/s", func(r *FigureRow) (float64, float64) { return r.Images, r.Images }, bandwidth}
	bySlice    = value{"images/s against parameters of a slice", func(r *FigureRow) (float64, float64) { return r.Images, r.Images }, sliceSize}
	quiet      = value{"% of the time in which the port sends under 5 % of its rate", func(r *FigureRow) (float64, float64) { return 100 * r.SendsQuiet, 100 * r.SendsQuiet }, systems}
	p3Systems  = []string{"kvstore", "kvstore+slices", "p3", "auto"}
	scale      = []int{1, 2, 4, 8, 16}
	ahead      = []int{32}
	several    = Layout{4, 2} // section 5.1, multi-GPU
)

// at40 is nets at the bandwidth of the paper's network.
func at40(profiles ...string) (nets []figureNet) {
	for _, p := range profiles {
		nets = append(nets, figureNet{p, []float64{40}})
	}
	return nets
}

var figures = []figure{
	{
		"poseidon-5", "Throughput scaling, Caffe's nets, 40 GbE", at40("googlenet-titanx", "vgg19-titanx", "vgg19_22k-titanx"), scale,
		ahead, several,
		[]string{"caffe+ps", "caffe+wfbp", "poseidon", "auto"},
		speedup, false, nil, 0, 0,
	},
	{
		"poseidon-6", "Throughput scaling, TensorFlow's nets, 40 GbE", at40("inception_v3-titanx", "vgg19-titanx", "vgg19_22k-titanx"), scale,
		ahead, several,
		[]string{"tensorflow", "caffe+wfbp", "poseidon", "auto"},
		speedup, false, nil, 0, 0,
	},
	{
		"poseidon-7", "Computation and stall, 40 GbE", at40("inception_v3-titanx", "vgg19-titanx", "vgg19_22k-titanx"),
		[]int{8},
		nil,
		several,
		[]string{"tensorflow", "caffe+wfbp", "poseidon", "auto"},
		stall, false, nil, 0, 0,
	},
	{
		"poseidon-8", "Throughput scaling at lower bandwidths",
		[]figureNet{
			{"googlenet-titanx", []float64{2, 5, 10}}, {"vgg19-titanx", []float64{10, 20, 30}}, {"vgg19_22k-titanx", []float64{10, 20, 30}},
		},
		scale,
		ahead,
		several,
		[]string{"caffe+wfbp", "poseidon", "auto"},
		speedup, false, nil, 0, 0,
	},
	{
		"poseidon-9", "Throughput scaling of ResNet-152, 40 GbE", at40("resnet152-titanx"), scale,
		ahead,
		Layout{},
		[]string{"poseidon", "auto"},
		speedup, false, nil, 0, 0,
	},
	{
		"poseidon-10", "Traffic of a node", at40("vgg19-titanx"),
		[]int{8},
		nil,
		Layout{},
		[]string{"caffe+wfbp", "poseidon", "adam", "auto"},
		traffic, false, nil, 0, 0,
	},
	{
		name: "p3-7", title: "Bandwidth against throughput", nets: []figureNet{
			{"resnet50-titanx", []float64{3, 5, 7, 8, 10, 14}},
			{"inception_v3-titanx", []float64{0.8, 1.2, 1.6, 2, 3, 4}},
			{"vgg19-titanx", []float64{3, 5, 7, 8, 10, 14}},
			{"sockeye-p4000", []float64{4, 7, 10, 13, 16, 22}},
		},
		nodes: []int{4}, systems: p3Systems, value: throughput, apart: true, leastSizes: 0.5,
	},
	{
		name: "p3-8", title: "Use of a port by the baselines", nets: []figureNet{{profile: "resnet50-titanx"}, {profile: "vgg19-titanx"}},
		nodes: []int{4}, systems: []string{"kvstore", "tensorflow"}, value: quiet, leastSizes: 0.5, ratio: 1,
	},
	{
		name: "p3-9", title: "Use of a port by P3, in turns with the baseline", nets: []figureNet{{profile: "resnet50-titanx"}, {profile: "vgg19-titanx"}},
		nodes: []int{4}, systems: []string{"kvstore", "p3"}, value: quiet, leastSizes: 0.5, ratio: 1,
	},
	{
		name: "p3-10", title: "Scalability, 10 Gbit/s", nets: []figureNet{{"resnet50-titanx", []float64{10}}, {"vgg19-titanx", []float64{10}}},
		nodes: []int{2, 4, 8, 16}, systems: p3Systems, value: speedup, leastSizes: 0.2,
	},
	{
		name: "p3-12", title: "Slice size against throughput", nets: []figureNet{{"resnet50-titanx", []float64{8}}, {"vgg19-titanx", []float64{8}}},
		nodes: []int{4}, systems: []string{"p3"}, value: bySlice, slices: []int{5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000}, leastSizes: 0.5,
	},
}

// Figures lists the names of the figures that can be measured, each with its title.
func Figures() (names, titles []string) {
	for _, f := range figures {
		names, titles = append(names, f.name), append(titles, f.title)
	}
	return names, titles
}

// FigureConfig says which part of a figure is measured; nil is all.
type FigureConfig struct {
	Name    string
	Nets    []string // profiles
	Gbit    []float64
	Nodes   []int
	Systems []string
	Quick   bool   // shorter and fewer iterations
	Out     string // the file of the rows
}

// figureCell is a replay of all systems in turns.
type figureCell struct {
	profile string
	gbit    float64 // the paper's bandwidth
	ratio   float64 // in its place, as in figure
	layout  Layout
	ahead   []int // nodes to predict too
	systems []string
	// sizes is --size-scale: the iteration's computation then takes about as long as is wanted at
	// the first rate.
	sizes float64
	apart bool // the second half of the nodes serves, the first works
	slice int  // elements, at the paper's scale; 0: the systems' own
}

// Rates of the lab's links in Mbit/s: a row that the lab's cores strain for is measured again at half the
// rate, in twice the time.
const (
	firstRate = 1000
	lastRate  = 125
	// lateAtMost is how late waits for computation may end on average, over the iteration.
	lateAtMost = 0.01
	// carryingAtMost is for how long the machine's cores may be busy with carrying messages, over the
	// iteration: they also compute sums, and do nothing while all ranks compute.
	carryingAtMost = 0.5
)

// computation is how long that of an iteration is to take at the first rate.
func (c *FigureConfig) computation() time.Duration {
	if c.Quick {
		return 600 * time.Millisecond
	}
	return time.Second
}

// cells returns the figure's cells in the order in which they are measured.
func (c *FigureConfig) cells() (f *figure, all []figureCell, err error) {
	i := slices.IndexFunc(figures, func(f figure) bool { return f.name == c.Name })
	if i < 0 {
		names, _ := Figures()
		return nil, nil, fmt.Errorf("unknown figure %q: want one of %s", c.Name, strings.Join(names, ", "))
	}
	f = &figures[i]
	compared := f.systems
	if c.Systems != nil {
		compared = c.Systems
	}
	for _, l := range f.layouts() {
		if c.Nodes != nil && !slices.Contains(c.Nodes, l.Nodes) {
			continue
		}
		for _, net := range f.nets {
			p, err := workload.Builtin(net.profile)
			if err != nil {
				return nil, nil, err
			}
			bandwidths := net.gbit
			if f.ratio > 0 {
				bandwidths = []float64{0}
			}
			for _, gbit := range bandwidths {
				if c.Nets != nil && !slices.Contains(c.Nets, net.profile) || c.Gbit != nil && !slices.Contains(c.Gbit, gbit) {
					continue
				}
				took := gbit * p.Compute().Seconds() * 1000 / firstRate // the computation at the first rate, of the whole net
				if f.ratio > 0 {
					took = wireSeconds(p, l.Nodes) / f.ratio
				}
				sizes := rounded(min(1, max(f.leastSizes, c.computation().Seconds()/took)))
				x := figureCell{profile: net.profile, gbit: gbit, ratio: f.ratio, layout: l, systems: compared, sizes: sizes}
				if l.Nodes == slices.Max(f.nodes) {
					x.ahead = f.ahead
				}
				for _, x.slice = range f.sizes() {
					all = append(all, x)
				}
				if f.apart {
					x.layout.Nodes, x.apart = 2*l.Nodes, true
					all = append(all, x)
				}
			}
		}
	}
	if len(all) == 0 {
		return nil, nil, fmt.Errorf("nothing of %s is asked for: it has %s", c.Name, f.parts())
	}
	return f, all, nil
}

// wireSeconds is how long links of the first rate carry what a node moves each way where all nodes work and serve.
func wireSeconds(p *workload.Profile, nodes int) float64 {
	return 8 * float64(p.Bytes()) * 2 * float64(nodes-1) / float64(nodes) / (firstRate * 1e6)
}

// layouts returns what the figure is measured on, the fewest ranks first.
func (f *figure) layouts() (all []Layout) {
	for _, n := range f.nodes {
		all = append(all, Layout{n, 1})
	}
	if f.perNode.Nodes > 0 {
		all = append(all, f.perNode)
	}
	slices.SortStableFunc(all, func(a, b Layout) int { return a.Ranks() - b.Ranks() })
	return all
}

// sizes are those of slices.
func (f *figure) sizes() []int {
	if f.slices == nil {
		return []int{0}
	}
	return f.slices
}

// rounded returns x with two digits.
func rounded(x float64) float64 {
	r, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 2, 64), 64)
	return r
}

// parts says what a figure has.
func (f *figure) parts() string {
	var nets []string
	for _, n := range f.nets {
		if f.ratio > 0 {
			nets = append(nets, fmt.Sprintf("%s at a ratio of %g", n.profile, f.ratio))
			continue
		}
		nets = append(nets, fmt.Sprintf("%s at %v Gbit/s", n.profile, n.gbit))
	}
	on := fmt.Sprintf("on %v nodes", f.nodes)
	if f.perNode.Nodes > 0 {
		on += " and on " + nodesOf(f.perNode.Nodes, f.perNode.PPN)
	}
	return strings.Join(nets, ", ") + ", " + on
}

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

// pieces are the flags that say who serves, and in what pieces.
func (x *figureCell) pieces() (args []string) {
	if x.slice > 0 {
		args = append(args, "--slice", fmt.Sprint(x.slice))
	}
	if x.apart {
		var ranks []string
		for r := range x.layout.Ranks() {
			ranks = append(ranks, fmt.Sprint(r))
		}
		half := len(ranks) / 2
		args = append(args, "--workers", strings.Join(ranks[:half], ","), "--servers", strings.Join(ranks[half:], ","))
	}
	return args
}

// slower is how much slower than in the paper links of a rate are, and so computation.
func (x *figureCell) slower(rate int) float64 { return 1000 * x.gbit / float64(rate) }

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

// strained reports whether the lab's cores, not its links, may be what is measured: waits ended late, or
// messages kept the cores busy.
func (r *FigureRow) strained() bool {
	return r.measured() && (r.Late > lateAtMost*r.Iteration || r.Carrying > carryingAtMost*r.Iteration)
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

// more says what else is peculiar to a cell.
func (x *figureCell) more() (text string) {
	if x.ratio > 0 {
		text = fmt.Sprintf(", ratio %g", x.ratio)
	} else {
		text = fmt.Sprintf(", %g Gbit/s", x.gbit)
	}
	if x.apart {
		text += ", servers apart"
	}
	if x.slice > 0 {
		text += fmt.Sprintf(", slices of %d", x.slice)
	}
	return text
}

// begin returns the rate at which a cell is measured first: the one that rows of the same net at the same
// bandwidth on the most nodes below its own suggest, since with as many times the messages carrying them takes
// the cores as many times as long.
func (x *figureCell) begin(rows []FigureRow) int {
	below, carrying, compute, rate := 0, 0.0, 0.0, firstRate
	for _, r := range rows {
		n := r.Nodes
		if !r.measured() || r.Profile != x.profile || r.Gbit != x.gbit || r.PerNode != x.layout.PPN || r.Apart != x.apart || n >= x.layout.Nodes || n < below {
			continue
		}
		if n > below {
			below, carrying = n, 0
		}
		carrying, compute, rate = max(carrying, r.Carrying*float64(x.layout.Nodes)/float64(n)), r.Compute, r.Rate
	}
	return bearable(carrying, compute, rate, rate)
}

// bearable returns a rate, at most the given one and halves of it, at which carrying messages does not keep the
// cores busy for too much even of the computation, if it took them this long at the rate measured.
func bearable(carrying, compute float64, measured, rate int) int {
	for rate > lastRate && carrying > carryingAtMost*compute*float64(measured)/float64(rate) {
		rate /= 2
	}
	return rate
}

// settle measures a cell at lower and lower rates until the lab's cores do not strain. Rates that are not
// bearable are passed over.
func (x *figureCell) settle(ctx context.Context, rate int, replay replayer, log io.Writer) ([]FigureRow, error) {
	for {
		rows, err := replay(ctx, *x, rate)
		if err != nil || rate <= lastRate || !slices.ContainsFunc(rows, func(r FigureRow) bool { return r.strained() }) {
			return rows, err
		}
		late, busy, carrying, compute := 0.0, 0.0, 0.0, 0.0
		for _, r := range rows {
			if r.measured() {
				late, busy, carrying = max(late, r.Late/r.Iteration), max(busy, r.Carrying/r.Iteration), max(carrying, r.Carrying)
				compute = r.Compute
			}
		}
		next := bearable(carrying, compute, rate, rate/2)
		fmt.Fprintf(log, "  waits ended up to %.1f %% of an iteration late, messages kept the cores busy for up to %.0f %%: again at %d Mbit/s\n", 100*late, 100*busy, next)
		rate = next
	}
}
