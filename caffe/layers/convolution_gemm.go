package layers

import "github.com/scaffe/scaffe/kernels/blas"

// correlation is a grouped two-dimensional cross-correlation
//
//	y[o] = bias[o] + Σ_c w[o][c] ⋆ x[c]
//
// and its two gradients, computed tile by tile as matrix products over
// columns. Memory is that of one tile, whatever the batch.
type correlation struct {
	columns
	groups   int
	in, out  int  // channels per group
	direct   bool // 1×1: the input is its own column matrix
	grouped  int  // images per tile; 1 writes to the output in place
	tileRows int

	weights []float32 // [group][tap][out][terms]
	grads   []float32 // like weights
	cols    []float32 // [terms][stored row][image][ow]
	stage   []float32 // [out][row][image][ow], where a tile has several images
}

// Extents of a tile, in elements: enough columns that the GEMM library's own
// packing pays, few enough that a tile stays in the second-level cache.
const (
	tileBudget = 128 << 10 // column matrix
	tileWide   = 1024      // columns worth gathering several images for
	tileAlone  = 256       // columns at which an image has its own tile
	tileLeast  = 64        // columns to gather images for beyond the budget
	directMin  = 32        // columns from which 1×1 needs no gathering
)

func newCorrelation(w window, groups, in, out int) *correlation {
	c := &correlation{columns: newColumns(w, in), groups: groups, in: in, out: out}
	c.direct = w.kh == 1 && w.kw == 1 && w.strideH == 1 && w.strideW == 1 &&
		w.padH == 0 && w.padW == 0 && w.oh*w.ow >= directMin
	c.weights = make([]float32, groups*out*in*w.kh*w.kw)
	return c
}

// size chooses the tiles for batches of n images and allocates for them.
func (c *correlation) size(n int) {
	c.grouped, c.tileRows = 1, c.oh
	if c.direct {
		return
	}
	image, alone := c.terms()*c.stored(c.oh)*c.ow, c.oh*c.ow
	switch {
	case alone < tileAlone:
		c.grouped = max(1, min(n, max(tileBudget/image, tileLeast/alone), tileWide/alone))
	case image > tileBudget:
		rows := max(c.oh*tileBudget/image, (tileAlone+c.ow-1)/c.ow)
		tiles := (c.oh + rows - 1) / rows
		c.tileRows = (c.oh + tiles - 1) / tiles
	}
	t := tile{images: c.grouped, rows: c.tileRows}
	c.cols = ensure(c.cols, c.terms()*c.width(t))
	if c.grouped > 1 {
		c.stage = ensure(c.stage, c.out*c.grouped*alone)
	}
}

// ensure returns n elements of s, or of a new slice where s is too short.
func ensure(s []float32, n int) []float32 {
	if cap(s) < n {
		return make([]float32, n)
	}
	return s[:n]
}

// next is the tile after t, or the first where t is the zero tile, and
// whether there is one in a batch of n images.
func (c *correlation) next(t tile, n int) (tile, bool) {
	t.row += t.rows
	if t.rows == 0 || t.row >= c.oh {
		t.row, t.image = 0, t.image+t.images
	}
	t.images, t.rows = min(c.grouped, n-t.image), min(c.tileRows, c.oh-t.row)
	return t, t.images > 0
}

// Lengths of one image and one group of it, of the input and the output.
func (c *correlation) inGroup() int  { return c.in * c.h * c.w }
func (c *correlation) outGroup() int { return c.out * c.oh * c.ow }
func (c *correlation) inImage() int  { return c.groups * c.inGroup() }
func (c *correlation) outImage() int { return c.groups * c.outGroup() }

// part returns group g's slice of weights or grads for tap k.
func (c *correlation) part(s []float32, g, k int) []float32 {
	n := c.out * c.terms()
	return s[(g*len(c.taps)+k)*n:][:n]
}

// view returns the column matrix of group g of tile t and its row length.
func (c *correlation) view(t tile, g int, x []float32) ([]float32, int) {
	x = x[t.image*c.inImage()+g*c.inGroup():]
	if c.direct {
		return x, c.h * c.w
	}
	c.unroll(t, x, c.inImage(), c.cols)
	return c.cols, c.width(t)
}

// output returns where group g of tile t of y lies, or its stand-in, as an
// out×(rows·images·ow) matrix and its row length.
func (c *correlation) output(t tile, g int, y []float32) ([]float32, int) {
	if t.images > 1 {
		return c.stage, t.rows * t.images * c.ow
	}
	return y[t.image*c.outImage()+g*c.outGroup()+t.row*c.ow:], c.oh * c.ow
}

