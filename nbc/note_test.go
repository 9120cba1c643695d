package nbc_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/scaffe/scaffe/nbc"
)

// TestNoteAfterFailure: a rank learns of another's failure without waiting in a
// collective, and notes still travel both ways after it, cut where too long.
func TestNoteAfterFailure(t *testing.T) {
	defer goleak.VerifyNone(t)
	long := strings.Repeat("long ", 1000)
	var handlers sync.WaitGroup
	handlers.Add(2)
	ring(t, 2, func() nbc.Device { return host(t) }, func(e *nbc.Engine) error {
		notes := make(chan string, 1)
		e.HandleNotes(func(from int, text string) {
			if from != 1-e.Rank() {
				t.Errorf("rank %d has a note from %d", e.Rank(), from)
			}
			notes <- text
		})
		if e.Rank() == 1 {
			if err := e.Abort(context.Background(), "no data"); err != nil {
				return err
			}
		}
		select {
		case <-e.Failed():
		case <-time.After(time.Minute):
			return errors.New("nothing says that the engine has failed")
		}
		if abort := (*nbc.AbortError)(nil); !errors.As(e.Err(), &abort) || abort.Rank != 1 {
			return e.Err()
		}
		handlers.Done()
		handlers.Wait() // or a note might find none
		e.Note(1-e.Rank(), long)
		select {
		case text := <-notes:
			if !strings.HasPrefix(long, text) || len(text) < 100 {
				t.Errorf("the note is %q", text)
			}
		case <-time.After(time.Minute):
			return errors.New("no note has arrived")
		}
		return nil
	})
}
