package models

import (
	"bytes"
	"io/fs"
	"slices"
	"testing"

	"github.com/scaffe/scaffe/models/internal/define"
)

// The committed files are what the generator writes, and no others are there.
func TestFilesAreGenerated(t *testing.T) {
	var paths []string
	for _, f := range define.Files() {
		paths = append(paths, f.Path)
		got, err := FS.ReadFile(f.Path)
		if err != nil {
			t.Errorf("%v: run go generate ./models", err)
			continue
		}
		if !bytes.Equal(got, f.Text) {
			t.Errorf("models/%s is not what models/internal/define says: run go generate ./models", f.Path)
		}
	}
	there, err := fs.Glob(FS, "*/*.prototxt")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(paths)
	if !slices.Equal(there, paths) {
		t.Errorf("files are %q, generated %q", there, paths)
	}
}
