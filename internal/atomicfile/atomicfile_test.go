package atomicfile_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/scaffe/scaffe/internal/atomicfile"
	"github.com/scaffe/scaffe/internal/atomicfile/errorfs"
)

func names(t *testing.T, dir string) string {
	t.Helper()
	es, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var ns []string
	for _, e := range es {
		ns = append(ns, e.Name())
	}
	return strings.Join(ns, " ")
}

func TestWriteReplaces(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	for _, text := range []string{"first", "second", ""} {
		if err := atomicfile.Write(nil, path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != text {
			t.Errorf("got %q, %v, want %q", got, err, text)
		}
	}
	if ns := names(t, dir); ns != "x" {
		t.Errorf("the directory holds %q, want x alone", ns)
	}
}

func TestWriteToBareName(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := atomicfile.Write(nil, "x", []byte("text")); err != nil {
		t.Fatal(err)
	}
	if ns := names(t, "."); ns != "x" {
		t.Errorf("the directory holds %q, want x alone", ns)
	}
}

// TestFaultsLeaveTheOldFile lets every step fail, and the disk be full at every byte.
func TestFaultsLeaveTheOldFile(t *testing.T) {
	old, fresh := []byte("the old contents"), []byte("the new, longer contents")
	faults := []*errorfs.FS{
		{Fault: errorfs.Create}, {Fault: errorfs.Sync}, {Fault: errorfs.Close}, {Fault: errorfs.Rename},
	}
	for k := range int64(len(fresh)) {
		faults = append(faults, &errorfs.FS{Fault: errorfs.Write, After: k})
	}
	for _, fs := range faults {
		dir := t.TempDir()
		path := filepath.Join(dir, "x")
		if err := os.WriteFile(path, old, 0o600); err != nil {
			t.Fatal(err)
		}
		err := atomicfile.Write(fs, path, fresh)
		if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s at %d: got error %v, want ENOSPC with the path", fs.Fault, fs.After, err)
		}
		got, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(got, old) {
			t.Errorf("%s at %d: the file now holds %q, %v", fs.Fault, fs.After, got, err)
		}
		if ns := names(t, dir); ns != "x" {
			t.Errorf("%s at %d: the directory holds %q, want x alone", fs.Fault, fs.After, ns)
		}
	}
}

func TestExactlyFullDiskIsEnough(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	if err := atomicfile.Write(&errorfs.FS{Fault: errorfs.Write, After: 5}, path, []byte("12345")); err != nil {
		t.Error(err)
	}
}

func TestSyncDirFaultSaysThatTheFileIsThere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	err := atomicfile.Write(&errorfs.FS{Fault: errorfs.SyncDir}, path, []byte("new"))
	if err == nil || !strings.Contains(err.Error(), "in place") {
		t.Errorf("got %v", err)
	}
	if got, _ := os.ReadFile(path); string(got) != "new" {
		t.Errorf("the file holds %q", got)
	}
}

func TestStreamThatFailsLeavesTheOldFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	err := atomicfile.Stream(nil, path, func(w io.Writer) error {
		_, err := io.WriteString(w, "new, but not whole")
		return errors.Join(err, broken)
	})
	if !errors.Is(err, broken) {
		t.Errorf("got error %v", err)
	}
	if got, _ := os.ReadFile(path); string(got) != "old" || names(t, dir) != "x" {
		t.Errorf("the file holds %q beside %q", got, names(t, dir))
	}
}

func TestMissingDirectory(t *testing.T) {
	err := atomicfile.Write(nil, filepath.Join(t.TempDir(), "none", "x"), nil)
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// Check finds what Write would fail with, and leaves nothing behind.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	if err := os.WriteFile(path, []byte("old"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Check(nil, path); err != nil {
		t.Error(err)
	}
	if err := atomicfile.Check(nil, filepath.Join(dir, "none", "x")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing directory: %v", err)
	}
	if err := atomicfile.Check(nil, dir); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("a directory: %v", err)
	}
	for _, fault := range []errorfs.Op{errorfs.Create, errorfs.Sync, errorfs.Close} {
		if err := atomicfile.Check(&errorfs.FS{Fault: fault}, path); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%s fails: %v", fault, err)
		}
	}
	if got, _ := os.ReadFile(path); string(got) != "old" || names(t, dir) != "x" {
		t.Errorf("the file holds %q in %q", got, names(t, dir))
	}
}
