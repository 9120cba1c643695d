//go:build cgo

package dataset

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/caffe/data"
)

// record is a sample and where it lies.
type record struct {
	where string
	data.Sample
}

func readAll(t *testing.T, path string) []record {
	t.Helper()
	src, err := data.OpenLMDB(path, data.Native)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	var all []record
	for i := range src.Len() {
		var r record
		if err := src.Read(0, i, &r.Sample); err != nil {
			t.Fatal(err)
		}
		r.Bytes, r.where = bytes.Clone(r.Bytes), strings.TrimPrefix(src.Where(), "LMDB "+path+": key ")
		all = append(all, r)
	}
	return all
}

func write1(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if err == nil || !strings.Contains(err.Error(), p) {
			t.Errorf("error %v, want %q in it", err, p)
		}
	}
}

func TestGlyphs_AreAFunctionOfTheSeed(t *testing.T) {
	dir := t.TempDir()
	make := func(name string, seed uint64) []record {
		path := filepath.Join(dir, name)
		o := GlyphsOptions{Out: Out{Train: path, Test: path + "-test"}, TrainSamples: 700, TestSamples: 30, Seed: seed}
		if err := Glyphs(o); err != nil {
			t.Fatal(err)
		}
		train, test := readAll(t, path), readAll(t, path+"-test")
		if len(train) != 700 || len(test) != 30 {
			t.Fatalf("%d and %d samples", len(train), len(test))
		}
		return append(train, test...)
	}
	a := make("a", 1)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // fewer cores give the same
	b, c := make("b", 1), make("c", 2)
	seen := map[string]bool{}
	for i := range a {
		if a[i].Label != b[i].Label || !bytes.Equal(a[i].Bytes, b[i].Bytes) {
			t.Fatalf("sample %d differs between two runs of one seed", i)
		}
		if bytes.Equal(a[i].Bytes, c[i].Bytes) || seen[string(a[i].Bytes)] {
			t.Fatalf("sample %d is there twice", i)
		}
		seen[string(a[i].Bytes)] = true
	}
}

// Every digit comes about equally often, in the shape and with the keys of
// CIFAR-10, with a digit that stands out.
func TestGlyphs_Samples(t *testing.T) {
	path := filepath.Join(t.TempDir(), "glyphs")
	var calls, last int
	o := GlyphsOptions{Out: Out{Test: path, Progress: func(done, total int) {
		if calls++; done < last || total != 2000 {
			t.Errorf("progress %d of %d after %d", done, total, last)
		}
		last = done
	}}}
	if err := Glyphs(o); err != nil {
		t.Fatal(err)
	}
	if calls != 20 || last != 2000 {
		t.Errorf("progress called %d times, at last with %d", calls, last)
	}
	count := map[int32]int{}
	for i, r := range readAll(t, path) {
		if want := fmt.Sprintf("\"%05d\"", i); r.where != want || r.Shape != GlyphShape || !r.HasLabel {
			t.Fatalf("sample %d: key %s, %v", i, r.where, r.Shape)
		}
		count[r.Label]++
		var luma []int
		for j := range 1024 {
			luma = append(luma, (299*int(r.Bytes[j])+587*int(r.Bytes[1024+j])+114*int(r.Bytes[2048+j]))/1000)
		}
		slices.Sort(luma)
		// At least two in a hundred pixels are ink, and at least half are ground.
		if d := max(luma[1003]-luma[512], luma[511]-luma[20]); d < minContrast/2 {
			t.Errorf("sample %d: the digit differs by %d only", i, d)
		}
	}
	for d := range int32(10) {
		if count[d] < 140 || count[d] > 260 {
			t.Errorf("digit %d comes %d times of 2000", d, count[d])
		}
	}
}

