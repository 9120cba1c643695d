package omb

import (
	"time"

	"golang.org/x/sys/unix"
)

// work is a computation that a communication is to hide behind.
type work struct {
	length time.Duration
	tests  int // calls of Test, each after its part of the computation
	idle   bool
	err    error // of the last Test that failed
}

// do computes and calls test. It returns how long both took, and how long the
// calls of test took of that, in microseconds. As OMB counts it, compute is
// without test.
func (w *work) do(test func() error) (compute, tests float64) {
	w.err = nil
	start := time.Now()
	var testing time.Duration
	for range w.tests {
		w.part(w.length / time.Duration(w.tests))
		t := time.Now()
		if err := test(); err != nil && w.err == nil {
			w.err = err
		}
		testing += time.Since(t)
	}
	if w.tests == 0 {
		w.part(w.length)
	}
	return micros(time.Since(start) - testing), micros(testing)
}

// part computes for d, or lets the time go by as a CPU does whose accelerator
// computes.
func (w *work) part(d time.Duration) {
	start := time.Now()
	for left := d; left > 0; left = d - time.Since(start) {
		if !w.idle {
			dummy()
			continue
		}
		// Not time.Sleep, whose milliseconds would be too long for many parts.
		// Signals end it early.
		t := unix.NsecToTimespec(int64(left))
		_ = unix.Nanosleep(&t, nil)
	}
}

// dummySize is that of OMB's dummy computation.
const dummySize = 25

// dummy is a small product of matrix and vector, which stays in the caches.
// Ranks of one process share nothing in it.
func dummy() float32 {
	var a [dummySize][dummySize]float32
	var x [dummySize]float32
	for i := range a {
		for j := range a {
			a[i][j] = 2
			x[i] += a[i][j]*a[j][i] + 1
		}
	}
	return x[0]
}
