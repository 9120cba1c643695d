package replay

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/internal/stats"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/syncer/coordinator"
)

// System is a way to train that is compared with others: when what moves, and by which schemes.
type System struct {
	Name   string
	Design exchange.Design
	Scheme exchange.Scheme // of the net, asked for; Auto and Poseidon choose
	// ByLayer: no layers share a bucket, unless Config.Bucket says how large one is; Poseidon has
	// a syncer for each layer (section 4.1).
	ByLayer bool
	// Placement, unless nil, takes the place of Config's.
	Placement *coordinator.Placement
	// Pull, unless nil, takes the place of Config's.
	Pull *coordinator.Pull
	// Plain: neither Config.Slice nor Config.Credit holds.
	Plain bool
	// Sliced: there are slices, whether Config has them or not.
	Sliced bool
	// FirstCome: what is handed over first goes first, and Config.Credit does not hold.
	FirstCome bool
	// Urgent: there is credit, unless Config says that there is none.
	Urgent bool
}

var (
	even       = coordinator.PlaceEven
	tensor     = coordinator.PlaceTensor
	drawn      = coordinator.PlaceKVStore
	roundRobin = coordinator.PlaceRoundRobin
	broadcast  = coordinator.PullBroadcast
	request    = coordinator.PullRequest
)

// moves says in what pieces a system's parameters move between so many nodes, of which some work, how, and in what order.
func (s *System) moves(c *Config, nodes, working int) (place coordinator.Placement, pull coordinator.Pull, slice coordinator.Slice, credit int, firstCome bool) {
	place, pull, slice = c.Placement, c.Pull, c.Slice
	if s.Placement != nil {
		place = *s.Placement
	}
	if s.Pull != nil {
		pull = *s.Pull
	}
	if s.Plain {
		slice = coordinator.AutoSlice
	}
	if s.Sliced && slice == coordinator.AutoSlice {
		slice = cmp.Or(c.SystemSlice, coordinator.DefaultSlice)
	}
	switch {
	case s.FirstCome || s.Plain:
		credit = 0
	case s.Urgent && c.Credit == 0:
		credit = coordinator.DefaultCredit(nodes, working)
	default:
		credit = coordinator.Credit(c.Credit, slice, nodes, working)
	}
	return place, pull, slice, credit, s.FirstCome
}

// systems are those that the Poseidon paper compares, section 5, those of the P3 paper, sections 4.1 and 5, and those of this
// runtime.
var systems = []System{
	{Name: "caffe+ps", Design: exchange.SCB, Scheme: coordinator.PS, ByLayer: true},
	{Name: "caffe+wfbp", Design: exchange.WFBP, Scheme: coordinator.PS, ByLayer: true},
	{Name: "poseidon", Design: exchange.WFBP, Scheme: coordinator.Poseidon, ByLayer: true},
	{Name: "tensorflow", Design: exchange.TF, Scheme: coordinator.PS, ByLayer: true, Placement: &tensor},
	{Name: "adam", Design: exchange.WFBP, Scheme: coordinator.Adam, ByLayer: true},
	{Name: "cntk", Design: exchange.WFBP, Scheme: coordinator.OneBit, ByLayer: true},
	{Name: "kvstore", Design: exchange.SCOBR, Scheme: coordinator.PS, ByLayer: true, Placement: &drawn, Pull: &request, Plain: true, FirstCome: true},
	{Name: "kvstore+slices", Design: exchange.SCOBR, Scheme: coordinator.PS, ByLayer: true, Placement: &roundRobin, Pull: &broadcast, Sliced: true, FirstCome: true},
	{Name: "p3", Design: exchange.SCOBR, Scheme: coordinator.PS, ByLayer: true, Placement: &roundRobin, Pull: &broadcast, Sliced: true, Urgent: true},
	{Name: "dgc", Design: exchange.SCOBR, Scheme: coordinator.DGC, ByLayer: true},
	{Name: "auto", Design: exchange.SCOBR, Scheme: coordinator.Auto},
	{Name: "reduce", Design: exchange.SCOBR, Scheme: coordinator.Reduce},
	{Name: "allreduce", Design: exchange.SCOBR, Scheme: coordinator.Allreduce},
}

// Systems lists the names that ParseSystems reads.
func Systems() (names []string) {
	for _, s := range systems {
		names = append(names, s.Name)
	}
	return names
}

