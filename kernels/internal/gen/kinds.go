//go:build ignore || generate

package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// The datatypes and their operators.

// plain is a kind of elements that the operators take as they lie.
func plain(name string, setup func(), ops map[string]operator) kind {
	return kind{
		name: name, setup: setup, ops: ops, around: unrollAround,
		load: func(m Mem) []VecVirtual { return []VecVirtual{load(m)} },
		add:  func(f combine, sum []VecVirtual, m Mem) { f(sum[0], load(m)) },
	}
}

// three makes a combine of one three-operand instruction.
func three(ins func(...Op)) combine { return func(x, y VecVirtual) { ins(y, x, x) } }

// each makes operators that are finished with their combine.
func each(ops map[string]combine) map[string]operator {
	all := map[string]operator{}
	for name, f := range ops {
		all[name] = operator{combine: f}
	}
	return all
}

// broadcast32 emits a register with the 32-bit word in every lane.
func broadcast32(word uint32) VecVirtual {
	g, x, y := GP32(), XMM(), YMM()
	MOVL(U32(word), g)
	VMOVD(g, x)
	VPBROADCASTD(x, y)
	return y
}

// broadcast64 emits a register with the 64-bit word in every lane.
func broadcast64(word uint64) VecVirtual {
	g, x, y := GP64(), XMM(), YMM()
	MOVQ(U64(word), g)
	VMOVQ(g, x)
	VPBROADCASTQ(x, y)
	return y
}

// floats are the operators of one floating-point width.
type floats struct {
	add, mul, min, max func(...Op)
	cmp                func(...Op)
	blend              func(...Op)
	nan                *VecVirtual // the canonical NaN, loaded by setup
}

// ops returns the operators: a NaN result is the canonical one; min and max
// propagate NaN and order -0 below +0. VMINPS returns its second source when
// the two are zeros of either sign, so that the two orders of operands joined
// by OR give -0 where one of them is (AND, for max, gives +0). A sum or product with a
// NaN is one, so that it need be made the canonical one only at the end.
func (p floats) ops() map[string]operator {
	arith := func(ins func(...Op)) operator {
		return operator{three(ins), func(x VecVirtual) { p.canonical(x, x, x) }, p.unordered}
	}
	order := func(ins, join func(...Op)) operator {
		return operator{combine: func(x, y VecVirtual) {
			r, s := YMM(), YMM()
			ins(y, x, r)
			ins(x, y, s)
			join(s, r, r)
			mask := p.unordered(x, y)
			p.blend(mask, *p.nan, r, x)
		}}
	}
	or := func(o ...Op) { VPOR(o[0], o[1], o[2]) }
	and := func(o ...Op) { VPAND(o[0], o[1], o[2]) }
	return map[string]operator{
		"sum": arith(p.add), "prod": arith(p.mul),
		"min": order(p.min, or), "max": order(p.max, and),
	}
}

// unordered emits a mask of the lanes in which x or y is a NaN.
func (p floats) unordered(x, y VecVirtual) VecVirtual {
	mask := YMM()
	p.cmp(Imm(unordered), x, y, mask)
	return mask
}

// canonical replaces the lanes of r where x or y is a NaN.
func (p floats) canonical(x, y, r VecVirtual) { p.blend(p.unordered(x, y), *p.nan, r, r) }

// singles are the operators of f32, which f16 and bf16 share.
func singles(nan *VecVirtual) map[string]operator {
	return floats{
		add: func(o ...Op) { VADDPS(o[0], o[1], o[2]) }, mul: func(o ...Op) { VMULPS(o[0], o[1], o[2]) },
		min: func(o ...Op) { VMINPS(o[0], o[1], o[2]) }, max: func(o ...Op) { VMAXPS(o[0], o[1], o[2]) },
		cmp:   func(o ...Op) { VCMPPS(o[0], o[1], o[2], o[3]) },
		blend: func(o ...Op) { VBLENDVPS(o[0], o[1], o[2], o[3]) },
		nan:   nan,
	}.ops()
}

func f32() kind {
	nan := new(VecVirtual)
	return plain("F32", func() { *nan = broadcast32(0x7fc00000) }, singles(nan))
}

