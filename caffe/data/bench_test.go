package data

import (
	"image"
	"image/color"
	"math/rand/v2"
	"testing"
)

// photograph is an image with gradients and noise, which as a JPEG of quality
// 90 takes some 120 KB at 500 by 375, as those of ImageNet do.
func photograph(w, h int) *image.NRGBA {
	img := image.NewNRGBA(image.Rect(0, 0, w, h))
	r := rand.New(rand.NewPCG(1, 2))
	for y := range h {
		for x := range w {
			n := r.IntN(24)
			img.SetNRGBA(x, y, color.NRGBA{uint8(x*200/w + n), uint8(y*200/h + n), uint8((x+y)*100/(w+h) + n), 255})
		}
	}
	return img
}

func perImage(b *testing.B, images int) {
	b.ReportMetric(float64(b.N*images)/b.Elapsed().Seconds(), "images/s")
}

// BenchmarkTransform: one sample of raw bytes to floats.
func BenchmarkTransform(b *testing.B) {
	for _, c := range []struct {
		name string
		in   Shape
		crop int
	}{{"cifar", Shape{3, 32, 32}, 0}, {"cifar-crop", Shape{3, 32, 32}, 28}, {"imagenet", Shape{3, 256, 256}, 227}} {
		s := &Sample{Shape: c.in, Bytes: make([]byte, c.in.Count())}
		for _, means := range []string{"file", "values"} {
			t := &Transformer{scale: 1, mirror: true, crop: c.crop, train: true, means: []float32{104, 117, 123}}
			if means == "file" {
				t.means, t.mean, t.meanShape = nil, make([]float32, c.in.Count()), c.in
			}
			out, err := t.Out(c.in)
			if err != nil {
				b.Fatal(err)
			}
			dst := make([]float32, out.Count())
			b.Run(c.name+"/mean-"+means, func(b *testing.B) {
				b.SetBytes(int64(4 * out.Count()))
				var n int64
				for b.Loop() {
					n++
					if err := t.Apply(dst, s, n); err != nil {
						b.Fatal(err)
					}
				}
				perImage(b, 1)
			})
		}
	}
}

// BenchmarkImage: an image file to planes.
func BenchmarkImage(b *testing.B) {
	img := photograph(500, 375)
	for name, c := range map[string]struct {
		file []byte
		d    Decoder
	}{
		"jpeg":         {jpegFile(b, img), Decoder{}},
		"jpeg-resized": {jpegFile(b, img), Decoder{Height: 256, Width: 256}},
		"png":          {pngFile(b, img), Decoder{}},
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(c.file)))
			b.ReportAllocs()
			var s Sample
			for b.Loop() {
				if err := c.d.Image(c.file, &s); err != nil {
					b.Fatal(err)
				}
			}
			perImage(b, 1)
		})
	}
}
