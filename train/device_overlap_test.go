//go:build cuda && cgo && linux && (amd64 || arm64)

package train_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/kernels/cuda/cudatest"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/nbc/lending"
	"github.com/scaffe/scaffe/syncer/coordinator"
	"github.com/scaffe/scaffe/train"
)

// TestSCaffe_ReductionsOverlapBackwardOnTheGPU: with SC-OBR (section 4.3) the last layer's gradients have been reduced, its
// update has been begun, and its broadcast too, while the backward pass of the layers before it is still queued on the GPU, all
// of which the host has begun; and the next batch is there. With SC-OB, which reduces when all of backward has been done, that is not so.
// Nor is it where all streams share a work queue: there a kernel that is held holds up whatever is begun later, on any stream.
func TestSCaffe_ReductionsOverlapBackwardOnTheGPU(t *testing.T) {
	standIn(t)
	path, _ := files(t, 30)
	short(t, path)
	for _, c := range []struct {
		design   exchange.Design
		queues   int
		overlaps bool
	}{{exchange.SCOBR, 0, true}, {exchange.SCOB, 0, false}, {exchange.SCOBR, 1, false}} {
		const at = 3 // the iteration
		cudatest.Change(t, standInPath, fmt.Sprintf("queues=%d", c.queues), "queues=0")
		var held atomic.Bool
		pulled, begun, ahead := make(chan struct{}), make(chan struct{}), make(chan struct{})
		var once sync.Once
		overlaps := make(chan bool, 1)
		within := 20 * time.Second
		if !c.overlaps {
			within = 200 * time.Millisecond
		}
		tell := func(text string) {
			if err := cudatest.Tell(standInPath, text); err != nil {
				t.Error(err)
			}
		}
		_, err := runWith(t, inPlace(2), path, func(rank int, cfg *train.Config) {
			cfg.Device, cfg.Bucket, cfg.Design = onGPU(t, "cuda"), 1, c.design
			*cfg.Solver.Solver.MaxIter = at + 1
		}, func(rank int, w *train.Worker) {
			if rank != 0 {
				return
			}
			w.OnPull(func() {
				if held.Load() {
					once.Do(func() { close(pulled) })
				}
			})
			s := w.Solver()
			before, after := s.Hooks.BeforeBackward, s.Hooks.AfterBackward
			s.Hooks.BeforeBackward = func() error {
				if s.Iter() == at {
					tell("hold=max_backward")
					held.Store(true)
					go func() {
						end := make(chan struct{})
						time.AfterFunc(within, func() { close(end) })
						both := true
						for _, is := range []chan struct{}{pulled, begun, ahead} {
							select {
							case <-is:
							case <-end:
								both = false
							}
						}
						held.Store(false)
						tell("hold=none")
						overlaps <- both
					}()
				}
				return before()
			}
			read := s.Hooks.AfterReadAhead
			s.Hooks.AfterReadAhead = func(layer int, began time.Time) {
				read(layer, began)
				for end := time.Now().Add(within); s.Iter() == at; time.Sleep(time.Millisecond) {
					if s.Net().Blob("data").OnData().Fetched() {
						close(ahead)
						return
					} else if time.Now().After(end) {
						return
					}
				}
			}
			s.Hooks.AfterBackward = func(layer int) error {
				if err := after(layer); err != nil || layer > 0 || s.Iter() != at {
					return err
				}
				close(begun)
				return nil
			}
		})
		if err != nil {
			t.Fatalf("%v: %v", c, err)
		}
		if got := <-overlaps; got != c.overlaps {
			t.Errorf("%v: reductions under backward: %v", c, got)
		}
	}
}

// TestDeviceSharedQueues: nothing on a stream waits for what is begun later on another one, since CUDA does not promise that streams go on
// beside each other. Ranks whose streams share one work queue, or few, learn the same, in place with the same bits.
func TestDeviceSharedQueues(t *testing.T) {
	standIn(t)
	path, _ := files(t, 30)
	short(t, path)
	binomial, err := spec.Parse("binomial")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		ranks  launch.Options
		design exchange.Design
		slice  coordinator.Slice
	}{
		{"reduce", inPlace(3), exchange.SCOBR, 1 << 10},
		{"reduce", inPlace(2), exchange.SCOB, 0},
		{"allreduce", inPlace(2), exchange.SCOBR, 0},
		{"ps", launch.Options{Local: 2}, exchange.SCOBR, 0},
		{"sfb", launch.Options{Local: 2}, exchange.SCOBR, 0},
	} {
		run := func(queues int) curve {
			cudatest.Change(t, standInPath, fmt.Sprintf("queues=%d", queues), "queues=0")
			got, err := runWith(t, c.ranks, path, func(_ int, cfg *train.Config) {
				cfg.Device, cfg.Design, cfg.Asked, cfg.Bucket, cfg.Slice = onGPU(t, "cuda:0"), c.design, ask(t, c.name), 1, c.slice
				*cfg.Solver.Solver.MaxIter = 12
				if c.ranks.CUDA {
					cfg.Spec = binomial
				}
			}, nil)
			if err != nil {
				t.Fatalf("%v, %d queues: %v", c, queues, err)
			}
			return got
		}
		same := near
		if c.ranks.CUDA {
			same = bits
		}
		own := run(0)
		for _, queues := range []int{1, 3} {
			got := run(queues)
			if err := errors.Join(same(own.loss, got.loss), same(own.scores, got.scores)); err != nil {
				t.Errorf("%v, %d queues: %v", c, queues, err)
			}
		}
	}
}

// TestDeviceStreams: ranks make no more streams than they use, so that one's are fewer than a GPU's work queues: four for the passes, one to find
// the paths, which is given back, and those of the lanes that their parts need, of nine.
func TestDeviceStreams(t *testing.T) {
	standIn(t)
	path, _ := files(t, 30)
	short(t, path)
	for _, c := range []struct {
		path  lending.Path
		lanes int // the root's sums, and the other one's copies; or the copies of both, each way
	}{{lending.Pointer, 1 + 1}, {lending.Staging, 1 + 2 + 2}} {
		t.Setenv(launch.EnvCUDAPath, c.path.String())
		for made, ends := range map[int]bool{2*(4+1) + c.lanes: true, 2*(4+1) + c.lanes - 1: false} {
			cudatest.Change(t, standInPath, fmt.Sprintf("fail=none fail=cuStreamCreate:%d:2", made+1), "fail=none")
			_, err := runWith(t, inPlace(2), path, func(_ int, cfg *train.Config) {
				cfg.Device, cfg.Bucket = onGPU(t, "cuda"), 1
				*cfg.Solver.Solver.MaxIter = 4
			}, nil)
			if (err == nil) != ends {
				t.Errorf("%v, %d streams can be made: %v", c.path, made, err)
			}
		}
	}
}
