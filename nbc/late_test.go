package nbc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/inproc"
)

// warnings keeps what an engine warns of.
type warnings struct {
	mu   sync.Mutex
	text []string
}

func (w *warnings) add(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, text)
}

// TestALateRankIsWaitedFor beyond the deadline, while it answers that it has not
// come yet: a checkpoint on a slow disk ends no run. Rank 0 warns after one, two
// and four deadlines, once though two ranks wait.
func TestALateRankIsWaitedFor(t *testing.T) {
	defer goleak.VerifyNone(t)
	for late := range 3 {
		var warned warnings
		opts := nbc.Options{Deadline: 10 * time.Second, Warn: warned.add}
		errs := stuck(t, 3, opts, asIs, func(e *nbc.Engine) error {
			if e.Rank() == late {
				time.Sleep(50 * time.Second)
			}
			return reduction(t, e, nbc.Binding{Name: "reduce", Instance: 12})
		})
		if err := errors.Join(errs...); err != nil {
			t.Errorf("rank %d is late: %v", late, err)
		}
		if late == 0 {
			continue // the root of a chain: eager senders need not wait for it
		}
		if len(warned.text) != 3 {
			t.Errorf("rank %d is late: warned of %q", late, warned.text)
		}
		for i, text := range warned.text {
			for _, want := range []string{
				fmt.Sprintf("reduce#12 has not ended after %ds", 10<<i),
				fmt.Sprintf("rank %d has not entered reduce#12", late),
			} {
				if !strings.Contains(text, want) {
					t.Errorf("warning %d reads %q, without %q", i, text, want)
				}
			}
		}
	}
}

