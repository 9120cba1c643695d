package data

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// The layout of an LMDB data file (LMDB 0.9, data version 1): the first two
// pages each hold a page header of 16 bytes and then a meta record, of which the
// one with the higher transaction number counts. All in the machine's byte
// order.
const (
	metaAt     = headerSize
	metaMagic  = 0xBEEFC0DE
	versionAt  = metaAt + 4
	freeAt     = metaAt + 24 // the tree of free pages, which also has the page size
	mainAt     = freeAt + treeSize
	lastPageAt = mainAt + treeSize
	txnAt      = lastPageAt + 8
	metaSize   = txnAt + 8
	pageSizeAt = freeAt

	treeSize = 48 // of a tree's record
)

// lmdbFile resolves path, an LMDB's directory (Caffe's form) or its data file,
// to the data file.
func lmdbFile(path string) (string, error) {
	if path == "" {
		return "", errors.New("the source is empty: name the LMDB's directory")
	}
	fi, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	file := path
	if fi.IsDir() {
		file = filepath.Join(path, "data.mdb")
		if fi, err = os.Stat(file); err != nil {
			if _, lerr := os.Stat(filepath.Join(path, "CURRENT")); lerr == nil {
				return "", fmt.Errorf("%s is a LevelDB, which is not supported: convert it to LMDB", path)
			}
			return "", fmt.Errorf("%s is not an LMDB: %w", path, err)
		}
	}
	if !fi.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not an LMDB: not a regular file", file)
	}
	return file, nil
}

var errTruncated = errors.New("the LMDB is truncated: copy it or create it again")

// damaged makes an error about what a file holds.
func damaged(format string, args ...any) error {
	return fmt.Errorf("the LMDB is damaged: "+format+": copy it or create it again", args...)
}

// checkWhole reads the meta record that counts and compares it with the size of
// the file: a page that is not there would end the process with SIGBUS.
func checkWhole(f io.ReaderAt, size int64) (meta, error) {
	first, err := readMeta(f, 0, size)
	if err != nil {
		return meta{}, err
	}
	if first.pageSize < 256 || first.pageSize > 1<<16 || first.pageSize&(first.pageSize-1) != 0 {
		return meta{}, damaged("its page size is %d", first.pageSize)
	}
	second, err := readMeta(f, first.pageSize, size)
	if err != nil {
		return meta{}, err
	}
	m := first
	if second.txn > m.txn {
		m = second
	}
	// Transactions write the two in turn.
	if d := first.txn - second.txn; d != 1 && d != -1 && (first.txn != 0 || second.txn != 0) {
		return meta{}, damaged("the transactions of its headers are %d and %d, which do not follow each other", first.txn, second.txn)
	}
	if m.pageSize != first.pageSize {
		return meta{}, damaged("its page size is %d and %d", first.pageSize, m.pageSize)
	}
	if m.lastPage < 1 || m.lastPage >= 1<<48 {
		return meta{}, damaged("its last page is %d", m.lastPage)
	}
	if pages := size / first.pageSize; pages <= m.lastPage {
		return meta{}, fmt.Errorf("%w (%d bytes, its header says %d)", errTruncated, size, (m.lastPage+1)*first.pageSize)
	}
	return m, nil
}

// meta is a meta record.
type meta struct {
	pageSize, lastPage, txn int64
	main                    tree
}

// tree is the record of a B+ tree.
type tree struct {
	flags, depth     uint16
	branches, leaves uint64 // pages
	entries, root    uint64
}

func readMeta(f io.ReaderAt, at, size int64) (meta, error) {
	if size < at+metaSize {
		return meta{}, fmt.Errorf("%w (%d bytes)", errTruncated, size)
	}
	var b [metaSize]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		return meta{}, err
	}
	u64 := func(at int) uint64 { return binary.NativeEndian.Uint64(b[at:]) }
	u16 := func(at int) uint16 { return binary.NativeEndian.Uint16(b[at:]) }
	magic := binary.NativeEndian.Uint32(b[metaAt:])
	switch magic {
	case metaMagic:
	case 0xDEC0EFBE:
		return meta{}, errors.New("the LMDB was written on a machine of the other byte order: create it again on this one")
	default:
		return meta{}, errors.New("not an LMDB")
	}
	if v := binary.NativeEndian.Uint32(b[versionAt:]); v != 1 {
		return meta{}, fmt.Errorf("the LMDB has data version %d: only version 1, that of LMDB 0.9, is supported", v)
	}
	return meta{
		pageSize: int64(binary.NativeEndian.Uint32(b[pageSizeAt:])),
		lastPage: int64(u64(lastPageAt)),
		txn:      int64(u64(txnAt)),
		main: tree{
			flags: u16(mainAt + 4), depth: u16(mainAt + 6),
			branches: u64(mainAt + 8), leaves: u64(mainAt + 16),
			entries: u64(mainAt + 32), root: u64(mainAt + 40),
		},
	}, nil
}
