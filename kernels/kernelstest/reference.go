// Package kernelstest is what every implementation of the operations on buffers
// is tested with: a reference implementation, one element at a time, with
// conversions that are not package kernels', and inputs where an operator may go
// wrong. The rules of results are in the documentation of package kernels.
package kernelstest

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/x448/float16"

	"github.com/scaffe/scaffe/mem"
)

// Combine returns a ⊕ b of one element, given and returned as its bits.
func Combine(dt mem.Datatype, op mem.Op, a, b uint64) uint64 {
	switch dt {
	case mem.Float32:
		x, y := math.Float32frombits(uint32(a)), math.Float32frombits(uint32(b))
		return uint64(math.Float32bits(combineSingle(op, x, y)))
	case mem.Float64:
		return math.Float64bits(combineDouble(op, math.Float64frombits(a), math.Float64frombits(b)))
	case mem.Float16:
		x, y := float16.Frombits(uint16(a)).Float32(), float16.Frombits(uint16(b)).Float32()
		return uint64(NearestF16(combineSingle(op, x, y)))
	case mem.BFloat16:
		x, y := math.Float32frombits(uint32(a)<<16), math.Float32frombits(uint32(b)<<16)
		return uint64(NearestBF16(combineSingle(op, x, y)))
	case mem.Int32:
		return uint64(uint32(combineInt(op, int32(a), int32(b))))
	case mem.Int64:
		return uint64(combineInt(op, int64(a), int64(b)))
	case mem.Uint8:
		return uint64(combineInt(op, uint8(a), uint8(b)))
	case mem.Int8:
		return uint64(uint8(combineInt(op, int8(a), int8(b))))
	case mem.Int16:
		return uint64(uint16(combineInt(op, int16(a), int16(b))))
	case mem.Uint16:
		return uint64(combineInt(op, uint16(a), uint16(b)))
	case mem.Uint32:
		return uint64(combineInt(op, uint32(a), uint32(b)))
	case mem.Uint64:
		return combineInt(op, a, b)
	}
	panic("no such datatype")
}

// Whole returns x ⊕ y of whole numbers that stand for elements of any type.
func Whole(op mem.Op, x, y int64) int64 { return combineInt(op, x, y) }

func combineInt[T int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64](op mem.Op, x, y T) T {
	var is bool
	switch op {
	case mem.Sum:
		return x + y
	case mem.Prod:
		return x * y
	case mem.Min:
		return min(x, y)
	case mem.Max:
		return max(x, y)
	case mem.BitAnd:
		return x & y
	case mem.BitOr:
		return x | y
	case mem.BitXor:
		return x ^ y
	case mem.LogicalAnd:
		is = x != 0 && y != 0
	case mem.LogicalOr:
		is = x != 0 || y != 0
	case mem.LogicalXor:
		is = (x != 0) != (y != 0)
	default:
		panic("no such operator")
	}
	if is {
		return 1
	}
	return 0
}

func combineSingle(op mem.Op, x, y float32) float32 {
	switch op {
	case mem.Sum:
		x += y
	case mem.Prod:
		x *= y
	default: // both are exact in f64
		x = float32(combineDouble(op, float64(x), float64(y)))
	}
	if math.IsNaN(float64(x)) {
		return math.Float32frombits(0x7fc00000)
	}
	return x
}

func combineDouble(op mem.Op, x, y float64) float64 {
	var r float64
	switch {
	case op == mem.Sum:
		r = x + y
	case op == mem.Prod:
		r = x * y
	case math.IsNaN(x) || math.IsNaN(y):
		r = math.NaN()
	case x == 0 && y == 0: // the zeros are ordered by their signs
		if r = x; math.Signbit(y) == (op == mem.Min) {
			r = y
		}
	case (op == mem.Min) == (x < y):
		r = x
	default:
		r = y
	}
	if math.IsNaN(r) {
		return math.Float64frombits(0x7ff8000000000000)
	}
	return r
}

// NearestF16 returns the binary16 nearest to f, the even one of two.
func NearestF16(f float32) uint16 {
	if math.IsNaN(float64(f)) {
		return 0x7e00
	}
	return float16.Fromfloat32(f).Bits()
}

// NearestBF16 returns the bfloat16 nearest to f, the even one of two. It compares the
// distances to the two bfloat16 that f lies between, which float64 holds exactly.
func NearestBF16(f float32) uint16 {
	if math.IsNaN(float64(f)) {
		return 0x7fc0
	}
	if math.IsInf(float64(f), 0) {
		return uint16(math.Float32bits(f) >> 16)
	}
	lo := uint16(math.Float32bits(f) >> 16)
	hi := lo + 1
	value := func(h uint16) float64 {
		if h&0x7fff == 0x7f80 { // where the next exponent would begin
			return math.Copysign(math.Ldexp(1, 128), float64(f))
		}
		return float64(math.Float32frombits(uint32(h) << 16))
	}
	below, above := math.Abs(float64(f)-value(lo)), math.Abs(value(hi)-float64(f))
	if below < above || below == above && lo%2 == 0 {
		return lo
	}
	return hi
}

