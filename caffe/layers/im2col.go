package layers

// window is the geometry of a kernel that slides over a plane: all extents in
// elements, a dilation of 1 means dense.
type window struct {
	h, w             int // input plane
	kh, kw           int // kernel
	padH, padW       int // zeros around the plane; negative crops it
	strideH, strideW int
	dilH, dilW       int
	oh, ow           int // output plane
}

// reachH and reachW are the input extents that one output sees.
func (w window) reachH() int { return w.dilH*(w.kh-1) + 1 }
func (w window) reachW() int { return w.dilW*(w.kw-1) + 1 }

// mirrored is the window of the input's gradient, a correlation of the
// output's gradient with the kernel rotated by 180°. Only for stride 1.
func (w window) mirrored() window {
	m := w
	m.h, m.w, m.oh, m.ow = w.oh, w.ow, w.h, w.w
	m.padH, m.padW = w.reachH()-1-w.padH, w.reachW()-1-w.padW
	return m
}

// tile is a part of a batch's outputs: some rows of each of some images. A
// tile of several images holds all rows of each.
type tile struct{ image, images, row, rows int }

// band is a run of input rows that a column matrix stores: tile.rows+extra
// rows, one every strideH, the first at offset from where the tile's first
// output starts.
type band struct{ offset, extra int }

// tap is one GEMM's view of a column matrix: its first stored row is
// bands·tile.rows + shift.
type tap struct{ bands, shift int }

func (t tap) start(rows int) int { return t.bands*rows + t.shift }

// columns lays what a tile's outputs see out as a matrix (im2col).
//
// The textbook's matrix has a row for each (channel, kernel row, kernel
// column) and holds each input element kh·kw times. But moving one kernel row
// down only moves the view by one stored row, so it suffices to unroll the
// kernel's columns: a row for each (channel, kernel column) that stores the
// input rows once, and a GEMM for each kernel row that starts a row further.
// With stride s the stored rows are sorted by their remainder modulo s, one
// band each, which keeps every view contiguous. Where that leaves a GEMM too
// few terms (the first layer of a net), full unrolls the kernel's rows too.
//
// The images of a tile alternate inside each stored row, [stored row][image]
// [ow], so a view is one contiguous run over all of them.
type columns struct {
	window
	channels int
	bands    [][]band // by unrolled kernel row, one list where there is none
	taps     []tap    // one a GEMM
}

// fewTerms is the number of terms of a GEMM below which the kernel's rows are
// unrolled.
const fewTerms = 64

func newColumns(w window, channels int) columns {
	c := columns{window: w, channels: channels}
	if w.kh == 1 || channels*w.kw < fewTerms {
		c.taps = make([]tap, 1)
		for i := range w.kh {
			c.bands = append(c.bands, []band{{offset: i * w.dilH}})
		}
		return c
	}
	c.bands = make([][]band, 1)
	c.taps = make([]tap, w.kh)
	shift := 0
	for phase := range w.strideH {
		first, last := -1, -1
		for i := range w.kh {
			if y := i * w.dilH; y%w.strideH == phase {
				last = y / w.strideH
				if first < 0 {
					first = last
				}
				c.taps[i] = tap{bands: len(c.bands[0]), shift: shift + last - first}
			}
		}
		if first >= 0 {
			c.bands[0] = append(c.bands[0], band{offset: first*w.strideH + phase, extra: last - first})
			shift += last - first
		}
	}
	return c
}

// terms is the number of the matrix's rows, the terms of each GEMM.
func (c *columns) terms() int { return c.channels * len(c.bands) * c.kw }

// stored is the number of stored rows for a tile of the given rows.
func (c *columns) stored(rows int) int {
	n := 0
	for _, b := range c.bands[0] {
		n += rows + b.extra
	}
	return n
}

// width is the length of the matrix's rows for t.
func (c *columns) width(t tile) int { return c.stored(t.rows) * t.images * c.ow }

// xRange is the range [lo, hi) of output columns whose input column
// x·strideW + d lies in the plane.
func (c *columns) xRange(d int) (lo, hi int) {
	if d < 0 {
		lo = (-d + c.strideW - 1) / c.strideW
	}
	if d < c.w {
		hi = (c.w-1-d)/c.strideW + 1
	}
	hi = min(hi, c.ow)
	return min(lo, hi), hi
}

