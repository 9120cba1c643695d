package campaign

import (
	"fmt"
	"slices"
	"strings"
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
	jitter  float64 // --jitter: sentences are of different length
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
		nets = append(nets, figureNet{profile: p, gbit: []float64{40}})
	}
	return nets
}

// byRatio is the nets of figures that have a ratio.
var byRatio = []figureNet{{profile: "resnet50-titanx"}, {profile: "vgg19-titanx"}, {profile: "sockeye-p4000"}}

var figures = []figure{
	{
		name: "poseidon-5", title: "Throughput scaling, Caffe's nets, 40 GbE", nets: at40("googlenet-titanx", "vgg19-titanx", "vgg19_22k-titanx"),
		nodes: scale, ahead: ahead, perNode: several, systems: []string{"caffe+ps", "caffe+wfbp", "poseidon", "auto"}, value: speedup,
	},
	{
		name: "poseidon-6", title: "Throughput scaling, TensorFlow's nets, 40 GbE", nets: at40("inception_v3-titanx", "vgg19-titanx", "vgg19_22k-titanx"),
		nodes: scale, ahead: ahead, perNode: several, systems: []string{"tensorflow", "caffe+wfbp", "poseidon", "auto"}, value: speedup,
	},
	{
		name: "poseidon-7", title: "Computation and stall, 40 GbE", nets: at40("inception_v3-titanx", "vgg19-titanx", "vgg19_22k-titanx"),
		nodes: []int{8}, perNode: several, systems: []string{"tensorflow", "caffe+wfbp", "poseidon", "auto"}, value: stall,
	},
	{
		name: "poseidon-8", title: "Throughput scaling at lower bandwidths", nets: []figureNet{
			{profile: "googlenet-titanx", gbit: []float64{2, 5, 10}},
			{profile: "vgg19-titanx", gbit: []float64{10, 20, 30}},
			{profile: "vgg19_22k-titanx", gbit: []float64{10, 20, 30}},
		},
		nodes: scale, ahead: ahead, perNode: several, systems: []string{"caffe+wfbp", "poseidon", "auto"}, value: speedup,
	},
	{
		name: "poseidon-9", title: "Throughput scaling of ResNet-152, 40 GbE", nets: at40("resnet152-titanx"),
		nodes: scale, ahead: ahead, systems: []string{"poseidon", "auto"}, value: speedup,
	},
	{
		name: "poseidon-10", title: "Traffic of a node", nets: at40("vgg19-titanx"),
		nodes: []int{8}, systems: []string{"caffe+wfbp", "poseidon", "adam", "auto"}, value: traffic,
	},
	{
		name: "p3-7", title: "Bandwidth against throughput", nets: []figureNet{
			{profile: "resnet50-titanx", gbit: []float64{3, 5, 7, 8, 10, 14}},
			{profile: "inception_v3-titanx", gbit: []float64{0.8, 1.2, 1.6, 2, 3, 4}},
			{profile: "vgg19-titanx", gbit: []float64{3, 5, 7, 8, 10, 14}},
			{profile: "sockeye-p4000", gbit: []float64{4, 7, 10, 13, 16, 22}},
		},
		nodes: []int{4}, systems: p3Systems, value: throughput, apart: true, leastSizes: 0.5,
	},
	{
		name: "p3-8", title: "Use of a port by the baselines", nets: byRatio,
		nodes: []int{4}, systems: []string{"kvstore", "tensorflow"}, value: quiet, leastSizes: 0.5, ratio: 1,
	},
	{
		name: "p3-9", title: "Use of a port by P3, in turns with the baseline", nets: byRatio,
		nodes: []int{4}, systems: []string{"kvstore", "p3"}, value: quiet, leastSizes: 0.5, ratio: 1,
	},
	{
		name: "p3-10", title: "Scalability, 10 Gbit/s", nets: []figureNet{{profile: "resnet50-titanx", gbit: []float64{10}}, {profile: "vgg19-titanx", gbit: []float64{10}}, {profile: "sockeye-p4000", gbit: []float64{10}, jitter: 0.3}},
		nodes: []int{2, 4, 8, 16}, systems: p3Systems, value: speedup, leastSizes: 0.2,
	},
	{
		name: "p3-12", title: "Slice size against throughput", nets: []figureNet{{profile: "resnet50-titanx", gbit: []float64{8}}, {profile: "vgg19-titanx", gbit: []float64{8}}},
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
