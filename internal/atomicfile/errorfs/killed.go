package errorfs

import (
	"errors"
	"sync/atomic"

	"github.com/scaffe/scaffe/internal/atomicfile"
)

// ErrKilled is what the operations of a Killed fail with.
var ErrKilled = errors.New("errorfs: killed")

// Killed is a file system under a process that is killed before its operation number At,
// counted from 0: from there on nothing happens to files any more, and of a write that was
// under way half is done.
type Killed struct {
	At  int64
	ops atomic.Int64
}

// Dead reports whether the process has been killed.
func (k *Killed) Dead() bool { return k.ops.Load() > k.At }

// next counts an operation.
func (k *Killed) next() error {
	if k.ops.Add(1) > k.At {
		return ErrKilled
	}
	return nil
}

// Create implements atomicfile.FS.
func (k *Killed) Create(path string) (atomicfile.File, error) {
	if err := k.next(); err != nil {
		return nil, err
	}
	f, err := atomicfile.OS.Create(path)
	if err != nil {
		return nil, err
	}
	return &killedFile{f, k}, nil
}

// Rename implements atomicfile.FS.
func (k *Killed) Rename(from, to string) error {
	if err := k.next(); err != nil {
		return err
	}
	return atomicfile.OS.Rename(from, to)
}

// Remove implements atomicfile.FS.
func (k *Killed) Remove(path string) error {
	if err := k.next(); err != nil {
		return err
	}
	return atomicfile.OS.Remove(path)
}

// SyncDir implements atomicfile.FS.
func (k *Killed) SyncDir(dir string) error {
	if err := k.next(); err != nil {
		return err
	}
	return atomicfile.OS.SyncDir(dir)
}

type killedFile struct {
	atomicfile.File
	of *Killed
}

func (f *killedFile) Write(p []byte) (int, error) {
	dead := f.of.Dead()
	if err := f.of.next(); err == nil {
		return f.File.Write(p)
	}
	if dead {
		return 0, ErrKilled
	}
	n, _ := f.File.Write(p[:len(p)/2])
	return n, ErrKilled
}

func (f *killedFile) Sync() error {
	if err := f.of.next(); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *killedFile) Close() error { return errors.Join(f.File.Close(), f.of.next()) }
