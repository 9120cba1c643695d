package kernels

import "math"

// The bits of the NaN that results are.
const (
	nan32  = 0x7fc00000
	nan16  = 0x7e00
	nanB16 = 0x7fc0
)

// f16To widens a binary16 given as its bits; exact. A NaN stays a NaN.
func f16To(h uint16) float32 {
	const exponent = 0x0f800000 // binary16's exponent, moved to binary32's place
	v := uint32(h&0x7fff) << 13
	sign := uint32(h&0x8000) << 16
	switch v & exponent {
	case exponent: // infinity and NaN
		v |= 0x7f800000
	case 0: // zero and subnormals: mantissa · 2^-24
		v = math.Float32bits(float32(h&0x7fff) * (1.0 / (1 << 24)))
	default:
		v += (127 - 15) << 23
	}
	return math.Float32frombits(sign | v)
}

// f16From rounds to the nearest binary16, ties to even, too big numbers to
// infinity, every NaN to nan16.
func f16From(f float32) uint16 {
	v := math.Float32bits(f)
	sign := uint16(v>>16) & 0x8000
	v &= 0x7fffffff
	switch {
	case v > 0x7f800000:
		return nan16
	case v >= 0x47800000: // 2^16
		return sign | 0x7c00
	case v < 0x38800000: // below 2^-14: subnormal
		// Numbers next to 0.5 lie 2^-24 apart, as binary16's subnormals do, so
		// the addition rounds.
		half := math.Float32frombits(v) + 0.5
		return sign | uint16(math.Float32bits(half)-math.Float32bits(0.5))
	}
	v -= (127 - 15) << 23
	v += 0x0fff + v>>13&1 // carries into the exponent, up to infinity
	return sign | uint16(v>>13)
}

// bf16To widens a bfloat16 given as its bits; exact.
func bf16To(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// bf16From rounds to the nearest bfloat16, ties to even, too big numbers to
// infinity, every NaN to nanB16.
func bf16From(f float32) uint16 {
	if f != f {
		return nanB16
	}
	v := math.Float32bits(f)
	return uint16((v + 0x7fff + v>>16&1) >> 16)
}
