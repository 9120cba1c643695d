package solver

import (
	"sync"
	"testing"

	"github.com/scaffe/scaffe/mem"
)

// world is a number of workers in one process that add vectors in rank order.
type world struct {
	t    *testing.T
	size int
	mu   sync.Mutex
	cond *sync.Cond
	in   [][]float64
	out  []float64
	gen  int
}

func newWorld(t *testing.T, size int) *world {
	w := &world{t: t, size: size, in: make([][]float64, size)}
	w.cond = sync.NewCond(&w.mu)
	return w
}

// run runs f once a rank, all at the same time.
func (w *world) run(f func(rank int) error) {
	w.t.Helper()
	var wg sync.WaitGroup
	errs := make([]error, w.size)
	for r := range w.size {
		wg.Go(func() { errs[r] = f(r) })
	}
	wg.Wait()
	for r, err := range errs {
		if err != nil {
			w.t.Errorf("rank %d: %v", r, err)
		}
	}
}

// sum adds the vectors of all ranks; each gets a copy of the result.
func (w *world) sum(rank int, v []float64) []float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.in[rank] = v
	gen := w.gen
	for _, x := range w.in {
		if x == nil { // not the last: wait for it
			for gen == w.gen {
				w.cond.Wait()
			}
			return append([]float64(nil), w.out...)
		}
	}
	w.out = make([]float64, len(v))
	for r, x := range w.in {
		for i := range x {
			w.out[i] += x[i]
		}
		w.in[r] = nil
	}
	w.gen++
	w.cond.Broadcast()
	return append([]float64(nil), w.out...)
}

// join makes a solver one of the workers: rank 0 updates, the others take its
// parameters.
func (w *world) join(s *Solver, rank int) {
	data, diff := s.Net().Packed()
	fromRoot := func(int) error {
		v := make([]float64, s.Net().PackedCount())
		if rank == 0 {
			for i, x := range mem.Float32s(data) {
				v[i] = float64(x)
			}
		}
		for i, x := range w.sum(rank, v) {
			mem.Float32s(data)[i] = float32(x)
		}
		return nil
	}
	s.Callbacks = Callbacks{
		OnStart: fromRoot, OnParams: fromRoot,
		OnGradientsReady: func(_ int, part float64) (Gradients, float32, error) {
			v := []float64{part}
			for _, x := range mem.Float32s(diff) {
				v = append(v, float64(x))
			}
			v = w.sum(rank, v)
			for i, x := range v[1:] {
				mem.Float32s(diff)[i] = float32(x)
			}
			if rank > 0 {
				return Drop, float32(v[0]), nil
			}
			return Apply, float32(v[0]), nil
		},
		Sum: func(v []float64) ([]float64, error) { return w.sum(rank, v), nil },
	}
}
