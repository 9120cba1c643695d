//go:build ignore || generate

package main

import (
	"strings"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	"github.com/scaffe/scaffe/kernels/internal/asm"
)

// values are what one turn of an elementwise loop works with.
type values struct {
	w       width
	x, y, d func() VecVirtual // loads of a, b and the old dst
	keep    Mem
	c       func(int) VecVirtual // the constants
}

// elementwise emits the loops func(dst, keep, a, b *float32, n int, c0, c1, c2 float32).
func elementwise() {
	for _, k := range []struct {
		name   string
		uses   string // a, b; d where dst is read; k where keep takes a, r where it takes the result, u where f uses it
		consts int
		unroll int
		f      func(v values) VecVirtual
	}{
		{"addF32s", "ab", 0, 4, func(v values) VecVirtual { return add(v.x(), v.y()) }},
		{"mulF32s", "ab", 0, 4, func(v values) VecVirtual { return mul(v.x(), v.y()) }},
		{"scaleF32s", "a", 1, 4, func(v values) VecVirtual { return mul(v.x(), v.c(0)) }},
		{"addScaledF32s", "ad", 1, 4, func(v values) VecVirtual { return add(v.d(), mul(v.x(), v.c(0))) }},
		{"addMulF32s", "abd", 0, 4, func(v values) VecVirtual { return add(v.d(), mul(v.x(), v.y())) }},
		{"affineF32s", "a", 2, 4, affine},
		{"affineKeepF32s", "ak", 2, 4, affine},
		{"normalizeF32s", "a", 2, 4, normalize},
		{"normalizeBothF32s", "ar", 2, 4, normalize},
		{"normalizeGradF32s", "ab", 3, 2, func(v values) VecVirtual {
			return mul(sub(sub(v.x(), v.c(0)), mul(v.y(), v.c(1))), v.c(2))
		}},
		{"sigmoidGradF32s", "ab", 0, 2, func(v values) VecVirtual {
			y := v.y()
			return mul(mul(v.x(), y), sub(v.w.held(number("one", 1)), y))
		}},
		{"tanhGradF32s", "ab", 0, 2, func(v values) VecVirtual {
			y := v.y()
			return mul(v.x(), sub(v.w.held(number("one", 1)), mul(y, y)))
		}},
		{"takeGreaterF32s", "adu", 1, 2, takeGreater},
		{"whereF32s", "ab", 1, 4, func(v values) VecVirtual { return and(compare(equal, v.y(), v.c(0)), v.x()) }},
		{"expF32s", "a", 1, 1, func(v values) VecVirtual { return exp(v.w, sub(v.x(), v.c(0))) }},
		{"sigmoidF32s", "a", 0, 1, sigmoid},
		{"tanhF32s", "a", 0, 1, tanh},
	} {
		constantsOf(k.name)
		asm.Begin(k.name, "func(dst, keep, a, b *float32, n int, c0, c1, c2 float32)")
		ptr := map[rune]Register{'d': asm.Arg("dst")}
		ptrs := []Register{ptr['d']}
		for _, p := range []struct {
			key  rune
			name string
		}{{'k', "keep"}, {'r', "keep"}, {'u', "keep"}, {'a', "a"}, {'b', "b"}} {
			if strings.ContainsRune(k.uses, p.key) {
				ptr[p.key] = asm.Arg(p.name)
				ptrs = append(ptrs, ptr[p.key])
			}
		}
		n := asm.Arg("n")
		var c []VecVirtual
		for _, name := range []string{"c0", "c1", "c2"}[:k.consts] {
			c = append(c, everywhere(name))
		}
		loop(k.unroll, n, ptrs, func(w width, at int) {
			from := func(key rune) func() VecVirtual {
				return func() VecVirtual { return w.load(stream{ptr[key], at}.mem()) }
			}
			v := values{w: w, x: from('a'), y: from('b'), d: from('d'), c: func(i int) VecVirtual { return w.of(c[i]) }}
			if ptr['u'] != nil {
				v.keep = stream{ptr['u'], at}.mem()
			}
			if ptr['k'] != nil {
				x := v.x()
				v.x = func() VecVirtual { return x }
				w.store(x, stream{ptr['k'], at}.mem())
			}
			y := k.f(v)
			if ptr['r'] != nil {
				w.store(y, stream{ptr['r'], at}.mem())
			}
			w.store(y, stream{ptr['d'], at}.mem())
		})
		asm.End()
	}
}

func affine(v values) VecVirtual    { return add(mul(v.x(), v.c(0)), v.c(1)) }
func normalize(v values) VecVirtual { return mul(sub(v.x(), v.c(0)), v.c(1)) }

// takeGreater emits a where it is greater than the old dst, and c0 to keep
// there.
func takeGreater(v values) VecVirtual {
	x, old := v.x(), v.d()
	above := compare(greater, x, old)
	v.w.store(choose(above, v.c(0), v.w.load(v.keep)), v.keep)
	return choose(above, x, old)
}

