package backoff

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// yieldsLast has every yield of this test last for so long, whatever else runs on this machine.
func yieldsLast(t *testing.T, took func() time.Duration) {
	before := offered
	t.Cleanup(func() { offered = before })
	offered = took
}

// alone is how long a yield lasts on a core that nobody else wants.
func alone() time.Duration { return 0 }

func TestPause(t *testing.T) {
	yieldsLast(t, alone)
	b := Backoff{Spins: 3, Yields: 2}
	for round := range 2 {
		for look := range 8 {
			if sleep := b.Pause(); sleep != (look >= 5) {
				t.Errorf("round %d, look %d in vain: time to sleep is %v", round, look, sleep)
			}
		}
		b.Reset()
	}
	if !(&Backoff{}).Pause() {
		t.Error("the zero value does not sleep at once")
	}
}

// A core that nobody else wants is kept for longer; one that others take is left at once.
func TestOffers(t *testing.T) {
	want := false
	yieldsLast(t, func() time.Duration {
		if want {
			return ran
		}
		return 0
	})
	b := Backoff{Spins: 1, Yields: 2, Offers: 3}
	for look := range 9 {
		if sleep := b.Pause(); sleep != (look >= 6) {
			t.Errorf("look %d in vain: time to sleep is %v", look, sleep)
		}
	}
	b.Reset()
	for look := range 5 {
		want = look == 2 // is when another thread takes it
		if sleep := b.Pause(); sleep != (look >= 2) {
			t.Errorf("look %d in vain, taken at 2: time to sleep is %v", look, sleep)
		}
	}
}

// To a thread that computes the core is left for much longer than it has taken to learn of it, and then offered again.
func TestLeavesTheCoreToOneThatComputes(t *testing.T) {
	offers := 0
	yieldsLast(t, func() time.Duration {
		offers++
		return time.Minute
	})
	b := Backoff{Yields: 5}
	for range 2 {
		for range 3 {
			if !b.Pause() || !b.PauseBulk() {
				t.Fatal("it is no time to sleep")
			}
			b.Reset()
		}
	}
	if offers != 1 {
		t.Errorf("the core was offered %d times", offers)
	}
	b.left = time.Now()
	if b.Pause(); offers != 2 {
		t.Error("the core is not offered again")
	}
}

// A thread's slice, where the kernel has such, is short until that is taken back.
func TestRunAtOnce(t *testing.T) {
	runtime.LockOSThread() // not unlocked: the thread ends
	before := sliceOfThis()
	undo := RunAtOnce()
	during := sliceOfThis()
	if before != 0 && during >= before {
		t.Errorf("a slice of %v, before %v", during, before)
	}
	if Yield(); sliceOfThis() != during {
		t.Errorf("after a yield a slice of %v, before %v", sliceOfThis(), during)
	}
	undo()
	if after := sliceOfThis(); after != before {
		t.Errorf("a slice of %v afterwards, %v before", after, before)
	}
}

func TestSpins(t *testing.T) {
	for _, c := range []struct{ cores, ranks, want int }{{1, 1, 0}, {2, 1, Spare}, {7, 4, 0}, {8, 4, Spare}} {
		if got := Spins(c.cores, c.ranks); got != c.want {
			t.Errorf("%d cores, %d ranks: %d spins, want %d", c.cores, c.ranks, got, c.want)
		}
	}
}

// While large messages are awaited a thread whose core others want sleeps at once, and
// asks again now and then; one that has its core to itself looks as often as ever.
func TestPauseBulk(t *testing.T) {
	took := ran
	yieldsLast(t, func() time.Duration { return took })
	b := Backoff{Yields: 2 * askEvery}
	if b.PauseBulk() {
		t.Error("others have just had the core, and there is no look")
	}
	took = 0
	for look := range askEvery {
		if sleep := b.PauseBulk(); sleep != (look < askEvery-1) {
			t.Errorf("others wanted the core, and were asked again after %d looks of %d: time to sleep is %v", look+1, askEvery, sleep)
		}
	}
	b = Backoff{Yields: 2}
	for look := range 4 {
		if sleep := b.PauseBulk(); sleep != (look >= 2) {
			t.Errorf("look %d in vain: time to sleep is %v", look, sleep)
		}
	}
}

// Naps grow with the time that has passed since something happened.
func TestNap(t *testing.T) {
	var b Backoff
	var all time.Duration
	for range 20 {
		n := b.Nap(200 * time.Microsecond)
		if n < firstNap || n > max(firstNap, 3*all/2) || n > 200*time.Microsecond {
			t.Errorf("a nap of %v after %v", n, all)
		}
		all += n
	}
	b.Reset()
	if n := b.Nap(time.Second); n != firstNap {
		t.Errorf("the first nap after something happened is %v", n)
	}
}

func TestQuickenOnceForAThread(t *testing.T) {
	runtime.LockOSThread() // and not unlocked: the thread ends with the test
	var q Quick
	for _, after := range []int{1000, 40_000} {
		if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 40_000, 0, 0, 0); err != nil {
			t.Fatal(err)
		}
		q.Quicken()
		if slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err != nil || slack != after {
			t.Errorf("sleeps are rounded up by %d ns, want %d: %v", slack, after, err)
		}
	}
	slack := make(chan int)
	go func() {
		runtime.LockOSThread()
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 40_000, 0, 0, 0)
		q.Quicken()
		now, _ := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
		slack <- now
	}()
	if now := <-slack; now != 1000 {
		t.Errorf("another thread's sleeps are rounded up by %d ns, want 1000", now)
	}
}
