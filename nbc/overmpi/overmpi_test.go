package overmpi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/mpi/mpitest"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/transporttest"
)

const within = 30 * time.Second

func TestMain(m *testing.M) { mpitest.Main(m) }

// with runs f with a transport of its own.
func with(f func(*Transport) error) func() error {
	return func() error {
		t, err := New(mpitest.World(), Options{CloseWait: within})
		if err != nil {
			return err
		}
		return errors.Join(f(t), t.Close(), t.Close())
	}
}

// bounds are of tags: the library's, MPI's least, and so small that tags are
// always used again.
var bounds = []int{0, 32767, 3, 1}

func TestConformance(t *testing.T) {
	for _, bound := range bounds {
		var tr *Transport
		mpitest.On(t, func() (err error) {
			tr, err = New(mpitest.World(), Options{CloseWait: within, TagBound: bound})
			return err
		})
		for _, c := range transporttest.Cases() {
			t.Run(fmt.Sprintf("tags to %d/%s", bound, c.Name), func(t *testing.T) {
				mpitest.On(t, func() error { return c.Run(tr) })
			})
		}
		mpitest.On(t, func() error { return tr.Close() })
	}
}

func TestAbortReachesEveryRankAndCloseStillMeets(t *testing.T) {
	mpitest.On(t, with(func(t *Transport) error { return transporttest.Abort(t) }))
}

func TestAbortTellsOnce(t *testing.T) {
	mpitest.On(t, with(func(t *Transport) error {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		last := t.Size() - 1
		if t.Rank() == last {
			reason := strings.Repeat("ä", noticeRoom) // longer than a notice has room for
			return errors.Join(transporttest.GiveUp(ctx, t, reason), t.Abort(ctx, "again"))
		}
		for ctx.Err() == nil {
			_, err := t.Poll(nil)
			var abort *nbc.AbortError
			if errors.As(err, &abort) {
				if abort.Rank != last || abort.Reason != strings.Repeat("ä", noticeRoom/2) {
					return fmt.Errorf("learned %+v", abort)
				}
				if err := t.Send(1, last, nbc.Tag{}, mem.Buffer{}); !errors.As(err, &abort) {
					return fmt.Errorf("a send after it returned %v", err)
				}
				return t.Abort(ctx, "me too") // nothing to add
			}
			if err != nil {
				return err
			}
			t.Park(time.Millisecond)
		}
		return ctx.Err()
	}))
}

// TestAbortLeavesTheLibraryAlone: Abort may be called while another thread is in
// the library, also by the thread that was there last. So it must not poll:
// without anybody who does, nobody is told.
func TestAbortLeavesTheLibraryAlone(t *testing.T) {
	if mpitest.World().Size() == 1 {
		t.Skip("needs someone to tell: run under mpirun")
	}
	mpitest.On(t, with(func(t *Transport) error {
		if t.Rank() == 0 {
			ended, cancel := context.WithCancel(context.Background())
			cancel()
			if err := t.Abort(ended, "the disk is full"); !errors.Is(err, context.Canceled) {
				return fmt.Errorf("the others were told without a poll: %v", err)
			}
			if t.abort.begun {
				return errors.New("Abort itself has sent notices")
			}
		}
		for until := time.Now().Add(within); time.Now().Before(until); t.Park(time.Millisecond) {
			_, err := t.Poll(nil)
			var abort *nbc.AbortError
			if errors.As(err, &abort) || t.Rank() == 0 && t.abort.begun && t.abort.left == 0 {
				return nil
			}
			if err != nil {
				return err
			}
		}
		return errors.New("not told")
	}))
}

// TestARankThatCannotOpenTakesTheOthersAlong: none waits for it.
func TestARankThatCannotOpenTakesTheOthersAlong(t *testing.T) {
	mpitest.On(t, func() error {
		odd := mpitest.World().Size() - 1
		if mpitest.World().Rank() == odd {
			defer func(f func(uint, int) (int, error)) { eventfd = f }(eventfd)
			eventfd = func(uint, int) (int, error) { return -1, unix.EMFILE }
		}
		_, err := New(mpitest.World(), Options{})
		switch {
		case mpitest.World().Rank() == odd && !errors.Is(err, unix.EMFILE):
			return fmt.Errorf("the failing rank returned %v", err)
		case mpitest.World().Rank() != odd && (err == nil || !strings.Contains(err.Error(), fmt.Sprintf("rank %d could not open", odd))):
			return fmt.Errorf("another rank returned %v", err)
		}
		return nil
	})
	mpitest.On(t, with(func(*Transport) error { return nil })) // the world is as it was
}