func TestMakers_RefuseToOverwrite(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	o := GlyphsOptions{Out: Out{Train: a, Test: b}, TrainSamples: 3, TestSamples: 3}
	if err := Glyphs(o); err != nil {
		t.Fatal(err)
	}
	before := readAll(t, a)
	o.Seed, o.Train = 9, filepath.Join(dir, "c")
	wantError(t, Glyphs(o), b+" exists")
	if _, err := os.Stat(o.Train); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the training set is made before the test set is refused: %v", err)
	}
	o.Train, o.Force = a, true
	if err := Glyphs(o); err != nil {
		t.Fatal(err)
	}
	if after := readAll(t, a); bytes.Equal(after[0].Bytes, before[0].Bytes) {
		t.Error("force did not replace")
	}
	wantError(t, Glyphs(GlyphsOptions{}), "missing path")
	wantError(t, Glyphs(GlyphsOptions{Out: Out{Train: "x", Test: "x"}}), "both the training and the test set")
	wantError(t, Glyphs(GlyphsOptions{Out: Out{Train: filepath.Join(dir, "d")}, TrainSamples: -1}), "negative")
}

// cifarFiles writes files in CIFAR-10's form, whose record i of file f has the
// label (i+f) mod 10 and pixels of i.
func cifarFiles(t *testing.T) string {
	dir := t.TempDir()
	for f := range 6 {
		name := fmt.Sprintf("data_batch_%d.bin", f+1)
		if f == 5 {
			name = "test_batch.bin"
		}
		b := make([]byte, 0, cifarImages*cifarRecord)
		for i := range cifarImages {
			b = append(b, byte((i+f)%10))
			b = append(b, bytes.Repeat([]byte{byte(i)}, cifarRecord-1)...)
		}
		write1(t, filepath.Join(dir, name), b)
	}
	return dir
}

func TestCIFAR10(t *testing.T) {
	dir := cifarFiles(t)
	out := t.TempDir()
	o := CIFAR10Options{Dir: dir, Out: Out{Train: filepath.Join(out, "train"), Test: filepath.Join(out, "test")}}
	if err := CIFAR10(o); err != nil {
		t.Fatal(err)
	}
	train := readAll(t, o.Train)
	if n := len(train); n != 50000 || len(readAll(t, o.Test)) != 10000 {
		t.Fatalf("%d training samples", n)
	}
	r := train[30123]
	if r.where != `"30123"` || r.Label != 6 || r.Shape != (data.Shape{C: 3, H: 32, W: 32}) || r.Bytes[3071] != 123 {
		t.Errorf("%s: label %d, %v, %d", r.where, r.Label, r.Shape, r.Bytes[3071])
	}

	o.Force = true
	path := filepath.Join(dir, "test_batch.bin")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[cifarRecord*7] = 10
	write1(t, path, b)
	o.Train = ""
	wantError(t, CIFAR10(o), path, "record 7: label 10")
	write1(t, path, b[:12345])
	wantError(t, CIFAR10(o), path, "truncated", "12345 bytes")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	wantError(t, CIFAR10(o), path, "no such file")
	if n := len(readAll(t, o.Test)); n != 10000 {
		t.Errorf("after failures the old test set holds %d samples", n)
	}
}

// idx is a file in MNIST's form.
func idx(magic uint32, dims []uint32, body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, magic)
	for _, d := range dims {
		b = binary.BigEndian.AppendUint32(b, d)
	}
	return append(b, body...)
}

func zipped(t *testing.T, b []byte) []byte {
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return z.Bytes()
}

