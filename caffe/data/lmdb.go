//go:build cgo

package data

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/PowerDNS/lmdb-go/lmdb"
)

// lmdbSource reads an LMDB of Datum in key order by stepping a cursor: no
// start-up cost however many keys there are, and no memory.
type lmdbSource struct {
	path string
	env  *lmdb.Env
	txn  *lmdb.Txn
	cur  *lmdb.Cursor
	n    int64
	at   int64 // the sample the cursor stands on, -1 before the first
	key  []byte
	val  []byte
	dec  Decoder
}

// OpenLMDB opens an LMDB of Datum read-only, without locks, so that any number
// of readers in any number of processes can read it at once, also from a
// read-only file system. path is the LMDB's directory or its data file. color
// is what encoded images are decoded to.
func OpenLMDB(path string, color Color) (Source, error) {
	file, size, err := lmdbFile(path)
	if err != nil {
		return nil, err
	}
	s := &lmdbSource{path: path, at: -1, dec: Decoder{Color: color}}
	if err := s.open(file, size); err != nil {
		return nil, errors.Join(fmt.Errorf("LMDB %s: %w", path, err), s.Close())
	}
	return s, nil
}

func (s *lmdbSource) open(file string, size int64) (err error) {
	if s.env, err = lmdb.NewEnv(); err != nil {
		return err
	}
	// Map what is there, not the terabyte that Caffe's tools reserve: many
	// readers in one process would run out of addresses.
	if err = s.env.SetMapSize(size); err != nil {
		return err
	}
	if err = s.env.Open(file, lmdb.Readonly|lmdb.NoLock|lmdb.NoSubdir, 0o644); err != nil {
		return err
	}
	if s.txn, err = s.env.BeginTxn(nil, lmdb.Readonly); err != nil {
		return err
	}
	s.txn.RawRead = true // values are read where they lie in the mapped file
	dbi, err := s.txn.OpenRoot(0)
	if err != nil {
		return err
	}
	stat, err := s.txn.Stat(dbi)
	if err != nil {
		return err
	}
	if s.n = int64(stat.Entries); s.n == 0 {
		return errors.New("holds no samples")
	}
	s.cur, err = s.txn.OpenCursor(dbi)
	return err
}

func (s *lmdbSource) Len() int64 { return s.n }

func (s *lmdbSource) Where() string {
	if s.key == nil {
		return fmt.Sprintf("LMDB %s: sample %d", s.path, s.at)
	}
	return fmt.Sprintf("LMDB %s: key %s", s.path, strconv.Quote(string(s.key)))
}

func (s *lmdbSource) Read(_, i int64, out *Sample) error {
	if err := s.seek(i); err != nil {
		return err
	}
	return s.dec.Datum(s.val, out)
}

// seek steps the cursor to sample i.
func (s *lmdbSource) seek(i int64) error {
	if i < s.at {
		s.at = -1
	}
	for s.at < i {
		op := uint(lmdb.Next)
		if s.at < 0 {
			op = lmdb.First
		}
		key, val, err := s.cur.Get(nil, nil, op)
		if err != nil {
			at := s.at + 1
			s.key, s.val, s.at = nil, nil, -1
			return fmt.Errorf("the LMDB is damaged: cannot read sample %d of %d: %w", at, s.n, err)
		}
		s.key, s.val = key, val
		s.at++
	}
	return nil
}

func (s *lmdbSource) Close() error {
	s.key, s.val = nil, nil
	if s.cur != nil {
		s.cur.Close()
		s.cur = nil
	}
	if s.txn != nil {
		s.txn.Abort()
		s.txn = nil
	}
	if s.env == nil {
		return nil
	}
	err := s.env.Close()
	s.env = nil
	return err
}