func TestTagBounds(t *testing.T) {
	mpitest.On(t, func() error {
		for _, bound := range []int{-1, mpitest.World().TagUB() + 1} {
			if _, err := New(mpitest.World(), Options{TagBound: bound}); err == nil || !strings.Contains(err.Error(), fmt.Sprint("invalid tag bound ", bound)) {
				return fmt.Errorf("a tag bound of %d: %v", bound, err)
			}
		}
		return nil
	})
}

func TestReceivesUnderWayAreDropped(t *testing.T) {
	mpitest.On(t, with(func(t *Transport) error {
		from := (t.Rank() + 1) % t.Size()
		b := make([]byte, 100)
		return errors.Join(
			t.Recv(1, from, nbc.Tag{Instance: 1}, mem.Of(b)),
			t.RecvBorrow(2, from, nbc.Tag{Instance: 2}, 100))
	}))
}

func TestAClosedTransportSaysSo(t *testing.T) {
	mpitest.On(t, func() error {
		t, err := New(mpitest.World(), Options{})
		if err != nil {
			return err
		}
		if err := t.Close(); err != nil {
			return err
		}
		_, polled := t.Poll(nil)
		for _, err := range []error{
			polled, t.Send(1, 0, nbc.Tag{}, mem.Buffer{}), t.Recv(1, 0, nbc.Tag{}, mem.Buffer{}),
			t.RecvBorrow(1, 0, nbc.Tag{}, 1), t.Abort(context.Background(), "late"),
		} {
			if !errors.Is(err, ErrClosed) {
				return fmt.Errorf("a closed transport answered %v", err)
			}
		}
		t.Wake()
		t.Park(time.Hour)
		return nil
	})
}

func TestRanksBeyondTheWorldAreRefused(t *testing.T) {
	mpitest.On(t, with(func(t *Transport) error {
		for _, r := range []int{-1, t.Size()} {
			if t.Send(1, r, nbc.Tag{}, mem.Buffer{}) == nil || t.Recv(1, r, nbc.Tag{}, mem.Buffer{}) == nil {
				return fmt.Errorf("rank %d was accepted", r)
			}
		}
		if t.active != 0 {
			return fmt.Errorf("%d operations under way", t.active)
		}
		return nil
	}))
}

func TestEmptyMessages(t *testing.T) {
	mpitest.On(t, with(func(t *Transport) error {
		to, from := (t.Rank()+1)%t.Size(), (t.Rank()+t.Size()-1)%t.Size()
		if err := errors.Join(t.RecvBorrow(1, from, nbc.Tag{}, 0), t.Send(2, to, nbc.Tag{}, mem.Buffer{})); err != nil {
			return err
		}
		return drain(t, 2)
	}))
}

// drain waits for n operations that must succeed, and releases them.
func drain(t *Transport, n int) error {
	var done [8]nbc.Completion
	for until := time.Now().Add(within); n > 0; {
		k, err := t.Poll(done[:])
		if err != nil {
			return err
		}
		for _, c := range done[:k] {
			if c.Err != nil {
				return c.Err
			}
			t.Release(c.Token)
		}
		if n -= k; k == 0 {
			t.Park(time.Millisecond)
		}
		if time.Now().After(until) {
			return fmt.Errorf("%d operations never ended", n)
		}
	}
	return nil
}

func TestMessagesAllocateNothing(t *testing.T) {
	if mpitest.World().Size() == 1 {
		t.Skip("needs a peer: run under mpirun")
	}
	for _, bound := range bounds {
		for _, n := range []int{8, inlineRoom, inlineRoom + 1, 100_000} {
			for _, unexpected := range []bool{false, true} {
				mpitest.On(t, func() error { return allocations(n, bound, unexpected) })
			}
		}
	}
}

// allocations sends messages of n bytes in a ring. An unexpected one has arrived
// before its receive is posted.
func allocations(n, bound int, unexpected bool) error {
	t, err := New(mpitest.World(), Options{CloseWait: within, TagBound: bound})
	if err != nil {
		return err
	}
	to, from := (t.Rank()+1)%t.Size(), (t.Rank()+t.Size()-1)%t.Size()
	src := mem.Alloc(n)
	defer src.Free()
	var failed error
	var tag nbc.Tag
	exchange := func() {
		tag.Instance++
		var err error
		if unexpected {
			err = t.Send(2, to, tag, src)
			for until := time.Now().Add(within); err == nil && t.waiting.Len() == 0; {
				if err = t.advance(); time.Now().After(until) {
					err = errors.New("the message never came")
				}
			}
			err = errors.Join(err, t.RecvBorrow(1, from, tag, n), drain(t, 2))
		} else {
			err = errors.Join(t.RecvBorrow(1, from, tag, n), t.Send(2, to, tag, src), drain(t, 2))
		}
		if err != nil && failed == nil {
			failed = err
		}
	}
	for range 10 {
		exchange()
	}
	if got := testing.AllocsPerRun(100, exchange); got != 0 && failed == nil {
		failed = fmt.Errorf("%v allocations for a send and a receive of %d bytes, tags to %d, unexpected: %v", got, n, bound, unexpected)
	}
	return errors.Join(failed, t.Close())
}

