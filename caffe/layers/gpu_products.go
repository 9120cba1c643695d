package layers

import (
	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/gpu"
	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/mem"
)

// Convolution: by cuDNN where that does a pass; else products over columns, for as many images at once as the columns'
// room is for.

// columnRoom bounds the memory of columns, in float32, beyond those of one image.
const columnRoom = 16 << 20

// FitsGPU says that it always does.
func (l *convolution) FitsGPU(_, _ []*blob.Blob) bool { return true }

// direct reports whether the input is its own column matrix.
func (l *convolution) direct() bool {
	w := l.win
	return w.kh == 1 && w.kw == 1 && w.strideH == 1 && w.strideW == 1 && w.padH == 0 && w.padW == 0
}

// sizes are what the products are of: of a group, the outputs' and the terms' numbers, and the places of a plane; and the
// elements of an image, in, out and of columns.
func (l *convolution) sizes() (out, terms, plane, image, result, columns int) {
	w := l.win
	out, terms, plane = l.out/l.groups, l.in/l.groups*w.kh*w.kw, w.oh*w.ow
	return out, terms, plane, l.in * w.h * w.w, l.out * plane, l.groups * terms * plane
}

// together is how many of n images are computed at once.
func (l *convolution) together(n int) int {
	_, _, _, _, _, columns := l.sizes()
	return max(1, min(n, columnRoom/columns))
}

// eachImages calls f for parts of a batch of n images.
func (l *convolution) eachImages(n int, f func(first, count int)) {
	for first, step := 0, l.together(n); first < n; first += step {
		f(first, min(step, n-first))
	}
}

// floats is n float32 of b from the first on.
func floats(b mem.Buffer, first, n int) mem.Buffer {
	if b.Len() == 0 { // there is no memory: an error that stays
		return b
	}
	return b.Slice(4*first, 4*n)
}

// columnsOf begins im2col or col2im.
func (l *convolution) columnsOf(d *gpu.Device, k cuda.Kernel, dst, src mem.Buffer) {
	g := l.win.geometry()
	d.Launch(k, dst.Len()/4, buffers{dst, src}, int64(l.in), g[0], g[1], g[2], g[3], g[4], g[5], g[6], g[7], g[8], g[9], int64(l.win.dilH), int64(l.win.dilW))
}

// take returns the columns of some images.
func (l *convolution) take(d *gpu.Device, x mem.Buffer, count int) mem.Buffer {
	if l.direct() {
		return x
	}
	_, _, _, _, _, columns := l.sizes()
	cols := d.Scratch(4 * count * columns)
	l.columnsOf(d, cuda.Im2col, cols, x)
	return cols
}

// shape is that of a batch of n images, for cuDNN.
func (l *convolution) shape(n int) cuda.ConvShape {
	w := l.win
	return cuda.ConvShape{
		N: n, Groups: l.groups, In: l.in, Out: l.out, H: w.h, W: w.w, OutH: w.oh, OutW: w.ow, KernelH: w.kh, KernelW: w.kw,
		PadH: w.padH, PadW: w.padW, StrideH: w.strideH, StrideW: w.strideW, DilationH: w.dilH, DilationW: w.dilW,
	}
}

// ForwardGPU is Forward.
func (l *convolution) ForwardGPU(d *gpu.Device, bottom, top []*blob.Blob) error {
	w := l.params[0].ReadData()
	for i, b := range bottom {
		n := b.CountFrom(0, l.axis)
		x, y, s := b.ReadData(), top[i].WriteData(), l.shape(n)
		if !d.Convolve(cuda.Forward, s, x, w, y) {
			l.forwardColumns(d, n, x, w, y)
		}
		if bias := l.bias(); bias != nil && !d.AddBias(s, y, bias.ReadData()) {
			d.Launch(cuda.AddBias, top[i].Count(), buffers{y, bias.ReadData()}, int64(s.OutH*s.OutW))
		}
	}
	return nil
}

func (l *convolution) forwardColumns(d *gpu.Device, n int, x, w, y mem.Buffer) {
	out, terms, plane, image, result, columns := l.sizes()
	l.eachImages(n, func(first, count int) {
		cols, to := l.take(d, floats(x, first*image, count*image), count), floats(y, first*result, count*result)
		for g := range l.groups {
			product(d, matrix{to, g * out * plane, plane, 1, result}, matrix{w, g * out * terms, terms, 1, 0}, matrix{cols, g * terms * plane, plane, 1, columns}, out, plane, terms, count, false)
		}
	})
}

// BackwardGPU is Backward.
func (l *convolution) BackwardGPU(d *gpu.Device, top []*blob.Blob, propagate []bool, bottom []*blob.Blob) error {
	for i, b := range bottom {
		n := b.CountFrom(0, l.axis)
		x, dy, s := b.ReadData(), top[i].ReadDiff(), l.shape(n)
		if bias := l.bias(); bias != nil {
			if db := bias.ChangeDiff(); !d.SumBias(s, db, dy) {
				sums := d.Scratch(4 * n * l.out)
				d.Launch(cuda.SumPlanes, n*l.out, buffers{sums, dy}, int64(s.OutH*s.OutW))
				d.Launch(cuda.AddRows, l.out, buffers{db, sums}, int64(n))
			}
		}
		if dw := l.params[0].ChangeDiff(); !d.Convolve(cuda.BackwardFilter, s, x, dy, dw) {
			l.weightsColumns(d, n, x, dy, dw)
		}
		if !propagate[i] {
			continue
		}
		if w, dx := l.params[0].ReadData(), b.WriteDiff(); !d.Convolve(cuda.BackwardData, s, w, dy, dx) {
			l.inputColumns(d, n, w, dy, dx)
		}
	}
	return nil
}

