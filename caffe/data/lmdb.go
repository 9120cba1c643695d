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
	env  *environment
	txn  *lmdb.Txn
	cur  *lmdb.Cursor
	at   int64 // the sample the cursor stands on, -1 before the first
	key  []byte
	val  []byte
	dec  Decoder
}

// OpenLMDB opens an LMDB of Datum read-only, without locks, so that any number
// of readers in any number of processes can read it at once, also from a
// read-only file system. path is the LMDB's directory or its data file. color
// is what encoded images are decoded to.
//
// Sources of one file in one process share its descriptor and its mapping. The
// file must not be written to while it is read; it may be replaced, which
// readers that have it open do not see.
func OpenLMDB(path string, color Color) (Source, error) {
	file, fi, err := lmdbFile(path)
	if err != nil {
		return nil, err
	}
	env, err := openEnvironment(file, fi)
	if err != nil {
		return nil, fmt.Errorf("LMDB %s: %w", path, err)
	}
	return newLMDBSource(path, env, color)
}

// newLMDBSource begins to read from env, of which it is a user.
func newLMDBSource(path string, env *environment, color Color) (Source, error) {
	txn, cur, err := env.cursor()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("LMDB %s: %w", path, err), env.release())
	}
	return &lmdbSource{path: path, env: env, txn: txn, cur: cur, at: -1, dec: Decoder{Color: color}}, nil
}

// Fork begins a transaction of its own on the same environment.
func (s *lmdbSource) Fork() (Source, error) {
	return newLMDBSource(s.path, s.env.share(), s.dec.Color)
}

func (s *lmdbSource) Len() int64 { return s.env.entries }

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
			return fmt.Errorf("the LMDB is damaged: cannot read sample %d of %d: %w", at, s.env.entries, err)
		}
		s.key, s.val = key, val
		s.at++
	}
	return nil
}

func (s *lmdbSource) Close() error {
	s.key, s.val = nil, nil
	if s.txn == nil {
		return nil
	}
	s.cur.Close()
	s.txn.Abort()
	s.cur, s.txn = nil, nil
	return s.env.release()
}
