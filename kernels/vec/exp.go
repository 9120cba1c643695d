package vec

import "math"

// Exp sets dst = exp(a − shift), element by element, within 1.1 units in the
// last place of the exponential of the rounded difference (subnormal results
// included): 0 below -103.98, +Inf above 88.73, NaN for NaN. A softmax passes
// the largest element as shift.
func Exp(dst, a []float32, shift float32) { each(opExp, dst, nil, a[:len(dst)], nil, shift, 0, 0) }

// Sigmoid sets dst = 1/(1 + exp(−a)), element by element, within 2 units in
// the last place.
func Sigmoid(dst, a []float32) { each(opSigmoid, dst, nil, a[:len(dst)], nil, 0, 0, 0) }

// Tanh sets dst to the hyperbolic tangent of a, element by element, within
// 2 units in the last place.
func Tanh(dst, a []float32) { each(opTanh, dst, nil, a[:len(dst)], nil, 0, 0, 0) }

// The numbers of exp32 and tanh32. internal/gen has them too.
const (
	expHigh = 89   // the exponential of more is +Inf
	expLow  = -104 // of less, 0

	log2e   = 1.4426950216293335     // 1/ln 2 as a float32
	ln2High = 0.693359375            // 9 bits: n·ln2High is exact
	ln2Low  = 0.00021219444170128554 // ln2High − ln 2 as a float32

	// shifter is 3·2²²: the float32 next to it lie 1 apart, so that adding it
	// rounds to a whole number, which then stands in the low bits.
	shifter = 3 << 22

	tanhSmall = 0.625
)

// exp32 is exp(n·ln 2 + r) = 2ⁿ·(1 + r + r²·P(r)) with |r| ≤ ln 2 / 2 (Cody and
// Waite 1980, chapter 6). P is of degree 4, the best for the relative error,
// 3e-9 (Remez's algorithm). 2ⁿ is multiplied in two halves, because n reaches from
// -150 to 128.
func exp32(x float32) float32 {
	if expHigh < x {
		x = expHigh
	}
	if expLow > x {
		x = expLow
	}
	shifted := float32(x*log2e) + shifter
	n := shifted - shifter
	r := float32(x-float32(n*ln2High)) + float32(n*ln2Low)
	p := float32(0.0013814540579915047*r) + 0.00836874540620514
	p = float32(p*r) + 0.04166838899254799
	p = float32(p*r) + 0.1666652113199234
	p = float32(p*r) + 0.4999999403953552
	p = float32(float32(p*float32(r*r))+r) + 1
	k := int32(math.Float32bits(shifted) - math.Float32bits(shifter))
	half := k >> 1
	p *= math.Float32frombits(uint32(half+127) << 23)
	return p * math.Float32frombits(uint32(k-half+127)<<23)
}

// sigmoid32 takes the exponential of a number below 0, so that it cannot
// overflow and small results keep their digits.
func sigmoid32(x float32) float32 {
	e := exp32(math.Float32frombits(math.Float32bits(x) | 1<<31))
	if x < 0 {
		return float32(float64(e) / (1 + float64(e)))
	}
	return float32(1 / (1 + float64(e)))
}

// tanh32 is |x| + |x|³·P(x²) near 0, P of degree 4 with a relative error of
// 4e-9, and 1 − 2/(exp(2|x|)+1) elsewhere, with the sign of x.
func tanh32(x float32) float32 {
	size := math.Float32frombits(math.Float32bits(x) &^ (1 << 31))
	var y float32
	if size < tanhSmall {
		z := x * x
		p := float32(-0.005704986862838268*z) + 0.0206390880048275
		p = float32(p*z) - 0.05373971536755562
		p = float32(p*z) + 0.13331441581249237
		p = float32(p*z) - 0.3333328068256378
		y = float32(float32(p*z)*size) + size
	} else {
		y = 1 - 2/(exp32(size+size)+1)
	}
	return math.Float32frombits(math.Float32bits(y) | math.Float32bits(x)&(1<<31))
}
