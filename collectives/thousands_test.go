package collectives_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

// thousands makes n persistent allreductions of two elements.
func thousands(c *collectives.Comm, n int) (data [][]int32, requests []*nbc.Request, err error) {
	data, requests = make([][]int32, n), make([]*nbc.Request, n)
	for i := range requests {
		data[i] = make([]int32, 2)
		if requests[i], err = c.AllreduceInit(mem.Of(data[i]), mem.Of(data[i]), mem.Int32, mem.Sum, collectives.Priority(i%100)); err != nil {
			return nil, nil, err
		}
	}
	return data, requests, nil
}

// TestP3_ThousandsOfRequests: VGG19 has some 2,900 slices of 50,000 parameters (P3, section 5.7,
// varies their size), and many more must work. Each is told from the others though ranks start
// them in different orders; there is no goroutine for each, and nothing is allocated for one
// that starts again.
func TestP3_ThousandsOfRequests(t *testing.T) {
	ranks, n, rounds := 8, 20_000, 4
	if testing.Short() {
		n = 2000
	}
	var all sync.WaitGroup // meets between the rounds
	var mallocs, goroutines [2]uint64
	look := func(at int) {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		mallocs[at], goroutines[at] = m.Mallocs, uint64(runtime.NumGoroutine())
	}
	steps := make(chan int)
	var round sync.WaitGroup
	round.Add(ranks)
	all.Go(func() { // tells all ranks of each round
		for k := range rounds {
			round.Wait() // all have ended the one before
			if k == 0 {
				look(0)
			}
			if k == rounds-1 {
				look(0)
			}
			round.Add(ranks)
			for range ranks {
				steps <- k
			}
		}
		round.Wait()
		look(1)
	})
	err := world(t, ranks, 0, nbc.Options{}, func(c *collectives.Comm, _ *nbc.Engine) (err error) {
		ctx := context.Background()
		before := runtime.NumGoroutine()
		data, requests, err := thousands(c, n)
		if err == nil && runtime.NumGoroutine() > before+10*ranks {
			err = fmt.Errorf("%d goroutines, %d before the requests were made", runtime.NumGoroutine(), before)
		}
		if err != nil {
			t.Error(err)
		}
		set := nbc.NewSet(requests...)
		for range rounds {
			round.Done()
			k := int32(<-steps)
			if err != nil {
				continue
			}
			for i, x := range data {
				x[0], x[1] = int32(i)+k, int32(c.Rank())
			}
			if err = set.Start(); err != nil {
				continue
			}
			for range requests {
				var i int
				if i, err = set.Next(ctx); err != nil {
					break
				}
				if x := data[i]; x[0] != int32(ranks)*(int32(i)+k) || x[1] != int32(ranks*(ranks-1)/2) {
					err = fmt.Errorf("round %d: request %d has the sums %v", k, i, x)
					break
				}
			}
		}
		round.Done()
		set.Close()
		return err
	})
	all.Wait()
	if err != nil {
		t.Fatal(err)
	}
	// The tables of what waits, in the transport, may still grow a little.
	if each := float64(mallocs[1]-mallocs[0]) / float64(ranks*n); each > 1 && !raced {
		t.Errorf("%.2f allocations for a request that starts again", each)
	}
	if goroutines[1] > 100 {
		t.Errorf("%d goroutines", goroutines[1])
	}
}

// BenchmarkSetUp measures making 20,000 persistent requests on each of 8 ranks.
func BenchmarkSetUp(b *testing.B) {
	const ranks, n = 8, 20_000
	for b.Loop() {
		err := world(b, ranks, 0, nbc.Options{}, func(c *collectives.Comm, _ *nbc.Engine) error {
			_, _, err := thousands(c, n)
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}
