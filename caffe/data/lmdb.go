package data

import (
	"fmt"
	"sort"
	"strconv"
)

// lmdbSource reads an LMDB of Datum in key order.
type lmdbSource struct {
	path string
	env  *environment // nil: closed
	leaf int          // the leaf page read last
	at   int64        // the sample read last
	key  []byte       // a copy: the file may become unreadable
	dec  Decoder
}

// OpenLMDB opens an LMDB of Datum read-only, without locks, so that any number
// of readers in any number of processes can read it at once, also from a
// read-only file system. path is the LMDB's directory or its data file. color
// is what encoded images are decoded to.
//
// It walks the LMDB's tree and returns an error about a damaged page or a wrong
// number of entries; large values, which lie outside of the tree, are checked
// when they are read.
//
// Sources of one file in one process share its mapping. The file must not be
// written to while it is read; it may be replaced, which readers that have it
// open do not see.
func OpenLMDB(path string, color Color) (Source, error) {
	file, err := lmdbFile(path)
	if err != nil {
		return nil, err
	}
	env, err := openEnvironment(file)
	if err != nil {
		return nil, fmt.Errorf("LMDB %s: %w", file, err)
	}
	return &lmdbSource{path: path, env: env, dec: Decoder{Color: color}}, nil
}

// Fork shares the mapping.
func (s *lmdbSource) Fork() (Source, error) {
	return &lmdbSource{path: s.path, env: s.env.share(), dec: Decoder{Color: s.dec.Color}}, nil
}

func (s *lmdbSource) Len() int64 { return s.env.entries }

func (s *lmdbSource) Where() string {
	if len(s.key) == 0 {
		return fmt.Sprintf("LMDB %s: sample %d", s.path, s.at)
	}
	return fmt.Sprintf("LMDB %s: key %s", s.path, strconv.Quote(string(s.key)))
}

func (s *lmdbSource) Read(_, i int64, out *Sample) error {
	value, err := s.seek(i)
	if err != nil {
		return err
	}
	return s.dec.Datum(value, out)
}

// seek finds sample i.
func (s *lmdbSource) seek(i int64) ([]byte, error) {
	leaves := s.env.leaves
	holds := func(l int) bool {
		return l < len(leaves) && leaves[l].first <= i && (l+1 == len(leaves) || i < leaves[l+1].first)
	}
	if !holds(s.leaf) {
		if s.leaf++; !holds(s.leaf) {
			s.leaf = sort.Search(len(leaves), func(l int) bool { return leaves[l].first > i }) - 1
		}
	}
	s.at = i
	s.key = s.key[:0]
	key, value, err := s.env.pages.entry(leaves[s.leaf].page, int(i-leaves[s.leaf].first))
	s.key = append(s.key, key...)
	return value, err
}

func (s *lmdbSource) Close() error {
	if s.env == nil {
		return nil
	}
	env := s.env
	s.key, s.env = nil, nil
	return env.release()
}