func TestMNIST(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	images := idx(idxImages, []uint32{3, 2, 2}, []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})
	labels := idx(idxLabels, []uint32{3}, []byte{5, 0, 4})
	file := func(name string) string { return filepath.Join(dir, name) }
	write1(t, file("train-images-idx3-ubyte"), images)
	write1(t, file("train-labels-idx1-ubyte"), labels)
	write1(t, file("t10k-images-idx3-ubyte.gz"), zipped(t, images))
	write1(t, file("t10k-labels-idx1-ubyte.gz"), zipped(t, labels))
	o := MNISTOptions{Dir: dir, Out: Out{Train: filepath.Join(out, "train"), Test: filepath.Join(out, "test")}}
	if err := MNIST(o); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{o.Train, o.Test} {
		all := readAll(t, path)
		if len(all) != 3 || all[2].where != `"00000002"` || all[2].Label != 4 || !bytes.Equal(all[2].Bytes, []byte{8, 9, 10, 11}) || all[2].C != 1 {
			t.Errorf("%s: %+v", path, all)
		}
	}

	o.Force, o.Train = true, ""
	for name, c := range map[string]struct {
		file string
		b    []byte
		want string
	}{
		"cut":             {"t10k-images-idx3-ubyte", images[:20], "truncated or damaged: 20 bytes, but its header says 28"},
		"no header":       {"t10k-images-idx3-ubyte", images[:9], "truncated in its header"},
		"labels":          {"t10k-images-idx3-ubyte", labels, "begins with 0x00000801"},
		"huge":            {"t10k-images-idx3-ubyte", idx(idxImages, []uint32{3, 1 << 31, 2}, nil), "dimension 1"},
		"other count":     {"t10k-labels-idx1-ubyte", idx(idxLabels, []uint32{2}, []byte{1, 2}), "3 images"},
		"cut when zipped": {"t10k-images-idx3-ubyte.gz", zipped(t, images[:20]), "truncated or damaged at item 1"},
		"cut zip":         {"t10k-images-idx3-ubyte.gz", zipped(t, images)[:24], "t10k-images-idx3-ubyte.gz"},
		"no zip":          {"t10k-images-idx3-ubyte.gz", images, "damaged"},
	} {
		old, err := os.ReadFile(file(c.file))
		write1(t, file(c.file), c.b)
		wantError(t, MNIST(o), c.want, c.file)
		if err == nil {
			write1(t, file(c.file), old)
		} else if err := os.Remove(file(c.file)); err != nil {
			t.Fatal(name, err)
		}
	}
	if n := len(readAll(t, o.Test)); n != 3 {
		t.Errorf("after failures the old test set holds %d samples", n)
	}
	o.Dir = out
	wantError(t, MNIST(o), "t10k-images-idx3-ubyte", "no such file")
}

// pngs writes n images of the given sizes with a list.
func pngs(t *testing.T, sizes ...image.Point) string {
	dir := t.TempDir()
	var list strings.Builder
	for i, p := range sizes {
		img := image.NewNRGBA(image.Rect(0, 0, p.X, p.Y))
		for j := range img.Pix {
			img.Pix[j] = byte(i*16 + j%4)
		}
		for j := 3; j < len(img.Pix); j += 4 {
			img.Pix[j] = 255
		}
		var b bytes.Buffer
		if err := png.Encode(&b, img); err != nil {
			t.Fatal(err)
		}
		write1(t, filepath.Join(dir, fmt.Sprintf("%d.png", i)), b.Bytes())
		fmt.Fprintf(&list, "%d.png %d\n", i, 10+i)
	}
	write1(t, filepath.Join(dir, "list"), []byte(list.String()))
	return filepath.Join(dir, "list")
}

