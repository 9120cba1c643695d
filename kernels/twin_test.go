package kernels

import (
	"math"

	"github.com/x448/float16"

	"github.com/scaffe/scaffe/mem"
)

// twin is the dumb twin of every path: one element at a time, given and
// returned as its bits, with conversions that are not this package's.
func twin(dt mem.Datatype, op mem.Op, a, b uint64) uint64 {
	switch dt {
	case mem.Float32:
		x, y := math.Float32frombits(uint32(a)), math.Float32frombits(uint32(b))
		return uint64(math.Float32bits(twinSingle(op, x, y)))
	case mem.Float64:
		return math.Float64bits(twinDouble(op, math.Float64frombits(a), math.Float64frombits(b)))
	case mem.Float16:
		x, y := float16.Frombits(uint16(a)).Float32(), float16.Frombits(uint16(b)).Float32()
		return uint64(nearestF16(twinSingle(op, x, y)))
	case mem.BFloat16:
		x, y := math.Float32frombits(uint32(a)<<16), math.Float32frombits(uint32(b)<<16)
		return uint64(nearestBF16(twinSingle(op, x, y)))
	case mem.Int32:
		return uint64(uint32(twinInt(op, int32(a), int32(b))))
	case mem.Int64:
		return uint64(twinInt(op, int64(a), int64(b)))
	case mem.Uint8:
		return uint64(twinInt(op, uint8(a), uint8(b)))
	}
	panic("no such datatype")
}

func twinInt[T integer](op mem.Op, x, y T) T {
	switch {
	case op == mem.Sum:
		return x + y
	case op == mem.Prod:
		return x * y
	case (op == mem.Min) == (x < y):
		return x
	}
	return y
}

func twinSingle(op mem.Op, x, y float32) float32 {
	switch op {
	case mem.Sum:
		x += y
	case mem.Prod:
		x *= y
	default: // both are exact in f64
		x = float32(twinDouble(op, float64(x), float64(y)))
	}
	if math.IsNaN(float64(x)) {
		return math.Float32frombits(0x7fc00000)
	}
	return x
}

func twinDouble(op mem.Op, x, y float64) float64 {
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

func nearestF16(f float32) uint16 {
	if math.IsNaN(float64(f)) {
		return 0x7e00
	}
	return float16.Fromfloat32(f).Bits()
}

// nearestBF16 compares the distances to the two bfloat16 that f lies between,
// which float64 holds exactly.
func nearestBF16(f float32) uint16 {
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
