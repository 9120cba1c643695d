// Package atomicfile writes a file so that its name always stands for either
// the whole old contents or the whole new ones, whatever happens on the way: a
// full disk, an error, a killed process, a machine that loses power.
//
// The bytes go to a temporary file in the same directory, are synced, the file
// is renamed onto its name, and the directory is synced. On any error the
// temporary file is removed. A process killed on the way leaves at most a file
// named ".NAME.*.tmp", which nothing reads and anyone may delete.
//
// The file system stands behind FS, so that package errorfs can inject faults
// beneath the same code.
package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// FS is what an atomic write needs of a file system.
type FS interface {
	// Create makes a file that must not exist yet.
	Create(path string) (File, error)
	Rename(from, to string) error
	Remove(path string) error
	// SyncDir makes the names in a directory durable.
	SyncDir(dir string) error
}

// File is an open file of an FS.
type File interface {
	io.Writer
	Sync() error
	Close() error
}

// OS is the file system of the operating system.
var OS FS = osFS{}

type osFS struct{}

func (osFS) Create(path string) (File, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
}

func (osFS) Rename(from, to string) error { return os.Rename(from, to) }

func (osFS) Remove(path string) error { return os.Remove(path) }

func (osFS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Remove removes the file at path through fs (nil is OS), if there is one.
func Remove(fs FS, path string) error {
	if fs == nil {
		fs = OS
	}
	if err := fs.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Write puts data into the file at path through fs (nil is OS). On an error
// the name still stands for what it stood for before, except that a failed
// sync of the directory, after the rename, leaves the new contents in place,
// which may not survive a crash; the error then says so.
func Write(fs FS, path string, data []byte) error {
	return Stream(fs, path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// Stream is Write for contents that are made piece by piece: write is called
// with what to write to, and its error is one like any other.
func Stream(fs FS, path string, write func(io.Writer) error) error {
	if fs == nil {
		fs = OS
	}
	temp := temporary(path)
	if err := fill(fs, temp, write); err != nil {
		return fmt.Errorf("write %s: %w (what stood there before is untouched)", path, err)
	}
	if err := fs.Rename(temp, path); err != nil {
		return fmt.Errorf("write %s: %w (what stood there before is untouched)", path, errors.Join(err, fs.Remove(temp)))
	}
	if err := fs.SyncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("write %s: the file is in place, but may not survive a crash: %w", path, err)
	}
	return nil
}

// Check returns the error with which Write to path would fail at once: the
// directory is missing, or may not be written. A program that writes a file
// after a long run checks it before.
func Check(fs FS, path string) error {
	if fs == nil {
		fs = OS
	}
	if fi, err := os.Stat(path); err == nil && fi.IsDir() {
		return fmt.Errorf("cannot write %s: it is a directory", path)
	}
	temp := temporary(path)
	if err := fill(fs, temp, func(io.Writer) error { return nil }); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	if err := fs.Remove(temp); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return nil
}

// temporary returns a name in the directory of path.
func temporary(path string) string {
	dir, base := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	return filepath.Join(dir, fmt.Sprintf(".%s.%016x.tmp", base, rand.Uint64()))
}

// fill makes the temporary file, and removes it if that fails.
func fill(fs FS, temp string, write func(io.Writer) error) error {
	f, err := fs.Create(temp)
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return errors.Join(err, fs.Remove(temp))
	}
	return nil
}
