package data

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// picture is an image whose pixels are all different.
func picture(w, h int) *image.NRGBA {
	img := image.NewNRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			img.SetNRGBA(x, y, color.NRGBA{uint8(10 + x), uint8(100 + y), uint8(200 + x + y), 255})
		}
	}
	return img
}

func pngFile(t testing.TB, img image.Image) []byte {
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func jpegFile(t testing.TB, img image.Image) []byte {
	var b bytes.Buffer
	if err := jpeg.Encode(&b, img, &jpeg.Options{Quality: 95}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestImage_PlanesAreBlueGreenRed(t *testing.T) {
	var s Sample
	if err := new(Decoder).Image(pngFile(t, picture(2, 2)), &s); err != nil {
		t.Fatal(err)
	}
	want := []byte{200, 201, 201, 202, 100, 100, 101, 101, 10, 11, 10, 11}
	if s.Shape != (Shape{3, 2, 2}) || !slices.Equal(s.Bytes, want) {
		t.Errorf("%v %v, want %v", s.Shape, s.Bytes, want)
	}
}

func TestImage_Kinds(t *testing.T) {
	gray := image.NewGray(image.Rect(0, 0, 3, 2))
	for i := range gray.Pix {
		gray.Pix[i] = uint8(40 * i)
	}
	clear := image.NewNRGBA(image.Rect(0, 0, 1, 1))
	clear.SetNRGBA(0, 0, color.NRGBA{200, 100, 50, 10})
	palette := image.NewPaletted(image.Rect(0, 0, 1, 1), color.Palette{color.RGBA{1, 2, 3, 255}})
	deep := image.NewGray16(image.Rect(0, 0, 1, 1))
	deep.SetGray16(0, 0, color.Gray16{0x8123})
	for name, c := range map[string]struct {
		img   image.Image
		color Color
		want  []byte
	}{
		"gray as it is":      {gray, Native, gray.Pix},
		"gray to color":      {gray, BGR, slices.Concat(gray.Pix, gray.Pix, gray.Pix)},
		"color to gray":      {picture(1, 1), Gray, []byte{84}}, // 0.299*10 + 0.587*100 + 0.114*200 = 84.49
		"transparency":       {clear, Native, []byte{50, 100, 200}},
		"palette":            {palette, Native, []byte{3, 2, 1}},
		"sixteen bits, gray": {deep, Native, []byte{0x81}},
	} {
		var s Sample
		if err := (&Decoder{Color: c.color}).Image(pngFile(t, c.img), &s); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if !slices.Equal(s.Bytes, c.want) {
			t.Errorf("%s: %v, want %v", name, s.Bytes, c.want)
		}
	}
}

func TestImage_JPEG(t *testing.T) {
	var s Sample
	if err := new(Decoder).Image(jpegFile(t, picture(16, 16)), &s); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{200, 100, 10} { // of the first pixel
		if got := int(s.Bytes[i*256]); got < want-6 || got > want+6 {
			t.Errorf("plane %d begins with %d, want about %d", i, got, want)
		}
	}
	if err := (&Decoder{Color: Gray}).Image(jpegFile(t, picture(16, 16)), &s); err != nil || s.C != 1 {
		t.Errorf("gray: %v %v", s.Shape, err)
	}
}

// The expected numbers are those of OpenCV's INTER_LINEAR: pixel centers at
// halves, edges repeated.
func TestResize_Bilinear(t *testing.T) {
	for _, c := range []struct{ from, want []byte }{
		{[]byte{0, 100}, []byte{0, 25, 75, 100}},
		{[]byte{0, 100, 200, 50}, []byte{50, 125}},
		{[]byte{10, 20, 30}, []byte{10, 20, 30}},
		{[]byte{9}, []byte{9, 9, 9}},
	} {
		got := make([]byte, len(c.want))
		resize(got, 1, len(got), c.from, 1, len(c.from), taps(nil, len(got), len(c.from)))
		if !slices.Equal(got, c.want) {
			t.Errorf("a row %v becomes %v, want %v", c.from, got, c.want)
		}
		resize(got, len(got), 1, c.from, len(c.from), 1, taps(nil, 1, 1))
		if !slices.Equal(got, c.want) {
			t.Errorf("a column %v becomes %v, want %v", c.from, got, c.want)
		}
	}
	var s Sample
	if err := (&Decoder{Height: 3, Width: 5}).Image(pngFile(t, picture(7, 9)), &s); err != nil {
		t.Fatal(err)
	}
	if s.Shape != (Shape{3, 3, 5}) || len(s.Bytes) != 45 {
		t.Errorf("%v, %d bytes", s.Shape, len(s.Bytes))
	}
}

func TestImage_Damaged(t *testing.T) {
	file := pngFile(t, picture(20, 20))
	for _, n := range []int{0, 1, 8, 20, len(file) / 2, len(file) - 20} {
		var s Sample
		if err := new(Decoder).Image(file[:n], &s); err == nil {
			t.Errorf("the first %d bytes of a PNG are accepted", n)
		}
	}
	// A header that asks for 12 GB must be refused before anything is allocated.
	huge := bytes.Clone(file)
	binary.BigEndian.PutUint32(huge[16:], 65000)
	binary.BigEndian.PutUint32(huge[20:], 65000)
	binary.BigEndian.PutUint32(huge[29:], crc32.ChecksumIEEE(huge[12:29]))
	var s Sample
	if err := new(Decoder).Image(huge, &s); err == nil || !strings.Contains(err.Error(), "larger than a sample") {
		t.Errorf("huge: %v", err)
	}
}

// Colors of JPEGs are those of package image/color, whatever shares a chroma,
// also where the image is part of a larger one.
func TestImage_ColorsOfJPEG(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, ratio := range []image.YCbCrSubsampleRatio{
		image.YCbCrSubsampleRatio444, image.YCbCrSubsampleRatio422, image.YCbCrSubsampleRatio420,
		image.YCbCrSubsampleRatio440, image.YCbCrSubsampleRatio411, image.YCbCrSubsampleRatio410,
	} {
		whole := image.NewYCbCr(image.Rect(0, 0, 23, 11), ratio)
		for _, p := range [][]byte{whole.Y, whole.Cb, whole.Cr} {
			for i := range p {
				p[i] = []byte{0, 255, byte(r.Uint32())}[r.IntN(3)]
			}
		}
		for _, part := range []image.Rectangle{whole.Rect, image.Rect(0, 0, 1, 1), image.Rect(0, 0, 22, 10), image.Rect(1, 1, 23, 11), image.Rect(6, 5, 13, 6), image.Rect(3, 2, 5, 7)} {
			img := whole.SubImage(part)
			n := part.Dx() * part.Dy()
			got := make([]byte, 3*n)
			toBGR(got, img)
			i := 0
			for y := part.Min.Y; y < part.Max.Y; y++ {
				for x := part.Min.X; x < part.Max.X; x++ {
					c := color.RGBAModel.Convert(img.At(x, y)).(color.RGBA)
					if got[i] != c.B || got[n+i] != c.G || got[2*n+i] != c.R {
						t.Fatalf("%v, part %v: pixel %d,%d is %d %d %d, want %d %d %d", ratio, part, x, y, got[2*n+i], got[n+i], got[i], c.R, c.G, c.B)
					}
					i++
				}
			}
		}
	}
}
