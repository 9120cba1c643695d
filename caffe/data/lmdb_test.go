//go:build cgo

package data

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/PowerDNS/lmdb-go/lmdb"
	pb "google.golang.org/protobuf/proto"

	"github.com/scaffe/scaffe/caffe/proto"
)

// makeLMDB writes n raw Datums of the given shape, of which Datum i holds its
// number and has it for a label. change, where not nil, changes them.
func makeLMDB(t testing.TB, n int, shape Shape, change func(i int, d *proto.Datum)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "lmdb")
	w, err := Create(path, false)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for i := range n {
		d := &proto.Datum{
			Channels: pb.Int32(int32(shape.C)), Height: pb.Int32(int32(shape.H)), Width: pb.Int32(int32(shape.W)),
			Data: bytes.Repeat([]byte{byte(i)}, shape.Count()), Label: pb.Int32(int32(i)),
		}
		if change != nil {
			change(i, d)
		}
		if err := w.Put(fmt.Sprintf("%08d", i), marshal(t, d)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLMDB_RoundTrip(t *testing.T) {
	const n = 2500 // more than two transactions
	path := makeLMDB(t, n, Shape{3, 5, 7}, nil)
	for _, name := range []string{path, filepath.Join(path, "data.mdb")} {
		src, err := OpenLMDB(name, Native)
		if err != nil {
			t.Fatal(err)
		}
		if src.Len() != n {
			t.Errorf("%d samples, want %d", src.Len(), n)
		}
		// On, the same again, far on, back, and the first.
		for _, i := range []int64{3, 4, 4, 2000, n - 1, 17, 0} {
			var s Sample
			if err := src.Read(0, i, &s); err != nil {
				t.Fatal(err)
			}
			if s.Label != int32(i) || len(s.Bytes) != 105 || s.Bytes[104] != byte(i) {
				t.Errorf("sample %d: label %d, %d bytes", i, s.Label, len(s.Bytes))
			}
			if want := fmt.Sprintf("key \"%08d\"", i); !strings.Contains(src.Where(), want) || !strings.Contains(src.Where(), name) {
				t.Errorf("sample %d is at %s", i, src.Where())
			}
		}
		if err := errors.Join(src.Close(), src.Close()); err != nil {
			t.Error(err)
		}
	}
	// Readers leave no lock file, so they can read where they cannot write.
	if files, err := os.ReadDir(path); err != nil || len(files) != 1 {
		t.Errorf("the LMDB holds %v %v", files, err)
	}
}

// The library itself, with locks as Caffe opens it, reads what was written.
func TestLMDB_ReadableByOthers(t *testing.T) {
	path := makeLMDB(t, 10, Shape{1, 2, 2}, nil)
	env, err := lmdb.NewEnv()
	if err != nil {
		t.Fatal(err)
	}
	defer env.Close()
	if err := env.Open(path, lmdb.Readonly, 0o644); err != nil {
		t.Fatal(err)
	}
	err = env.View(func(txn *lmdb.Txn) error {
		dbi, err := txn.OpenRoot(0)
		if err != nil {
			return err
		}
		v, err := txn.Get(dbi, []byte("00000007"))
		if err != nil {
			return err
		}
		var d proto.Datum
		if err := pb.Unmarshal(v, &d); err != nil || d.GetLabel() != 7 {
			t.Errorf("%v %v", &d, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestLMDB_ReadOnlyFiles(t *testing.T) {
	path := makeLMDB(t, 10, Shape{1, 2, 2}, nil)
	for _, c := range []struct {
		path string
		mode fs.FileMode
	}{{filepath.Join(path, "data.mdb"), 0o444}, {path, 0o555}} {
		if err := os.Chmod(c.path, c.mode); err != nil {
			t.Fatal(err)
		}
	}
	defer os.Chmod(path, 0o755)
	src, err := OpenLMDB(path, Native)
	if err != nil {
		t.Fatal(err)
	}
	if err := src.Close(); err != nil {
		t.Error(err)
	}
}

// An LMDB that was cut short would end the process with SIGBUS.
func TestLMDB_TruncatedAnywhereIsAnError(t *testing.T) {
	// Values of 300 bytes lie in the tree's pages, of 5000 in pages of their own.
	for _, side := range []int{10, 41} {
		path := filepath.Join(makeLMDB(t, 60, Shape{3, side, side}, nil), "data.mdb")
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		cut := filepath.Join(t.TempDir(), "data.mdb")
		lengths := []int{0, 1, 15, 16, 151, 152, 4095, 4096, 4097, 4096 + 151, 8191, 8192, len(whole) - 1}
		for n := 0; n < len(whole); n += 4096*3 + 57 {
			lengths = append(lengths, n)
		}
		for _, n := range lengths {
			if err := os.WriteFile(cut, whole[:n], 0o644); err != nil {
				t.Fatal(err)
			}
			src, err := OpenLMDB(cut, Native)
			if err == nil {
				_ = src.Close()
				t.Fatalf("the first %d of %d bytes are accepted", n, len(whole))
			}
			if !errors.Is(err, errTruncated) || !strings.Contains(err.Error(), cut) {
				t.Errorf("the first %d of %d bytes: %v", n, len(whole), err)
			}
		}
	}
}

func TestLMDB_NotOne(t *testing.T) {
	dir := t.TempDir()
	level := t.TempDir()
	if err := os.WriteFile(filepath.Join(level, "CURRENT"), []byte("MANIFEST-000001\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(filepath.Join(makeLMDB(t, 5, Shape{1, 1, 1}, nil), "data.mdb"))
	if err != nil {
		t.Fatal(err)
	}
	edit := func(at int, b ...byte) string {
		file := bytes.Clone(good)
		copy(file[at:], b)
		return writeFile(t, "data.mdb", file)
	}
	for path, want := range map[string]string{
		"":                                   "source is empty",
		filepath.Join(dir, "none"):           "no such file",
		dir:                                  "is not an LMDB",
		level:                                "is a LevelDB",
		"/dev/null":                          "not a regular file",
		writeFile(t, "x", make([]byte, 1e5)): "not an LMDB",
		edit(metaAt, 0xBE, 0xEF, 0xC0, 0xDE): "other byte order",
		edit(pageSizeAt, 1, 2, 3, 4):         "page size",
		edit(pageSizeAt, 0, 0, 1, 0):         "truncated",
		edit(4096+metaAt, 0, 0):              "not an LMDB",
		edit(metaAt+4, 77):                   "data version 77",
		makeLMDB(t, 0, Shape{}, nil):         "holds no samples",
	} {
		src, err := OpenLMDB(path, Native)
		if err == nil {
			_ = src.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", path, err, want)
		}
	}
}

func TestLMDB_CorruptDatumIsNamedAtItsBatch(t *testing.T) {
	path := makeLMDB(t, 20, Shape{1, 2, 2}, func(i int, d *proto.Datum) {
		switch i {
		case 7:
			d.Data = d.Data[:3]
		case 12:
			d.Height = pb.Int32(4)
			d.Data = make([]byte, 8)
		case 17:
			d.Label = nil
		}
	})
	for k, want := range map[int64]string{
		1: "key \"00000007\": the Datum is corrupt: data holds 3 bytes",
		2: "key \"00000012\": the sample is 1x4x2 after transformation, but the first one 1x2x2",
		3: "key \"00000017\": the sample has no label",
	} {
		src, err := OpenLMDB(path, Native)
		if err != nil {
			t.Fatal(err)
		}
		l := mustLoader(t, Config{Source: src, Transform: plain(), BatchSize: 5, Labels: true})
		if err := l.SeekBatch(k); err != nil {
			t.Fatal(err)
		}
		if _, _, err := nextBatch(l); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("batch %d: %v, want %q", k, err, want)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestLMDB_EncodedImages(t *testing.T) {
	path := makeLMDB(t, 4, Shape{}, func(i int, d *proto.Datum) {
		d.Data, d.Encoded = pngFile(t, picture(6, 5)), pb.Bool(true)
		if i == 3 {
			d.Data = d.Data[:60]
		}
	})
	src, err := OpenLMDB(path, Gray)
	if err != nil {
		t.Fatal(err)
	}
	l := mustLoader(t, Config{Source: src, Transform: plain(), BatchSize: 3})
	defer l.Close()
	if _, labels, err := nextBatch(l); err != nil || labels[2] != 2 || l.Shape() != (Shape{1, 5, 6}) {
		t.Errorf("%v %v %v", l.Shape(), labels, err)
	}
	if _, _, err := nextBatch(l); err == nil || !strings.Contains(err.Error(), "key \"00000003\": the Datum's image: damaged") {
		t.Errorf("damaged image: %v", err)
	}
}

func TestLMDB_SteadyStateAllocatesNothing(t *testing.T) {
	src, err := OpenLMDB(makeLMDB(t, 100, Shape{3, 32, 32}, nil), Native)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	for _, workers := range []int{1, 3} {
		fork, err := src.Fork()
		if err != nil {
			t.Fatal(err)
		}
		l := mustLoader(t, Config{Source: fork, Transform: plain(), BatchSize: 10, Labels: true, Options: Options{Workers: workers}})
		data, labels := make([]float32, 10*3072), make([]float32, 10)
		next := func() {
			if err := l.Next(data, labels); err != nil {
				t.Fatal(err)
			}
		}
		if n := testing.AllocsPerRun(200, next); n != 0 { // twenty times round
			t.Errorf("%d workers: %v allocations a batch", workers, n)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWriter_ReplacesOnlyAnLMDBAndOnlyByForce(t *testing.T) {
	path := makeLMDB(t, 3, Shape{1, 1, 1}, nil)
	if _, err := Create(path, false); err == nil || !strings.Contains(err.Error(), path+" exists") {
		t.Errorf("existing: %v", err)
	}
	w, err := Create(path, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Put("a", marshal(t, rawDatum(1, 1, 1))); err != nil {
		t.Fatal(err)
	}
	length := func() int64 {
		src, err := OpenLMDB(path, Native)
		if err != nil {
			t.Fatal(err)
		}
		defer src.Close()
		return src.Len()
	}
	if n := length(); n != 3 {
		t.Errorf("before Commit there are %d samples", n)
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	if n := length(); n != 1 {
		t.Errorf("after Commit there are %d samples", n)
	}
	if err := os.WriteFile(filepath.Join(path, "thesis.tex"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(path, true); err == nil || !strings.Contains(err.Error(), "thesis.tex") {
		t.Errorf("a directory with other files: %v", err)
	}
	if _, err := Create(writeFile(t, "f", nil), true); err == nil || !strings.Contains(err.Error(), "not an LMDB directory") {
		t.Errorf("a file: %v", err)
	}
	if _, err := Create("", true); err == nil {
		t.Error("the empty path is accepted")
	}
}

func TestWriter_LeavesNothingBehindOnFailure(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "lmdb")
	w, err := Create(path, false)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := w.Put("same", []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(); err == nil || !strings.Contains(err.Error(), "duplicate key \"same\"") {
		t.Errorf("a key twice: %v", err)
	}
	if err := w.Put("x", nil); err == nil {
		t.Error("Put after Commit is accepted")
	}
	w.Abort()
	w, err = Create(path, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Put(strings.Repeat("k", 512), nil); err == nil || !strings.Contains(err.Error(), "512 bytes") {
		t.Errorf("a long key: %v", err)
	}
	w.Abort()
	if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
		t.Errorf("left behind: %v %v", files, err)
	}
}

// The map grows as the data does: 100 MB into a map of 64.
func TestWriter_Grows(t *testing.T) {
	path := makeLMDB(t, 100, Shape{1, 1000, 1000}, nil)
	src, err := OpenLMDB(path, Native)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	var s Sample
	if err := src.Read(0, 99, &s); err != nil || s.Label != 99 || s.Bytes[999999] != 99 {
		t.Errorf("%v %v", s.Label, err)
	}
}
