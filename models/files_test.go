package models

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/cockroachdb/datadriven" // brings the flag -rewrite
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/scaffe/scaffe/caffe/proto"
)

// golden compares text with a file of testdata, or writes it (-rewrite).
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if flag.Lookup("rewrite").Value.String() == "true" {
		if err := os.WriteFile(file, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; go test ./models -rewrite writes it):\n%s", file, diff)
	}
}

// What the files look like: ResNet-50 to the end of its first bottleneck, and
// its solver.
func TestFilesGolden(t *testing.T) {
	files, err := Files("models", "resnet50")
	if err != nil {
		t.Fatal(err)
	}
	begin, _, found := strings.Cut(string(files[0].Text), "layer {\n  name: \"res2b_branch2a\"")
	if !found {
		t.Error("there is no second bottleneck")
	}
	golden(t, "resnet50_train_val.prototxt", begin)
	golden(t, "resnet50_solver.prototxt", string(files[1].Text))
}

// What the files say is the net that the program has; each solver is supported,
// trains it, and tests as many images as its note says.
func TestFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	paths, err := Write("nets", false, Names()...)
	if err != nil {
		t.Fatal(err)
	}
	solvers := map[string]int{}
	for _, path := range paths {
		if filepath.Base(path) == "train_val.prototxt" {
			continue
		}
		name := filepath.Base(filepath.Dir(path))
		solvers[name]++
		s, err := proto.ReadSolver(path)
		if err != nil {
			t.Error(err)
			continue
		}
		f, err := s.TrainNet()
		if err != nil {
			t.Error(err)
			continue
		}
		want, err := Net(name)
		if err != nil {
			t.Error(err)
			continue
		}
		f.Net.State = nil // which the solver sets
		if diff := cmp.Diff(want.Net, f.Net, protocmp.Transform()); diff != "" {
			t.Errorf("%s: the net of the file differs (-program +file):\n%s", path, diff)
		}
		if got, want := s.Solver.GetSnapshotPrefix(), "nets/"+name+"/"+name; got != want {
			t.Errorf("%s: snapshots are %s, want %s", path, got, want)
		}
		images := 50000
		if name == "resnet110_cifar" {
			images = 10000
		}
		for _, l := range f.Net.GetLayer() {
			if l.GetType() == "Data" && l.GetInclude()[0].GetPhase() == proto.Phase_TEST && len(s.Solver.TestIter) > 0 {
				if n := int(l.GetDataParam().GetBatchSize()) * int(s.Solver.TestIter[0]); n != images {
					t.Errorf("%s: tests %d images, want %d", path, n, images)
				}
			}
		}
	}
	for _, name := range Names() {
		if want := len(name)/len("resnet110_cifar") + 1; solvers[name] != want {
			t.Errorf("%s has %d solvers, want %d", name, solvers[name], want)
		}
	}
}

func TestWriteReplacesByForceAlone(t *testing.T) {
	dir := t.TempDir()
	if _, err := Write(dir, false, "vgg19"); err != nil {
		t.Fatal(err)
	}
	if _, err := Write(dir, false, "vgg19"); err != nil {
		t.Errorf("the same files again: %v", err)
	}
	mine := filepath.Join(dir, "vgg19", "solver.prototxt")
	good, err := os.ReadFile(mine)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(mine, []byte("base_lr: 1"), 0o666); err != nil {
		t.Fatal(err)
	}
	_, err = Write(dir, false, "resnet50", "vgg19")
	if err == nil || !strings.Contains(err.Error(), mine+" exists and differs") {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "resnet50")); err == nil {
		t.Error("files of another net were written, too")
	}
	if _, err := Write(dir, true, "vgg19"); err != nil {
		t.Error(err)
	}
	if got, _ := os.ReadFile(mine); !bytes.Equal(got, good) {
		t.Errorf("forced, it holds %q", got)
	}
	if _, err := Write(dir, false, "vgg18"); err == nil || !strings.Contains(err.Error(), `no built-in net "vgg18"`) {
		t.Error(err)
	}
}