func TestImages(t *testing.T) {
	list := pngs(t, image.Pt(4, 3), image.Pt(4, 3), image.Pt(4, 3), image.Pt(4, 3))
	path := filepath.Join(t.TempDir(), "lmdb")
	root := filepath.Dir(list) + "/"
	o := ImagesOptions{List: list, Root: root, Path: path, Force: true}
	for name, c := range map[string]struct {
		change func(*ImagesOptions)
		shape  data.Shape
		pixels []byte // first of each plane of image 2
	}{
		"raw":             {func(*ImagesOptions) {}, data.Shape{C: 3, H: 3, W: 4}, []byte{34, 33, 32}},
		"gray":            {func(o *ImagesOptions) { o.Gray = true }, data.Shape{C: 1, H: 3, W: 4}, []byte{33}},
		"resized":         {func(o *ImagesOptions) { o.Height, o.Width = 6, 5 }, data.Shape{C: 3, H: 6, W: 5}, []byte{34, 33, 32}},
		"encoded":         {func(o *ImagesOptions) { o.Encoded = true }, data.Shape{C: 3, H: 3, W: 4}, []byte{34, 33, 32}},
		"encoded resized": {func(o *ImagesOptions) { o.Encoded, o.Height, o.Width = true, 6, 5 }, data.Shape{C: 3, H: 6, W: 5}, []byte{34, 33, 32}},
		"encoded gray":    {func(o *ImagesOptions) { o.Encoded, o.Gray = true, true }, data.Shape{C: 1, H: 3, W: 4}, []byte{33}},
	} {
		o := o
		c.change(&o)
		if err := Images(o); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all := readAll(t, path)
		if len(all) != 4 || all[2].where != `"00000002_2.png"` || all[2].Label != 12 || all[2].Shape != c.shape {
			t.Fatalf("%s: %d samples, %+v", name, len(all), all[2])
		}
		for i, want := range c.pixels {
			if got := all[2].Bytes[i*c.shape.H*c.shape.W]; got != want {
				t.Errorf("%s: plane %d begins with %d, want %d", name, i, got, want)
			}
		}
	}
	o.Shuffle, o.Seed = true, 3
	if err := Images(o); err != nil {
		t.Fatal(err)
	}
	var labels []int32
	for _, r := range readAll(t, path) {
		labels = append(labels, r.Label)
	}
	if slices.IsSorted(labels) {
		t.Errorf("shuffled: %v", labels)
	}
	slices.Sort(labels)
	if !slices.Equal(labels, []int32{10, 11, 12, 13}) {
		t.Errorf("shuffled: %v", labels)
	}
}

func TestImages_Refusals(t *testing.T) {
	list := pngs(t, image.Pt(4, 3), image.Pt(3, 3))
	root := filepath.Dir(list) + "/"
	o := ImagesOptions{List: list, Root: root, Path: filepath.Join(t.TempDir(), "lmdb")}
	wantError(t, Images(o), list+":2: image "+root+"1.png: the image is 3x3x3, but the first one is 3x3x4")
	o.Width = 4
	wantError(t, Images(o), "both or neither")
	o.Width, o.Root = 0, "/nowhere/"
	wantError(t, Images(o), list+":1: image /nowhere/0.png", "no such file")
	o.List = "/nowhere/list"
	wantError(t, Images(o), "/nowhere/list")
	if _, err := os.Stat(o.Path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("half an LMDB: %v", err)
	}
}

func TestMean(t *testing.T) {
	list := pngs(t, image.Pt(2, 1), image.Pt(2, 1), image.Pt(2, 1), image.Pt(2, 1))
	dir := t.TempDir()
	o := ImagesOptions{List: list, Root: filepath.Dir(list) + "/", Path: filepath.Join(dir, "lmdb")}
	if err := Images(o); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "mean.binaryproto")
	channels, err := Mean(MeanOptions{Source: o.Path, Path: file})
	if err != nil || !slices.Equal(channels, []float32{26, 25, 24}) { // 24 is the mean of 0, 16, 32, 48
		t.Errorf("%v %v", channels, err)
	}
	mean, shape, err := data.ReadMean(file)
	if err != nil || shape != (data.Shape{C: 3, H: 1, W: 2}) || !slices.Equal(mean, []float32{26, 26, 25, 25, 24, 24}) {
		t.Errorf("%v %v %v", mean, shape, err)
	}
	_, err = Mean(MeanOptions{Source: filepath.Join(dir, "none")})
	wantError(t, err, "none")
	mixed := pngs(t, image.Pt(4, 3), image.Pt(3, 3))
	o = ImagesOptions{List: mixed, Root: filepath.Dir(mixed) + "/", Path: filepath.Join(dir, "mixed"), Encoded: true}
	if err := Images(o); err != nil {
		t.Fatal(err)
	}
	_, err = Mean(MeanOptions{Source: o.Path})
	wantError(t, err, `key "00000001_1.png"`, "3x3x3")
}
