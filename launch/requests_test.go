package launch_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
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

// written is a log that may be read while it is written.
type written struct {
	mu sync.Mutex
	b  strings.Builder
}

func (w *written) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *written) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

func send(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(syscall.Getpid(), s); err != nil {
		t.Error(err)
	}
}

// taken waits until something was asked for.
func taken(ctx context.Context, r *launch.Requests) (snapshot, stop bool) {
	for ctx.Err() == nil && !snapshot && !stop {
		time.Sleep(time.Millisecond)
		snapshot, stop = r.Take()
	}
	return snapshot, stop
}

// TestRequests: every signal is noted once, as what it asks for, and ends nothing.
func TestRequests(t *testing.T) {
	defer goleak.VerifyNone(t)
	for s, stops := range map[syscall.Signal]bool{
		syscall.SIGINT: true, syscall.SIGTERM: true, syscall.SIGUSR2: true,
		syscall.SIGHUP: false, syscall.SIGUSR1: false,
	} {
		var r launch.Requests
		var log written
		opts := launch.Options{Local: 2, Requests: &r, Log: &log, Engine: nbc.Options{Deadline: 10 * time.Minute}}
		err := launch.Run(context.Background(), opts, func(ctx context.Context, c *collectives.Comm) error {
			if c.Rank() == 0 {
				send(t, s)
				if snapshot, stop := taken(ctx, &r); !snapshot || stop != stops {
					t.Errorf("%v asks for snapshot %v, stop %v", s, snapshot, stop)
				}
				if snapshot, stop := r.Take(); snapshot || stop {
					t.Errorf("%v is still asked for", s)
				}
			}
			return c.Barrier(ctx)
		})
		if err != nil {
			t.Errorf("%v ended the run: %v", s, err)
		}
		if said := strings.Contains(log.String(), "received "+s.String()+": stopping"); said != stops {
			t.Errorf("after %v the log has %q", s, log.String())
		}
	}
}

// TestAskedAgain: a second request, later, cancels the context.
func TestAskedAgain(t *testing.T) {
	defer launch.SetExit(func(int) { t.Error("the process was to end although the run did") })()
	var r launch.Requests
	opts := launch.Options{Local: 1, Requests: &r, Log: &written{}}
	err := launch.Run(context.Background(), opts, func(ctx context.Context, _ *collectives.Comm) error {
		sendUntil(t, ctx.Done())
		return context.Cause(ctx)
	})
	if got, want := fmt.Sprint(err), "stopped by interrupt"; got != want {
		t.Errorf("the run ended with %q, not %q", got, want)
	}
	if snapshot, stop := r.Take(); !snapshot || !stop {
		t.Error("the first signal was not noted")
	}
}

// TestExitsWhateverItComputes: a second request ends the process although f
// takes no notice of its context.
func TestExitsWhateverItComputes(t *testing.T) {
	var log written
	exited := make(chan struct{})
	defer launch.SetExit(func(code int) {
		if got, want := log.String(), "scaffe: stopped by interrupt\n"; code != 1 || !strings.HasSuffix(got, want) {
			t.Errorf("exit(%d) after %q", code, got)
		}
		close(exited)
	})()
	opts := launch.Options{Local: 2, Requests: &launch.Requests{}, Log: &log}
	_ = launch.Run(context.Background(), opts, func(ctx context.Context, c *collectives.Comm) error {
		if c.Rank() == 0 {
			sendUntil(t, ctx.Done())
		}
		<-exited // it computes
		return nil
	})
}

// sendUntil sends SIGINT again and again: the first ones count as one.
func sendUntil(t *testing.T, done <-chan struct{}) {
	caught := make(chan os.Signal, 1) // or one too many kills the test
	signal.Notify(caught, syscall.SIGINT)
	defer signal.Stop(caught)
	for {
		send(t, syscall.SIGINT)
		select {
		case <-done:
			return
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// TestNobodyCanStop: where the launcher sends SIGTERM because a rank has died,
// the others cannot act on it; they say soon what they wait for.
func TestNobodyCanStop(t *testing.T) {
	var r launch.Requests
	var log written
	opts := launch.Options{Local: 2, Requests: &r, Log: &log, Engine: nbc.Options{Deadline: 10 * time.Minute}}
	want := regexp.MustCompile(`received terminated while rank 0 waits for chunk 0 of allreduce#\d+ from rank 1`)
	err := launch.Run(context.Background(), opts, func(ctx context.Context, c *collectives.Comm) error {
		one := mem.Of([]float32{1})
		if c.Rank() == 1 { // as good as dead: joins too late
			send(t, syscall.SIGTERM)
			for !want.MatchString(log.String()) && ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
		}
		return c.Allreduce(ctx, one, one, mem.Float32, mem.Sum)
	})
	if err != nil || !want.MatchString(log.String()) {
		t.Errorf("the run ended with %v; the log has %q", err, log.String())
	}
}
