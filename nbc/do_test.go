package nbc_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/inproc"
)

// TestAThreadThatIsKeptHoldsNothingUp: while a function has the engine's thread
// for itself, as inside a blocking call of a library, whoever asks what the rank
// waits for, calls Do or gives up is not kept too; and the engine ends as told
// once it has its thread back.
func TestAThreadThatIsKeptHoldsNothingUp(t *testing.T) {
	e, err := nbc.Start(inproc.NewWorld(1, inproc.Options{}).Open(0), host(t), nbc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	begun, kept, done := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		done <- e.Do(context.Background(), func() error {
			close(begun)
			<-kept
			return nil
		})
	}()
	<-begun
	if edges := e.Blocked(); len(edges) > 0 { // at once, or this test hangs
		t.Errorf("blocked by %v", edges)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	ran := false
	if err := e.Do(ctx, func() error { ran = true; return nil }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Do ended with %v", err)
	}
	_ = e.Abort(ctx, "the disk is full")
	close(kept)
	if err := <-done; err != nil {
		t.Error(err)
	}
	<-e.Failed() // or the engine has forgotten that its rank gave up
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if ran {
		t.Error("a function ran after Do had ended without it")
	}
}

// partial is a transport with a library that lacks binary16.
type partial struct{ nbc.Transport }

func (partial) Supports(c nbc.LibraryCall) error {
	if c.Datatype == mem.Float16 {
		return errors.New("no f16 here")
	}
	return nil
}

func (partial) Begin(nbc.Token, nbc.LibraryCall) error { return errors.New("begun") }

// TestWhatTheLibraryLacksIsRefusedWhenMade, and the engine works on.
func TestWhatTheLibraryLacksIsRefusedWhenMade(t *testing.T) {
	open := func() (nbc.Transport, error) {
		inner, err := inproc.NewWorld(1, inproc.Options{}).Open(0)()
		return partial{inner}, err
	}
	e, err := nbc.Start(open, host(t), nbc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	_, err = e.PrepareLibrary(nbc.LibraryCall{Datatype: mem.Float16, Count: 1}, nbc.Binding{Name: "allreduce", Instance: 7})
	if err == nil || !strings.Contains(err.Error(), "allreduce#7: no f16 here") {
		t.Errorf("prepared with %v", err)
	}
	if err := e.Err(); err != nil {
		t.Errorf("the engine has failed: %v", err)
	}
	if _, err := e.PrepareLibrary(nbc.LibraryCall{Datatype: mem.Float32, Count: 1}, nbc.Binding{}); err != nil {
		t.Error(err)
	}
}
