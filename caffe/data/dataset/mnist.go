package dataset

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/scaffe/scaffe/caffe/data"
)

// MNISTOptions says what MNIST converts.
type MNISTOptions struct {
	Out
	// Dir holds train-images-idx3-ubyte, train-labels-idx1-ubyte,
	// t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, as they are or
	// compressed (.gz).
	Dir string
}

// MNIST converts the MNIST files, or any in their format, as Caffe's
// convert_mnist_data: keys "00000000" and on, one channel.
func MNIST(o MNISTOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	m := &meter{report: o.Progress}
	var sets [2]*idxSet
	for i, s := range []struct{ path, prefix string }{{o.Train, "train"}, {o.Test, "t10k"}} {
		if s.path == "" {
			continue
		}
		set, err := openIdxSet(o.Dir, s.prefix)
		if err != nil {
			return fmt.Errorf("dataset: %w", err)
		}
		defer set.close()
		sets[i] = set
		m.total += set.n
	}
	for i, path := range []string{o.Train, o.Test} {
		err := write(path, o.Force, func(w *data.Writer) error { return sets[i].convert(w, m) })
		if err != nil {
			return err
		}
	}
	return nil
}

// The numbers that IDX files begin with: unsigned bytes of three and of one
// dimension. All numbers are big-endian.
const (
	idxImages = 0x00000803
	idxLabels = 0x00000801
)

// idxSet is a file of images beside one of labels.
type idxSet struct {
	images, labels *idxFile
	n              int
	shape          data.Shape
}

func openIdxSet(dir, prefix string) (*idxSet, error) {
	images, err := openIdx(filepath.Join(dir, prefix+"-images-idx3-ubyte"), idxImages, 3)
	if err != nil {
		return nil, err
	}
	labels, err := openIdx(filepath.Join(dir, prefix+"-labels-idx1-ubyte"), idxLabels, 1)
	if err != nil {
		return nil, errors.Join(err, images.close())
	}
	s := &idxSet{images: images, labels: labels, n: images.dims[0], shape: data.Shape{C: 1, H: images.dims[1], W: images.dims[2]}}
	if labels.dims[0] != s.n {
		s.close()
		return nil, fmt.Errorf("%s holds %d images, %s %d labels", images.path, s.n, labels.path, labels.dims[0])
	}
	return s, nil
}

func (s *idxSet) close() {
	_ = s.images.close() // opened for reading
	_ = s.labels.close()
}

func (s *idxSet) convert(w *data.Writer, m *meter) error {
	image, label := make([]byte, s.shape.Count()), make([]byte, 1)
	var buf []byte
	for i := range s.n {
		if err := errors.Join(s.images.read(image, i), s.labels.read(label, i)); err != nil {
			return err
		}
		sample := data.Sample{Shape: s.shape, Bytes: image, Label: int32(label[0]), HasLabel: true}
		buf = data.AppendDatum(buf[:0], &sample)
		if err := w.Put(fmt.Sprintf("%08d", i), buf); err != nil {
			return err
		}
		m.add()
	}
	return nil
}

type idxFile struct {
	path string
	f    *os.File
	r    io.Reader
	dims []int
}

// openIdx opens path or path.gz and reads the header.
func openIdx(path string, magic uint32, dims int) (*idxFile, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		if gz, gerr := os.Open(path + ".gz"); gerr == nil {
			f, err, path = gz, nil, path+".gz"
		}
	}
	if err != nil {
		return nil, err
	}
	x := &idxFile{path: path, f: f}
	if err := x.header(magic, dims); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return x, nil
}

func (x *idxFile) header(magic uint32, dims int) error {
	x.r = bufio.NewReaderSize(x.f, 1<<18)
	if filepath.Ext(x.path) == ".gz" {
		z, err := gzip.NewReader(x.r)
		if err != nil {
			return fmt.Errorf("damaged: %w", err)
		}
		x.r = z
	}
	var first uint32
	head := make([]uint32, dims)
	if err := binary.Read(x.r, binary.BigEndian, &first); err != nil {
		return fmt.Errorf("truncated in its header: %w", err)
	}
	if first != magic {
		return fmt.Errorf("begins with %#08x, want %#08x: not the right MNIST file", first, magic)
	}
	if err := binary.Read(x.r, binary.BigEndian, head); err != nil {
		return fmt.Errorf("truncated in its header: %w", err)
	}
	pixels := 1
	for i, d := range head {
		if d == 0 || i > 0 && d > 1<<12 || d > 1<<30 {
			return fmt.Errorf("damaged: dimension %d is %d", i, d)
		}
		x.dims = append(x.dims, int(d))
		pixels *= int(d)
	}
	if fi, err := x.f.Stat(); err != nil {
		return err
	} else if want := int64(4 + 4*dims + pixels); filepath.Ext(x.path) != ".gz" && fi.Size() != want {
		return fmt.Errorf("truncated or damaged: %d bytes, but its header says %d", fi.Size(), want)
	}
	return nil
}

// read reads item i, the next.
func (x *idxFile) read(b []byte, i int) error {
	if _, err := io.ReadFull(x.r, b); err != nil {
		return fmt.Errorf("%s: truncated or damaged at item %d: %w", x.path, i, err)
	}
	return nil
}

func (x *idxFile) close() error { return x.f.Close() }
