//go:build cgo

package data

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/PowerDNS/lmdb-go/lmdb"
)

// Writer writes a new LMDB: into a temporary directory next to its path, to which
// Commit moves it, so that a reader never sees half of one.
type Writer struct {
	path, tmp string
	force     bool
	env       *lmdb.Env
	mapSize   int64

	// Records wait in one buffer for a transaction of many.
	buf     []byte
	records []record
}

type record struct {
	key string
	end int // where its value ends in buf
}

// A transaction's records and bytes: Caffe's tools commit every 1000 records.
const (
	txnRecords = 1000
	txnBytes   = 32 << 20
)

// Create begins an LMDB at path. It refuses a path that exists
// unless force says to replace it, and even then replaces only an LMDB. Either
// Commit or Abort must follow.
func Create(path string, force bool) (*Writer, error) {
	if err := CheckTarget(path, force); err != nil {
		return nil, err
	}
	path = filepath.Clean(path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(path), filepath.Base(path)+".tmp-*")
	if err != nil {
		return nil, err
	}
	w := &Writer{path: path, tmp: tmp, force: force, mapSize: 64 << 20}
	if err := w.open(); err != nil {
		w.Abort()
		return nil, fmt.Errorf("LMDB %s: %w", path, err)
	}
	return w, nil
}

func (w *Writer) open() (err error) {
	if err = os.Chmod(w.tmp, 0o755); err != nil {
		return err
	}
	if w.env, err = lmdb.NewEnv(); err != nil {
		return err
	}
	if err = w.env.SetMapSize(w.mapSize); err != nil {
		return err
	}
	// The directory is not visible to others yet: no locks, and one sync at the end.
	return w.env.Open(w.tmp, lmdb.NoLock|lmdb.NoSync, 0o644)
}

// Put adds a record; the value is copied. A duplicate key is an error, at the
// latest from Commit.
func (w *Writer) Put(key string, value []byte) error {
	if w.env == nil {
		return errors.New("the LMDB is closed")
	}
	if key == "" || len(key) > w.env.MaxKeySize() {
		return fmt.Errorf("LMDB %s: key %q has %d bytes: want 1 to %d", w.path, key, len(key), w.env.MaxKeySize())
	}
	w.buf = append(w.buf, value...)
	w.records = append(w.records, record{key, len(w.buf)})
	if len(w.records) < txnRecords && len(w.buf) < txnBytes {
		return nil
	}
	return w.flush()
}

// flush writes the waiting records in one transaction, enlarging the map as
// often as needed.
func (w *Writer) flush() error {
	for {
		err := w.env.Update(w.put)
		if err == nil {
			w.buf, w.records = w.buf[:0], w.records[:0]
			return nil
		}
		if !lmdb.IsMapFull(err) {
			return fmt.Errorf("LMDB %s: %w", w.path, err)
		}
		w.mapSize *= 2
		if err := w.env.SetMapSize(w.mapSize); err != nil {
			return fmt.Errorf("LMDB %s: growing to %d bytes: %w", w.path, w.mapSize, err)
		}
	}
}

func (w *Writer) put(txn *lmdb.Txn) error {
	dbi, err := txn.OpenRoot(0)
	if err != nil {
		return err
	}
	start := 0
	for _, r := range w.records {
		if err := txn.Put(dbi, []byte(r.key), w.buf[start:r.end], lmdb.NoOverwrite); err != nil {
			if lmdb.IsErrno(err, lmdb.KeyExist) {
				return fmt.Errorf("duplicate key %q", r.key)
			}
			return err
		}
		start = r.end
	}
	return nil
}

// Commit writes the waiting records and moves the LMDB to its path. After an
// error nothing is left behind, and what was at the path before is still there.
func (w *Writer) Commit() error {
	if w.env == nil {
		return errors.New("the LMDB is closed")
	}
	err := w.flush()
	if err == nil {
		err = w.env.Sync(true)
	}
	err = errors.Join(err, w.env.Close())
	w.env = nil
	if err == nil {
		err = w.move()
	}
	w.Abort()
	return err
}

func (w *Writer) move() error {
	if err := CheckTarget(w.path, w.force); err != nil {
		return err
	}
	old := w.tmp + "-old"
	if _, err := os.Lstat(w.path); err == nil {
		if err := os.Rename(w.path, old); err != nil {
			return err
		}
	}
	if err := os.Rename(w.tmp, w.path); err != nil {
		_ = os.Rename(old, w.path)
		return err
	}
	return os.RemoveAll(old)
}

// Abort discards the LMDB and removes what was written. After Commit it does
// nothing.
func (w *Writer) Abort() {
	if w.env != nil {
		_ = w.env.Close()
		w.env = nil
	}
	_ = os.RemoveAll(w.tmp) // a leftover directory does no harm
}
