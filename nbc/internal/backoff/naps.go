package backoff

import (
	"sync/atomic"
	"time"

	"github.com/scaffe/scaffe/nbc/internal/futex"
)

// Naps is how a thread sleeps outside of a transport's Park: in the kernel, so that who wakes it has
// one thread to wake, where a goroutine would be handed from thread to thread.
type Naps struct {
	word  uint32 // atomically: 1 during a nap
	quick Quick
}

// Nap lets the calling thread sleep until End is called, d at most; not at all where woken is true, which it clears.
// Who calls End has set woken before.
func (n *Naps) Nap(d time.Duration, woken *atomic.Bool) {
	atomic.StoreUint32(&n.word, 1)
	if !woken.Swap(false) {
		n.quick.Quicken()
		futex.Wait(&n.word, 1, d)
	}
	atomic.StoreUint32(&n.word, 0)
}

// End ends a nap under way.
func (n *Naps) End() {
	if atomic.LoadUint32(&n.word) == 1 && atomic.CompareAndSwapUint32(&n.word, 1, 0) {
		futex.Wake(&n.word)
	}
}