// constantsOf emits the numbers in memory that function name needs, which must
// stand before it. Package kernels says in exp.go what they are.
func constantsOf(name string) {
	switch name {
	case "sigmoidGradF32s":
		number("one", 1)
	case "expF32s":
		number("expHigh", 89)
		number("expLow", -104)
		number("log2e", 1.4426950216293335)
		number("shifter", 3<<22)
		number("ln2High", 0.693359375)
		number("ln2Low", 0.00021219444170128554)
		for i, c := range expPoly {
			number("expPoly"+string(rune('0'+i)), c)
		}
		word("bias", 127)
	case "sigmoidF32s":
		number64("one64", 1)
		word("signBit", 0x80000000)
		word("noBits", 0)
	case "tanhF32s":
		word("allButSign", 0x7fffffff)
		number("two", 2)
		number("tanhSmall", 0.625)
		for i, c := range tanhPoly {
			number("tanhPoly"+string(rune('0'+i)), c)
		}
	}
}

var (
	expPoly  = []float32{0.4999999403953552, 0.1666652113199234, 0.04166838899254799, 0.00836874544620514, 0.0013814540579915047}
	tanhPoly = []float32{-0.3333328068256378, 0.13331441581249237, -0.05373971536755562, 0.0206390880048275, -0.005704986862838268}
)

// poly emits the polynomial with those coefficients, lowest first, at x.
func poly(w width, coefs []float32, x VecVirtual) VecVirtual {
	r := w.held(number("", coefs[len(coefs)-1]))
	for i := len(coefs) - 2; i >= 0; i-- {
		r = add(mul(r, x), number("", coefs[i]))
	}
	return r
}

// exp emits the exponential of x; see exp.go of package kernels.
func exp(w width, x VecVirtual) VecVirtual {
	x = minOf(w.held(number("", 89)), x)
	x = maxOf(w.held(number("", -104)), x)
	shifted := add(mul(x, number("", 1.4426950216293335)), number("", 3<<22))
	n := sub(shifted, number("", 3<<22))
	r := add(sub(x, mul(n, number("", 0.693359375))), mul(n, number("", 0.00021219444170128554)))
	p := mul(poly(w, expPoly, r), mul(r, r))
	p = add(add(p, r), number("", 1))

	k, half := like(x), like(x)
	VPSUBD(number("", 3<<22), shifted, k)
	VPSRAD(Imm(1), k, half)
	VPSUBD(half, k, k)
	for _, e := range []VecVirtual{half, k} {
		VPADDD(word("", 127), e, e)
		VPSLLD(Imm(23), e, e)
		p = mul(p, e)
	}
	return p
}

// sigmoid emits 1/(1+e) for x ≥ 0 and e/(1+e) below, e = exp(-|x|), the sum
// and the quotient in float64.
func sigmoid(v values) VecVirtual {
	x := v.x()
	e := exp(v.w, or(x, word("", 0x80000000)))
	above := choose(compare(less, x, word("", 0)), e, v.w.held(number("", 1)))
	if v.w == one {
		VCVTPS2PD(e, e)
		VCVTPS2PD(above, above)
		VADDPD(number64("", 1), e, e)
		VDIVPD(e, above, above)
		VCVTPD2PSX(above, above)
		return above
	}
	var parts [2]VecVirtual
	for i := range parts {
		num, den := YMM(), YMM()
		VCVTPS2PD(half(above, i), num)
		VCVTPS2PD(half(e, i), den)
		VADDPD(number64("", 1), den, den)
		VDIVPD(den, num, num)
		parts[i] = XMM()
		VCVTPD2PSY(num, parts[i])
	}
	r := YMM()
	VINSERTF128(Imm(1), parts[1], parts[0].AsY(), r)
	return r
}

// half emits the lower or the upper four lanes of a YMM register.
func half(v VecVirtual, upper int) VecVirtual {
	if upper == 0 {
		return v.AsX().(VecVirtual)
	}
	r := XMM()
	VEXTRACTF128(Imm(1), v, r)
	return r
}

// tanh emits |x| + |x|³·P(x²) near 0, 1 - 2/(exp(2|x|)+1) elsewhere, with the
// sign of x.
func tanh(v values) VecVirtual {
	x := v.x()
	size := and(x, word("", 0x7fffffff))
	unit := v.w.held(number("", 1))
	e := add(exp(v.w, add(size, size)), unit)
	far := sub(unit, div(v.w.held(number("", 2)), e))
	z := mul(x, x)
	near := add(mul(mul(poly(v.w, tanhPoly, z), z), size), size)
	return or(choose(compare(less, size, number("", 0.625)), near, far), and(x, word("", 0x80000000)))
}