// Divide returns a / by of one element, integers towards zero.
func Divide(dt mem.Datatype, a uint64, by float64) uint64 {
	switch dt {
	case mem.Float32:
		return uint64(math.Float32bits(math.Float32frombits(uint32(a)) / float32(by)))
	case mem.Float64:
		return math.Float64bits(math.Float64frombits(a) / by)
	case mem.Float16:
		return uint64(NearestF16(float16.Frombits(uint16(a)).Float32() / float32(by)))
	case mem.BFloat16:
		return uint64(NearestBF16(math.Float32frombits(uint32(a)<<16) / float32(by)))
	case mem.Int32:
		return uint64(uint32(int32(a) / int32(by)))
	case mem.Int64:
		return uint64(int64(a) / int64(by))
	case mem.Uint8:
		return uint64(uint8(a) / uint8(by))
	case mem.Int8:
		return uint64(uint8(int8(a) / int8(by)))
	case mem.Int16:
		return uint64(uint16(int16(a) / int16(by)))
	case mem.Uint16:
		return uint64(uint16(a) / uint16(by))
	case mem.Uint32:
		return uint64(uint32(a) / uint32(by))
	case mem.Uint64:
		return a / uint64(by)
	}
	panic("no such datatype")
}

// Element returns the bits of element i of s, all little endian as the machine is.
func Element(size int, s []byte, i int) uint64 {
	var w [8]byte
	copy(w[:], s[i*size:(i+1)*size])
	return binary.NativeEndian.Uint64(w[:])
}

// SetElement stores them.
func SetElement(size int, s []byte, i int, bits uint64) {
	var w [8]byte
	binary.NativeEndian.PutUint64(w[:], bits)
	copy(s[i*size:(i+1)*size], w[:size])
}

// Specials are bit patterns where an operator may go wrong.
var Specials = [...][]uint64{
	mem.Float32: {
		0, 0x80000000, 1, 0x80000001, 0x007fffff, 0x00800000, 0x3f800000, 0xbf800000, 0x3f800001, 0x33800000,
		0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00000, 0x7f800001, 0xffbfffff, 0x7fffffff, 0x1fffffff,
	},
	mem.Float64: {
		0, 1 << 63, 1, 1<<63 | 1, 0x000fffffffffffff, 0x0010000000000000, 0x3ff0000000000000, 0xbff0000000000000,
		0x3ff0000000000001, 0x3ca0000000000000, 0x7fefffffffffffff, 0xffefffffffffffff, 0x7ff0000000000000, 0xfff0000000000000,
		0x7ff8000000000000, 0xfff8000000000000, 0x7ff0000000000001, 0xfff7ffffffffffff, 0x1fffffffffffffff,
	},
	mem.Float16: {
		0, 0x8000, 1, 0x8001, 0x03ff, 0x0400, 0x83ff, 0x3c00, 0xbc00, 0x3c01, 0x1000, 0x0c00, 0x7bff, 0xfbff, 0x4c00,
		0x7c00, 0xfc00, 0x7e00, 0xfe00, 0x7c01, 0xfdff, 0x1bff, 0x3bff,
	},
	mem.BFloat16: {
		0, 0x8000, 1, 0x8001, 0x007f, 0x0080, 0x807f, 0x3f80, 0xbf80, 0x3f81, 0x3b80, 0x3b00, 0x7f7f, 0xff7f, 0x7b80,
		0x7f80, 0xff80, 0x7fc0, 0xffc0, 0x7f81, 0xffbf, 0x1fff, 0x3f7f,
	},
	mem.Int32:  {0, 1, 0xffffffff, 0x7fffffff, 0x80000000, 0x80000001, 0x10000, 0xffff, 0x55555555},
	mem.Int64:  {0, 1, 1<<64 - 1, 1<<63 - 1, 1 << 63, 1<<63 + 1, 1 << 32, 1<<32 - 1, 1 << 31, 0xffffffff00000000, 0x5555555555555555},
	mem.Uint8:  {0, 1, 2, 15, 16, 17, 127, 128, 129, 254, 255},
	mem.Int8:   {0, 1, 2, 15, 16, 17, 127, 128, 129, 254, 255},
	mem.Int16:  {0, 1, 0xffff, 0x7fff, 0x8000, 0x8001, 0x100, 0xff, 0x5555},
	mem.Uint16: {0, 1, 0xffff, 0x7fff, 0x8000, 0x8001, 0x100, 0xff, 0x5555},
	mem.Uint32: {0, 1, 0xffffffff, 0x7fffffff, 0x80000000, 0x80000001, 0x10000, 0xffff, 0x55555555},
	mem.Uint64: {0, 1, 1<<64 - 1, 1<<63 - 1, 1 << 63, 1<<63 + 1, 1 << 32, 1<<32 - 1, 1 << 31, 0xffffffff00000000, 0x5555555555555555},
}

// Fill gives s elements of random bits, one in four a special one.
func Fill(r *rand.Rand, dt mem.Datatype, s []byte) {
	size := dt.Size()
	for i := range len(s) / size {
		bits := r.Uint64()
		if r.IntN(4) == 0 {
			bits = Specials[dt][r.IntN(len(Specials[dt]))]
		}
		SetElement(size, s, i, bits)
	}
}

// Check compares got with what Combine makes of a and b.
func Check(dt mem.Datatype, op mem.Op, got, a, b []byte) error {
	size := dt.Size()
	for i := range len(got) / size {
		x, y := Element(size, a, i), Element(size, b, i)
		if g, w := Element(size, got, i), Combine(dt, op, x, y); g != w {
			return fmt.Errorf("%v %v: element %d of %d: %#x ⊕ %#x = %#x, want %#x", dt, op, i, len(got)/size, x, y, g, w)
		}
	}
	return nil
}

// Reduce combines all of a and b into dst.
func Reduce(dt mem.Datatype, op mem.Op, dst, a, b []byte) {
	size := dt.Size()
	for i := range len(dst) / size {
		SetElement(size, dst, i, Combine(dt, op, Element(size, a, i), Element(size, b, i)))
	}
}
