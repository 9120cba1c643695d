// Package errorfs injects faults beneath atomicfile, for tests: a disk that is
// full after so many bytes, a sync that fails, a rename that fails.
//
//	fs := &errorfs.FS{Fault: errorfs.Write, After: 1000} // ENOSPC at byte 1000
package errorfs

import (
	"sync/atomic"
	"syscall"

	"github.com/scaffe/scaffe/internal/atomicfile"
)

// Op is an operation that can fail.
type Op string

// The operations of atomicfile.FS and atomicfile.File.
const (
	Create  Op = "create"
	Write   Op = "write"
	Sync    Op = "sync"
	Close   Op = "close"
	Rename  Op = "rename"
	SyncDir Op = "syncdir"
)

// FS is a file system in which one kind of operation fails.
type FS struct {
	Under atomicfile.FS // nil is atomicfile.OS
	Fault Op            // the operation that fails; none if empty
	After int64         // for Write: bytes that still fit, over all files
	Err   error         // what it fails with; nil is ENOSPC

	written atomic.Int64
}

func (f *FS) under() atomicfile.FS {
	if f.Under == nil {
		return atomicfile.OS
	}
	return f.Under
}

// fail returns the error to inject if op is the one that fails.
func (f *FS) fail(op Op) error {
	switch {
	case op != f.Fault:
		return nil
	case f.Err != nil:
		return f.Err
	default:
		return syscall.ENOSPC
	}
}

// Create implements atomicfile.FS.
func (f *FS) Create(path string) (atomicfile.File, error) {
	if err := f.fail(Create); err != nil {
		return nil, err
	}
	under, err := f.under().Create(path)
	if err != nil {
		return nil, err
	}
	return &file{under, f}, nil
}

// Rename implements atomicfile.FS.
func (f *FS) Rename(from, to string) error {
	if err := f.fail(Rename); err != nil {
		return err
	}
	return f.under().Rename(from, to)
}

// Remove implements atomicfile.FS. It never fails by injection.
func (f *FS) Remove(path string) error { return f.under().Remove(path) }

// SyncDir implements atomicfile.FS.
func (f *FS) SyncDir(dir string) error {
	if err := f.fail(SyncDir); err != nil {
		return err
	}
	return f.under().SyncDir(dir)
}

type file struct {
	atomicfile.File
	fs *FS
}

// Write writes what still fits, then fails, as a full disk does.
func (w *file) Write(p []byte) (int, error) {
	err := w.fs.fail(Write)
	left := w.fs.After - w.fs.written.Load()
	if err == nil || int64(len(p)) <= left {
		n, werr := w.File.Write(p)
		w.fs.written.Add(int64(n))
		return n, werr
	}
	n, werr := w.File.Write(p[:max(left, 0)])
	w.fs.written.Add(int64(n))
	if werr != nil {
		return n, werr
	}
	return n, err
}

func (w *file) Sync() error {
	if err := w.fs.fail(Sync); err != nil {
		return err
	}
	return w.File.Sync()
}

func (w *file) Close() error {
	cerr := w.File.Close()
	if err := w.fs.fail(Close); err != nil {
		return err
	}
	return cerr
}
