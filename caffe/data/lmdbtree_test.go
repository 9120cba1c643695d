//go:build cgo

package data

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/PowerDNS/lmdb-go/lmdb"
)

// readAll reads what an environment holds.
func readAll(t *testing.T, e *environment) (all []string) {
	t.Helper()
	for l, first := range e.leaves {
		end := e.entries
		if l+1 < len(e.leaves) {
			end = e.leaves[l+1].first
		}
		for i := range end - first.first {
			k, v, err := e.pages.entry(first.page, int(i))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, string(k)+"="+string(v))
		}
	}
	return all
}

// An LMDB of any history (keys in any order, replaced and deleted, values of
// all sizes) passes the check and is read as the LMDB library has it.
func TestLMDB_AnyHistory(t *testing.T) {
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 1))
		dir := t.TempDir()
		env, err := lmdb.NewEnv()
		if err != nil {
			t.Fatal(err)
		}
		if err := env.SetMapSize(64 << 20); err != nil {
			t.Fatal(err)
		}
		if err := env.Open(dir, lmdb.NoLock|lmdb.NoSync, 0o644); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{}
		largest := []int{40, 600, 3000, 20000}[seed%4]
		for range 1 + rng.IntN(12) {
			err := env.Update(func(txn *lmdb.Txn) error {
				db, err := txn.OpenRoot(0)
				if err != nil {
					return err
				}
				for range rng.IntN(200) {
					key := strings.Repeat("k", rng.IntN(40)) + fmt.Sprint(rng.IntN(500))
					if _, there := want[key]; there && rng.IntN(3) == 0 {
						delete(want, key)
						if err := txn.Del(db, []byte(key), nil); err != nil {
							return err
						}
						continue
					}
					value := strings.Repeat(string(rune('a'+rng.IntN(26))), rng.IntN(largest))
					want[key] = value
					if err := txn.Put(db, []byte(key), []byte(value), 0); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := env.Close(); err != nil {
			t.Fatal(err)
		}
		if len(want) == 0 {
			continue
		}
		e, err := openEnvironment(filepath.Join(dir, "data.mdb"))
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
			continue
		}
		var lines []string
		for _, k := range slices.Sorted(maps.Keys(want)) {
			lines = append(lines, k+"="+want[k])
		}
		if got := readAll(t, e); !slices.Equal(got, lines) {
			t.Errorf("seed %d: %d entries are read, %d were written, or they differ", seed, len(got), len(lines))
		}
		if err := e.release(); err != nil {
			t.Error(err)
		}
	}
}

// harmed is an LMDB that a test changes byte by byte.
type harmed struct {
	good    []byte
	content []bool   // of each byte: it belongs to a key or a value
	samples []string // as they should be read
	file    string
}

func newHarmed(t *testing.T, n, side int) *harmed {
	t.Helper()
	path := filepath.Join(makeLMDB(t, n, Shape{3, side, side}, nil), "data.mdb")
	h := &harmed{file: filepath.Join(t.TempDir(), "data.mdb")}
	var err error
	if h.good, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	e, err := openEnvironment(path)
	if err != nil {
		t.Fatal(err)
	}
	h.content = make([]bool, len(h.good))
	base := uintptr(unsafe.Pointer(unsafe.SliceData(e.pages.bytes)))
	for _, l := range e.leaves {
		for i := range keys(e.pages.page(l.page)) {
			k, v, err := e.pages.entry(l.page, i)
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range [][]byte{k, v} {
				at := uintptr(unsafe.Pointer(unsafe.SliceData(b))) - base
				for j := range b {
					h.content[int(at)+j] = true
				}
			}
		}
	}
	if err := e.release(); err != nil {
		t.Fatal(err)
	}
	if h.samples, err = h.read(h.good); err != nil {
		t.Fatal(err)
	}
	return h
}

// read reads all samples of an LMDB of these bytes.
func (h *harmed) read(b []byte) ([]string, error) {
	if err := os.WriteFile(h.file, b, 0o644); err != nil {
		return nil, err
	}
	src, err := OpenLMDB(h.file, Native)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	var all []string
	for i := range src.Len() {
		var s Sample
		if err := src.Read(0, i, &s); err != nil {
			return all, fmt.Errorf("%s: %w", src.Where(), err)
		}
		all = append(all, fmt.Sprint(s.Label, s.Shape)+string(s.Bytes))
	}
	return all, nil
}

// check reads changed bytes: the right samples, or an error that names the
// file. Only where keys or values were changed may it read others.
func (h *harmed) check(t *testing.T, what string, b []byte) (failed bool) {
	t.Helper()
	got, err := h.read(b)
	if err != nil {
		if !strings.Contains(err.Error(), h.file) {
			t.Errorf("%s: the error does not name the file: %v", what, err)
		}
		return true
	}
	if slices.Equal(got, h.samples) {
		return false
	}
	for i := range b {
		if b[i] != h.good[i] && h.content[i] {
			return false
		}
	}
	t.Errorf("%s: other samples are read, and no error", what)
	return false
}

// Whatever bytes of an LMDB are damaged, nothing crashes, and what is not
// content is noticed: at the latest when the sample is read.
func TestLMDB_DamagedAnywhere(t *testing.T) {
	for _, c := range []struct{ n, side int }{
		{60, 10}, // values of 300 bytes lie in the tree
		{12, 41}, // values of 5000 bytes have pages of their own
		{400, 5}, // of 75 bytes, many on a page
	} {
		h := newHarmed(t, c.n, c.side)
		if got := h.check(t, "unharmed", h.good); got {
			t.Fatal("the unharmed LMDB is refused")
		}
		rng := rand.New(rand.NewPCG(7, uint64(c.side)))
		const page = 4096
		noticed := 0
		change := func(at, n int, with func(i int) byte) {
			b := bytes.Clone(h.good)
			for i := at; i < at+n && i < len(b); i++ {
				b[i] = with(i)
			}
			if h.check(t, fmt.Sprintf("%d samples, bytes %d to %d (page %d, byte %d) changed", c.n, at, at+n, at/page, at%page), b) {
				noticed++
			}
		}
		flip := func(i int) byte { return h.good[i] ^ 1<<rng.IntN(8) }
		anything := func(int) byte { return byte(rng.Uint32()) }
		for at := range 2 * page { // the headers, byte by byte
			if at%page < metaSize {
				change(at, 1, flip)
			}
		}
		for first := 2 * page; first < len(h.good); first += page {
			for range 8 { // the beginnings of pages, and their last entries
				change(first+rng.IntN(headerSize+16), 1, flip)
				change(first+rng.IntN(headerSize+16), 1+rng.IntN(8), anything)
			}
			change(first+rng.IntN(page), 1, flip)
			change(first, headerSize, func(int) byte { return 0xff })
			change(first, page, func(int) byte { return 0 })
			other := rng.IntN(len(h.good) / page)
			change(first, page, func(i int) byte { return h.good[other*page+i-first] })
		}
		for range 200 {
			change(rng.IntN(len(h.good)), 1+rng.IntN(4), anything)
		}
		if noticed < 100 {
			t.Errorf("only %d changes were noticed", noticed)
		}
	}
}

// What is wrong is said, with the page.
func TestLMDB_DamageIsNamed(t *testing.T) {
	small, large := newHarmed(t, 60, 10), newHarmed(t, 60, 41)
	m, err := checkWhole(bytes.NewReader(small.good), int64(len(small.good)))
	if err != nil {
		t.Fatal(err)
	}
	root := int(m.main.root) * 4096
	meta := 4096 * int(m.txn&1)
	for want, b := range map[string][]byte{
		fmt.Sprintf("page %d: its header says page", m.main.root):                        set(small.good, root, 99),
		fmt.Sprintf("page %d: it is not the branch page that its tree has", m.main.root): set(small.good, root+flagsAt, leafPage),
		"it has 60 entries, its header says 61":                                          set(small.good, meta+mainAt+32, 61),
		"its tree leads to page 200 of":                                                  set(small.good, meta+mainAt+40, 200),
		"its tree has a depth of 200":                                                    set(small.good, meta+mainAt+6, 200),
		"the LMDB has the flags 0x4":                                                     set(small.good, meta+mainAt+4, 4),
		"do not follow each other":                                                       set(small.good, meta+txnAt+1, 4),
	} {
		_, err := small.read(b)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "LMDB "+small.file+": ") {
			t.Errorf("%v, want %s", err, want)
		}
	}
	// The first page of a large value is looked at when it is read.
	for at := 2 * 4096; at < len(large.good); at += 4096 {
		if u16(large.good, at+flagsAt) != valuePage {
			continue
		}
		got, err := large.read(set(large.good, at+flagsAt, leafPage))
		if want := fmt.Sprintf("page %d is not the first page of a value", at/4096); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "key \"000000") {
			t.Errorf("after %d samples: %v, want %s", len(got), err, want)
		}
		break
	}
}

