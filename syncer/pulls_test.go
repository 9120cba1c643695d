package syncer_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/kernels/factors"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/syncer"
	"github.com/scaffe/scaffe/syncer/adam"
	"github.com/scaffe/scaffe/syncer/ps"
	"github.com/scaffe/scaffe/syncer/sfb"
)

// TestPullsHaveOptionsOfTheirOwn, whatever brings parameters back: here one that is refused, by a broadcast, after
// all else that makes a push.
func TestPullsHaveOptionsOfTheirOwn(t *testing.T) {
	const n = 6
	pairs := []ps.Pair{{Range: ps.Range{Len: n}, Server: 1}}
	for name, c := range map[string]struct {
		pull   string // its request: what is made before it has lower numbers
		create func(ctx context.Context, team *syncer.Team, b syncer.Bucket) (syncer.Syncer, error)
	}{
		"reduce": {"bcast#p2: ", func(_ context.Context, team *syncer.Team, b syncer.Bucket) (syncer.Syncer, error) {
			return syncer.Reduce(team.Workers(), b, 0)
		}},
		"ps": {"bcast#p2: ", func(_ context.Context, team *syncer.Team, b syncer.Bucket) (syncer.Syncer, error) {
			return ps.New(team, b, pairs)
		}},
		"ps, asked for": {"bcast#p3: ", func(ctx context.Context, team *syncer.Team, b syncer.Bucket) (syncer.Syncer, error) {
			asking, err := ps.NewAsking(ctx, team, []int{1})
			if err != nil {
				return nil, err
			}
			defer asking.Close()
			return asking.New(b, pairs)
		}},
		"ps by links": {"bcast#p2: ", func(ctx context.Context, team *syncer.Team, b syncer.Bucket) (syncer.Syncer, error) {
			links, err := ps.NewLinks(ctx, team, []int{1}, 1, 0, nil)
			if err != nil {
				return nil, err
			}
			defer links.Close()
			return links.New(b, 0, pairs)
		}},
		"adam": {"bcast#p2: ", func(_ context.Context, team *syncer.Team, b syncer.Bucket) (syncer.Syncer, error) {
			m := sfb.Matrix{Shape: factors.Shape{Out: 2, In: n / 2}, Rows: []int{1, 1}, Passes: 1, Weights: schedule.Range{Len: n}}
			return adam.New(team, b, []adam.Matrix{{Matrix: m, Server: 1}})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			err := launch.Run(context.Background(), launch.Options{Local: 2}, func(ctx context.Context, comm *collectives.Comm) error {
				b := syncer.Bucket{Name: "ip1", Data: mem.Of(make([]float32, n)), Diff: mem.Of(make([]float32, n)), Pulls: []collectives.Option{collectives.Credit(-1)}}
				s, err := c.create(ctx, syncer.Everyone(comm), b)
				if err == nil {
					s.Close()
				}
				if err == nil || !strings.Contains(err.Error(), c.pull+"option Credit") {
					return fmt.Errorf("the pull's option comes to %w", err)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}
