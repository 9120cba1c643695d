package kernels

import (
	"math"
	"unsafe"

	"github.com/scaffe/scaffe/mem"
)

// portableLoops are the loops in plain Go. They also do the ends of buffers
// that do not fill a vector for the other paths.
var portableLoops = loops{
	mem.Float32:  {sumFloats[float32], prodFloats[float32], minFloats[float32], maxFloats[float32]},
	mem.Float64:  {sumFloats[float64], prodFloats[float64], minFloats[float64], maxFloats[float64]},
	mem.Float16:  {sumF16s, prodF16s, minF16s, maxF16s},
	mem.BFloat16: {sumBF16s, prodBF16s, minBF16s, maxBF16s},
	mem.Int8:     integers[int8](),
	mem.Int16:    integers[int16](),
	mem.Int32:    integers[int32](),
	mem.Int64:    integers[int64](),
	mem.Uint8:    integers[uint8](),
	mem.Uint16:   integers[uint16](),
	mem.Uint32:   integers[uint32](),
	mem.Uint64:   integers[uint64](),
}

func integers[T integer]() [mem.NumOps]loop {
	return [...]loop{
		sumInts[T], prodInts[T], minInts[T], maxInts[T],
		bitAndInts[T], bitOrInts[T], bitXorInts[T], logicalAndInts[T], logicalOrInts[T], logicalXorInts[T],
	}
}

// portableBlock is how much of dst is combined with one operand after the other: it
// stays in the first cache.
const portableBlock = 8 << 10

func reducePortable(dt mem.Datatype, op mem.Op, dst unsafe.Pointer, from addresses, n int, _ bool) {
	f := portableLoops[dt][op]
	for n > portableBlock {
		reduceScalar(f, dst, from, portableBlock)
		dst, from, n = unsafe.Add(dst, portableBlock), from.after(portableBlock), n-portableBlock
	}
	reduceScalar(f, dst, from, n)
}

// reduceScalar combines n bytes, whole elements, with a loop for two operands. dst
// is written before the third is read.
func reduceScalar(f loop, dst unsafe.Pointer, from addresses, n int) {
	if n == 0 {
		return
	}
	f(dst, from[0], from[1], n)
	for _, p := range from[2:] {
		if p == nil {
			return
		}
		f(dst, dst, p, n)
	}
}

type integer interface {
	int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64
}

type float interface{ float32 | float64 }

// elements returns n bytes at each of dst, a and b as slices of equal length.
func elements[T mem.Number](dst, a, b unsafe.Pointer, n int) (d, x, y []T) {
	var t T
	n /= int(unsafe.Sizeof(t))
	return unsafe.Slice((*T)(dst), n), unsafe.Slice((*T)(a), n), unsafe.Slice((*T)(b), n)
}

func sumInts[T integer](dst, a, b unsafe.Pointer, n int) {
	d, x, y := elements[T](dst, a, b, n)
	for i := range d {
		d[i] = x[i] + y[i]
	}
}

func prodInts[T integer](dst, a, b unsafe.Pointer, n int) {
	d, x, y := elements[T](dst, a, b, n)
	for i := range d {
		d[i] = x[i] * y[i]
	}
}

func minInts[T integer](dst, a, b unsafe.Pointer, n int) {
	d, x, y := elements[T](dst, a, b, n)
	for i := range d {
		d[i] = min(x[i], y[i])
	}
}

func maxInts[T integer](dst, a, b unsafe.Pointer, n int) {
	d, x, y := elements[T](dst, a, b, n)
	for i := range d {
		d[i] = max(x[i], y[i])
	}
}

func bitAndInts[T integer](dst, a, b unsafe.Pointer, n int) {
	d, x, y := elements[T](dst, a, b, n)
	for i := range d {
		d[i] = x[i] & y[i]
	}
}

func bitOrInts[T integer](dst, a, b unsafe.Pointer, n int) {
	d, x, y := elements[T](dst, a, b, n)
	for i := range d {
		d[i] = x[i] | y[i]
	}
}

