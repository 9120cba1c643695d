package replay

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/replay/workload"
	"github.com/scaffe/scaffe/syncer/coordinator"
	"github.com/scaffe/scaffe/trace"
)

// Config says what to replay. All of it but Trace must be alike on all ranks.
type Config struct {
	Profile *workload.Profile
	// Designs take turns.
	Designs []exchange.Design
	// Systems, in place of Designs, take turns: each is a design with schemes of its own, and Scheme
	// and Asked are of no matter.
	Systems []System
	// Scheme is that of all layers; the zero value, Auto, chooses for each.
	Scheme exchange.Scheme
	// Asked, unless nil, asks for schemes layer by layer, in place of Scheme.
	Asked *coordinator.Asked
	// Workers are the ranks that compute, the zero value all; each has the profile's batch.
	// Servers and Pair are those of the scheme PS: the zero values are all ranks, and
	// coordinator.DefaultPair; a Slice but coordinator.AutoSlice takes the place of Pair, and cuts what
	// moves by other schemes too. Every rank works or serves.
	Workers, Servers coordinator.Places
	Pair             int
	Slice            coordinator.Slice
	Placement        coordinator.Placement // of KV pairs
	Pull             coordinator.Pull      // how they come back
	// MaySlice is what Auto may cut to where Slice is coordinator.AutoSlice, if the predicted iteration gains by it; 0: nothing.
	MaySlice coordinator.Slice
	// Credit is asked for as coordinator.Credit has it. Of a system with priorities of its own 0 is coordinator.DefaultCredit's.
	Credit int
	// Sparse is what the scheme DGC sends of gradients; nil is coordinator.DefaultSparse. Its Warmup must be 0.
	Sparse *coordinator.Sparse
	// SystemSlice is the Slice of systems that have slices of their own, where that is coordinator.AutoSlice;
	// 0: coordinator.DefaultSlice.
	SystemSlice coordinator.Slice
	// Spec, unless it has no levels, is how the collectives are done.
	Spec spec.Spec
	// Bucket is as in exchange.Config.
	Bucket int
	// Iterations are measured of each design, after Warmup that do not count.
	Iterations, Warmup int
	// Turn is how many measured iterations a turn has; 0 means DefaultTurn.
	Turn int
	// Ratio, unless 0, scales the profile's times so that the communication
	// alone takes Ratio times the computation: that of SC-B, or for all Systems that of the
	// scheme PS, with even pairs of Pair, under WFBP.
	Ratio float64
	// Budget, unless 0, bounds Iterations so that the measured part takes about
	// so many seconds, yet six iterations where Iterations allows.
	Budget float64
	// Jitter makes each rank's computation of each iteration longer or shorter, by
	// up to this part of it, evenly distributed.
	Jitter float64
	// Straggler is a rank that computes slower than the others.
	Straggler Straggler
	// Predict, with Systems, is numbers of nodes, each with as many ranks as the nodes that run, for which an
	// iteration is predicted.
	Predict []int
	// Check gives every rank different gradients, and verifies all sums and all
	// parameters. Its work distorts the times.
	Check bool
	// Trace, which may be nil, takes the events of measured turns.
	Trace *trace.Recorder
}

// DefaultTurn is how many iterations a turn has by default.
const DefaultTurn = 4

// Straggler is a rank whose computation takes Factor times as long; a Factor of
// 0 is none.
type Straggler struct {
	Rank   int
	Factor float64
}

// ParseStraggler reads RANK:FACTOR, such as 2:10.
func ParseStraggler(s string) (Straggler, error) {
	rank, factor, ok := strings.Cut(s, ":")
	r, err := strconv.Atoi(rank)
	f, err2 := strconv.ParseFloat(factor, 64)
	if !ok || err != nil || err2 != nil || r < 0 || !(f > 0) || f > 1e6 {
		return Straggler{}, fmt.Errorf("invalid straggler %q: want RANK:FACTOR, such as 2:10", s)
	}
	return Straggler{r, f}, nil
}

