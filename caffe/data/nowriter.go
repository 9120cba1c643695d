//go:build !cgo

package data

import "errors"

var errNoLMDB = errors.New("this program was built without cgo and cannot write an LMDB: build it with CGO_ENABLED=1 and a C compiler")

// Writer writes an LMDB, which needs cgo.
type Writer struct{}

// Create needs cgo, without which it returns an error.
func Create(path string, force bool) (*Writer, error) { return nil, errNoLMDB }

// Put needs cgo.
func (w *Writer) Put(key string, value []byte) error { return errNoLMDB }

// Commit needs cgo.
func (w *Writer) Commit() error { return errNoLMDB }

// Abort does nothing.
func (w *Writer) Abort() {}
