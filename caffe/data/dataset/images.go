package dataset

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"image/png"
	"math/rand/v2"
	"os"
	"strings"

	"github.com/scaffe/scaffe/caffe/data"
)

// ImagesOptions says what Images converts.
type ImagesOptions struct {
	// List is a file of lines: path, space, integer label.
	List string
	// Root is put before each path as it is, so it ends in a slash.
	Root string
	// Path is the LMDB directory to make; Force replaces one that exists.
	Path  string
	Force bool
	// Height and Width, both or neither, are what images are resized to.
	Height, Width int
	// Gray makes one channel instead of three.
	Gray bool
	// Encoded stores images compressed: files as they are where nothing is to
	// be changed in them, else in the format of their name (.png, or JPEG).
	Encoded bool
	// Shuffle stores the list in a random order, drawn from Seed.
	Shuffle bool
	Seed    uint64
	// Progress, where set, is called now and then.
	Progress func(done, total int)
}

// Images converts a list of image files as Caffe's convert_imageset: keys are
// the number of the image in the (shuffled) list, eight digits, an underscore,
// and its path. Images that are not encoded must be of one size.
func Images(o ImagesOptions) error {
	if (o.Height > 0) != (o.Width > 0) || o.Height < 0 || o.Width < 0 {
		return fmt.Errorf("dataset: resizing to height %d and width %d: set both or neither", o.Height, o.Width)
	}
	list, err := data.ReadList(o.List)
	if err != nil {
		return fmt.Errorf("dataset: %w", err)
	}
	if o.Shuffle {
		r := rand.New(rand.NewPCG(o.Seed, 0))
		r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	}
	if o.Path == "" {
		return errors.New("dataset: missing path of the LMDB")
	}
	return write(o.Path, o.Force, func(w *data.Writer) error { return o.convert(w, list) })
}

func (o *ImagesOptions) convert(w *data.Writer, list []data.Listed) error {
	dec := data.Decoder{Color: data.BGR, Height: o.Height, Width: o.Width}
	if o.Gray {
		dec.Color = data.Gray
	}
	m := &meter{report: o.Progress, total: len(list)}
	var buf []byte
	var first data.Shape
	for i, item := range list {
		path := o.Root + item.Path
		where := fmt.Sprintf("%s:%d: image %s", o.List, item.Line, path)
		file, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
		s := data.Sample{Label: item.Label, HasLabel: true}
		if err := dec.Image(file, &s); err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
		switch {
		case o.Encoded:
			if buf, err = o.encode(buf[:0], &s, file, path); err != nil {
				return fmt.Errorf("%s: %w", where, err)
			}
		case i > 0 && s.Shape != first:
			return fmt.Errorf("%s: the image is %v, but the first one is %v: resize them, or store them encoded", where, s.Shape, first)
		default:
			first = s.Shape
			buf = data.AppendDatum(buf[:0], &s)
		}
		if err := w.Put(fmt.Sprintf("%08d_%s", i, item.Path), buf); err != nil {
			return err
		}
		m.add()
	}
	return nil
}

// encode appends the Datum of an image kept compressed.
func (o *ImagesOptions) encode(buf []byte, s *data.Sample, file []byte, path string) ([]byte, error) {
	if o.Height == 0 && !o.Gray {
		return data.AppendEncoded(buf, s, file), nil
	}
	var out bytes.Buffer
	var err error
	if strings.HasSuffix(strings.ToLower(path), ".png") {
		err = png.Encode(&out, picture(s))
	} else {
		err = jpeg.Encode(&out, picture(s), &jpeg.Options{Quality: 95}) // OpenCV's default
	}
	return data.AppendEncoded(buf, s, out.Bytes()), err
}

// picture makes an image of a sample's planes, gray or blue, green, red.
func picture(s *data.Sample) image.Image {
	r := image.Rect(0, 0, s.W, s.H)
	if s.C == 1 {
		return &image.Gray{Pix: s.Bytes, Stride: s.W, Rect: r}
	}
	img := image.NewRGBA(r)
	n := s.H * s.W
	for i := range n {
		p := img.Pix[4*i : 4*i+4]
		p[0], p[1], p[2], p[3] = s.Bytes[2*n+i], s.Bytes[n+i], s.Bytes[i], 255
	}
	return img
}