// weightsColumns adds to the gradient of the weights. Each image's is a product of its own; they are added in their order.
func (l *convolution) weightsColumns(d *gpu.Device, n int, x, dy, dw mem.Buffer) {
	out, terms, plane, image, result, columns := l.sizes()
	weights := l.params[0].Count()
	l.eachImages(n, func(first, count int) {
		cols, from := l.take(d, floats(x, first*image, count*image), count), floats(dy, first*result, count*result)
		each := min(count, max(1, columnRoom/weights))
		for done := 0; done < count; done += each {
			now := min(each, count-done)
			parts := d.Scratch2(4 * now * weights)
			for g := range l.groups {
				product(d, matrix{parts, g * out * terms, terms, 1, weights}, matrix{from, done*result + g*out*plane, plane, 1, result},
					matrix{cols, done*columns + g*terms*plane, 1, plane, columns}, out, terms, plane, now, false)
			}
			d.Launch(cuda.AddRows, weights, buffers{dw, parts}, int64(now))
		}
	})
}

// inputColumns writes the gradient of the input.
func (l *convolution) inputColumns(d *gpu.Device, n int, w, dy, dx mem.Buffer) {
	out, terms, plane, image, result, columns := l.sizes()
	l.eachImages(n, func(first, count int) {
		to, from := floats(dx, first*image, count*image), floats(dy, first*result, count*result)
		cols := to
		if !l.direct() {
			cols = d.Scratch(4 * count * columns)
		}
		for g := range l.groups {
			product(d, matrix{cols, g * terms * plane, plane, 1, columns}, matrix{w, g * out * terms, 1, terms, 0}, matrix{from, g * out * plane, plane, 1, result}, terms, plane, out, count, false)
		}
		if !l.direct() {
			l.columnsOf(d, cuda.Col2im, to, cols)
		}
	})
}

// matrix is one in a buffer, from element at on: how far apart rows and columns lie, and, of a batch of them, the next.
type matrix struct {
	in             mem.Buffer
	at             int
	row, col, step int
}

// tail is what the buffer holds from the matrix on.
func (m matrix) tail() mem.Buffer {
	if m.in.Len() == 0 {
		return m.in
	}
	return m.in.Slice(4*m.at, m.in.Len()-4*m.at)
}

// product begins c = a·b, or c +=, for a of rows×terms and b of terms×cols, and a batch of these. c's columns
// lie next to each other.
func product(d *gpu.Device, c, a, b matrix, rows, cols, terms, batch int, add bool) {
	d.Multiply(cuda.Multiplication{C: c.operand(), A: a.operand(), B: b.operand(), Rows: rows, Cols: cols, Terms: terms, Batch: batch, Add: add})
}

func (m matrix) operand() cuda.Matrix {
	return cuda.Matrix{In: m.tail(), Row: m.row, Col: m.col, Step: m.step}
}

// InnerProduct.

// FitsGPU says that it always does.
func (l *innerProduct) FitsGPU(_, _ []*blob.Blob) bool { return true }

// weightsAs returns the weights, or their gradients, as the N×K matrix that they are.
func (l *innerProduct) weightsAs(w mem.Buffer) matrix {
	if l.p.GetTranspose() {
		return matrix{w, 0, 1, l.n, 0}
	}
	return matrix{w, 0, l.k, 1, 0}
}

// transposed swaps rows and columns.
func (m matrix) transposed() matrix {
	m.row, m.col = m.col, m.row
	return m
}

// ForwardGPU is Forward.
func (l *innerProduct) ForwardGPU(d *gpu.Device, bottom, top []*blob.Blob) error {
	w, x, y := l.weightsAs(l.params[0].ReadData()), bottom[0].ReadData(), top[0].WriteData()
	product(d, matrix{y, 0, l.n, 1, 0}, matrix{x, 0, l.k, 1, 0}, w.transposed(), l.m, l.n, l.k, 1, false)
	if len(l.params) > 1 {
		d.Launch(cuda.AddBias, l.m*l.n, buffers{y, l.params[1].ReadData()}, 1)
	}
	return nil
}

// BackwardGPU is Backward.
func (l *innerProduct) BackwardGPU(d *gpu.Device, top []*blob.Blob, propagate []bool, bottom []*blob.Blob) error {
	x, dy := matrix{bottom[0].ReadData(), 0, l.k, 1, 0}, matrix{top[0].ReadDiff(), 0, l.n, 1, 0}
	if !l.leaves {
		if len(l.params) > 1 {
			d.Launch(cuda.AddRows, l.n, buffers{l.params[1].ChangeDiff(), dy.in}, int64(l.m))
		}
		dw := matrix{l.params[0].ChangeDiff(), 0, l.k, 1, 0}
		if l.p.GetTranspose() {
			dw.row = l.n
			product(d, dw, x.transposed(), dy, l.k, l.n, l.m, 1, true)
		} else {
			product(d, dw, dy.transposed(), x, l.n, l.k, l.m, 1, true)
		}
	}
	if propagate[0] {
		product(d, matrix{bottom[0].WriteDiff(), 0, l.k, 1, 0}, dy, l.weightsAs(l.params[0].ReadData()), l.m, l.k, l.n, 1, false)
	}
	return nil
}
