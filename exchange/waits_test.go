package exchange_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/scaffe/scaffe/collectives"
	ct "github.com/scaffe/scaffe/collectives/collectivestest"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/faulty"
	"github.com/scaffe/scaffe/nbc/inproc"
	"github.com/scaffe/scaffe/syncer/coordinator"
)

// TestP3_ErrorsNameTheSlice: where a server or a worker stops amid a layer, every other rank ends within its
// deadline, and an error says which slice of which layer is waited for, from whom, and that this is its server.
func TestP3_ErrorsNameTheSlice(t *testing.T) {
	defer goleak.VerifyNone(t)
	const server = 1
	for victim, want := range map[int]string{
		server: `rank [02] waits for (slice \d+ of l[0234] from rank 1, its server \(chunk 0 of bcast#p?\d+\)|rank 1, its server, to take slice \d+ of l[0234] \(chunk 0 of reduce#p?\d+\))`,
		2:      `rank 1 waits for (slice \d+ of l[0234] from rank 2 \(chunk \d+ of reduce#p?\d+\)|rank 2 to take slice \d+ of l[0234] \(chunk 0 of bcast#p?\d+\))`,
	} {
		for _, op := range []int{40, 75, 110} {
			t.Run(fmt.Sprintf("rank %d stops at %d", victim, op), func(t *testing.T) {
				t.Parallel()
				nodes := []int{0, 1, 2}
				w := inproc.NewWorld(len(nodes), inproc.Options{Nodes: nodes})
				open := func(rank int) func() (nbc.Transport, error) {
					return func() (nbc.Transport, error) {
						t, err := w.Open(rank)()
						var plan faulty.Plan
						if rank == victim {
							plan.Die = op
						}
						return faulty.Wrap(t, plan), err
					}
				}
				deadlines := nbc.Options{Deadline: 2 * time.Second, MaxDeadline: 4 * time.Second}
				errs := ct.World(len(nodes), open, deadlines, func(comm *collectives.Comm, e *nbc.Engine) error {
					c := exchange.Config{Layers: sliced(), Scheme: exchange.PS, Bucket: 1, Slice: 1024, Credit: 2}
					b := coordinator.Config{
						Nodes: nodes, Batch: make([]int, len(nodes)), Slice: c.Slice,
						Workers: coordinator.Places{All: true}, Servers: coordinator.Places{Ranks: []int{server}},
					}
					for _, l := range c.Layers {
						if len(l.Params) > 0 {
							b.Layers = append(b.Layers, coordinator.Layer{Name: l.Name, Params: l.Params})
						}
					}
					var err error
					if c.Book, err = coordinator.New(b); err != nil {
						return err
					}
					_, _, err = train(context.Background(), comm, c, 4)
					return err
				})
				for rank, err := range errs {
					if err == nil {
						t.Errorf("rank %d ends well", rank)
					}
				}
				errs[victim] = nil
				if err := errors.Join(errs...); !regexp.MustCompile(want).MatchString(fmt.Sprint(err)) {
					t.Errorf("%v\ndoes not say %s", err, want)
				}
			})
		}
	}
}
