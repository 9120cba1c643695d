package campaign

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/scaffe/scaffe/replay/workload"
)

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
	sizes  float64
	apart  bool    // the second half of the nodes serves, the first works
	slice  int     // elements, at the paper's scale; 0: the systems' own
	jitter float64 // as in figureNet
}

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
			if c.Nets != nil && !slices.Contains(c.Nets, net.profile) {
				continue
			}
			p, err := workload.Builtin(net.profile)
			if err != nil {
				return nil, nil, err
			}
			for _, gbit := range f.bandwidths(net) {
				if c.Gbit != nil && !slices.Contains(c.Gbit, gbit) {
					continue
				}
				x := figureCell{profile: net.profile, gbit: gbit, ratio: f.ratio, layout: l, systems: compared, sizes: c.scale(f, p, gbit, l.Nodes), jitter: net.jitter}
				if l.Nodes == slices.Max(f.nodes) {
					x.ahead = f.ahead
				}
				all = append(all, f.variants(x)...)
			}
		}
	}
	if len(all) == 0 {
		return nil, nil, fmt.Errorf("nothing of %s is asked for: it has %s", c.Name, f.parts())
	}
	return f, all, nil
}

// scale returns by how much the sizes of a net are scaled, so that an iteration's computation takes about as long as is wanted
// at the first rate.
func (c *FigureConfig) scale(f *figure, p *workload.Profile, gbit float64, nodes int) float64 {
	took := gbit * p.Compute().Seconds() * 1000 / firstRate // of the whole net
	if f.ratio > 0 {
		took = wireSeconds(p, nodes) / f.ratio
	}
	return rounded(min(1, max(f.leastSizes, c.computation().Seconds()/took)))
}

// bandwidths are those at which a net is measured: one that is not given in a figure of a ratio.
func (f *figure) bandwidths(net figureNet) []float64 {
	if f.ratio > 0 {
		return []float64{0}
	}
	return net.gbit
}

// variants returns a cell with each size of slices, and once more with servers on nodes of their own.
func (f *figure) variants(x figureCell) (all []figureCell) {
	for _, slice := range f.sizes() {
		sliced := x
		sliced.slice = slice
		all = append(all, sliced)
	}
	if f.apart {
		x.layout.Nodes, x.apart = 2*x.layout.Nodes, true
		all = append(all, x)
	}
	return all
}

// wireSeconds is how long links of the first rate carry what a node moves each way where all nodes work and serve.
func wireSeconds(p *workload.Profile, nodes int) float64 {
	return 8 * float64(p.Bytes()) * 2 * float64(nodes-1) / float64(nodes) / (firstRate * 1e6)
}

// rounded returns x with two digits.
func rounded(x float64) float64 {
	r, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 2, 64), 64)
	return r
}

// pieces are the flags that say who serves, in what pieces, and how steady computation is.
func (x *figureCell) pieces() (args []string) {
	if x.slice > 0 {
		args = append(args, "--slice", fmt.Sprint(x.slice))
	}
	if x.jitter > 0 {
		args = append(args, "--jitter", fmt.Sprint(x.jitter))
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
