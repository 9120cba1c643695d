package dataset

import (
	"fmt"
	"image"
	"math"
	"math/rand/v2"

	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/gobolditalic"
	"golang.org/x/image/font/gofont/goitalic"
	"golang.org/x/image/font/gofont/gomedium"
	"golang.org/x/image/font/gofont/gomediumitalic"
	"golang.org/x/image/font/gofont/gomono"
	"golang.org/x/image/font/gofont/gomonobold"
	"golang.org/x/image/font/gofont/gomonobolditalic"
	"golang.org/x/image/font/gofont/gomonoitalic"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/sfnt"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"

	"github.com/scaffe/scaffe/caffe/data"
)

// outlines are the digits of one face, centered on the origin and one unit
// high, y downwards.
type outlines [10][]segment

type segment struct {
	op sfnt.SegmentOp
	p  [3]point
}

type point struct{ x, y float32 }

// loadOutlines reads the digits of the Go fonts.
func loadOutlines() ([]outlines, error) {
	faces := [][]byte{
		goregular.TTF, gobold.TTF, goitalic.TTF, gobolditalic.TTF, gomedium.TTF, gomediumitalic.TTF,
		gomono.TTF, gomonobold.TTF, gomonoitalic.TTF, gomonobolditalic.TTF,
	}
	all := make([]outlines, len(faces))
	for i, ttf := range faces {
		f, err := sfnt.Parse(ttf)
		if err != nil {
			return nil, fmt.Errorf("font %d: %w", i, err)
		}
		for d := range 10 {
			if all[i][d], err = outline(f, rune('0'+d)); err != nil {
				return nil, fmt.Errorf("font %d: digit %d: %w", i, d, err)
			}
		}
	}
	return all, nil
}

func outline(f *sfnt.Font, r rune) ([]segment, error) {
	var buf sfnt.Buffer
	g, err := f.GlyphIndex(&buf, r)
	if err != nil {
		return nil, err
	}
	loaded, err := f.LoadGlyph(&buf, g, fixed.I(1000), nil)
	if err != nil {
		return nil, err
	}
	b := loaded.Bounds()
	cx, cy := float32(b.Min.X+b.Max.X)/2, float32(b.Min.Y+b.Max.Y)/2
	height := float32(b.Max.Y - b.Min.Y)
	var segs []segment
	for _, s := range loaded {
		seg := segment{op: s.Op}
		for i, p := range s.Args {
			seg.p[i] = point{(float32(p.X) - cx) / height, (float32(p.Y) - cy) / height}
		}
		segs = append(segs, seg)
	}
	return segs, nil
}

// pen draws samples into memory of its own.
type pen struct {
	fonts  []outlines
	raster *vector.Rasterizer
	mask   *image.Alpha
	sample data.Sample
}

func newPen(fonts []outlines) *pen {
	return &pen{
		fonts:  fonts,
		raster: vector.NewRasterizer(GlyphShape.W, GlyphShape.H),
		mask:   image.NewAlpha(image.Rect(0, 0, GlyphShape.W, GlyphShape.H)),
		sample: data.Sample{Shape: GlyphShape, Bytes: make([]byte, GlyphShape.Count()), HasLabel: true},
	}
}

// draw draws one digit, all of it chosen by r. The sample is valid until the
// next.
func (p *pen) draw(r *rand.Rand) *data.Sample {
	digit := r.IntN(10)
	p.outline(p.fonts[r.IntN(len(p.fonts))][digit], r)
	p.paint(r)
	p.sample.Label = int32(digit)
	return &p.sample
}

// between returns a number in [lo, hi).
func between(r *rand.Rand, lo, hi float64) float64 { return lo + (hi-lo)*r.Float64() }

