package data

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/scaffe/scaffe/caffe/proto"
)

func writeFile(t testing.TB, name string, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// fakeSource is n samples in memory: sample i is full of its number, and its
// label is the number too. It fails at sample bad.
type fakeSource struct {
	n      int64
	shape  Shape
	bad    int64
	odd    int64 // has another shape
	last   int64
	closed int
	s      Sample
}

var errBad = errors.New("bad sample")

func (f *fakeSource) Len() int64    { return f.n }
func (f *fakeSource) Where() string { return fmt.Sprintf("fake %d", f.last) }
func (f *fakeSource) Close() error  { f.closed++; return nil }

func (f *fakeSource) Fork() (Source, error) {
	g := *f
	g.s, g.closed = Sample{}, 0
	return &g, nil
}

func (f *fakeSource) Read(_, i int64, s *Sample) error {
	f.last = i
	if f.bad > 0 && i == f.bad {
		return errBad
	}
	s.Shape, s.Label, s.HasLabel = f.shape, int32(i), true
	if f.odd > 0 && i == f.odd {
		s.Shape = Shape{f.shape.C, f.shape.W, f.shape.H}
	}
	if len(f.s.Bytes) != f.shape.Count() {
		f.s.Bytes = make([]byte, f.shape.Count())
	}
	for j := range f.s.Bytes {
		f.s.Bytes[j] = byte(int(i)*31 + j)
	}
	s.Bytes = f.s.Bytes
	return nil
}

func plain() *Transformer { return &Transformer{scale: 1} }

func mustLoader(t interface {
	Helper()
	Fatal(...any)
}, c Config,
) *Loader {
	t.Helper()
	l, err := NewLoader(c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// nextBatch returns the values and labels of the next batch.
func nextBatch(l *Loader) (data, labels []float32, err error) {
	data, labels = make([]float32, l.LocalBatch()*l.Shape().Count()), make([]float32, l.LocalBatch())
	err = l.Next(data, labels)
	return data, labels, err
}

// The parts of a batch, put together, are the batch that one reader reads,
// whatever the random choices, the numbers and the batch from which on.
func TestLoader_PartsMakeUpTheGlobalBatch(t *testing.T) {
	list := imageList(t, 7)
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(7, 40).Draw(t, "samples")
		of := rapid.IntRange(1, 7).Draw(t, "of")
		batch := rapid.IntRange(of, 25).Draw(t, "batch")
		weak := rapid.Bool().Draw(t, "weak")
		seed := rapid.Uint64().Draw(t, "seed")
		images := rapid.Bool().Draw(t, "images")
		workers := 1
		open := func(p Part, batch int) *Loader {
			var src Source = &fakeSource{n: n, shape: Shape{2, 4, 5}}
			if images {
				var err error
				if src, err = OpenList(list, ListOptions{Root: filepath.Dir(list) + "/", Shuffle: true, Seed: seed}); err != nil {
					t.Fatal(err)
				}
			}
			return mustLoader(t, Config{
				Source: src, BatchSize: batch, RandSkip: 100, Labels: true,
				Transform: &Transformer{scale: 1, mirror: true, crop: 3, train: true, seed: seed},
				Options:   Options{Part: p, Seed: seed, Prefetch: 1 + int(seed%3), Workers: workers},
			})
		}
		global := (Part{Of: of, Weak: weak}).Global(batch)
		one := open(Part{}, global)
		defer one.Close()
		workers = rapid.IntRange(0, 5).Draw(t, "workers")
		var parts []*Loader
		for i := range of {
			parts = append(parts, open(Part{Index: i, Of: of, Weak: weak}, batch))
			defer parts[i].Close()
		}
		for range 3 {
			k := rapid.Int64Range(0, 9).Draw(t, "batch number")
			wantData, wantLabels := read(t, one, k)
			var gotData, gotLabels []float32
			for _, p := range parts {
				if p.GlobalBatch() != global {
					t.Fatalf("global batch %d, want %d", p.GlobalBatch(), global)
				}
				data, labels := read(t, p, k)
				gotData, gotLabels = append(gotData, data...), append(gotLabels, labels...)
			}
			if !slices.Equal(gotLabels, wantLabels) || !slices.Equal(gotData, wantData) {
				t.Fatalf("batch %d: %d parts read %v, one reads %v", k, of, gotLabels, wantLabels)
			}
		}
	})
}

// read returns global batch k and checks that the one after it follows.
func read(t *rapid.T, l *Loader, k int64) (data, labels []float32) {
	if err := l.SeekBatch(k); err != nil {
		t.Fatal(err)
	}
	data, labels, err := nextBatch(l)
	if err != nil {
		t.Fatal(err)
	}
	_, after, err := nextBatch(l)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.SeekBatch(k + 1); err != nil {
		t.Fatal(err)
	}
	if _, again, err := nextBatch(l); err != nil || !slices.Equal(again, after) {
		t.Fatalf("batch %d read on: %v; sought: %v (%v)", k+1, after, again, err)
	}
	return data, labels
}

func TestLoader_GoesRoundTheDataSet(t *testing.T) {
	l := mustLoader(t, Config{Source: &fakeSource{n: 5, shape: Shape{1, 1, 1}}, Transform: plain(), BatchSize: 3})
	defer l.Close()
	var all []float32
	for range 4 {
		_, labels, err := nextBatch(l)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, labels...)
	}
	if want := []float32{0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1}; !slices.Equal(all, want) {
		t.Errorf("%v, want %v", all, want)
	}
}

