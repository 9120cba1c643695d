package ps_test

import (
	"context"
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

// asksFor runs do with the syncer of a bucket, whose parameters are asked for, on each of 4 ranks, of whom 0 and 2 serve.
func asksFor(t *testing.T, workers []int, do func(ctx context.Context, comm *collectives.Comm, team *syncer.Team, s syncer.Syncer, data, diff []float32) error) {
	t.Helper()
	const n = 24
	pairs := []ps.Pair{{Range: ps.Range{Len: 10}, Server: 2}, {Range: ps.Range{Off: 10, Len: 8}, Server: 0}, {Range: ps.Range{Off: 18, Len: 6}, Server: 2}}
	err := launch.Run(context.Background(), launch.Options{Local: 4, Engine: nbc.Options{Deadline: 10 * time.Minute}}, func(ctx context.Context, comm *collectives.Comm) error {
		team, err := syncer.NewTeam(ctx, comm, workers, []int{0, 2})
		if err != nil {
			return err
		}
		defer team.Close()
		asking, err := ps.NewAsking(ctx, team, []int{0, 2})
		if err != nil {
			return err
		}
		defer asking.Close()
		data, diff := make([]float32, n), make([]float32, n)
		s, err := asking.New(syncer.Bucket{Name: "ip1", Data: mem.Of(data), Diff: mem.Of(diff)}, pairs)
		if err != nil {
			return err
		}
		defer s.Close()
		return do(ctx, comm, team, s, data, diff)
	})
	if err != nil {
		t.Errorf("workers %v: %v", workers, err)
	}
}

// update waits for all pushes, adds the sums to the parameters that are this rank's, and pulls.
func update(ctx context.Context, s syncer.Syncer, data, diff []float32) error {
	for range s.Parts() {
		i, err := s.Pushed(ctx)
		if err != nil {
			return err
		}
		if p := s.Parts()[i]; p.Updates {
			for k := p.Off; k < p.End(); k++ {
				data[k] += diff[k]
			}
		}
		if err := s.Pull(i); err != nil {
			return err
		}
	}
	return nil
}

// TestAskingBringsWhatIsUpdated: iteration after iteration every worker has the servers' parameters, whoever works beside
// serving.
func TestAskingBringsWhatIsUpdated(t *testing.T) {
	defer goleak.VerifyNone(t)
	for _, workers := range [][]int{{0, 1, 2, 3}, {1, 2, 3}, {1, 3}} {
		asksFor(t, workers, func(ctx context.Context, comm *collectives.Comm, team *syncer.Team, s syncer.Syncer, data, diff []float32) error {
			for iter := range 20 {
				for k := range diff {
					diff[k] = float32(1 + comm.Rank())
				}
				if err := s.Push(); err != nil {
					return err
				}
				if err := update(ctx, s, data, diff); err != nil {
					return err
				}
				if err := s.Pulled(ctx); err != nil {
					return err
				}
				want := float32(0)
				for _, w := range workers {
					want += float32(iter+1) * float32(1+w)
				}
				if i := slices.IndexFunc(data, func(x float32) bool { return x != want }); team.Works(comm.Rank()) && i >= 0 {
					t.Errorf("workers %v, iteration %d: rank %d has %v, want %v", workers, iter, comm.Rank(), data, want)
				}
			}
			return nil
		})
	}
}

// TestP3_KVStoreAnswersWhoAsks: a server tells the workers when it has updated a layer, and sends it to a worker that
// asks (section 4.2), whether others ask or not. Nobody asks for a part of a layer: one server has nothing to answer before the
// other has given notice.
func TestP3_KVStoreAnswersWhoAsks(t *testing.T) {
	defer goleak.VerifyNone(t)
	here, served := make(chan struct{}), make(chan struct{}) // rank 1 has its parameters; rank 2 has answered all
	asksFor(t, []int{1, 3}, func(ctx context.Context, comm *collectives.Comm, team *syncer.Team, s syncer.Syncer, data, diff []float32) error {
		for k := range diff {
			diff[k] = 1
		}
		if err := s.Push(); err != nil {
			return err
		}
		switch comm.Rank() {
		case 0:
			select {
			case <-served:
				t.Error("rank 2 has been asked for its part of a layer, of which rank 0 has given no notice")
			case <-time.After(50 * time.Millisecond):
			}
		case 3:
			<-here
		}
		if err := update(ctx, s, data, diff); err != nil {
			return err
		}
		if err := s.Pulled(ctx); err != nil {
			return err
		}
		switch comm.Rank() {
		case 1:
			close(here)
		case 2:
			close(served)
		}
		if want := slices.Repeat([]float32{2}, len(data)); team.Works(comm.Rank()) && !slices.Equal(data, want) {
			t.Errorf("rank %d has %v", comm.Rank(), data)
		}
		return nil
	})
}