// TestTagsInUse: messages that nobody receives yet hold their tags, more of
// them than there are tags. They are received at last, the last one first.
func TestTagsInUse(t *testing.T) {
	for _, bound := range bounds {
		mpitest.On(t, func() error {
			t, err := New(mpitest.World(), Options{CloseWait: within, TagBound: bound})
			if err != nil {
				return err
			}
			return errors.Join(tagsInUse(t), t.Close())
		})
	}
}

func tagsInUse(t *Transport) error {
	const messages, n = 20, 10_000
	to, from := (t.Rank()+1)%t.Size(), (t.Rank()+t.Size()-1)%t.Size()
	got := make([][]byte, messages)
	tag := func(i int) nbc.Tag { return nbc.Tag{Comm: 7<<32 | 9, Instance: uint32(i) << 20} }
	for i := range messages {
		if err := t.Send(nbc.Token(100+i), to, tag(i), mem.Of(bytes.Repeat([]byte{byte(i)}, n))); err != nil {
			return err
		}
	}
	for until := time.Now().Add(within); t.waiting.Len() < messages; { // all are here
		if err := t.advance(); err != nil {
			return err
		}
		if time.Now().After(until) {
			return fmt.Errorf("%d of %d envelopes came", t.waiting.Len(), messages)
		}
	}
	for i := messages - 1; i >= 0; i-- {
		want := n
		if i == 4 {
			want = n + 1 // its message is dropped
		}
		got[i] = make([]byte, want)
		if err := t.Recv(nbc.Token(i), from, tag(i), mem.Of(got[i])); err != nil {
			return err
		}
	}
	var done [8]nbc.Completion
	for left, until := 2*messages, time.Now().Add(within); left > 0; {
		k, err := t.Poll(done[:])
		if err != nil {
			return err
		}
		for _, c := range done[:k] {
			if short := c.Token == 4; short != errors.Is(c.Err, nbc.ErrLength) || !short && c.Err != nil {
				return fmt.Errorf("operation %d ended with %v", c.Token, c.Err)
			}
		}
		if left -= k; time.Now().After(until) {
			return fmt.Errorf("%d operations never ended", left)
		}
	}
	for i, b := range got {
		if want := bytes.Repeat([]byte{byte(i)}, n); i != 4 && !bytes.Equal(b, want) {
			return fmt.Errorf("message %d has the data of message %d", i, b[0])
		}
	}
	return nil
}

// TestAPeerThatDiedHoldsNothingUp needs an mpirun that does not end the other
// ranks itself; scripts/test-mpi starts it so.
func TestAPeerThatDiedHoldsNothingUp(t *testing.T) {
	dir := os.Getenv("SCAFFE_TEST_DEATH") // survivors say so there: mpirun may be gone
	if dir == "" {
		t.Skip("kills a rank: run by scripts/test-mpi")
	}
	if mpitest.World().Size() < 2 {
		t.Fatal("needs two ranks")
	}
	mpitest.On(t, func() error {
		tr, err := New(mpitest.World(), Options{CloseWait: within})
		if err != nil {
			return err
		}
		if err := mpitest.World().Barrier(); err != nil {
			return err
		}
		if tr.Rank() == tr.Size()-1 {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		}
		b := make([]byte, 1<<20)
		err = errors.Join(tr.Recv(1, tr.Size()-1, nbc.Tag{}, mem.Of(b)), tr.Send(2, tr.Size()-1, nbc.Tag{}, mem.Of(b)))
		for range 100 {
			if err != nil { // the library noticed, or another rank gave up first
				break
			}
			_, err = tr.Poll(nil)
			tr.Park(time.Millisecond)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		told := transporttest.GiveUp(ctx, tr, "a peer is silent")
		report := fmt.Sprintf("learned: %v\nAbort: %v\nClose: %v\n", err, told, tr.Close())
		if err := os.WriteFile(fmt.Sprintf("%s/rank%d", dir, tr.Rank()), []byte(report), 0o666); err != nil {
			return err
		}
		os.Exit(0)
		return nil
	})
}