// TestManyThatAreLateAreWarnedOfOnce: of hundreds of collectives that wait for the same rank, some are
// named in every turn of warnings, and a line says that there is no more to come.
func TestManyThatAreLateAreWarnedOfOnce(t *testing.T) {
	defer goleak.VerifyNone(t)
	const late, many, each = 2, 200, 3
	var warned warnings
	errs := stuck(t, 3, nbc.Options{Deadline: 10 * time.Second, Warn: warned.add}, asIs, func(e *nbc.Engine) error {
		if e.Rank() == late {
			time.Sleep(35 * time.Second)
		}
		var requests []*nbc.Request
		var err error
		for i := range many {
			buf := reductionOf(40)
			buf.Instance = uint32(i)
			r, failed := e.Prepare(chainReduce(t, e.Rank(), e.Size(), 40, 10), buf)
			if failed != nil {
				return errors.Join(err, failed)
			}
			defer r.Close()
			requests, err = append(requests, r), errors.Join(err, r.Start())
		}
		for _, r := range requests {
			err = errors.Join(err, r.Wait(context.Background()))
		}
		return err
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	turns, silent := map[string]int{}, 0
	for _, text := range warned.text {
		for _, after := range []string{"after 10s", "after 20s"} {
			if strings.Contains(text, after) {
				turns[after]++
			}
		}
		if strings.HasSuffix(text, "of others that wait as well nothing is said for 10s") || strings.HasSuffix(text, "nothing is said for 20s") {
			silent++
		}
	}
	if turns["after 10s"] != each || turns["after 20s"] != each || len(warned.text) != 2*each || silent != 2 {
		t.Errorf("of %d collectives it is warned %d times, %v, want %d after each of two times; %d lines say that it ends: %q", many, len(warned.text), turns, each, silent, warned.text)
	}
}

// TestALateRankIsNotWaitedForEver.
func TestALateRankIsNotWaitedForEver(t *testing.T) {
	defer goleak.VerifyNone(t)
	var took time.Duration
	errs := stuck(t, 3, nbc.Options{Deadline: 10 * time.Second, MaxDeadline: 2 * time.Minute}, asIs, func(e *nbc.Engine) error {
		if e.Rank() == 2 {
			return outside(e)
		}
		start := time.Now()
		err := reduction(t, e, nbc.Binding{Name: "reduce", Instance: 12})
		if e.Rank() == 0 {
			took = time.Since(start)
		}
		return err
	})
	if took < 2*time.Minute || took > 126*time.Second {
		t.Errorf("given up after %v", took)
	}
	for _, want := range []string{"did not end within 2m0s", "rank 2 has not entered reduce#12"} {
		if !strings.Contains(fmt.Sprint(errs[0]), want) {
			t.Errorf("rank 0 says %q, without %q", errs[0], want)
		}
	}
}

// TestACallsOwnDeadlineIsKept: who asks for one asks for no more.
func TestACallsOwnDeadlineIsKept(t *testing.T) {
	defer goleak.VerifyNone(t)
	errs := stuck(t, 2, nbc.Options{}, asIs, func(e *nbc.Engine) error {
		if e.Rank() == 1 {
			return outside(e)
		}
		start := time.Now()
		err := reduction(t, e, nbc.Binding{Name: "reduce", Deadline: 5 * time.Second})
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("given up after %v", took)
		}
		return err
	})
	if want := "did not end within 5s"; !strings.Contains(fmt.Sprint(errs[0]), want) {
		t.Errorf("rank 0 says %q, without %q", errs[0], want)
	}
}

// stopping is a transport whose rank can be stopped: it then answers nothing.
type stopping struct {
	nbc.Transport
	stopped *atomic.Bool
}

func (s stopping) Notify(to int, notice []byte) error {
	if s.stopped.Load() {
		return nil
	}
	return s.Transport.(nbc.Notifier).Notify(to, notice)
}

func (s stopping) NextNotice(buf []byte) (int, int) {
	if s.stopped.Load() {
		return -1, 0
	}
	return s.Transport.(nbc.Notifier).NextNotice(buf)
}

// TestALateRankThatStopsEndsTheWait: the long deadline is for ranks that
// answer.
func TestALateRankThatStopsEndsTheWait(t *testing.T) {
	defer goleak.VerifyNone(t)
	var stopped [2]atomic.Bool
	errs := stuck(t, 2, nbc.Options{Deadline: 2 * time.Minute}, func(t nbc.Transport) nbc.Transport {
		return stopping{t, &stopped[t.Rank()]}
	}, func(e *nbc.Engine) error {
		if e.Rank() == 1 {
			time.Sleep(5 * time.Minute)
			stopped[1].Store(true)
			return outside(e)
		}
		start := time.Now()
		err := reduction(t, e, nbc.Binding{Name: "reduce"})
		if took := time.Since(start); took < 5*time.Minute || took > 7*time.Minute {
			t.Errorf("given up after %v", took)
		}
		return err
	})
	if want := "rank 1 has not answered"; !strings.Contains(fmt.Sprint(errs[0]), want) {
		t.Errorf("rank 0 says %q, without %q", errs[0], want)
	}
}

// tardy is a transport that hands notices on only after a while.
type tardy struct {
	nbc.Transport
	by      time.Duration
	waiting *[]tardyNotice
}

type tardyNotice struct {
	from int
	text []byte
	due  time.Time
}

func (s tardy) Notify(to int, notice []byte) error {
	return s.Transport.(nbc.Notifier).Notify(to, notice)
}

func (s tardy) NextNotice(buf []byte) (int, int) {
	if from, n := s.Transport.(nbc.Notifier).NextNotice(buf); from >= 0 {
		*s.waiting = append(*s.waiting, tardyNotice{from, append([]byte(nil), buf[:n]...), time.Now().Add(s.by)})
	}
	if w := *s.waiting; len(w) > 0 && !time.Now().Before(w[0].due) {
		*s.waiting = w[1:]
		return w[0].from, copy(buf, w[0].text)
	}
	return -1, 0
}

// TestASlowRankIsNotAccused: rank 1 waits like the others, and answers late,
// since its machine is busy; the rank to be named is the one that never calls.
func TestASlowRankIsNotAccused(t *testing.T) {
	defer goleak.VerifyNone(t)
	const n, never = 4, 3
	errs := stuck(t, n, strictly(30*time.Second), func(t nbc.Transport) nbc.Transport {
		if t.Rank() != 1 {
			return t
		}
		return tardy{t, 4 * time.Second, new([]tardyNotice)}
	}, func(e *nbc.Engine) error {
		if e.Rank() == never {
			return outside(e)
		}
		return reduction(t, e, nbc.Binding{Name: "reduce", Instance: 5})
	})
	for r, err := range errs[:never] {
		text := fmt.Sprint(err)
		if !strings.Contains(text, "rank 3 has not entered reduce#5") || strings.Contains(text, "has not answered") {
			t.Errorf("rank %d says %q", r, text)
		}
	}
}

// sleeper is a transport that looks about a hundred times, and then rests until
// it is woken.
type sleeper struct {
	nbc.Transport
	parks *int
}

func (s sleeper) Park(time.Duration) {
	if *s.parks++; *s.parks > 100 {
		s.Transport.Park(time.Hour)
		return
	}
	time.Sleep(10 * time.Microsecond) // drive has its context watched when some have passed
}

func (s sleeper) Migrate() bool { return true }

// TestTheEndOfAContextWakesABlockingCall, whose thread turns the loop and may
// be resting.
func TestTheEndOfAContextWakesABlockingCall(t *testing.T) {
	defer goleak.VerifyNone(t)
	w := inproc.NewWorld(2, inproc.Options{})
	e, err := nbc.Start(func() (nbc.Transport, error) {
		inner, err := w.Open(0)()
		return sleeper{inner, new(int)}, err
	}, host(t), nbc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := e.Prepare(chainReduce(t, 0, 2, 40, 10), reductionOf(40))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := r.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ended with %v", err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}
