package collectives

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/internal/host"
	"github.com/scaffe/scaffe/mem"
)

// add adds what there is to say.
func add(warnings []string, warning string) []string {
	if warning == "" {
		return warnings
	}
	return append(warnings, warning)
}

// measure is a collective that finds the parameters of the cost model which nothing
// has named: of the machines, as they are kept or measured now, and of the network. The
// settings count on rank 0, a warning on the rank whom it concerns.
func (c *Comm) measure(ctx context.Context, sel *selection.Selector, s selection.Settings) (_ selection.Settings, warnings []string, err error) {
	// The first rank's environment decides for all.
	how := []byte(os.Getenv(selection.EnvMeasure))
	if how, err = c.BcastBytes(ctx, how, 0); err != nil {
		return s, nil, err
	}
	stands, hosted, err := c.stands(ctx)
	if err != nil {
		return s, nil, err
	}
	model := sel.Model
	model.Hosted = float64(hosted)
	switch string(how) {
	case selection.MeasureOff:
	case "", selection.MeasureOnce, selection.MeasureAgain:
		kept, costs, warning, err := c.machine(ctx, stands, string(how))
		if err != nil {
			return s, warnings, err
		}
		warnings = add(warnings, warning)
		model, s.From = kept.On(model, costs), kept.From()
		if c.gpu == nil {
			break
		}
		var from string
		if model, from, warning, err = c.measureGPUs(ctx, model, stands, string(how)); err != nil {
			return s, warnings, err
		}
		warnings = add(warnings, warning)
		s.From += ", " + from
	default:
		return s, nil, fmt.Errorf("invalid %s=%q: want %s, %s or %s", selection.EnvMeasure, how, selection.MeasureOnce, selection.MeasureAgain, selection.MeasureOff)
	}
	if c.layout.Nodes > 1 {
		if model, err = c.measureNetwork(ctx, model); err != nil {
			return s, warnings, err
		}
		s.From += ", network measured at start"
	}
	s.Model = model.String()
	return s, warnings, nil
}

// machine is a collective that returns what is kept of this rank's machine, where it is the first of its node, and what is known of all
// machines, of each cost the highest: measured now, too, unless the first rank of every node that stands for its
// machine has kept enough of that. How is the value of EnvMeasure. What cannot be kept, or read, is a warning on that rank.
func (c *Comm) machine(ctx context.Context, stands bool, how string) (kept selection.Kept, costs selection.Costs, warning string, err error) {
	node, err := c.Split(ctx, c.nodes[c.rank], c.rank)
	if err != nil {
		return kept, costs, "", err
	}
	defer node.Close()
	kept = selection.Kept{Node: c.opts.Node, PPN: node.Size(), CPUs: runtime.NumCPU()}
	return c.keptOrMeasured(ctx, kept, stands && node.Rank() == 0, how, func() (selection.Costs, error) {
		if !stands {
			return selection.Costs{}, nil
		}
		return node.parameters(ctx, host.Cores(), c.cacheSize())
	})
}

// keptOrMeasured is a collective that loads what is kept, on the ranks that are first, and measures where one of them has not enough; all
// ranks measure then, and an error is that of all. It returns what the first have now, and of each cost the highest.
func (c *Comm) keptOrMeasured(ctx context.Context, kept selection.Kept, first bool, how string, measure func() (selection.Costs, error)) (_ selection.Kept, costs selection.Costs, warning string, err error) {
	what := cmp.Or(kept.GPU, "this machine")
	dir, keptErr := selection.KeptFolder()
	keeps := first && kept.Node.Host != ""
	missing := []int32{0}
	if first {
		enough := selection.EnoughMeasured
		if how != "" || !keeps || keptErr != nil {
			enough = 1
		}
		if keeps && how != selection.MeasureAgain && keptErr == nil {
			_, keptErr = kept.Load(dir)
		}
		if len(kept.Measured) < enough {
			missing[0] = 1
		}
	}
	if err := c.Allreduce(ctx, mem.Of(missing), mem.Of(missing), mem.Int32, mem.Max, control); err != nil {
		return kept, costs, "", err
	}
	if missing[0] != 0 {
		now := selection.Measured{Date: time.Now().Format(time.DateOnly)}
		if now.Costs, err = measure(); err != nil {
			return kept, costs, "", fmt.Errorf("measuring %s: %w", what, err)
		}
		if kept.Measured = append(kept.Measured, now); len(kept.Measured) > selection.EnoughMeasured { // another node has fewer
			kept.Measured = kept.Measured[1:]
		}
		if keeps && dir != "" {
			keptErr = errors.Join(keptErr, kept.Save(dir))
		}
	}
	if keeps && keptErr != nil {
		warning = fmt.Sprintf("what was measured of %s is not kept, so every start measures it again: %v", what, keptErr)
	}
	if first {
		costs = kept.Costs()
	}
	values := costs.Values()
	if err := c.Allreduce(ctx, mem.Of(values), mem.Of(values), mem.Float64, mem.Max, control); err != nil {
		return kept, costs, warning, err
	}
	return kept, selection.CostsOf(values), warning, nil
}

// stands is a collective that reports whether this rank's node is measured for its
// machine, and how many nodes a machine has, the most where machines differ. Nodes on which
// one kernel runs are containers of one machine; two of them that were measured at once
// would measure each other.
func (c *Comm) stands(ctx context.Context) (bool, int, error) {
	nodes := slices.Compact(slices.Sorted(slices.Values(c.nodes)))
	kernels := make([]int64, len(nodes))
	at, _ := slices.BinarySearch(nodes, c.nodes[c.rank])
	kernels[at] = host.Kernel()
	if err := c.Allreduce(ctx, mem.Of(kernels), mem.Of(kernels), mem.Int64, mem.Max, control); err != nil {
		return false, 0, err
	}
	ranks := func(node int) (n int) {
		for _, other := range c.nodes {
			if other == nodes[node] {
				n++
			}
		}
		return n
	}
	stands, most := true, 1
	together := map[int64]int{}
	for node, kernel := range kernels {
		if kernel == 0 { // nobody knows
			continue
		}
		together[kernel]++
		most = max(most, together[kernel])
		if kernel == kernels[at] && (ranks(node) > ranks(at) || ranks(node) == ranks(at) && node < at) {
			stands = false
		}
	}
	return stands, most, nil
}

// cacheSize is the size in bytes of a core's own cache, or a usual one.
func (c *Comm) cacheSize() float64 {
	if n := c.opts.Node.Cache; n > 0 {
		return float64(n)
	}
	return selection.Default().Model.Cache
}
