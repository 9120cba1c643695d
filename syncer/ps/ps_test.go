package ps_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/syncer"
	"github.com/scaffe/scaffe/syncer/coordinator"
	"github.com/scaffe/scaffe/syncer/ps"
)

// One iteration of plain gradient descent on two workers, which both serve.
func ExampleNew() {
	err := launch.Run(context.Background(), launch.Options{Local: 2}, func(ctx context.Context, comm *collectives.Comm) error {
		data, diff := []float32{10, 10, 10}, []float32{1, float32(comm.Rank()), 2}
		pairs := []ps.Pair{{Range: ps.Range{Len: 2}, Server: 1}, {Range: ps.Range{Off: 2, Len: 1}, Server: 0}}
		s, err := ps.New(syncer.Everyone(comm), syncer.Bucket{Name: "ip1", Data: mem.Of(data), Diff: mem.Of(diff)}, pairs)
		if err != nil {
			return err
		}
		defer s.Close()
		if err := s.Push(); err != nil {
			return err
		}
		for range s.Parts() {
			i, err := s.Pushed(ctx)
			if err != nil {
				return err
			}
			if p := s.Parts()[i]; p.Updates {
				for k := p.Off; k < p.End(); k++ {
					data[k] -= diff[k]
				}
			}
			if err := s.Pull(i); err != nil {
				return err
			}
		}
		if err := s.Pulled(ctx); err != nil {
			return err
		}
		if comm.Rank() == 1 {
			fmt.Println(data)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// [8 9 6]
}

// TestPoseidon_APairIsBroadcastWhenItsCountIsFull: a server counts the updates of a KV pair, and when
// all workers have sent theirs it broadcasts that pair at once (section 4.1): a pair that all
// workers have pushed comes back although another one's push, in the same bucket or another,
// is held up by a worker.
func TestPoseidon_APairIsBroadcastWhenItsCountIsFull(t *testing.T) {
	defer goleak.VerifyNone(t)
	back := make(chan struct{})
	err := launch.Run(context.Background(), launch.Options{Local: 3}, func(ctx context.Context, comm *collectives.Comm) error {
		value := func() mem.Buffer { return mem.Of([]float32{1}) }
		// Two pairs, whose reductions a set awaits, as the syncer's does.
		first, err := comm.ReduceInit(value(), value(), mem.Float32, mem.Sum, 0)
		if err != nil {
			return err
		}
		second, err := comm.ReduceInit(value(), value(), mem.Float32, mem.Sum, 0)
		if err != nil {
			return err
		}
		if comm.Rank() == 2 { // the straggler: its first pair waits until the second is back everywhere
			if err := second.Run(ctx); err != nil {
				return err
			}
			if err := comm.Barrier(ctx); err != nil {
				return err
			}
			<-back
			return first.Run(ctx)
		}
		set := nbc.NewSet(first, second)
		defer set.Close()
		if err := set.Start(); err != nil {
			return err
		}
		order := []int{}
		next := func() error {
			i, err := set.Next(ctx)
			order = append(order, i)
			return err
		}
		if err := next(); err != nil {
			return err
		}
		if comm.Rank() == 0 && order[0] != 1 {
			return fmt.Errorf("pair %d ended first, which nobody has pushed in full", order[0])
		}
		if err := comm.Barrier(ctx); err != nil {
			return err
		}
		if comm.Rank() == 0 {
			close(back)
		}
		if err := next(); err != nil {
			return err
		}
		if order[0]+order[1] != 1 {
			return fmt.Errorf("the pairs ended as %v", order)
		}
		if _, err := set.Next(ctx); err == nil {
			return fmt.Errorf("a third of two pairs ended")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestSpec: the ranks of a node are summed first where nodes have several (section 5.1, on
// several GPUs).
func TestSpec(t *testing.T) {
	for _, k := range []struct {
		nodes []int
		want  string
	}{
		{[]int{0, 0, 0}, "linear"},
		{[]int{0, 1, 2}, "linear"},
		{[]int{0, 0, 1}, "linear:node/linear"},
	} {
		if got := ps.Spec(spec.LayoutOf(k.nodes)).String(); got != k.want {
			t.Errorf("nodes %v: %s, want %s", k.nodes, got, k.want)
		}
	}
}

// TestPairsAreTheBucket: no element is without a server, and none has two.
func TestPairsAreTheBucket(t *testing.T) {
	err := launch.Run(context.Background(), launch.Options{Local: 1}, func(_ context.Context, comm *collectives.Comm) error {
		b := syncer.Bucket{Name: "ip1", Data: mem.Of(make([]float32, 4)), Diff: mem.Of(make([]float32, 4))}
		for want, pairs := range map[string][]ps.Pair{
			"KV pair [1:4]":             {{Range: ps.Range{Off: 1, Len: 3}}},
			"KV pair [1:4], where":      {{Range: ps.Range{Len: 2}}, {Range: ps.Range{Off: 1, Len: 3}}},
			"KV pair [0:5]":             {{Range: ps.Range{Len: 5}}},
			"its KV pairs end at":       {{Range: ps.Range{Len: 3}}},
			"KV pair [0:4] at rank 7: ": {{Range: ps.Range{Len: 4}, Server: 7}},
		} {
			if _, err := ps.New(syncer.Everyone(comm), b, pairs); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: %v, want %q", pairs, err, want)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestPoseidon_ValuesOfServersAndWorkers: what passes a node that is a server and a worker in
// an iteration, a server alone, and a worker alone, by the engine's count, is Table 1's: with
// 8 of each and a layer of 4096×4096, 58.7 million values (section 3.2). The layer here has an
// 8th of its sides, for which all terms are a 64th.
func TestPoseidon_ValuesOfServersAndWorkers(t *testing.T) {
	defer goleak.VerifyNone(t)
	const ranks, scale, mn = 8, 64, 4096 * 4096 / 64
	if both := scale * coordinator.PSCost(mn, ranks, ranks).Both; both != 58_720_256 {
		t.Errorf("the paper's example: %v values", both)
	}
	for _, servers := range []int{8, 2, 1} {
		err := launch.Run(context.Background(), launch.Options{Local: ranks, Engine: nbc.Options{Deadline: 10 * time.Minute}}, func(ctx context.Context, comm *collectives.Comm) error {
			b := syncer.Bucket{Name: "fc7", Data: mem.Of(make([]float32, mn)), Diff: mem.Of(make([]float32, mn))}
			var pairs []ps.Pair
			for i := range 2 * servers {
				pairs = append(pairs, ps.Pair{Range: ps.Range{Off: i * mn / 2 / servers, Len: mn / 2 / servers}, Server: i % servers})
			}
			s, err := ps.New(syncer.Everyone(comm), b, pairs)
			if err != nil {
				return err
			}
			defer s.Close()
			before := comm.Payload()
			if err := s.Push(); err != nil {
				return err
			}
			for range s.Parts() {
				i, err := s.Pushed(ctx)
				if err != nil {
					return err
				}
				if err := s.Pull(i); err != nil {
					return err
				}
			}
			if err := s.Pulled(ctx); err != nil {
				return err
			}
			after := comm.Payload()
			// Servers here work too; what they push to themselves does not travel.
			cost := coordinator.PSCost(mn, ranks, servers)
			want := cost.Worker
			if comm.Rank() < servers {
				want = cost.Both
			}
			if got := float64(after.Sent-before.Sent+after.Received-before.Received) / 4; got != want {
				return fmt.Errorf("%d servers: %v values sent and received, by Table 1 %v", servers, got, want)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}
