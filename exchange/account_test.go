package exchange_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/syncer/coordinator"
	"github.com/scaffe/scaffe/trace"
)

// kept is a sink that keeps what moved.
type kept struct {
	mu     sync.Mutex
	events []trace.Event
}

func (k *kept) Add(e trace.Event) {
	if e.Kind == trace.Push || e.Kind == trace.Pull {
		k.mu.Lock()
		k.events = append(k.events, e)
		k.mu.Unlock()
	}
}

// covered is how long some flight of a bucket was under way, from its first push on.
func (k *kept) covered(bucket int) (d time.Duration) {
	var end time.Time
	pushed := false
	for _, e := range k.events {
		if int(e.Bucket) != bucket {
			continue
		}
		if pushed = pushed || e.Kind == trace.Push; !pushed {
			continue
		}
		if e.Begin.Before(end) {
			e.Begin = end
		}
		d += e.End.Sub(e.Begin)
		end = e.End
	}
	return d
}

// The accounts of all buckets are what the engine has counted, whatever the scheme and
// the design, and as long as their flights.
func TestAccounts(t *testing.T) {
	const ranks, before, after = 3, 2, 3
	for _, scheme := range []exchange.Scheme{exchange.Reduce, exchange.Allreduce, exchange.PS} {
		for _, d := range append(exchange.All(), exchange.WFBP) {
			var books [ranks]*coordinator.Book
			for r := range books {
				books[r] = book(t, ranks, "1,2", 4<<10)
			}
			err := launch.Run(context.Background(), launch.Options{Local: ranks}, func(ctx context.Context, comm *collectives.Comm) error {
				ls, n := layers()
				m := model{make([]float32, n), make([]float32, n)}
				events := &kept{}
				x, err := exchange.New(ctx, comm, exchange.Config{
					Design: d, Scheme: scheme, Bucket: 4 * 800, Layers: ls, Book: books[comm.Rank()],
					Data: mem.Of(m.data), Diff: mem.Of(m.diff), OnSum: m.use, Events: events,
				})
				if err != nil {
					return err
				}
				defer x.Close()
				iterate := func(from, to int) error {
					for iter := from; iter < to; iter++ {
						err := x.Start(iter)
						for i := range ls {
							err = errors.Join(err, x.BeforeForward(i))
						}
						for i := len(ls) - 1; i >= 0; i-- {
							err = errors.Join(err, x.AfterBackward(i))
						}
						if err = errors.Join(err, x.Finish()); err != nil {
							return err
						}
					}
					return x.Current()
				}
				if err := iterate(0, before); err != nil {
					return err
				}
				had := comm.Payload()
				if err := iterate(before, before+after); err != nil {
					return err
				}
				has := comm.Payload()
				var round nbc.Payload
				accounts := x.Accounts()
				for _, a := range accounts {
					round = round.Add(a.Payload)
					if a.Scheme != scheme || a.Rounds != before+after || a.Flight <= 0 || a.Flight != events.covered(a.Index) {
						t.Errorf("%v, %v: bucket %q of scheme %v: %d rounds, %v in flight, %v by its events", scheme, d, a.Name, a.Scheme, a.Rounds, a.Flight, events.covered(a.Index))
					}
				}
				if counted := (nbc.Payload{Sent: has.Sent - had.Sent, Received: has.Received - had.Received}); counted != (nbc.Payload{Sent: after * round.Sent, Received: after * round.Received}) || counted.Sent == 0 {
					t.Errorf("%v, %v: rank %d counts %v in %d rounds, by the accounts %v each", scheme, d, comm.Rank(), counted, after, round)
				}
				if want := map[bool]int{true: 1, false: 2}[d == exchange.SCB]; len(accounts) != want {
					t.Errorf("%v: %d accounts", d, len(accounts))
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}
