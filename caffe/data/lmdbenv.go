//go:build cgo

package data

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"sync"

	"github.com/PowerDNS/lmdb-go/lmdb"
)

// environment is an LMDB that is open in this process. All who read the same
// file share it: one descriptor and one mapping however many they are, and
// LMDB asks that a process open no file twice.
//
// It is opened read-only and without LMDB's locks. With them, each transaction
// takes a slot in a table in lock.mdb, which all processes of a node share and
// which has room for 126: more readers fail with MDB_READERS_FULL, and making
// the table larger is up to whoever opens the LMDB first, maybe another
// program. It also must be written to by every reader, so that no data set can
// lie on a read-only file system, nor safely on most network file systems. The
// table serves one end only: to tell a writer which pages are still read.
// A data set being trained on has no writer: a new one is moved to its place
// (Writer), which leaves the file that is open as it is.
type environment struct {
	file    fs.FileInfo
	env     *lmdb.Env
	root    lmdb.DBI
	entries int64
	users   int
}

// environments are those that are open.
var environments struct {
	sync.Mutex
	open []*environment
}

// openEnvironment opens the LMDB in a file, or shares it where it is open
// already and has not changed since.
func openEnvironment(file string, fi fs.FileInfo) (*environment, error) {
	environments.Lock()
	defer environments.Unlock()
	for _, e := range environments.open {
		if os.SameFile(e.file, fi) && e.file.Size() == fi.Size() && e.file.ModTime().Equal(fi.ModTime()) {
			e.users++
			return e, nil
		}
	}
	env, err := lmdb.NewEnv()
	if err != nil {
		return nil, err
	}
	e := &environment{file: fi, env: env, users: 1}
	if err := e.init(file); err != nil {
		return nil, errors.Join(err, env.Close())
	}
	environments.open = append(environments.open, e)
	return e, nil
}

func (e *environment) init(file string) error {
	// Map what is there, not the terabyte that Caffe's tools reserve, which an
	// address space limited by the administrator would not have.
	if err := e.env.SetMapSize(e.file.Size()); err != nil {
		return err
	}
	if err := e.env.Open(file, lmdb.Readonly|lmdb.NoLock|lmdb.NoSubdir, 0o644); err != nil {
		return err
	}
	txn, err := e.env.BeginTxn(nil, lmdb.Readonly)
	if err != nil {
		return err
	}
	defer txn.Abort()
	// Opened once, and not by each reader: it writes to the environment.
	if e.root, err = txn.OpenRoot(0); err != nil {
		return err
	}
	stat, err := txn.Stat(e.root)
	if err != nil {
		return err
	}
	if e.entries = int64(stat.Entries); e.entries == 0 {
		return errors.New("holds no samples")
	}
	return nil
}

// share counts another user.
func (e *environment) share() *environment {
	environments.Lock()
	defer environments.Unlock()
	e.users++
	return e
}

// release takes a user's leave; with the last one the environment is closed.
func (e *environment) release() error {
	environments.Lock()
	defer environments.Unlock()
	if e.users--; e.users > 0 {
		return nil
	}
	environments.open = slices.DeleteFunc(environments.open, func(o *environment) bool { return o == e })
	return e.env.Close()
}

// cursor begins a read transaction with a cursor. Both are used by one
// goroutine at a time, on whatever thread it is then: lmdb-go opens everything
// with NOTLS.
func (e *environment) cursor() (*lmdb.Txn, *lmdb.Cursor, error) {
	txn, err := e.env.BeginTxn(nil, lmdb.Readonly)
	if err != nil {
		return nil, nil, err
	}
	txn.RawRead = true // values are read where they lie in the mapped file
	cur, err := txn.OpenCursor(e.root)
	if err != nil {
		txn.Abort()
		return nil, nil, err
	}
	return txn, cur, nil
}
