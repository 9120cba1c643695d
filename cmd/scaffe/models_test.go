package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/models"
)

// The nets are listed, and written so that they train from the same directory.
func TestModels(t *testing.T) {
	t.Chdir(t.TempDir())
	if r := command(t, "", scaffe, "models"); r.code != 0 || strings.Count(r.stdout, "\n") != len(models.Names()) || r.stderr != "" {
		t.Errorf("status %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	if r := command(t, "", scaffe, "models", "vgg19", "--out", "nets"); r.code != 0 || r.stdout != "" {
		t.Errorf("status %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	solver := filepath.Join("nets", "vgg19", "solver.prototxt")
	s, err := proto.ReadSolver(solver)
	if err != nil {
		t.Fatal(err)
	}
	if f, err := s.TrainNet(); err != nil || f.Net.GetName() != "VGG19" {
		t.Errorf("%v, %v", f, err)
	}
	if err := os.WriteFile(solver, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if r := command(t, "", scaffe, "models", "--out", "nets"); r.code != 1 || !strings.Contains(r.stderr, solver+" exists and differs") {
		t.Errorf("status %d\n%s", r.code, r.stderr)
	}
	if r := command(t, "", scaffe, "models", "vgg", "--out", "nets"); r.code != 1 || !strings.Contains(r.stderr, `no built-in net "vgg"`) {
		t.Errorf("status %d\n%s", r.code, r.stderr)
	}
}