func f64() kind {
	nan := new(VecVirtual)
	ops := floats{
		add: func(o ...Op) { VADDPD(o[0], o[1], o[2]) }, mul: func(o ...Op) { VMULPD(o[0], o[1], o[2]) },
		min: func(o ...Op) { VMINPD(o[0], o[1], o[2]) }, max: func(o ...Op) { VMAXPD(o[0], o[1], o[2]) },
		cmp:   func(o ...Op) { VCMPPD(o[0], o[1], o[2], o[3]) },
		blend: func(o ...Op) { VBLENDVPD(o[0], o[1], o[2], o[3]) },
		nan:   nan,
	}.ops()
	return plain("F64", func() { *nan = broadcast64(0x7ff8000000000000) }, ops)
}

// rounded makes operators of numbers that are rounded to fewer bits after each combine,
// which takes a NaN that is the canonical one.
func rounded(ops map[string]operator) map[string]operator {
	all := map[string]operator{}
	for name, f := range ops {
		all[name] = operator{combine: func(x, y VecVirtual) {
			f.combine(x, y)
			if f.finish != nil {
				f.finish(x)
			}
		}}
	}
	return all
}

// f16 widens eight elements at a time with F16C.
func f16() kind {
	nan := new(VecVirtual)
	const half = vector / 2
	return kind{
		name: "F16", setup: func() { *nan = broadcast32(0x7fc00000) }, ops: rounded(singles(nan)), around: unrollHalves,
		load: func(m Mem) []VecVirtual {
			low, high := XMM(), XMM()
			VMOVDQU(m, low)
			VMOVDQU(m.Offset(half), high)
			return []VecVirtual{low, high}
		},
		add: func(f combine, sum []VecVirtual, m Mem) {
			for i, h := range sum {
				x, y := YMM(), YMM()
				VCVTPH2PS(h, x)
				VCVTPH2PS(m.Offset(i*half), y)
				f(x, y)
				VCVTPS2PH(Imm(nearest), x, h)
			}
		},
	}
}

// bf16 takes the odd elements of a vector as f32 by clearing the even ones,
// the even ones by shifting them up.
func bf16() kind {
	var nan, upper, bias, one VecVirtual
	setup := func() {
		nan, upper = broadcast32(0x7fc00000), broadcast32(0xffff0000)
		bias, one = broadcast32(0x7fff), broadcast32(1)
	}
	odd := func(v VecVirtual) VecVirtual {
		r := YMM()
		VPAND(upper, v, r)
		return r
	}
	even := func(v VecVirtual) VecVirtual {
		r := YMM()
		VPSLLD(Imm(16), v, r)
		return r
	}
	round := func(v VecVirtual) { // to nearest even; v holds no NaN but the canonical one
		lsb := YMM()
		VPSRLD(Imm(16), v, lsb)
		VPAND(one, lsb, lsb)
		VPADDD(bias, v, v)
		VPADDD(lsb, v, v)
	}
	k := plain("BF16", setup, rounded(singles(&nan)))
	k.around = unrollHalves
	k.add = func(f combine, sum []VecVirtual, m Mem) {
		x, y := sum[0], load(m)
		hi, lo := odd(x), even(x)
		f(hi, odd(y))
		round(hi)
		f(lo, even(y))
		round(lo)
		VPAND(upper, hi, hi)
		VPSRLD(Imm(16), lo, lo)
		VPOR(lo, hi, x)
	}
	return k
}

func i32() kind {
	return plain("I32", nil, each(map[string]combine{
		"sum":  three(func(o ...Op) { VPADDD(o[0], o[1], o[2]) }),
		"prod": three(func(o ...Op) { VPMULLD(o[0], o[1], o[2]) }),
		"min":  three(func(o ...Op) { VPMINSD(o[0], o[1], o[2]) }),
		"max":  three(func(o ...Op) { VPMAXSD(o[0], o[1], o[2]) }),
	}))
}

func i64() kind {
	mul := func(x, y VecVirtual) { // lo·lo + ((hi·lo + lo·hi) << 32)
		xh, yh := YMM(), YMM()
		VPSRLQ(Imm(32), x, xh)
		VPSRLQ(Imm(32), y, yh)
		VPMULUDQ(y, xh, xh)
		VPMULUDQ(x, yh, yh)
		VPADDQ(yh, xh, xh)
		VPSLLQ(Imm(32), xh, xh)
		VPMULUDQ(y, x, x)
		VPADDQ(xh, x, x)
	}
	order := func(min bool) combine {
		return func(x, y VecVirtual) {
			greater := YMM()
			VPCMPGTQ(y, x, greater) // x > y
			if min {
				VPBLENDVB(greater, y, x, x)
			} else {
				VPBLENDVB(greater, x, y, x)
			}
		}
	}
	return plain("I64", nil, each(map[string]combine{
		"sum":  three(func(o ...Op) { VPADDQ(o[0], o[1], o[2]) }),
		"prod": mul, "min": order(true), "max": order(false),
	}))
}

