package main

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/caffe/data"
	"github.com/scaffe/scaffe/caffe/proto"
)

// poison replaces train_lmdb's sample `bad` by one with a pixel that is no
// number, in a data set of its own.
func poison(t *testing.T, dir string, bad int64) {
	t.Helper()
	from, err := data.OpenLMDB(filepath.Join(dir, "train_lmdb"), data.Native)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := data.Create(filepath.Join(dir, "poisoned_lmdb"), false)
	if err != nil {
		t.Fatal(err)
	}
	for i := range from.Len() {
		var s data.Sample
		if err = from.Read(0, i, &s); err != nil {
			break
		}
		if i == bad {
			s.Bytes, s.Floats = nil, make([]float32, s.Count())
			s.Floats[7] = float32(math.NaN())
		}
		if err = to.Put(fmt.Sprintf("%08d", i), data.AppendDatum(nil, &s)); err != nil {
			break
		}
	}
	if err == nil {
		err = to.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestNotANumber: one sample of the fifth batch is poisoned. Training stops
// there and names the layer, whichever rank has the sample; or leaves out that
// one update and goes on.
func TestNotANumber(t *testing.T) {
	long(t)
	const batch, at = 30, 4
	for name, way := range launches(t) {
		for _, place := range []int64{0, batch - 1} { // in the part of rank 0, of rank 1
			t.Run(fmt.Sprintf("%s, sample %d of the batch", name, place), func(t *testing.T) {
				dir := workplace(t, 10)
				poison(t, dir, at*batch+place)
				write(t, dir, "net.prototxt", strings.Replace(testNet, "train_lmdb", "poisoned_lmdb", 1))
				args := append(way[1:len(way):len(way)], "--solver", "solver.prototxt")

				r := command(t, dir, way[0], args...)
				if r.code == 0 || !strings.Contains(r.stderr, fmt.Sprintf("iteration %d: the loss is NaN", at)) || !strings.Contains(r.stderr, `of layer "data"`) {
					t.Errorf("it ended with status %d, without a word of layer \"data\" in iteration %d\n%s", r.code, at, last(r.stderr))
				}

				r = command(t, dir, way[0], append(args, "--on-nan", "skip")...)
				if n := strings.Count(r.stderr, ": no update: "); r.code != 0 || n != 1 || !strings.Contains(r.stderr, fmt.Sprintf("iteration %d: no update: ", at)) {
					t.Errorf("with --on-nan skip it ended with status %d, %d updates left out\n%s", r.code, n, last(r.stderr))
				}
				m, err := proto.ReadModel(filepath.Join(dir, "s_iter_10.caffemodel"))
				if err != nil {
					t.Fatal(err)
				}
				for _, l := range m.GetLayer() {
					for _, b := range l.GetBlobs() {
						for _, x := range proto.BlobData(b) {
							if x-x != 0 {
								t.Fatalf("layer %q has a weight %v", l.GetName(), x)
							}
						}
					}
				}
			})
		}
	}
}

// TestDiverges: numbers that grow beyond all bounds are noticed where they
// arise.
func TestDiverges(t *testing.T) {
	dir := workplace(t, 10)
	write(t, dir, "steep.prototxt", strings.Replace(fmt.Sprintf(longSolver, 1000, "s"), "base_lr: 0.01", "base_lr: 1e18", 1))
	r := command(t, dir, scaffe, "train", "--local", "2", "--solver", "steep.prototxt")
	if r.code == 0 || !strings.Contains(r.stderr, "layer \"conv1\"") && !strings.Contains(r.stderr, "layer \"ip1\"") || !strings.Contains(r.stderr, "base_lr") {
		t.Errorf("it ended with status %d\n%s", r.code, last(r.stderr))
	}
}
