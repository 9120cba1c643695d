//go:build linux && (amd64 || arm64)

package shm

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/inproc"
	"github.com/scaffe/scaffe/nbc/transporttest"
)

// placed is a transport that says where its ranks are.
type placed struct {
	nbc.Transport
	nbc.Notifier
	nodes []int
}

func (p placed) Nodes() []int { return p.nodes }

// world opens a transport for every rank of one process, over inproc. Ranks
// with equal nodes share memory.
func world(t *testing.T, opts Options, nodes ...int) []nbc.Transport {
	t.Helper()
	w := inproc.NewWorld(len(nodes), inproc.Options{})
	opts.Room = 1 << 30
	ts := make([]nbc.Transport, len(nodes))
	err := each(len(nodes), func(r int) (err error) {
		inner, err := w.Open(r)()
		if err == nil {
			ts[r], err = New(placed{inner, inner.(nbc.Notifier), nodes}, opts)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return ts
}

func (t *Transport) base() *Transport { return t }

// each runs one rank's part on all ranks together.
func each(n int, run func(r int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for r := range n {
		wg.Go(func() { errs[r] = run(r) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func TestConformance(t *testing.T) {
	for _, nodes := range [][]int{{0, 0}, {0, 0, 0}, {0, 0, 0, 0, 0}, {0, 0, 1, 1}, {0, 1, 0}} {
		for _, opts := range []Options{{}, {forbidVM: true}} {
			ts := world(t, opts, nodes...)
			name := fmt.Sprintf("nodes %v", nodes)
			if opts.forbidVM {
				name += " no vm"
			}
			for _, c := range transporttest.Cases() {
				t.Run(name+"/"+c.Name, func(t *testing.T) {
					if err := each(len(ts), func(r int) error { return c.Run(ts[r]) }); err != nil {
						t.Fatal(err)
					}
				})
			}
			for r, x := range ts {
				if x, ok := x.(interface{ base() *Transport }); ok {
					s := x.base()
					if s.active != 0 || s.table.count != 0 || len(s.lent) != 0 || s.innerActive != 0 {
						t.Errorf("%s: rank %d is left with %d operations, %d entries, %d lent, %d of inner", name, r, s.active, s.table.count, len(s.lent), s.innerActive)
					}
				}
			}
			t.Run(name+"/abort", func(t *testing.T) {
				err := each(len(ts), func(r int) error {
					return errors.Join(transporttest.Abort(ts[r]), ts[r].Close(), ts[r].Close())
				})
				if err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}