// A file that is truncated while it is read is an error, not a SIGBUS.
func TestLMDB_TruncatedWhileRead(t *testing.T) {
	path := makeLMDB(t, 60, Shape{3, 41, 41}, nil)
	src, err := OpenLMDB(path, Native)
	if err != nil {
		t.Fatal(err)
	}
	l := mustLoader(t, Config{Source: src, Transform: plain(), BatchSize: 4, Options: Options{Prefetch: 1}})
	defer l.Close()
	if _, _, err := nextBatch(l); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(path, "data.mdb"), 4096); err != nil {
		t.Fatal(err)
	}
	for range 60 / 4 { // some batches may have been read ahead
		if _, _, err = nextBatch(l); err != nil {
			break
		}
	}
	if err == nil || !strings.Contains(err.Error(), "the file became unreadable") || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
}

// set returns a copy of b with one byte changed.
func set(b []byte, at int, v byte) []byte {
	b = bytes.Clone(b)
	b[at] = v
	return b
}

// FuzzLMDB reads any bytes as an LMDB: no panic, and errors name the file.
func FuzzLMDB(f *testing.F) {
	for _, side := range []int{1, 41} {
		path := filepath.Join(makeLMDB(f, 12, Shape{1, side, side}, nil), "data.mdb")
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h := &harmed{file: filepath.Join(t.TempDir(), "data.mdb")}
		if _, err := h.read(b); err != nil && !strings.Contains(err.Error(), h.file) {
			t.Errorf("the error does not name the file: %v", err)
		}
	})
}
