package trace

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/mem"
)

// alignRounds is how often a message goes to and fro for one measurement. The
// quickest round counts; a few tens meet a quiet moment.
const alignRounds = 32

// alignment is what a recorder knows of clocks, and the communicators of the
// pairs (0, r) that it measures with; a pair's rank 0 is rank 0.
type alignment struct {
	of    *collectives.Comm
	pairs []*collectives.Comm // by r; nil where this rank is not part of it
	// measured, at rank 0, holds for every rank readings of both clocks.
	measured [][]reading
}

// reading says that a rank's clock is ahead of rank 0's, in ns, at a time of
// the rank's own clock.
type reading struct{ at, ahead, bound int64 }

// plain is how the messages go, whatever the run's options select.
var plain = collectives.With(spec.Spec{Levels: []spec.Level{{Algorithm: "binomial"}}})

// reading returns the time of r's clock as a number that clocks of other
// machines have too: the wall time when r was made, and what has passed since.
func (r *Recorder) reading(t time.Time) int64 {
	return r.epoch.UnixNano() + int64(t.Sub(r.epoch))
}

// Align measures every rank's clock against rank 0's. It is a collective over
// comm, for which every rank has a recorder or none has. To be called where
// recording begins; Gather measures once more, and takes the clocks to drift
// evenly in between.
//
// The way is NTP's: rank 0 notes the time, sends to rank r, which notes its
// own and sends it back, and rank 0 notes the time again. Whatever the two
// ways took, rank r's time lies between the two of rank 0: the middle is wrong
// by half the round's time at most.
func Align(ctx context.Context, comm *collectives.Comm, rec *Recorder) error {
	if rec == nil {
		return nil
	}
	if err := rec.connect(ctx, comm); err != nil {
		return fmt.Errorf("trace: aligning clocks: %w", err)
	}
	for r := 1; r < comm.Size(); r++ {
		if rec.pairs[r] == nil {
			continue
		}
		m, err := rec.measure(ctx, rec.pairs[r])
		if err != nil {
			return fmt.Errorf("trace: aligning the clock of rank %d: %w", r, err)
		}
		if comm.Rank() == 0 {
			rec.measured[r] = append(rec.measured[r], m)
		}
	}
	return nil
}

// connect makes the communicators of the pairs, once.
func (r *Recorder) connect(ctx context.Context, comm *collectives.Comm) error {
	if r.of == comm {
		return nil
	}
	pairs := make([]*collectives.Comm, comm.Size())
	for i := 1; i < comm.Size(); i++ {
		color := -1
		if comm.Rank() == 0 || comm.Rank() == i {
			color = 0
		}
		pair, err := comm.Split(ctx, color, comm.Rank())
		if err != nil {
			return err
		}
		pairs[i] = pair
	}
	r.alignment = alignment{of: comm, pairs: pairs, measured: make([][]reading, comm.Size())}
	return nil
}

// measure goes to and fro; at the pair's rank 0 it returns the best round.
func (r *Recorder) measure(ctx context.Context, pair *collectives.Comm) (reading, error) {
	buf := mem.Alloc(8) // where a collective fails, it may still use it
	best := reading{bound: math.MaxInt64}
	for range alignRounds {
		sent := r.reading(r.Now())
		if err := pair.Bcast(ctx, buf, mem.Uint8, 0, plain); err != nil {
			return best, err
		}
		if pair.Rank() == 1 {
			binary.LittleEndian.PutUint64(mem.Bytes(buf), uint64(r.reading(r.Now())))
		}
		if err := pair.Bcast(ctx, buf, mem.Uint8, 1, plain); err != nil {
			return best, err
		}
		back := r.reading(r.Now())
		theirs := int64(binary.LittleEndian.Uint64(mem.Bytes(buf)))
		// Rounded up, so that the bound holds to the last ns.
		if bound := (back - sent + 1) / 2; bound < best.bound {
			best = reading{at: theirs, ahead: theirs - (sent + (back-sent)/2), bound: bound}
		}
	}
	buf.Free()
	return best, nil
}

// toRank0 returns rank 0's reading at the time of a rank's own reading: the
// offset is interpolated between the measurements, and constant beyond.
func toRank0(own int64, m []reading) int64 {
	switch {
	case len(m) == 0:
		return own
	case own <= m[0].at:
		return own - m[0].ahead
	}
	for i := 1; i < len(m); i++ {
		if a, b := m[i-1], m[i]; own < b.at {
			part := float64(own-a.at) / float64(b.at-a.at)
			return own - a.ahead - int64(math.Round(part*float64(b.ahead-a.ahead)))
		}
	}
	return own - m[len(m)-1].ahead
}
