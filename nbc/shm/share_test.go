//go:build linux && (amd64 || arm64)

package shm

import (
	"sync"
	"sync/atomic"
	"testing"
)

// TestClaim: two copiers take every piece once, and one of them is the last.
func TestClaim(t *testing.T) {
	var c claim
	for turn := range uint64(200) {
		id := turn<<32 | 5
		count, _ := pieces(int(turn+1) * 300_000)
		c.begin(id)
		taken := make([]atomic.Int32, count)
		var lasts atomic.Int32
		var wg sync.WaitGroup
		for _, sending := range []bool{false, true} {
			wg.Go(func() {
				for {
					first, n := c.take(id, count, 1+int(turn%mostAtOnce), sending)
					if n == 0 {
						return
					}
					for i := range n {
						taken[first+i].Add(1)
					}
					if c.copied(id, count, n) {
						lasts.Add(1)
					}
				}
			})
		}
		wg.Wait()
		for i := range taken {
			if n := taken[i].Load(); n != 1 {
				t.Fatalf("turn %d: piece %d of %d was taken %d times", turn, i, count, n)
			}
		}
		if lasts.Load() != 1 {
			t.Fatalf("turn %d: %d copiers had the last piece", turn, lasts.Load())
		}
	}
}

// TestAnotherMessagesClaim: who still has the claim of a message that has ended takes
// nothing of the next one's; and nothing can be taken of one that was stopped.
func TestAnotherMessagesClaim(t *testing.T) {
	var c claim
	const old, id = 3<<32 | 5, 4<<32 | 5
	c.begin(id)
	c.stop(old)
	for _, sending := range []bool{false, true} {
		if i, n := c.take(old, 8, 1, sending); n != 0 {
			t.Errorf("piece %d of another message was taken", i)
		}
	}
	// Of eight pieces the sender takes the last ones, the receiver the first.
	if i, n := c.take(id, 8, 2, true); i != 6 || n != 2 {
		t.Errorf("the sender's first pieces are %d from %d on", n, i)
	}
	if i, n := c.take(id, 8, 3, false); i != 0 || n != 3 {
		t.Errorf("the receiver's first pieces are %d from %d on", n, i)
	}
	c.stop(id)
	if i, n := c.take(id, 8, 1, false); n != 0 {
		t.Errorf("piece %d was taken of a message that cannot be copied", i)
	}
}

// TestPieces: together they are the message, and there are never more than a claim
// can count.
func TestPieces(t *testing.T) {
	for _, n := range []int{1, shareFrom, shareFrom + 1, 64 << 20, 1 << 34} {
		count, size := pieces(n)
		if count > mostPieces || count*size < n || (count-1)*size >= n {
			t.Errorf("%d bytes are %d pieces of %d", n, count, size)
		}
	}
}
