package backoff

import (
	"sync/atomic"
	"testing"
	"time"
)

// A nap ends when it is ended, before it begins too, and when its time is up.
func TestNaps(t *testing.T) {
	const long = time.Minute
	var n Naps
	var woken atomic.Bool
	woken.Store(true)
	n.End()
	n.Nap(long, &woken)
	if woken.Load() {
		t.Error("a nap that was ended before it began does not take notice")
	}
	n.Nap(time.Millisecond, &woken)

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n.Nap(long, &woken)
	}()
	for atomic.LoadUint32(&n.word) == 0 {
		time.Sleep(time.Millisecond)
	}
	woken.Store(true)
	n.End()
	select {
	case <-ended:
	case <-time.After(long / 2):
		t.Fatal("a nap was not ended")
	}
}