// unroll writes the matrix of tile t to cols. x holds the tile's first image
// from the first channel on; images lie imageLen apart.
func (c *columns) unroll(t tile, x []float32, imageLen int, cols []float32) {
	plane, width := c.h*c.w, c.width(t)
	for ch := range c.channels {
		for _, bands := range c.bands {
			block := cols[:c.kw*width]
			cols = cols[len(block):]
			c.unrollKernelRow(t, bands, x[ch*plane:], imageLen, block)
		}
	}
}

// unrollKernelRow writes the kw matrix rows of one channel. Where outputs are
// as wide as inputs, they are one another shifted: one is gathered, the
// others are copied from it.
func (c *columns) unrollKernelRow(t tile, bands []band, x []float32, imageLen int, block []float32) {
	width := len(block) / c.kw
	center := -1
	if c.strideW == 1 && c.ow == c.w && c.padW >= 0 && c.padW%c.dilW == 0 && c.padW/c.dilW < c.kw {
		center = c.padW / c.dilW
		c.gather(t, bands, x, imageLen, 0, block[center*width:])
	}
	for k := range c.kw {
		d := k*c.dilW - c.padW
		switch row := block[k*width : (k+1)*width]; {
		case center < 0:
			c.gather(t, bands, x, imageLen, d, row)
		case k != center:
			shiftRows(row, block[center*width:(center+1)*width], c.w, d)
		}
	}
}

// shiftRows writes dst[x] = src[x+d] in each row of w elements, and 0 where
// x+d is outside the row.
func shiftRows(dst, src []float32, w, d int) {
	n := len(dst)
	switch {
	case d >= w || -d >= w:
		clear(dst)
	case d > 0:
		copy(dst[:n-d], src[d:])
		for r := w; r <= n; r += w {
			clear(dst[r-d : r])
		}
	default:
		copy(dst[-d:], src[:n+d])
		for r := 0; r < n; r += w {
			clear(dst[r : r-d])
		}
	}
}

// gather writes one matrix row: the input columns x·strideW + d of the stored
// rows.
func (c *columns) gather(t tile, bands []band, x []float32, imageLen, d int, dst []float32) {
	lo, hi := c.xRange(d)
	for _, b := range bands {
		y := t.row*c.strideH + b.offset - c.padH
		for range t.rows + b.extra {
			for i := range t.images {
				row := dst[:c.ow]
				dst = dst[c.ow:]
				if y < 0 || y >= c.h {
					clear(row)
					continue
				}
				c.gatherRow(row, x[i*imageLen+y*c.w:][:c.w], lo, hi, d)
			}
			y += c.strideH
		}
	}
}

func (c *columns) gatherRow(row, src []float32, lo, hi, d int) {
	clear(row[:lo])
	clear(row[hi:])
	if c.strideW == 1 {
		if lo < hi {
			copy(row[lo:hi], src[lo+d:])
		}
		return
	}
	for j, s := lo, lo*c.strideW+d; j < hi; j, s = j+1, s+c.strideW {
		row[j] = src[s]
	}
}

// fold adds the matrix of tile t back to the input elements it was unrolled
// from (col2im), with x and imageLen as in unroll.
func (c *columns) fold(t tile, cols []float32, x []float32, imageLen int) {
	plane, width := c.h*c.w, c.width(t)
	for ch := range c.channels {
		for _, bands := range c.bands {
			for k := range c.kw {
				c.scatterAdd(t, bands, cols[:width], x[ch*plane:], imageLen, k*c.dilW-c.padW)
				cols = cols[width:]
			}
		}
	}
}

// scatterAdd is the transpose of gather.
func (c *columns) scatterAdd(t tile, bands []band, src []float32, x []float32, imageLen, d int) {
	lo, hi := c.xRange(d)
	for _, b := range bands {
		y := t.row*c.strideH + b.offset - c.padH
		for range t.rows + b.extra {
			for i := range t.images {
				row := src[:c.ow]
				src = src[c.ow:]
				if y < 0 || y >= c.h {
					continue
				}
				dst := x[i*imageLen+y*c.w:][:c.w]
				for j, s := lo, lo*c.strideW+d; j < hi; j, s = j+1, s+c.strideW {
					dst[s] += row[j]
				}
			}
			y += c.strideH
		}
	}
}
