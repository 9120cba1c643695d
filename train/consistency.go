package train

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/scaffe/scaffe/exchange"
)

// Consistency says for whom the servers of the scheme PS wait in an iteration. The zero value is
// bulk-synchronous: for all workers.
type Consistency struct {
	// Drop, unless 0, leaves a worker out of an iteration whose passes end by more than that later
	// than those of the median worker: Poseidon's way with stragglers (section 4.1).
	Drop time.Duration
}

// bsp is the text of the zero value.
const bsp = "bsp"

// ParseConsistency reads "bsp", or "drop:" and a time such as 50ms.
func ParseConsistency(text string) (c Consistency, err error) {
	if text == bsp {
		return c, nil
	}
	after, found := strings.CutPrefix(text, "drop:")
	if !found {
		return c, fmt.Errorf("unknown consistency %q: want bsp, or drop:TIME such as drop:50ms", text)
	}
	if c.Drop, err = time.ParseDuration(after); err != nil || c.Drop <= 0 {
		return c, fmt.Errorf("consistency %q: want drop:TIME with a time above 0, such as drop:50ms", text)
	}
	return c, nil
}

// String is what ParseConsistency reads.
func (c Consistency) String() string {
	if c.Drop == 0 {
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

// checkConsistency refuses what the schemes cannot have.
func (w *Worker) checkConsistency(ctx context.Context, c Config) error {
	var err error
	if c.Consistency != (Consistency{}) && w.schemes.any(func(s exchange.Scheme) bool { return s != exchange.PS }) {
		err = fmt.Errorf("--consistency %v is the servers' to keep: it needs --scheme ps for all layers", c.Consistency)
	}
	if c.Consistency.Drop < 0 {
		err = errors.New("a worker cannot be left out that is late by less than nothing")
	}
	return w.comm.Agree(ctx, err)
}