func TestLoader_ShuffleIsAPermutationOfEachPass(t *testing.T) {
	list := imageList(t, 7)
	l := func(seed uint64) *Loader {
		src, err := OpenList(list, ListOptions{Root: filepath.Dir(list) + "/", Shuffle: true, Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		return mustLoader(t, Config{Source: src, Transform: &Transformer{scale: 1, crop: 5}, BatchSize: 7})
	}
	a, b := l(1), l(2)
	defer a.Close()
	defer b.Close()
	var orders [][]float32
	for range 3 {
		for _, l := range []*Loader{a, b} {
			_, labels, err := nextBatch(l)
			if err != nil {
				t.Fatal(err)
			}
			orders = append(orders, slices.Clone(labels))
			slices.Sort(labels)
			if !slices.Equal(labels, []float32{0, 1, 2, 3, 4, 5, 6}) {
				t.Errorf("a pass holds %v", labels)
			}
		}
	}
	for i := range orders {
		for j := range i {
			if slices.Equal(orders[i], orders[j]) {
				t.Errorf("orders %d and %d are both %v", j, i, orders[i])
			}
		}
	}
}

func TestLoader_RandSkipStaysBelow(t *testing.T) {
	seen := map[float32]bool{}
	for seed := range uint64(200) {
		l := mustLoader(t, Config{Source: &fakeSource{n: 50, shape: Shape{1, 1, 1}}, Transform: plain(), BatchSize: 1, RandSkip: 4, Options: Options{Seed: seed}})
		_, labels, err := nextBatch(l)
		if err != nil {
			t.Fatal(err)
		}
		seen[labels[0]] = true
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(seen) != 4 || !seen[0] || !seen[3] {
		t.Errorf("rand_skip 4 begins at %v", seen)
	}
}

// An error comes at the batch it belongs to, however far ahead it was found,
// and stays until a SeekBatch.
func TestLoader_ErrorsComeInOrder(t *testing.T) {
	src := &fakeSource{n: 100, shape: Shape{1, 1, 1}, bad: 13}
	l := mustLoader(t, Config{Source: src, Transform: plain(), BatchSize: 5})
	for k := range 2 {
		if _, labels, err := nextBatch(l); err != nil || labels[0] != float32(5*k) {
			t.Fatalf("batch %d: %v %v", k, labels, err)
		}
	}
	for range 2 {
		if _, _, err := nextBatch(l); !errors.Is(err, errBad) || !strings.Contains(err.Error(), "fake 13") {
			t.Fatalf("batch 2: %v", err)
		}
	}
	if err := l.SeekBatch(4); err != nil {
		t.Fatal(err)
	}
	if _, labels, err := nextBatch(l); err != nil || labels[0] != 20 {
		t.Errorf("after the seek: %v %v", labels, err)
	}
	for range 2 {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if src.closed != 1 {
		t.Errorf("source closed %d times", src.closed)
	}
	if _, _, err := nextBatch(l); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if err := l.SeekBatch(0); !errors.Is(err, ErrClosed) {
		t.Errorf("seek after Close: %v", err)
	}
}

func TestLoader_Refusals(t *testing.T) {
	shape := Shape{1, 2, 3}
	for name, c := range map[string]struct {
		c    Config
		want string
	}{
		"few samples": {Config{Source: &fakeSource{n: 3, shape: shape}, BatchSize: 8, Options: Options{Part: Part{Of: 4}}}, "3 samples, fewer than the 4 workers"},
		"small batch": {Config{Source: &fakeSource{n: 9, shape: shape}, BatchSize: 3, Options: Options{Part: Part{Of: 4}}}, "batch_size 3 cannot be divided"},
		"no batch":    {Config{Source: &fakeSource{n: 9, shape: shape}}, "batch_size must be at least 1"},
		"crop":        {Config{Source: &fakeSource{n: 9, shape: shape}, BatchSize: 1, Transform: &Transformer{scale: 1, crop: 3}}, "fake 0: crop_size 3"},
		"too large":   {Config{Source: &fakeSource{n: 9, shape: Shape{64, 1 << 7, 1 << 7}}, BatchSize: 1 << 20}, "larger than a blob"},
	} {
		if c.c.Transform == nil {
			c.c.Transform = plain()
		}
		if _, err := NewLoader(c.c); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if c.c.Source.(*fakeSource).closed != 1 {
			t.Errorf("%s: the source stays open", name)
		}
	}
	l := mustLoader(t, Config{Source: &fakeSource{n: 9, shape: shape, odd: 4}, Transform: plain(), BatchSize: 3})
	defer l.Close()
	if _, _, err := nextBatch(l); err != nil {
		t.Fatal(err)
	}
	if _, _, err := nextBatch(l); err == nil || !strings.Contains(err.Error(), "fake 4: the sample is 1x3x2 after transformation, but the first one 1x2x3") {
		t.Errorf("odd shape: %v", err)
	}
	if err := l.Next(make([]float32, 5), nil); err == nil {
		t.Error("a buffer of the wrong size is accepted")
	}
	if err := l.SeekBatch(-1); err == nil {
		t.Error("batch -1 is accepted")
	}
}

func TestLoader_SteadyStateAllocatesNothing(t *testing.T) {
	l := mustLoader(t, Config{Source: &fakeSource{n: 100, shape: Shape{3, 8, 8}}, Transform: &Transformer{scale: 1, mirror: true}, BatchSize: 10})
	defer l.Close()
	data, labels := make([]float32, 10*192), make([]float32, 10)
	if n := testing.AllocsPerRun(200, func() {
		if err := l.Next(data, labels); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a batch", n)
	}
	s := l.Stats()
	if s.Batches != 201 || s.Depth != DefaultPrefetch || s.Waits > s.Batches || s.Queued > s.Depth {
		t.Errorf("stats %+v", s)
	}
}

func TestLoader_PrefetchDepth(t *testing.T) {
	for _, c := range []struct{ net, option, want int }{{0, 0, 4}, {2, 0, 2}, {2, 7, 7}} {
		l := mustLoader(t, Config{Source: &fakeSource{n: 1, shape: Shape{1, 1, 1}}, Transform: plain(), BatchSize: 1, Prefetch: c.net, Options: Options{Prefetch: c.option}})
		if _, _, err := nextBatch(l); err != nil || l.Stats().Depth != int64(c.want) || len(l.slots) != c.want {
			t.Errorf("%+v: depth %d, %d buffers, %v", c, l.Stats().Depth, len(l.slots), err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A mapped file that is cut while it is read gives an error, not SIGBUS.
func TestGuard_FileCutWhileItIsRead(t *testing.T) {
	path := writeFile(t, "f", make([]byte, 1<<16))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := unix.Mmap(int(f.Fd()), 0, 1<<16, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(b) }()
	if err := f.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	var sum byte
	if err := guard(func() error { sum += b[60000]; return nil }); err == nil || !strings.Contains(err.Error(), "unreadable") {
		t.Errorf("guard: %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("guard hides a nil pointer")
		}
	}()
	_ = guard(func() error { var p *Shape; p.C = int(sum); return nil })
}

// imageList makes n small images, of which image i has label i, and a list.
func imageList(t testing.TB, n int) string {
	dir := t.TempDir()
	var list strings.Builder
	for i := range n {
		img := picture(6+i%2, 5)
		img.Pix[0] = byte(i)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("im %d.png", i)), pngFile(t, img), 0o644); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&list, "im %d.png %d\r\n", i, i)
	}
	path := filepath.Join(dir, "list.txt")
	if err := os.WriteFile(path, []byte(list.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestList_BadLists(t *testing.T) {
	for text, want := range map[string]string{
		"":                     "lists no images",
		"\n\n":                 "lists no images",
		"a.png 1\n\nb.png\n":   ":3: \"b.png\" has no label",
		"a.png 1\nb.png cat\n": ":2: the label \"cat\" is not an integer",
		"a.png 99999999999\n":  ":1: the label",
	} {
		path := writeFile(t, "list.txt", []byte(text))
		if _, err := OpenList(path, ListOptions{}); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := OpenList("no/such/list", ListOptions{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no list: %v", err)
	}
	if _, err := OpenList(imageList(t, 1), ListOptions{Height: 3}); err == nil || !strings.Contains(err.Error(), "both or neither") {
		t.Errorf("half a size: %v", err)
	}
}

func TestList_MissingAndDamagedImages(t *testing.T) {
	list := imageList(t, 4)
	root := filepath.Dir(list) + "/"
	if err := os.Remove(root + "im 1.png"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(root+"im 2.png", []byte("no image"), 0o644); err != nil {
		t.Fatal(err)
	}
	src, err := OpenList(list, ListOptions{Root: root, Color: BGR, Height: 4, Width: 4})
	if err != nil {
		t.Fatal(err)
	}
	l := mustLoader(t, Config{Source: src, Transform: plain(), BatchSize: 1})
	defer l.Close()
	if _, _, err := nextBatch(l); err != nil || l.Shape() != (Shape{3, 4, 4}) {
		t.Fatal(l.Shape(), err)
	}
	for k, want := range map[int64]string{1: ":2: image " + root + "im 1.png: open", 2: ":3: image " + root + "im 2.png: neither JPEG nor PNG"} {
		if err := l.SeekBatch(k); err != nil {
			t.Fatal(err)
		}
		if _, _, err := nextBatch(l); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("batch %d: %v, want %q", k, err, want)
		}
	}
}

func TestColorOf(t *testing.T) {
	yes := true
	for want, p := range map[Color]*proto.TransformationParameter{Native: nil, BGR: {ForceColor: &yes}, Gray: {ForceGray: &yes}} {
		if got := ColorOf(p); got != want {
			t.Errorf("%v: %v, want %v", p, got, want)
		}
	}
}
