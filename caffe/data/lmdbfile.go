//go:build cgo

package data

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// The layout of an LMDB data file (mdb.c of LMDB 0.9): the first two pages
// each hold a page header of 16 bytes and then a meta record, of which the one
// with the higher transaction number counts. All in the machine's byte order.
const (
	metaAt     = 16
	metaMagic  = 0xBEEFC0DE
	metaSize   = 152 // up to and with the transaction number, from the page's start
	pageSizeAt = metaAt + 24
	lastPageAt = metaAt + 24 + 2*48
	txnAt      = lastPageAt + 8
)

// lmdbFile resolves path, an LMDB's directory (Caffe's form) or its data file,
// to the data file, and checks that the file is whole: LMDB maps the file into
// memory and would be killed by SIGBUS at a page that is not there. It returns
// the data file and what it was then.
func lmdbFile(path string) (file string, fi fs.FileInfo, err error) {
	if path == "" {
		return "", nil, errors.New("the source is empty: name the LMDB's directory")
	}
	fi, err = os.Stat(path)
	if err != nil {
		return "", nil, err
	}
	file = path
	if fi.IsDir() {
		file = filepath.Join(path, "data.mdb")
		if fi, err = os.Stat(file); err != nil {
			if _, lerr := os.Stat(filepath.Join(path, "CURRENT")); lerr == nil {
				return "", nil, fmt.Errorf("%s is a LevelDB, which is not supported: convert it to LMDB", path)
			}
			return "", nil, fmt.Errorf("%s is not an LMDB: %w", path, err)
		}
	}
	if !fi.Mode().IsRegular() {
		return "", nil, fmt.Errorf("%s is not an LMDB: not a regular file", file)
	}
	f, err := os.Open(file)
	if err != nil {
		return "", nil, err
	}
	defer f.Close()
	if err := checkWhole(f, fi.Size()); err != nil {
		return "", nil, fmt.Errorf("%s: %w", file, err)
	}
	return file, fi, nil
}

var errTruncated = errors.New("the LMDB is truncated: copy or make it again")

// checkWhole compares what the header says with the size of the file.
func checkWhole(f io.ReaderAt, size int64) error {
	first, err := readMeta(f, 0, size)
	if err != nil {
		return err
	}
	if first.pageSize < 256 || first.pageSize > 1<<16 || first.pageSize&(first.pageSize-1) != 0 {
		return fmt.Errorf("the LMDB is damaged: its page size is %d", first.pageSize)
	}
	second, err := readMeta(f, first.pageSize, size)
	if err != nil {
		return err
	}
	m := first
	if second.txn > m.txn {
		m = second
	}
	pages := size / first.pageSize
	if m.lastPage < 1 || m.lastPage >= 1<<48 {
		return fmt.Errorf("the LMDB is damaged: its last page is %d", m.lastPage)
	}
	if pages <= m.lastPage {
		return fmt.Errorf("%w (%d bytes, its header says %d)", errTruncated, size, (m.lastPage+1)*first.pageSize)
	}
	return nil
}

type meta struct{ pageSize, lastPage, txn int64 }

func readMeta(f io.ReaderAt, at, size int64) (meta, error) {
	if size < at+metaSize {
		return meta{}, fmt.Errorf("%w (%d bytes)", errTruncated, size)
	}
	var b [metaSize]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		return meta{}, err
	}
	magic := binary.NativeEndian.Uint32(b[metaAt:])
	switch magic {
	case metaMagic:
	case 0xDEC0EFBE:
		return meta{}, errors.New("the LMDB was written on a machine of the other byte order: make it again here")
	default:
		return meta{}, errors.New("not an LMDB")
	}
	return meta{
		pageSize: int64(binary.NativeEndian.Uint32(b[pageSizeAt:])),
		lastPage: int64(binary.NativeEndian.Uint64(b[lastPageAt:])),
		txn:      int64(binary.NativeEndian.Uint64(b[txnAt:])),
	}, nil
}