// ParseSystems reads names of systems, separated by commas, or all.
func ParseSystems(list string) (all []System, err error) {
	if list == "all" {
		return systems, nil
	}
next:
	for name := range strings.SplitSeq(list, ",") {
		for _, s := range systems {
			if strings.EqualFold(strings.TrimSpace(name), s.Name) {
				all = append(all, s)
				continue next
			}
		}
		return nil, fmt.Errorf("unknown system %q: want %s", strings.TrimSpace(name), strings.Join(Systems(), ", "))
	}
	return all, nil
}

// plan is by which schemes the layers go, and what follows from that.
type plan struct {
	slice     coordinator.Slice // that holds
	wanted    coordinator.Slice // asked for, and what may be taken instead
	may       coordinator.Slice
	credit    int
	place     coordinator.Placement
	back      coordinator.Pull
	firstCome bool
	asked     coordinator.Asked
	bucket    int // as in exchange.Config
	buckets   map[exchange.Scheme]int
	schemes   []exchange.Scheme
	layers    []exchange.Layer // with factors, where those travel
	backward  []time.Duration  // of the profile, less what layers leave out whose factors travel
	factored  []*factored
	products  time.Duration      // what rebuilding gradients computes more on this rank, in the profile's time
	audit     *coordinator.Audit // nil where one scheme was asked for that serves all layers
}

// chosen is the schemes as --scheme takes them.
func (p *plan) chosen() string {
	if p.audit == nil {
		return p.schemes[0].String()
	}
	return p.audit.Chosen().String()
}

// way is what takes turns with others.
type way struct {
	name   string
	design exchange.Design
	*plan
	slowest
	turns   []float64 // the median of each turn's iterations, in ms
	late    lateness
	payload nbc.Payload // of this rank in an iteration
	span    Span        // of the last turn, on this rank
	spans   []Span      // of all turns but those that warm up
	order   nbc.Order   // of this rank in all turns but those that warm up
}

// prepare makes what communication alone is measured of, and designs that take turns: they have one plan. What systems
// have is chosen when the computation's times are known.
func (r *rank) prepare(ctx context.Context) (err error) {
	if len(r.c.Systems) > 0 {
		r.alone.name, r.alone.design = "ps alone", exchange.WFBP
		r.alone.plan, err = r.choose(ctx, System{ByLayer: true, Plain: true, Placement: &even, Pull: &broadcast}, coordinator.Asked{Default: exchange.PS})
		return err
	}
	var s System // the default design, where several have one choice
	if len(r.c.Designs) == 1 {
		s.Design = r.c.Designs[0]
	}
	p, err := r.choose(ctx, s, r.c.Asked.Or(r.c.Scheme).For(r.comm.Size()))
	for _, d := range r.c.Designs {
		r.ways = append(r.ways, &way{name: d.String(), design: d, plan: p})
	}
	r.alone = way{name: "SC-B alone", design: exchange.SCB, plan: p}
	return err
}

// prepareSystems makes the systems that take turns, each with a plan of its own.
func (r *rank) prepareSystems(ctx context.Context) error {
	for _, s := range r.c.Systems {
		p, err := r.choose(ctx, s, coordinator.Asked{Default: s.Scheme})
		if err != nil {
			return fmt.Errorf("system %s: %w", s.Name, err)
		}
		r.ways = append(r.ways, &way{name: s.Name, design: s.Design, plan: p})
	}
	return r.describeFirst(ctx)
}

// over is how many times as long as those of o the iterations of w take: the median over the turns, of
// which there are as many of either.
func (w *way) over(o *way) stats.Interval {
	ratios := make([]float64, len(w.turns))
	for i := range ratios {
		ratios[i] = w.turns[i] / o.turns[i]
	}
	return stats.Median(ratios)
}

// row is what a way came to on all ranks.
func (w *way) row(c *Config) Row {
	row := Row{
		Design: w.design.String(), Iterations: len(w.total), Iteration: stats.Median(w.total),
		WaitPush: stats.Median(w.push).Median, WaitPull: stats.Median(w.pull).Median, Turns: w.spans,
	}
	if len(c.Systems) > 0 {
		row.System, row.Schemes = w.name, w.chosen()
	}
	return row
}