// apply writes y for n images; bias may be nil.
func (c *correlation) apply(n int, x, bias, y []float32) {
	for t, ok := c.next(tile{}, n); ok; t, ok = c.next(t, n) {
		span := t.rows * t.images * c.ow
		for g := range c.groups {
			cols, width := c.view(t, g, x)
			m, ld := c.output(t, g, y)
			for o := range c.out {
				if row := m[o*ld:][:span]; bias == nil {
					clear(row)
				} else {
					set(row, bias[g*c.out+o])
				}
			}
			for k, tap := range c.taps {
				blas.Gemm(false, false, c.out, span, c.terms(), 1, c.part(c.weights, g, k), c.terms(),
					cols[tap.start(t.rows)*t.images*c.ow:], width, 1, m, ld)
			}
			if t.images > 1 {
				c.unstage(t, y[t.image*c.outImage()+g*c.outGroup():])
			}
		}
	}
}

// weightGrad adds the gradient of the weights over n images to grads.
func (c *correlation) weightGrad(n int, x, dy []float32) {
	for t, ok := c.next(tile{}, n); ok; t, ok = c.next(t, n) {
		span := t.rows * t.images * c.ow
		for g := range c.groups {
			cols, width := c.view(t, g, x)
			m, ld := c.staged(t, g, dy)
			for k, tap := range c.taps {
				blas.Gemm(false, true, c.out, c.terms(), span, 1, m, ld,
					cols[tap.start(t.rows)*t.images*c.ow:], width, 1, c.part(c.grads, g, k), c.terms())
			}
		}
	}
}

// inputGrad writes the gradient of the input over n images, for any stride.
// (For stride 1, apply of the mirrored correlation is faster.)
func (c *correlation) inputGrad(n int, dy, dx []float32) {
	clear(dx[:n*c.inImage()])
	for t, ok := c.next(tile{}, n); ok; t, ok = c.next(t, n) {
		span, width := t.rows*t.images*c.ow, c.width(t)
		for g := range c.groups {
			m, ld := c.staged(t, g, dy)
			clear(c.cols[:c.terms()*width])
			for k, tap := range c.taps {
				blas.Gemm(true, false, c.terms(), span, c.out, 1, c.part(c.weights, g, k), c.terms(),
					m, ld, 1, c.cols[tap.start(t.rows)*t.images*c.ow:], width)
			}
			c.fold(t, c.cols, dx[t.image*c.inImage()+g*c.inGroup():], c.inImage())
		}
	}
}

// staged is output filled from y.
func (c *correlation) staged(t tile, g int, y []float32) ([]float32, int) {
	m, ld := c.output(t, g, y)
	if t.images > 1 {
		y = y[t.image*c.outImage()+g*c.outGroup():]
		for row := range c.out * c.oh {
			for i := range t.images {
				copy(m[(row*t.images+i)*c.ow:][:c.ow], y[i*c.outImage()+row*c.ow:])
			}
		}
	}
	return m, ld
}

// unstage copies the stage to y, which starts at the tile's first image.
func (c *correlation) unstage(t tile, y []float32) {
	for row := range c.out * c.oh {
		for i := range t.images {
			copy(y[i*c.outImage()+row*c.ow:][:c.ow], c.stage[(row*t.images+i)*c.ow:])
		}
	}
}

// setWeights takes weights in Caffe's order, [group·out][in][kh][kw].
func (c *correlation) setWeights(w []float32) {
	c.eachWeight(func(packed, caffe int) { copy(c.weights[packed:packed+c.kw], w[caffe:]) })
}

// setMirrored takes the weights of the correlation that c is the mirror of.
func (c *correlation) setMirrored(w []float32) {
	plane := c.kh * c.kw
	c.eachWeight(func(packed, mine int) {
		// mine counts [group][out][in][kernel row]; theirs has out and in
		// swapped and the kernel rotated.
		row := mine / c.kw
		kh, row := row%c.kh, row/c.kh
		in, row := row%c.in, row/c.in
		out, g := row%c.out, row/c.out
		theirs := w[((g*c.in+in)*c.out+out)*plane+(c.kh-1-kh)*c.kw:][:c.kw]
		for k, v := range theirs {
			c.weights[packed+c.kw-1-k] = v
		}
	})
}

// addGrads adds grads to dw, in Caffe's order.
func (c *correlation) addGrads(dw []float32) {
	c.eachWeight(func(packed, caffe int) {
		for k, v := range c.grads[packed : packed+c.kw] {
			dw[caffe+k] += v
		}
	})
}

// eachWeight visits each kernel row: where it lies in weights, and in Caffe's
// order.
func (c *correlation) eachWeight(visit func(packed, caffe int)) {
	taps, terms, unrolled := len(c.taps), c.terms(), len(c.bands)
	caffe := 0
	for o := range c.groups * c.out {
		for in := range c.in {
			for kh := range c.kh {
				k, l := kh%taps, kh%unrolled // one of the two is always 0
				packed := ((o/c.out*taps+k)*c.out+o%c.out)*terms + (in*unrolled+l)*c.kw
				visit(packed, caffe)
				caffe += c.kw
			}
		}
	}
}

// set fills s with v.
func set(s []float32, v float32) {
	for i := range s {
		s[i] = v
	}
}