func u8() kind {
	mul := func(x, y VecVirtual) { // even and odd bytes as 16-bit products
		xo, yo := YMM(), YMM()
		VPSRLW(Imm(8), x, xo)
		VPSRLW(Imm(8), y, yo)
		VPMULLW(yo, xo, xo)
		VPSLLW(Imm(8), xo, xo)
		VPMULLW(y, x, x)
		VPSLLW(Imm(8), x, x)
		VPSRLW(Imm(8), x, x)
		VPOR(xo, x, x)
	}
	return plain("U8", nil, each(map[string]combine{
		"sum": three(func(o ...Op) { VPADDB(o[0], o[1], o[2]) }), "prod": mul,
		"min": three(func(o ...Op) { VPMINUB(o[0], o[1], o[2]) }),
		"max": three(func(o ...Op) { VPMAXUB(o[0], o[1], o[2]) }),
	}))
}

func u16() kind {
	return plain("U16", nil, each(map[string]combine{
		"sum":  three(func(o ...Op) { VPADDW(o[0], o[1], o[2]) }),
		"prod": three(func(o ...Op) { VPMULLW(o[0], o[1], o[2]) }),
		"min":  three(func(o ...Op) { VPMINUW(o[0], o[1], o[2]) }),
		"max":  three(func(o ...Op) { VPMAXUW(o[0], o[1], o[2]) }),
	}))
}

func i8() kind {
	return plain("I8", nil, each(map[string]combine{
		"min": three(func(o ...Op) { VPMINSB(o[0], o[1], o[2]) }),
		"max": three(func(o ...Op) { VPMAXSB(o[0], o[1], o[2]) }),
	}))
}

func i16() kind {
	return plain("I16", nil, each(map[string]combine{
		"min": three(func(o ...Op) { VPMINSW(o[0], o[1], o[2]) }),
		"max": three(func(o ...Op) { VPMAXSW(o[0], o[1], o[2]) }),
	}))
}

func u32() kind {
	return plain("U32", nil, each(map[string]combine{
		"min": three(func(o ...Op) { VPMINUD(o[0], o[1], o[2]) }),
		"max": three(func(o ...Op) { VPMAXUD(o[0], o[1], o[2]) }),
	}))
}

// u64 compares as signed what has its highest bit turned over.
func u64() kind {
	var high VecVirtual
	order := func(min bool) combine {
		return func(x, y VecVirtual) {
			a, b := YMM(), YMM()
			VPXOR(high, x, a)
			VPXOR(high, y, b)
			VPCMPGTQ(b, a, a) // x > y
			if min {
				VPBLENDVB(a, y, x, x)
			} else {
				VPBLENDVB(a, x, y, x)
			}
		}
	}
	return plain("U64", func() { high = broadcast64(1 << 63) }, each(map[string]combine{"min": order(true), "max": order(false)}))
}

// bits are the bitwise operators, to which elements of any size are bytes.
func bits() kind {
	return plain("U8", nil, each(map[string]combine{
		"band": three(func(o ...Op) { VPAND(o[0], o[1], o[2]) }),
		"bor":  three(func(o ...Op) { VPOR(o[0], o[1], o[2]) }),
		"bxor": three(func(o ...Op) { VPXOR(o[0], o[1], o[2]) }),
	}))
}

// logic are the logical operators of elements that equal compares; one has a 1 in each of them.
func logic(name string, word uint64, equal func(...Op)) kind {
	var zero, one VecVirtual
	setup := func() {
		zero, one = YMM(), broadcast64(word)
		VPXOR(zero, zero, zero)
	}
	falsity := func(x VecVirtual) VecVirtual { // a mask of the elements that are 0
		mask := YMM()
		equal(zero, x, mask)
		return mask
	}
	return plain(name, setup, map[string]operator{
		"land": {combine: func(x, y VecVirtual) {
			either := falsity(x)
			VPOR(falsity(y), either, either)
			VPANDN(one, either, x)
		}},
		"lor": {combine: three(func(o ...Op) { VPOR(o[0], o[1], o[2]) }), finish: func(x VecVirtual) { VPANDN(one, falsity(x), x) }},
		"lxor": {combine: func(x, y VecVirtual) {
			unlike := falsity(x)
			VPXOR(falsity(y), unlike, unlike)
			VPAND(one, unlike, x)
		}},
	})
}
