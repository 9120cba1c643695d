package train

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/syncer/coordinator"
)

// Consistency says for whom the servers of the scheme PS wait in an iteration. The zero value is
// bulk-synchronous: for all workers.
type Consistency struct {
	// Drop, unless 0, leaves a worker out of an iteration whose passes end by more than that later
	// than those of the median worker: Poseidon's way with stragglers (section 4.1).
	Drop time.Duration
	// SSP has workers wait for those alone that are more than Staleness iterations behind: stale
	// synchronous parallel (Ho et al., NIPS 2013). Each worker's gradients are applied as they
	// arrive, so that bits differ between runs.
	SSP       bool
	Staleness int
}

// mostStale is the largest Staleness: who may be further behind is waited for by nobody.
const mostStale = 1000

// bsp is the text of the zero value.
const bsp = "bsp"

// ParseConsistency reads "bsp", or "drop:" and a time such as 50ms, or "ssp:" and a number of iterations.
func ParseConsistency(text string) (c Consistency, err error) {
	if text == bsp {
		return c, nil
	}
	if bound, found := strings.CutPrefix(text, "ssp:"); found {
		c.SSP = true
		if c.Staleness, err = strconv.Atoi(bound); err != nil || c.Staleness < 0 || c.Staleness > mostStale {
			return Consistency{}, fmt.Errorf("consistency %q: want ssp:S, workers at most S iterations apart, 0 to %d", text, mostStale)
		}
		return c, nil
	}
	after, found := strings.CutPrefix(text, "drop:")
	if !found {
		return c, fmt.Errorf("unknown consistency %q: want bsp, drop:TIME such as drop:50ms, or ssp:S such as ssp:2", text)
	}
	if c.Drop, err = time.ParseDuration(after); err != nil || c.Drop <= 0 {
		return Consistency{}, fmt.Errorf("consistency %q: want drop:TIME with a time above 0, such as drop:50ms", text)
	}
	return c, nil
}

// String is what ParseConsistency reads.
func (c Consistency) String() string {
	switch {
	case c.SSP:
		return fmt.Sprintf("ssp:%d", c.Staleness)
	case c.Drop == 0:
		return bsp
	}
	return fmt.Sprintf("drop:%v", c.Drop)
}

// digest is for the comparison of ranks.
func (c Consistency) digest() uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, c)
	return h.Sum64()
}

// drops reports whether workers may be left out of iterations: where there are several.
func (w *Worker) drops(c Config) bool { return c.Consistency.Drop > 0 && len(w.roles.workers) > 1 }

// runsAhead reports whether workers may be some iterations apart: where there are several.
func (w *Worker) runsAhead(c Config) bool { return c.Consistency.SSP && len(w.roles.workers) > 1 }

// apartFromLoop reports whether the passes of this rank are run apart from the solver's loop.
func (w *Worker) apartFromLoop(c Config) bool { return w.Works() && (w.drops(c) || w.runsAhead(c)) }

// checkConsistency refuses what the schemes cannot have.
func (w *Worker) checkConsistency(ctx context.Context, c Config) error {
	k := c.Consistency
	var err error
	if k != (Consistency{}) && w.schemes.any(func(s exchange.Scheme) bool { return s != exchange.PS }) {
		err = fmt.Errorf("--consistency %v is the servers' to keep: it needs --scheme ps for all layers", k)
	}
	switch {
	case err != nil:
	case k.SSP && k.Drop != 0:
		err = errors.New("consistency is either drop or ssp")
	case k.SSP && (k.Staleness < 0 || k.Staleness > mostStale):
		err = fmt.Errorf("workers cannot be at most %d iterations apart: want 0 to %d", k.Staleness, mostStale)
	case k.SSP && c.Pull == coordinator.PullRequest:
		err = errors.New("--consistency ssp answers each worker by itself, and nobody asks: remove --pull request, or use bsp or drop:TIME")
	case k.SSP && w.solver.Clips():
		err = errors.New("--consistency ssp never has the gradients of all workers, of which clip_gradients takes the norm: remove clip_gradients, or use bsp or drop:TIME")
	case k.Drop < 0:
		err = errors.New("a worker cannot be left out that is late by less than nothing")
	}
	return w.comm.Agree(ctx, err)
}
