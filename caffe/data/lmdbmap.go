package data

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// environment is an LMDB that is open in this process: its file, mapped into
// memory, and an index of its leaf pages. All readers of the same file share it.
//
// It is read without LMDB's locks. With them, each transaction takes a slot in
// a table in lock.mdb, which all processes of a node share and which has room
// for 126. Every reader must also write to it, which rules out read-only file
// systems and is unsafe on most network file systems. The table has one purpose:
// to tell a writer which pages are still read. A data set that is trained on has
// no writer: a new one is renamed to its path (Writer), which leaves the open
// file as it is.
type environment struct {
	file    fs.FileInfo
	pages   pages
	leaves  []leaf
	entries int64
	users   int
}

// environments are those that are open.
var environments struct {
	sync.Mutex
	open []*environment
}

// openEnvironment opens the LMDB in a file, or shares it if it is open already
// and has not changed since.
func openEnvironment(path string) (*environment, error) {
	environments.Lock()
	defer environments.Unlock()
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	for _, e := range environments.open {
		if os.SameFile(e.file, fi) && e.file.Size() == fi.Size() && e.file.ModTime().Equal(fi.ModTime()) {
			e.users++
			return e, nil
		}
	}
	e := &environment{file: fi, users: 1}
	if err := e.init(f); err != nil {
		return nil, errors.Join(err, e.unmap())
	}
	environments.open = append(environments.open, e)
	return e, nil
}

// init maps the file and checks its tree.
func (e *environment) init(f *os.File) error {
	m, err := checkWhole(f, e.file.Size())
	if err != nil {
		return err
	}
	if int64(int(e.file.Size())) != e.file.Size() {
		return errors.New("the LMDB is too large for the address space of this machine")
	}
	e.pages.size = int(m.pageSize)
	if e.pages.bytes, err = unix.Mmap(int(f.Fd()), 0, int(e.file.Size()), unix.PROT_READ, unix.MAP_SHARED); err != nil {
		return fmt.Errorf("mapping %d bytes into memory: %w", e.file.Size(), err)
	}
	if err := guard(func() (err error) { e.leaves, err = e.pages.check(m); return err }); err != nil {
		return err
	}
	e.entries = int64(m.main.entries)
	return nil
}

func (e *environment) unmap() error {
	if e.pages.bytes == nil {
		return nil
	}
	bytes := e.pages.bytes
	e.pages.bytes, e.leaves = nil, nil
	return unix.Munmap(bytes)
}

// share counts another user.
func (e *environment) share() *environment {
	environments.Lock()
	defer environments.Unlock()
	e.users++
	return e
}

// release counts one user less; with the last one the file is closed.
func (e *environment) release() error {
	environments.Lock()
	defer environments.Unlock()
	if e.users--; e.users > 0 {
		return nil
	}
	environments.open = slices.DeleteFunc(environments.open, func(o *environment) bool { return o == e })
	return e.unmap()
}
