package inproc

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/transporttest"
)

// each runs one rank's part on all ranks together.
func each(w *World, run func(nbc.Transport) error) error {
	errs := make([]error, len(w.ranks))
	var wg sync.WaitGroup
	for r, e := range w.ranks {
		wg.Go(func() { errs[r] = run(e) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func TestConformance(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5} {
		for _, seed := range []uint64{0, 1, 2} {
			w := NewWorld(n, Options{Seed: seed})
			for _, c := range transporttest.Cases() {
				t.Run(fmt.Sprintf("%d ranks/seed %d/%s", n, seed, c.Name), func(t *testing.T) {
					if err := each(w, c.Run); err != nil {
						t.Fatal(err)
					}
				})
			}
			t.Run(fmt.Sprintf("%d ranks/seed %d/abort", n, seed), func(t *testing.T) {
				if err := each(w, transporttest.Abort); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}
