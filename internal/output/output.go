// Package output is for programs whose results go to stdout: a result that
// could not be written is an error of the program, whichever function printed
// it and whether or not that one looked at the error.
package output

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
)

// Stdout is this process's standard output. Programs print their results to
// it, and return Stdout.Err at the end.
var Stdout = New(os.Stdout, "stdout")

// Writer remembers the first error of what it writes to. It is safe for
// concurrent use.
type Writer struct {
	mu   sync.Mutex
	to   io.Writer
	name string
	err  error
}

// New returns a Writer to w, whose name is for errors.
func New(w io.Writer, name string) *Writer { return &Writer{to: w, name: name} }

// Break makes every later Write fail with err, where what it writes to would
// not.
func (w *Writer) Break(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.to = broken{err}
}

type broken struct{ error }

func (b broken) Write([]byte) (int, error) { return 0, b.error }

// Write writes p. After an error it writes nothing more.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return 0, w.err
	}
	n, err := w.to.Write(p)
	if err != nil {
		if path := (*fs.PathError)(nil); errors.As(err, &path) {
			err = path.Err // without the name, which follows
		}
		w.err = fmt.Errorf("cannot write to %s: %w", w.name, err)
	}
	return n, w.err
}

// Err returns the first error, nil while all was written.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}
