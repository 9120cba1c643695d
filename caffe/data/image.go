package data

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	_ "image/jpeg" // the formats of image files
	_ "image/png"
)

// Image decodes an image file (JPEG or PNG) into s, resized where the decoder
// has a Height and a Width. It leaves the label alone.
func (d *Decoder) Image(file []byte, s *Sample) error {
	s.Encoded, s.Stored = true, len(file)
	if err := d.image(file, s); err != nil {
		return err
	}
	if d.Height <= 0 || d.Width <= 0 || (s.H == d.Height && s.W == d.Width) {
		return nil
	}
	to := Shape{s.C, d.Height, d.Width}
	if err := to.check(); err != nil {
		return err
	}
	d.sized = resized(d.sized, to.Count())
	for c := range s.C {
		resize(d.sized[c*to.H*to.W:], to.H, to.W, s.Bytes[c*s.H*s.W:], s.H, s.W)
	}
	s.Shape, s.Bytes = to, d.sized
	return nil
}

// resized returns b with length n.
func resized(b []byte, n int) []byte {
	if cap(b) < n {
		return make([]byte, n)
	}
	return b[:n]
}

func (d *Decoder) image(file []byte, s *Sample) error {
	// The header first: its extents bound what decoding allocates.
	cfg, _, err := image.DecodeConfig(bytes.NewReader(file))
	if err != nil {
		return fmt.Errorf("neither JPEG nor PNG, or damaged: %w", err)
	}
	gray := d.Color == Gray || d.Color == Native && isGray(cfg.ColorModel)
	shape := Shape{3, cfg.Height, cfg.Width}
	if gray {
		shape.C = 1
	}
	if err := shape.check(); err != nil {
		return err
	}
	img, format, err := image.Decode(bytes.NewReader(file))
	if err != nil {
		return fmt.Errorf("damaged image: %w", err)
	}
	if r := img.Bounds(); r.Dx() != shape.W || r.Dy() != shape.H {
		return fmt.Errorf("damaged %s image: %dx%d pixels, its header says %dx%d", format, r.Dx(), r.Dy(), shape.W, shape.H)
	}
	d.bytes = resized(d.bytes, shape.Count())
	if gray {
		toGray(d.bytes, img)
	} else {
		toBGR(d.bytes, img)
	}
	s.Shape, s.Bytes, s.Floats = shape, d.bytes, nil
	return nil
}

func isGray(m color.Model) bool { return m == color.GrayModel || m == color.Gray16Model }

// toBGR writes the planes blue, green and red. Transparency is dropped, the
// color beneath it kept, as OpenCV does.
func toBGR(dst []byte, img image.Image) {
	r := img.Bounds()
	n := r.Dx() * r.Dy()
	b, g, rd := dst[:n], dst[n:2*n], dst[2*n:3*n]
	i := 0
	for y := r.Min.Y; y < r.Max.Y; y++ {
		for x := r.Min.X; x < r.Max.X; x++ {
			rd[i], g[i], b[i] = rgb(img, x, y)
			i++
		}
	}
}

// rgb returns one pixel, without an allocation for the usual image types.
func rgb(img image.Image, x, y int) (r, g, b uint8) {
	switch p := img.(type) {
	case *image.YCbCr:
		yi, ci := p.YOffset(x, y), p.COffset(x, y)
		return color.YCbCrToRGB(p.Y[yi], p.Cb[ci], p.Cr[ci])
	case *image.Gray:
		v := p.GrayAt(x, y).Y
		return v, v, v
	case *image.RGBA:
		if c := p.RGBAAt(x, y); c.A == 255 {
			return c.R, c.G, c.B
		}
	case *image.NRGBA:
		c := p.NRGBAAt(x, y)
		return c.R, c.G, c.B
	}
	c := color.NRGBAModel.Convert(img.At(x, y)).(color.NRGBA)
	return c.R, c.G, c.B
}

// toGray writes the luma plane: the one a JPEG stores, or else OpenCV's
// weights 0.299, 0.587, 0.114.
func toGray(dst []byte, img image.Image) {
	r := img.Bounds()
	i := 0
	for y := r.Min.Y; y < r.Max.Y; y++ {
		for x := r.Min.X; x < r.Max.X; x++ {
			if p, ok := img.(*image.YCbCr); ok {
				dst[i] = p.Y[p.YOffset(x, y)]
			} else {
				cr, cg, cb := rgb(img, x, y)
				// OpenCV's 14 bit weights: exact for gray pixels.
				dst[i] = uint8((uint32(cr)*4899 + uint32(cg)*9617 + uint32(cb)*1868 + 1<<13) >> 14)
			}
			i++
		}
	}
}

// resize scales one plane bilinearly with pixel centers at halves and no
// smoothing, which is OpenCV's INTER_LINEAR.
func resize(dst []byte, dh, dw int, src []byte, sh, sw int) {
	for y := range dh {
		y0, y1, fy := tap(y, dh, sh)
		r0, r1 := src[y0*sw:y0*sw+sw], src[y1*sw:y1*sw+sw]
		for x := range dw {
			x0, x1, fx := tap(x, dw, sw)
			top := float32(r0[x0]) + (float32(r0[x1])-float32(r0[x0]))*fx
			bottom := float32(r1[x0]) + (float32(r1[x1])-float32(r1[x0]))*fx
			dst[y*dw+x] = uint8(top + (bottom-top)*fy + 0.5)
		}
	}
}

// tap returns the two source pixels that make up pixel i of n, and the weight
// of the second.
func tap(i, n, src int) (a, b int, f float32) {
	at := (float32(i)+0.5)*float32(src)/float32(n) - 0.5
	if at <= 0 {
		return 0, 0, 0
	}
	a = int(at)
	if a >= src-1 {
		return src - 1, src - 1, 0
	}
	return a, a + 1, at - float32(a)
}