func bitXorInts[T integer](dst, a, b unsafe.Pointer, n int) {
	d, x, y := elements[T](dst, a, b, n)
	for i := range d {
		d[i] = x[i] ^ y[i]
	}
}

// truth returns 1 for true and 0 for false.
func truth[T integer](v bool) T {
	if v {
		return 1
	}
	return 0
}

func logicalAndInts[T integer](dst, a, b unsafe.Pointer, n int) {
	d, x, y := elements[T](dst, a, b, n)
	for i := range d {
		d[i] = truth[T](x[i] != 0) & truth[T](y[i] != 0)
	}
}

func logicalOrInts[T integer](dst, a, b unsafe.Pointer, n int) {
	d, x, y := elements[T](dst, a, b, n)
	for i := range d {
		d[i] = truth[T](x[i]|y[i] != 0)
	}
}

func logicalXorInts[T integer](dst, a, b unsafe.Pointer, n int) {
	d, x, y := elements[T](dst, a, b, n)
	for i := range d {
		d[i] = truth[T](x[i] != 0) ^ truth[T](y[i] != 0)
	}
}

// canonical returns v, or the one NaN of this package where v is a NaN.
func canonical[T float](v T) T {
	if v != v {
		return T(math.Float32frombits(nan32)) // widens to the f64 NaN without payload
	}
	return v
}

func sumFloats[T float](dst, a, b unsafe.Pointer, n int) {
	d, x, y := elements[T](dst, a, b, n)
	for i := range d {
		d[i] = canonical(x[i] + y[i])
	}
}

func prodFloats[T float](dst, a, b unsafe.Pointer, n int) {
	d, x, y := elements[T](dst, a, b, n)
	for i := range d {
		d[i] = canonical(x[i] * y[i])
	}
}

func minFloats[T float](dst, a, b unsafe.Pointer, n int) {
	d, x, y := elements[T](dst, a, b, n)
	for i := range d {
		d[i] = canonical(min(x[i], y[i]))
	}
}

func maxFloats[T float](dst, a, b unsafe.Pointer, n int) {
	d, x, y := elements[T](dst, a, b, n)
	for i := range d {
		d[i] = canonical(max(x[i], y[i]))
	}
}

func sumF16s(dst, a, b unsafe.Pointer, n int) {
	d, x, y := elements[uint16](dst, a, b, n)
	for i := range d {
		d[i] = f16From(f16To(x[i]) + f16To(y[i]))
	}
}

func prodF16s(dst, a, b unsafe.Pointer, n int) {
	d, x, y := elements[uint16](dst, a, b, n)
	for i := range d {
		d[i] = f16From(f16To(x[i]) * f16To(y[i]))
	}
}

func minF16s(dst, a, b unsafe.Pointer, n int) {
	d, x, y := elements[uint16](dst, a, b, n)
	for i := range d {
		d[i] = f16From(min(f16To(x[i]), f16To(y[i])))
	}
}

func maxF16s(dst, a, b unsafe.Pointer, n int) {
	d, x, y := elements[uint16](dst, a, b, n)
	for i := range d {
		d[i] = f16From(max(f16To(x[i]), f16To(y[i])))
	}
}

func sumBF16s(dst, a, b unsafe.Pointer, n int) {
	d, x, y := elements[uint16](dst, a, b, n)
	for i := range d {
		d[i] = bf16From(bf16To(x[i]) + bf16To(y[i]))
	}
}

func prodBF16s(dst, a, b unsafe.Pointer, n int) {
	d, x, y := elements[uint16](dst, a, b, n)
	for i := range d {
		d[i] = bf16From(bf16To(x[i]) * bf16To(y[i]))
	}
}

func minBF16s(dst, a, b unsafe.Pointer, n int) {
	d, x, y := elements[uint16](dst, a, b, n)
	for i := range d {
		d[i] = bf16From(min(bf16To(x[i]), bf16To(y[i])))
	}
}

func maxBF16s(dst, a, b unsafe.Pointer, n int) {
	d, x, y := elements[uint16](dst, a, b, n)
	for i := range d {
		d[i] = bf16From(max(bf16To(x[i]), bf16To(y[i])))
	}
}
