package dataset

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/scaffe/scaffe/caffe/data"
)

// CIFAR10Options says what CIFAR10 converts.
type CIFAR10Options struct {
	Out
	// Dir holds data_batch_1.bin to data_batch_5.bin and test_batch.bin, the
	// binary version of the distribution.
	Dir string
}

const (
	cifarImages = 10000 // in each file
	cifarRecord = 1 + 3*32*32
)

// CIFAR10 converts the binary version of CIFAR-10 as Caffe's
// convert_cifar_data: keys "00000" to "49999", planes red, green, blue as in
// the files.
func CIFAR10(o CIFAR10Options) error {
	if err := o.check(); err != nil {
		return err
	}
	var train []string
	for i := range 5 {
		train = append(train, fmt.Sprintf("data_batch_%d.bin", i+1))
	}
	m := &meter{report: o.Progress}
	sets := []struct {
		path  string
		files []string
	}{{o.Train, train}, {o.Test, []string{"test_batch.bin"}}}
	for _, s := range sets {
		if s.path != "" {
			m.total += len(s.files) * cifarImages
		}
	}
	for _, s := range sets {
		err := write(s.path, o.Force, func(w *data.Writer) error {
			for i, name := range s.files {
				if err := cifarFile(w, filepath.Join(o.Dir, name), i*cifarImages, m); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func cifarFile(w *data.Writer, path string, key int, m *meter) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil {
		return err
	} else if want := int64(cifarImages * cifarRecord); fi.Size() != want {
		return fmt.Errorf("%s is truncated or not CIFAR-10's binary version: %d bytes, want %d", path, fi.Size(), want)
	}
	r := bufio.NewReaderSize(f, 1<<20)
	var raw [cifarRecord]byte
	var buf []byte
	for i := range cifarImages {
		if _, err := io.ReadFull(r, raw[:]); err != nil {
			return fmt.Errorf("%s: record %d: %w", path, i, err)
		}
		if raw[0] > 9 {
			return fmt.Errorf("%s: record %d: label %d: want 0 to 9", path, i, raw[0])
		}
		s := data.Sample{Shape: data.Shape{C: 3, H: 32, W: 32}, Bytes: raw[1:], Label: int32(raw[0]), HasLabel: true}
		buf = data.AppendDatum(buf[:0], &s)
		if err := w.Put(fmt.Sprintf("%05d", key+i), buf); err != nil {
			return err
		}
		m.add()
	}
	return nil
}
