package output

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// full takes room bytes.
type full struct{ room int }

func (f *full) Write(p []byte) (int, error) {
	n := min(len(p), f.room)
	if f.room -= n; n < len(p) {
		return n, syscall.ENOSPC
	}
	return n, nil
}

// A broken Writer is an error from the next result on, and not before.
func TestBreak(t *testing.T) {
	closed := errors.New("it is closed")
	w := New(&full{room: 4}, "stdout")
	w.Break(closed)
	if w.Err() != nil {
		t.Error(w.Err())
	}
	if _, err := w.Write([]byte("a")); !errors.Is(err, closed) || !errors.Is(w.Err(), closed) {
		t.Errorf("%v, %v", err, w.Err())
	}
}

// The first error is kept, and nothing follows the gap.
func TestWriterRemembers(t *testing.T) {
	f := &full{room: 4}
	w := New(f, "stdout")
	fmt.Fprint(w, "abc")
	if err := w.Err(); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(w, "def")
	f.room = 100
	fmt.Fprint(w, "ghi")
	if err := w.Err(); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "cannot write to stdout") {
		t.Errorf("error %v", err)
	}
	if f.room != 100 {
		t.Error("it wrote after the error")
	}
}
