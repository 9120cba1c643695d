package launch_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

func run(n int, f func(context.Context, *collectives.Comm) error) error {
	return launch.Run(context.Background(), launch.Options{Local: n, Engine: nbc.Options{Deadline: 10 * time.Minute}}, f)
}

// TestRun: all ranks run, and nothing is left behind.
func TestRun(t *testing.T) {
	defer goleak.VerifyNone(t)
	ran := make([]bool, 4)
	err := run(4, func(ctx context.Context, c *collectives.Comm) error {
		ran[c.Rank()] = c.Size() == 4
		return c.Barrier(ctx)
	})
	if err != nil || fmt.Sprint(ran) != "[true true true true]" {
		t.Errorf("%v, %v", ran, err)
	}
}

// TestOneMessage: whichever ranks fail, and wherever the others are, there is
// one message, and it names a rank that failed.
func TestOneMessage(t *testing.T) {
	broken := errors.New("the disk is full")
	for name, f := range map[string]func(context.Context, *collectives.Comm) error{
		"rank 2 fails, the others wait": func(ctx context.Context, c *collectives.Comm) error {
			if c.Rank() == 2 {
				return broken
			}
			return c.Barrier(ctx)
		},
		"rank 2 fails, the others have finished": func(_ context.Context, c *collectives.Comm) error {
			if c.Rank() == 2 {
				return broken
			}
			return nil
		},
		"rank 2 fails, all agree": func(ctx context.Context, c *collectives.Comm) error {
			var err error
			if c.Rank() == 2 {
				err = broken
			}
			return c.Agree(ctx, err)
		},
	} {
		err := run(4, f)
		if got, want := fmt.Sprint(err), "rank 2: the disk is full"; got != want {
			t.Errorf("%s: the message is %q, not %q", name, got, want)
		}
	}
	err := run(4, func(context.Context, *collectives.Comm) error { return broken })
	if got := fmt.Sprint(err); !strings.HasPrefix(got, "rank ") || strings.Count(got, broken.Error()) != 1 {
		t.Errorf("all ranks fail: the message is %q", got)
	}
	if err := run(1, func(context.Context, *collectives.Comm) error { return broken }); fmt.Sprint(err) != broken.Error() {
		t.Errorf("one rank alone: the message is %q", err)
	}
}

// logged is what ranks log, to be read meanwhile.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestALateRankIsWarnedOf, and waited for beyond the deadline.
func TestALateRankIsWarnedOf(t *testing.T) {
	var log logged
	opts := launch.Options{Local: 2, Engine: nbc.Options{Deadline: 100 * time.Millisecond}, Log: &log}
	err := launch.Run(context.Background(), opts, func(ctx context.Context, c *collectives.Comm) error {
		for end := time.Now().Add(2 * time.Minute); c.Rank() == 1 && time.Now().Before(end); time.Sleep(time.Millisecond) {
			if strings.Contains(log.String(), "\n") {
				break
			}
		}
		return c.Barrier(ctx)
	})
	if err != nil {
		t.Error(err)
	}
	for _, want := range []string{"scaffe: warning: allreduce#", "has not ended after", "rank 1 has not entered"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log is %q, without %q", log.String(), want)
		}
	}
}

// TestToldToStop: with SIGTERM a rank says what it waited for, and ends.
func TestToldToStop(t *testing.T) {
	var log strings.Builder
	rank0 := make(chan *nbc.Engine, 1)
	opts := launch.Options{Local: 2, Engine: nbc.Options{Deadline: 10 * time.Minute}, Log: &log}
	err := launch.Run(context.Background(), opts, func(ctx context.Context, c *collectives.Comm) error {
		if c.Rank() == 1 { // as good as dead: never joins
			for e := <-rank0; len(e.Blocked()) == 0; {
				time.Sleep(time.Millisecond)
			}
			if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
				return err
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}
		rank0 <- c.Engine()
		one := mem.Of([]float32{1})
		return c.Allreduce(ctx, one, one, mem.Float32, mem.Sum)
	})
	if err == nil || !strings.Contains(err.Error(), "terminated") {
		t.Errorf("the run ended with %v", err)
	}
	if got, want := log.String(), `rank 0 waits for chunk 0 of allreduce#\d+ from rank 1`; !regexp.MustCompile(want).MatchString(got) {
		t.Errorf("the log has %q, without %q", got, want)
	}
}
