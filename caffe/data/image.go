package data

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	_ "image/jpeg" // the formats of image files
	_ "image/png"
)

// Image decodes an image file (JPEG or PNG) into s, resized if the decoder has a
// Height and a Width. It does not change the label.
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
	d.taps = taps(d.taps[:0], to.W, s.W)
	for c := range s.C {
		resize(d.sized[c*to.H*to.W:], to.H, to.W, s.Bytes[c*s.H*s.W:], s.H, s.W, d.taps)
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
	// Read the header first: its extents bound what decoding allocates.
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
		return fmt.Errorf("damaged %s image: %dx%d pixels, but its header says %dx%d", format, r.Dx(), r.Dy(), shape.W, shape.H)
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
	if p, ok := img.(*image.YCbCr); ok {
		for y := r.Min.Y; y < r.Max.Y; y++ {
			i := (y - r.Min.Y) * r.Dx()
			yCbCrRow(b[i:i+r.Dx()], g[i:i+r.Dx()], rd[i:i+r.Dx()], p, y)
		}
		return
	}
	i := 0
	for y := r.Min.Y; y < r.Max.Y; y++ {
		for x := r.Min.X; x < r.Max.X; x++ {
			rd[i], g[i], b[i] = rgb(img, x, y)
			i++
		}
	}
}

// The weights of JFIF times 2^16, as package image/color has them.
const (
	crToRed   = 91881
	cbToGreen = 22554
	crToGreen = 46802
	cbToBlue  = 116130
)

// yCbCrRow converts row y of p as color.YCbCrToRGB does. Pixels that share
// their chroma share what is computed from it.
func yCbCrRow(b, g, r []byte, p *image.YCbCr, y int) {
	x0 := p.Rect.Min.X
	luma := p.Y[p.YOffset(x0, y):][:len(b)]
	at := p.COffset(x0, y)
	cbs := p.Cb[at : at+p.COffset(x0+len(b)-1, y)-at+1]
	crs := p.Cr[at:][:len(cbs)]
	shared := 1 // pixels in a row with one chroma
	switch p.SubsampleRatio {
	case image.YCbCrSubsampleRatio422, image.YCbCrSubsampleRatio420:
		shared = 2
	case image.YCbCrSubsampleRatio411, image.YCbCrSubsampleRatio410:
		shared = 4
	}
	end := shared - x0%shared // of the first chroma's pixels
	i := 0
	g, r = g[:len(b)], r[:len(b)]
	for c := range cbs {
		cb, cr := int32(cbs[c])-128, int32(crs[c])-128
		red, green, blue := crToRed*cr, -cbToGreen*cb-crToGreen*cr, cbToBlue*cb
		for ; i < min(end, len(b)); i++ {
			v := int32(luma[i]) * 0x10101
			b[i], g[i], r[i] = clamp(v+blue), clamp(v+green), clamp(v+red)
		}
		end += shared
	}
}

// clamp makes a byte of a number in units of 2^-16.
func clamp(v int32) byte { return byte(min(max(v>>16, 0), 255)) }

// rgb returns one pixel, without an allocation for the usual image types.
func rgb(img image.Image, x, y int) (r, g, b uint8) {
	switch p := img.(type) {
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
// smoothing, which is OpenCV's INTER_LINEAR. across are the taps of its
// columns.
func resize(dst []byte, dh, dw int, src []byte, sh, sw int, across []tap) {
	for y := range dh {
		t := tapOf(y, dh, sh)
		r0, r1 := src[t.a*sw:t.a*sw+sw], src[t.b*sw:t.b*sw+sw]
		row := dst[y*dw : y*dw+dw]
		for x, u := range across[:dw] {
			top := float32(r0[u.a]) + (float32(r0[u.b])-float32(r0[u.a]))*u.f
			bottom := float32(r1[u.a]) + (float32(r1[u.b])-float32(r1[u.a]))*u.f
			row[x] = uint8(top + (bottom-top)*t.f + 0.5)
		}
	}
}

// tap is the two source pixels that make up a pixel, and the weight of the
// second.
type tap struct {
	a, b int
	f    float32
}

// taps appends those of n pixels made of src to t.
func taps(t []tap, n, src int) []tap {
	for i := range n {
		t = append(t, tapOf(i, n, src))
	}
	return t
}

// tapOf returns the tap of pixel i of n.
func tapOf(i, n, src int) tap {
	at := (float32(i)+0.5)*float32(src)/float32(n) - 0.5
	if at <= 0 {
		return tap{}
	}
	a := int(at)
	if a >= src-1 {
		return tap{src - 1, src - 1, 0}
	}
	return tap{a, a + 1, at - float32(a)}
}
