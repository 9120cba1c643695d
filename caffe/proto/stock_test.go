package proto

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestStockFilesLoadUnmodified reads the nets and solvers that Caffe ships,
// from the folder that SCAFFE_CAFFE_NETS names.
func TestStockFilesLoadUnmodified(t *testing.T) {
	dir := os.Getenv("SCAFFE_CAFFE_NETS")
	if dir == "" {
		t.Skip("SCAFFE_CAFFE_NETS is not set: point it at a folder with the prototxt files that Caffe ships")
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*.prototxt"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no prototxt files in %s (%v)", dir, err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			if strings.HasSuffix(path, "_solver.prototxt") {
				stockSolver(t, path)
			} else {
				stockNet(t, path)
			}
		})
	}
}

// stockNet also checks that every layer's place is that of a layer in the text.
func stockNet(t *testing.T, path string) {
	f, err := ReadNet(path)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	for i, l := range f.Net.GetLayer() {
		for field, want := range map[string]string{"name": l.GetName(), "type": l.GetType()} {
			p := f.LayerPos(i, field)
			got := lines[p.Line-1][p.Col-1:]
			if !strings.HasPrefix(got, field) || !strings.Contains(got, `"`+want+`"`) {
				t.Errorf("%s: the %s of layer %d is there, not %q", p, field, i, got)
			}
		}
	}
}

// stockSolver takes an HDF5 snapshot format only when it is overridden.
func stockSolver(t *testing.T, path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = ReadSolver(path)
	if strings.Contains(string(text), "snapshot_format: HDF5") != (err != nil) {
		t.Errorf("got %v", err)
	}
	if err != nil && !strings.Contains(err.Error(), "--snapshot-format binaryproto") {
		t.Errorf("got %v", err)
	}
	if _, err := ReadSolver(path, WithSnapshotFormat(SolverParameter_BINARYPROTO)); err != nil {
		t.Error(err)
	}
}
