package ps_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/syncer"
	"github.com/scaffe/scaffe/syncer/ps"
)

// counter is a store whose parameters count the pushes, each of which must be of ones.
type counter struct{ values []float32 }

func (c counter) Apply(_, _ int, r ps.Range, gradients mem.Buffer) error {
	for i, g := range mem.Float32s(gradients) {
		c.values[r.Off+i] += g
	}
	return nil
}

func (c counter) Read(r ps.Range, parameters mem.Buffer) {
	copy(mem.Float32s(parameters), c.values[r.Off:r.End()])
}

// TestLinksMoveWhatSumsMove: pushes and pulls between two ranks each bring as many bytes into a rank and out
// of it, server, worker, or both, as sums and broadcasts of a linear algorithm do; and an answer has in it what all
// have pushed so many iterations before, and no more than they can have pushed.
func TestLinksMoveWhatSumsMove(t *testing.T) {
	defer goleak.VerifyNone(t)
	const ranks, n, iters, staleness = 4, 24, 9, 2
	pairs := []ps.Pair{{Range: ps.Range{Len: 10}, Server: 2}, {Range: ps.Range{Off: 10, Len: 8}, Server: 0}, {Range: ps.Range{Off: 18, Len: 6}, Server: 2}}
	for _, workers := range [][]int{{0, 1, 2, 3}, {1, 2, 3}, {1, 3}} {
		err := launch.Run(context.Background(), launch.Options{Local: ranks, Engine: nbc.Options{Deadline: 10 * time.Minute}}, func(ctx context.Context, comm *collectives.Comm) error {
			servers := []int{0, 2}
			works := slices.Contains(workers, comm.Rank())
			team, err := syncer.NewTeam(ctx, comm, workers, servers)
			if err != nil {
				return err
			}
			defer team.Close()
			data, diff := make([]float32, n), slices.Repeat([]float32{1}, n)
			b := syncer.Bucket{Name: "ip1", Data: mem.Of(data), Diff: mem.Of(diff)}
			sums, err := ps.New(team, b, pairs)
			if err != nil {
				return err
			}
			defer sums.Close()
			links, err := ps.NewLinks(ctx, team, servers, staleness, 0, counter{make([]float32, n)})
			if err != nil {
				return err
			}
			defer links.Close()
			s, err := links.New(b, 0, pairs)
			if err != nil {
				return err
			}
			defer s.Close()
			if got, want := s.Payload(), sums.Payload(); got != want {
				t.Errorf("workers %v: rank %d moves %+v an iteration, with sums %+v", workers, comm.Rank(), got, want)
			}
			serving, stop := context.WithCancelCause(ctx)
			defer stop(context.Canceled)
			links.Open(serving, stop)
			for iter := range iters {
				links.Allow(iter)
			}
			for iter := range iters {
				if !works {
					break
				}
				links.Begin(iter)
				if err := s.Push(); err != nil {
					return err
				}
				for range s.Parts() {
					part, err := s.Pushed(ctx)
					if err == nil {
						err = s.Pull(part)
					}
					if err != nil {
						return err
					}
				}
				if err := s.Pulled(ctx); err != nil {
					return err
				}
				// Those up to iter−S of all, and its own; at most what all may have pushed by then.
				all := len(workers)
				least := float32(max(0, iter-staleness+1)*(all-1) + iter + 1)
				most := float32((iter+staleness+1)*(all-1) + iter + 1)
				if v := slices.Min(data); v < least || slices.Max(data) > most {
					return fmt.Errorf("workers %v: in iteration %d rank %d is told of %v to %v pushes, want %v to %v", workers, iter, comm.Rank(), v, slices.Max(data), least, most)
				}
			}
			return links.Rest()
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