// validate says what is wrong with a configuration for so many ranks.
func (c *Config) validate(ranks int) error {
	switch {
	case c.Profile == nil:
		return errors.New("replay: missing profile")
	case c.Profile.Elements() == 0:
		return fmt.Errorf("replay: profile %s has no parameters to communicate", c.Profile.Name)
	case len(c.Designs)+len(c.Systems) == 0:
		return errors.New("replay: missing design")
	case len(c.Designs) > 0 && len(c.Systems) > 0:
		return errors.New("replay: either designs or systems take turns, not both")
	case c.Iterations < 1 || c.Warmup < 0 || c.Turn < 0:
		return fmt.Errorf("replay: want at least 1 iteration, 0 warm-up iterations and turns of 0 (got %d, %d and %d)", c.Iterations, c.Warmup, c.Turn)
	case !(c.Ratio >= 0) || c.Ratio > 1e6 || !(c.Budget >= 0):
		return fmt.Errorf("replay: ratio and budget must be at least 0 (got %v and %v)", c.Ratio, c.Budget)
	case c.Ratio > 0 && (ranks == 1 || c.Profile.Compute() == 0):
		return fmt.Errorf("replay: a ratio of communication to computation needs at least 2 ranks and a profile with computation (got %d and %v)", ranks, c.Profile.Compute())
	case !(c.Jitter >= 0) || c.Jitter > 1:
		return fmt.Errorf("replay: jitter must be between 0 and 1 (got %v)", c.Jitter)
	case c.Straggler.Factor != 0 && (c.Straggler.Rank < 0 || c.Straggler.Rank >= ranks):
		return fmt.Errorf("replay: the straggler's rank must be less than the number of ranks (got %d of %d)", c.Straggler.Rank, ranks)
	case len(c.Predict) > 0 && (len(c.Systems) == 0 || len(c.Workers.Ranks)+c.Workers.Count+len(c.Servers.Ranks)+c.Servers.Count > 0):
		return errors.New("replay: other numbers of nodes can be predicted for systems only, of which all ranks work and serve")
	case c.Bucket < 0:
		return fmt.Errorf("replay: bucket size must be at least 0 (got %d)", c.Bucket)
	}
	if err := c.Profile.Validate(); err != nil {
		return fmt.Errorf("replay: profile %s: %w", c.Profile.Name, err)
	}
	seen := map[string]bool{}
	for _, name := range c.turns() {
		if seen[name] {
			return fmt.Errorf("replay: duplicate %s", name)
		}
		seen[name] = true
	}
	return nil
}

// turns names what takes turns.
func (c *Config) turns() (names []string) {
	for _, d := range c.Designs {
		names = append(names, "design "+d.String())
	}
	for _, s := range c.Systems {
		names = append(names, "system "+s.Name)
	}
	return names
}

// alignment is that of parameters in the packed buffers of a net.Net, in
// elements.
const alignment = 16

// layout places a profile's parameters as net.Net places those of a net, and
// returns how many elements that takes.
func layout(p *workload.Profile) (layers []exchange.Layer, count int) {
	for _, l := range p.Layers {
		y := exchange.Layer{Name: l.Name}
		for _, n := range l.Params {
			y.Params = append(y.Params, exchange.Range{Off: count, Len: n})
			count += (n + alignment - 1) / alignment * alignment
		}
		layers = append(layers, y)
	}
	return layers, count
}

// buffers are the packed parameters and gradients.
type buffers struct{ data, diff mem.Buffer }

func allocate(comm *collectives.Comm, count int) (b buffers, err error) {
	if b.data, err = comm.Alloc(mem.Float32.Bytes(count)); err != nil {
		return b, fmt.Errorf("replay: parameters: %w", err)
	}
	if b.diff, err = comm.Alloc(mem.Float32.Bytes(count)); err != nil {
		comm.Free(b.data)
		return b, fmt.Errorf("replay: gradients: %w", err)
	}
	// Memory that was never written is one page of zeros to the kernel.
	for _, buf := range []mem.Buffer{b.data, b.diff} {
		x := mem.Float32s(buf)
		for i := range x {
			x[i] = 1
		}
	}
	return b, nil
}
