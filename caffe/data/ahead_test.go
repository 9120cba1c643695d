package data

import (
	"errors"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// slowSource takes a while for each sample, in the false time of synctest.
type slowSource struct {
	fakeSource
	each    func(i int64) time.Duration
	open    *atomic.Int64
	reading *atomic.Int64 // at once, now
	most    *atomic.Int64 // and at most
}

func newSlow(n int64, each func(i int64) time.Duration) *slowSource {
	s := &slowSource{fakeSource: fakeSource{n: n, shape: Shape{1, 2, 2}}, each: each, open: new(atomic.Int64), reading: new(atomic.Int64), most: new(atomic.Int64)}
	s.open.Add(1)
	return s
}

func (s *slowSource) Fork() (Source, error) {
	s.open.Add(1)
	f := *s
	f.s = Sample{}
	return &f, nil
}

func (s *slowSource) Close() error { s.open.Add(-1); return nil }

func (s *slowSource) Read(pass, i int64, out *Sample) error {
	now := s.reading.Add(1)
	for {
		if m := s.most.Load(); now <= m || s.most.CompareAndSwap(m, now) {
			break
		}
	}
	time.Sleep(s.each(i))
	s.reading.Add(-1)
	out.Stored = 10
	err := s.fakeSource.Read(pass, i, out)
	out.Stored = 10
	return err
}

func always(d time.Duration) func(int64) time.Duration {
	return func(int64) time.Duration { return d }
}

// All workers decode the batch that is needed soonest, so that the first
// comes after its samples' time divided by the workers.
func TestAhead_WorkersShareABatch(t *testing.T) {
	for workers, want := range map[int]time.Duration{1: 80 * time.Millisecond, 2: 40 * time.Millisecond, 4: 20 * time.Millisecond, 8: 10 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			src := newSlow(100, always(10*time.Millisecond))
			l := mustLoader(t, Config{Source: src, Transform: plain(), BatchSize: 8, Options: Options{Workers: workers}})
			if _, _, err := nextBatch(l); err != nil {
				t.Fatal(err)
			}
			s := l.Stats()
			if s.Starved != want || s.Waits != 1 || s.Workers != int64(workers) || src.most.Load() != int64(workers) {
				t.Errorf("%d workers: %d reading at once, stats %+v, want a wait of %v", workers, src.most.Load(), s, want)
			}
			if err := l.Close(); err != nil || src.open.Load() != 0 {
				t.Errorf("%d sources stay open, %v", src.open.Load(), err)
			}
		})
	}
}

// Reading goes on while the net computes, up to the depth and no further: a
// net that is slower than its reader waits for the first batch alone.
func TestAhead_HidesReadingUnderComputing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newSlow(1000, always(time.Millisecond))
		l := mustLoader(t, Config{Source: src, Transform: plain(), BatchSize: 10, Options: Options{Prefetch: 3, Workers: 1}})
		defer l.Close()
		for range 20 {
			if _, _, err := nextBatch(l); err != nil {
				t.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond) // computing
			if s := l.Stats(); s.Queued != 3 || s.Decoded != s.Batches+3 {
				t.Fatalf("after a long computation: %+v", s)
			}
		}
		s := l.Stats()
		want := Stats{
			Loaders: 1, Batches: 20, Waits: 1, Starved: 10 * time.Millisecond,
			Queued: 3, Found: 19 * 3, Depth: 3, Workers: 1, Decoded: 23,
			Decode: 230 * time.Millisecond, Bytes: 23 * 10 * 10,
		}
		if s != want {
			t.Errorf("stats %+v, want %+v", s, want)
		}
		if s.MeanQueued() != 2.85 || s.MeanDepth() != 3 || s.DecodeTime() != 10*time.Millisecond {
			t.Errorf("mean queue %v of %v, %v a batch", s.MeanQueued(), s.MeanDepth(), s.DecodeTime())
		}
	})
}

// A net that is faster than its reader waits for every batch, and the
// statistics say for how long.
func TestAhead_StarvationIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := mustLoader(t, Config{Source: newSlow(1000, always(time.Millisecond)), Transform: plain(), BatchSize: 10, Options: Options{Workers: 1}})
		defer l.Close()
		for range 20 {
			if _, _, err := nextBatch(l); err != nil {
				t.Fatal(err)
			}
			time.Sleep(4 * time.Millisecond)
		}
		if s := l.Stats(); s.Waits != 20 || s.Starved != 10*time.Millisecond+19*6*time.Millisecond || s.MeanQueued() != 0 {
			t.Errorf("stats %+v", s)
		}
	})
}

// Whichever worker is done first, batches come in order, and an error is that
// of the first sample that fails, at its batch.
func TestAhead_OrderAndErrorsWhateverTheTimes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		workers := rapid.IntRange(1, 6).Draw(rt, "workers")
		depth := rapid.IntRange(1, 5).Draw(rt, "depth")
		batch := rapid.IntRange(1, 9).Draw(rt, "batch")
		times := rapid.SliceOfN(rapid.IntRange(0, 30), 60, 60).Draw(rt, "times")
		bad := rapid.Int64Range(0, 59).Draw(rt, "bad") // 0: none
		synctest.Test(t, func(*testing.T) {
			src := newSlow(60, func(i int64) time.Duration { return time.Duration(times[i]) * time.Millisecond })
			src.bad, src.odd = bad, bad+1 // the sample after it fails as well
			if src.odd > 59 || bad == 0 {
				src.odd = 0
			}
			src.shape = Shape{1, 2, 3}
			l := mustLoader(rt, Config{Source: src, Transform: plain(), BatchSize: batch, Options: Options{Prefetch: depth, Workers: workers}})
			defer l.Close()
			var at int64
			for at+int64(batch) <= 60 {
				_, labels, err := nextBatch(l)
				if hit := bad > 0 && bad >= at && bad < at+int64(batch); hit {
					if !errors.Is(err, errBad) {
						rt.Fatalf("batch of sample %d: %v", bad, err)
					}
					at += int64(batch)
					if err := l.SeekBatch(at/int64(batch) + 1); err != nil {
						rt.Fatal(err)
					}
					return
				}
				if err != nil {
					rt.Fatal(err)
				}
				for _, label := range labels {
					if label != float32(at) {
						rt.Fatalf("label %v at %d", label, at)
					}
					at++
				}
			}
		})
	})
}