// outline rasterizes the digit into the mask: 15 to 26 pixels high, turned by
// up to 15 degrees, slanted, and wherever in the picture it fits.
func (p *pen) outline(segs []segment, r *rand.Rand) {
	height := between(r, 15, 26)
	width := height * between(r, 0.8, 1.2)
	sin, cos := math.Sincos(between(r, -15, 15) * math.Pi / 180)
	shear := between(r, -0.2, 0.2)
	// First width, height and slant, then the turn.
	xx, xy := float32(width*cos), float32(shear*height*cos-height*sin)
	yx, yy := float32(width*sin), float32(shear*height*sin+height*cos)
	move := func(q point) point { return point{xx*q.x + xy*q.y, yx*q.x + yy*q.y} }

	lo, hi := point{math.MaxFloat32, math.MaxFloat32}, point{-math.MaxFloat32, -math.MaxFloat32}
	for _, s := range segs {
		for _, q := range s.p[:points(s.op)] {
			q = move(q)
			lo, hi = point{min(lo.x, q.x), min(lo.y, q.y)}, point{max(hi.x, q.x), max(hi.y, q.y)}
		}
	}
	dx, dy := place(r, lo.x, hi.x, GlyphShape.W), place(r, lo.y, hi.y, GlyphShape.H)

	p.raster.Reset(GlyphShape.W, GlyphShape.H)
	for _, s := range segs {
		var q [3]point
		for i := range q {
			q[i] = move(s.p[i])
			q[i].x += dx
			q[i].y += dy
		}
		switch s.op {
		case sfnt.SegmentOpMoveTo:
			p.raster.ClosePath()
			p.raster.MoveTo(q[0].x, q[0].y)
		case sfnt.SegmentOpLineTo:
			p.raster.LineTo(q[0].x, q[0].y)
		case sfnt.SegmentOpQuadTo:
			p.raster.QuadTo(q[0].x, q[0].y, q[1].x, q[1].y)
		case sfnt.SegmentOpCubeTo:
			p.raster.CubeTo(q[0].x, q[0].y, q[1].x, q[1].y, q[2].x, q[2].y)
		}
	}
	p.raster.ClosePath()
	clear(p.mask.Pix)
	p.raster.Draw(p.mask, p.mask.Rect, image.Opaque, image.Point{})
}

// points returns how many points an op has.
func points(op sfnt.SegmentOp) int {
	switch op {
	case sfnt.SegmentOpQuadTo:
		return 2
	case sfnt.SegmentOpCubeTo:
		return 3
	}
	return 1
}

// place returns how far to move an extent lo to hi so that it lies in n
// pixels, one from the edge where there is room, and centered otherwise.
func place(r *rand.Rand, lo, hi float32, n int) float32 {
	first, last := 1-lo, float32(n)-1-hi
	at := float32(r.Float64())
	if last < first {
		return (first + last) / 2
	}
	return first + (last-first)*at
}

// minContrast is the least difference in luma, of 255, between a digit and
// what is behind it.
const minContrast = 80

// paint colors the mask: ink on a ground that changes a little from one side
// to the other, and noise over both.
func (p *pen) paint(r *rand.Rand) {
	ground, ink := tint(r), tint(r)
	for math.Abs(luma(ground)-luma(ink)) < minContrast {
		ground, ink = tint(r), tint(r)
	}
	slopeX, slopeY := between(r, -1, 1), between(r, -1, 1) // per pixel
	noise := between(r, 0, 16)
	n := GlyphShape.H * GlyphShape.W
	for y := range GlyphShape.H {
		for x := range GlyphShape.W {
			i := y*GlyphShape.W + x
			a := float64(p.mask.Pix[y*p.mask.Stride+x]) / 255
			tilt := slopeX*float64(x-GlyphShape.W/2) + slopeY*float64(y-GlyphShape.H/2)
			for c := range 3 {
				v := ground[c]*(1-a) + ink[c]*a + tilt + noise*r.NormFloat64()
				p.sample.Bytes[c*n+i] = uint8(min(max(v, 0), 255))
			}
		}
	}
}

// tint returns a random red, green and blue.
func tint(r *rand.Rand) [3]float64 {
	return [3]float64{between(r, 0, 256), between(r, 0, 256), between(r, 0, 256)}
}

// luma is how bright a color looks (ITU-R BT.601).
func luma(c [3]float64) float64 { return 0.299*c[0] + 0.587*c[1] + 0.114*c[2] }
