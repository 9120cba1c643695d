package exchange

import (
	"time"

	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/syncer/dgc"
	"github.com/scaffe/scaffe/syncer/onebit"
	"github.com/scaffe/scaffe/trace"
)

// Account is what keeping a bucket in step has cost this rank.
type Account struct {
	Bucket // of Moved
	// Parts is into how many it is cut, each of which moves by itself: KV pairs, or slices.
	Parts int
	// Rounds is how often its gradients, and then its parameters, have moved.
	Rounds int
	// Flight is how long either of both were in flight in these rounds, the wait for ranks
	// that had not come so far included, as package trace has it in Push and Pull.
	Flight time.Duration
	// Payload is what this rank's messages hold in one round, by the engine's count.
	Payload nbc.Payload
}

// account is the part of an Account that grows.
type account struct {
	rounds int
	flight time.Duration
	told   time.Time // until when the flights so far lasted
}

// add adds a flight. Those of a bucket come in the order of their ends. The first
// parameters, which follow no gradients, do not count.
func (a *account) add(kind trace.Kind, begin, end time.Time) {
	if kind == trace.Push {
		a.rounds++
	}
	if a.rounds == 0 {
		return
	}
	if begin.Before(a.told) { // pulls of first parts run beside pushes of later ones
		begin = a.told
	}
	a.flight += max(0, end.Sub(begin))
	a.told = end
}

// Moved returns what moves as one, in forward order: the buckets, or in a packed design
// all neighbors of one scheme together.
func (x *Exchange) Moved() []Bucket {
	var all []Bucket
	for _, b := range x.moved {
		all = append(all, b.Bucket)
	}
	return all
}

// Accounts returns what each of Moved has cost this rank so far. Nothing must be under way
// (Current).
func (x *Exchange) Accounts() []Account {
	var all []Account
	for _, b := range x.moved {
		all = append(all, Account{b.Bucket, len(b.sync.Parts()), b.account.rounds, b.account.flight, b.sync.Payload()})
	}
	return all
}

// Residuals are what the scheme OneBit has left out so far on this rank, ascending, with places
// in the packed buffers: the memory itself, which may be read and written where nothing is
// under way (Updated, Current). A run that goes on with them loses nothing.
func (x *Exchange) Residuals() []onebit.Residual {
	var all []onebit.Residual
	for _, b := range x.moved {
		if s, ok := b.sync.(*onebit.Syncer); ok {
			for _, r := range s.Residuals() {
				r.Off += b.Off
				all = append(all, r)
			}
		}
	}
	return all
}

// Held is what the scheme DGC has not sent yet on this rank of one parameter.
type Held struct {
	Range // in the packed buffers
	dgc.Held
}

// Held are those of the parameters, ascending, under the rule of Residuals.
func (x *Exchange) Held() []Held {
	var all []Held
	for _, b := range x.moved {
		s, ok := b.sync.(*dgc.Syncer)
		if !ok {
			continue
		}
		for _, l := range b.Layers {
			for _, p := range x.c.Layers[l].learning() {
				from, to := p.Off-b.Off, p.End()-b.Off
				all = append(all, Held{p, dgc.Held{Velocity: s.Held().Velocity[from:to], Accumulated: s.Held().Accumulated[from:to]}})
			}
		}
	}
	return all
}