// Nothing after a batch that failed is decoded: SeekBatch decides what is next.
func TestAhead_EndsAtAnError(t *testing.T) {
	for _, workers := range []int{1, 4} {
		synctest.Test(t, func(t *testing.T) {
			src := newSlow(100, always(time.Millisecond))
			src.bad = 9
			l := mustLoader(t, Config{Source: src, Transform: plain(), BatchSize: 4, Options: Options{Workers: workers, Prefetch: 10}})
			defer l.Close()
			if _, _, err := nextBatch(l); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if s := l.Stats(); s.Decoded != 2 {
				t.Errorf("%d workers: sample 9 of batches of 4 failed, stats %+v", workers, s)
			}
		})
	}
}

// The hook hears of each batch that was decoded, once and before it is given.
func TestAhead_OnBatch(t *testing.T) {
	for _, workers := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			heard := map[int64]time.Duration{}
			l := mustLoader(t, Config{Source: newSlow(100, always(time.Millisecond)), Transform: plain(), BatchSize: 12, Options: Options{
				Workers: workers,
				OnBatch: func(batch int64, begin, end time.Time) {
					mu.Lock()
					defer mu.Unlock()
					if _, again := heard[batch]; again {
						t.Errorf("batch %d is decoded twice", batch)
					}
					heard[batch] = end.Sub(begin)
				},
			}})
			if err := l.SeekBatch(5); err != nil {
				t.Fatal(err)
			}
			for k := int64(5); k < 15; k++ {
				if _, _, err := nextBatch(l); err != nil {
					t.Fatal(err)
				}
				mu.Lock()
				if d := heard[k]; d != 12*time.Millisecond/time.Duration(workers) {
					t.Errorf("%d workers, batch %d took %v", workers, k, d)
				}
				mu.Unlock()
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if s := l.Stats(); s.Decoded != int64(len(heard)) || len(heard) < 10 {
				t.Errorf("%d batches heard of, stats %+v", len(heard), s)
			}
		})
	}
}

// Close and SeekBatch do not wait for more than the samples in hand.
func TestAhead_StopsBetweenSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := mustLoader(t, Config{Source: newSlow(1000, always(time.Second)), Transform: plain(), BatchSize: 100, Options: Options{Workers: 4}})
		if _, _, err := nextBatch(l); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := l.SeekBatch(7); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d > time.Second {
			t.Errorf("SeekBatch took %v", d)
		}
		if _, labels, err := nextBatch(l); err != nil || labels[0] != 700 {
			t.Errorf("after the seek: %v %v", labels[0], err)
		}
		start = time.Now()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d > time.Second {
			t.Errorf("Close took %v", d)
		}
	})
}

// forkless cannot be forked a second time.
type forkless struct {
	*slowSource
	forks int
}

func (f *forkless) Fork() (Source, error) {
	if f.forks++; f.forks > 1 {
		return nil, errors.New("no more")
	}
	return f.slowSource.Fork()
}

func TestAhead_ForkFails(t *testing.T) {
	src := &forkless{slowSource: newSlow(10, always(0))}
	_, err := NewLoader(Config{Source: src, Transform: plain(), BatchSize: 4, Options: Options{Workers: 3}})
	if err == nil || !strings.Contains(err.Error(), "no more") || src.open.Load() != 0 {
		t.Errorf("%v, %d sources stay open", err, src.open.Load())
	}
}

// There are as many workers as one asks for, but no more than samples to read
// ahead. Unasked there is one for raw samples, and for images one a processor,
// at most four.
func TestAhead_Workers(t *testing.T) {
	images := imageList(t, 20)
	for procs, want := range map[int]int64{1: 1, 3: 3, 9: 4} {
		before := runtime.GOMAXPROCS(procs)
		src, err := OpenList(images, ListOptions{Root: filepath.Dir(images) + "/", Height: 4, Width: 4})
		if err != nil {
			t.Fatal(err)
		}
		l := mustLoader(t, Config{Source: src, Transform: plain(), BatchSize: 8})
		runtime.GOMAXPROCS(before)
		if got := l.Stats().Workers; got != want {
			t.Errorf("images on %d processors: %d workers, want %d", procs, got, want)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ asked, batch, depth, want int }{{0, 10, 4, 1}, {3, 10, 4, 3}, {9, 2, 2, 4}} {
		l := mustLoader(t, Config{Source: newSlow(50, always(0)), Transform: plain(), BatchSize: c.batch, Options: Options{Prefetch: c.depth, Workers: c.asked}})
		if got := l.Stats().Workers; got != int64(c.want) {
			t.Errorf("%+v: %d workers", c, got)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestStats_Add(t *testing.T) {
	one := Stats{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
	sum := one
	sum.Add(one)
	if want := (Stats{2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22}); sum != want {
		t.Errorf("%+v, want %+v", sum, want)
	}
	var none Stats
	if got := []float64{none.MeanQueued(), none.MeanDepth(), float64(none.DecodeTime())}; !slices.Equal(got, []float64{0, 0, 0}) {
		t.Errorf("of nothing: %v", got)
	}
}
