//go:build ignore || generate

// Command asm writes the AVX2 loops of package kernels. Run it with
// go generate ./kernels; what it writes is committed.
//
// Every loop is func(dst, a, b *byte, n int): n bytes, a multiple of 32, at any
// alignment. The stream variants store around the caches and need dst aligned
// to 32 bytes.
//
// The build constraint keeps this file out of every build; the word generate
// in it lets go mod tidy see what it imports.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	"github.com/scaffe/scaffe/kernels/internal/asm"
)

const (
	vector = 32 // bytes in a YMM register; vectorBytes in package kernels
	unroll = 4  // vectors in one turn of the main loop

	unordered = 3 // VCMPPS: one of the two is a NaN
	nearest   = 0 // VCVTPS2PH: round to nearest even
)

// combine emits r = x ⊕ y for one register of elements.
type combine func(x, y VecVirtual) VecVirtual

// kind is a datatype: how its name ends in function names, which constants its
// loops keep in registers, and its four operators.
type kind struct {
	name   string
	setup  func()
	ops    map[string]combine
	vector func(f combine, dst, a, b Mem, store store) // one vector from memory to memory
}

// store is an instruction from a YMM or XMM register to memory.
type store func(src, dst Op)

var opNames = []string{"sum", "prod", "min", "max"}

func main() {
	ConstraintExpr("amd64")
	for _, k := range []kind{f32(), f64(), f16(), bf16(), i32(), i64(), u8()} {
		for _, op := range opNames {
			reduction(op+k.name, k, k.ops[op], VMOVDQU, false)
			reduction(op+k.name+"Stream", k, k.ops[op], VMOVNTDQ, true)
		}
	}
	copyStream()
	Generate()
}

// reduction emits one loop.
func reduction(name string, k kind, f combine, st store, fence bool) {
	asm.Begin(name, "func(dst, a, b *byte, n int)")
	dst := asm.Arg("dst")
	a := asm.Arg("a")
	b := asm.Arg("b")
	n := asm.Arg("n")
	if k.setup != nil {
		k.setup()
	}
	asm.Turns(n, vector, unroll, func(vectors int) {
		for i := 0; i < vectors; i++ {
			o := i * vector
			k.vector(f, Mem{Base: dst, Disp: o}, Mem{Base: a, Disp: o}, Mem{Base: b, Disp: o}, st)
		}
		for _, p := range []Register{dst, a, b} {
			ADDQ(U32(vectors*vector), p)
		}
	})
	if fence {
		SFENCE() // streamed stores are weakly ordered
	}
	asm.End()
}

// copyStream emits the copy around the caches.
func copyStream() {
	asm.Begin("copyStream", "func(dst, src *byte, n int)")
	dst := asm.Arg("dst")
	src := asm.Arg("src")
	n := asm.Arg("n")
	asm.Turns(n, vector, unroll, func(vectors int) {
		regs := make([]VecVirtual, vectors)
		for i := range regs {
			regs[i] = load(Mem{Base: src, Disp: i * vector})
		}
		for i, r := range regs {
			VMOVNTDQ(r, Mem{Base: dst, Disp: i * vector})
		}
		ADDQ(U32(vectors*vector), dst)
		ADDQ(U32(vectors*vector), src)
	})
	SFENCE()
	asm.End()
}

func load(m Mem) VecVirtual {
	r := YMM()
	VMOVDQU(m, r)
	return r
}

// plain is the vector of types that the operators take as they lie.
func plain(f combine, dst, a, b Mem, st store) { st(f(load(a), load(b)), dst) }

// three makes a combine of one three-operand instruction.
func three(ins func(...Op)) combine {
	return func(x, y VecVirtual) VecVirtual {
		r := YMM()
		ins(y, x, r)
		return r
	}
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
// by OR give -0 where one of them is (AND, for max, gives +0).
func (p floats) ops() map[string]combine {
	arith := func(ins func(...Op)) combine {
		return func(x, y VecVirtual) VecVirtual {
			r := three(ins)(x, y)
			return p.canonical(r, r, r)
		}
	}
	order := func(ins, join func(...Op)) combine {
		return func(x, y VecVirtual) VecVirtual {
			r, s := three(ins)(x, y), three(ins)(y, x)
			join(s, r, r)
			return p.canonical(x, y, r)
		}
	}
	or := func(o ...Op) { VPOR(o[0], o[1], o[2]) }
	and := func(o ...Op) { VPAND(o[0], o[1], o[2]) }
	return map[string]combine{
		"sum": arith(p.add), "prod": arith(p.mul),
		"min": order(p.min, or), "max": order(p.max, and),
	}
}

// canonical replaces the lanes of r where x or y is a NaN.
func (p floats) canonical(x, y, r VecVirtual) VecVirtual {
	mask := YMM()
	p.cmp(Imm(unordered), x, y, mask)
	p.blend(mask, *p.nan, r, r)
	return r
}

// singles are the operators of f32, which f16 and bf16 share.
func singles(nan *VecVirtual) map[string]combine {
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
	return kind{name: "F32", setup: func() { *nan = broadcast32(0x7fc00000) }, ops: singles(nan), vector: plain}
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
	return kind{name: "F64", setup: func() { *nan = broadcast64(0x7ff8000000000000) }, ops: ops, vector: plain}
}

// f16 widens eight elements at a time with F16C.
func f16() kind {
	nan := new(VecVirtual)
	vec := func(f combine, dst, a, b Mem, st store) {
		for half := 0; half < vector; half += vector / 2 {
			x, y, h := YMM(), YMM(), XMM()
			VCVTPH2PS(a.Offset(half), x)
			VCVTPH2PS(b.Offset(half), y)
			VCVTPS2PH(Imm(nearest), f(x, y), h)
			st(h, dst.Offset(half))
		}
	}
	return kind{name: "F16", setup: func() { *nan = broadcast32(0x7fc00000) }, ops: singles(nan), vector: vec}
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
	round := func(v VecVirtual) VecVirtual { // to nearest even; v holds no NaN but the canonical one
		lsb := YMM()
		VPSRLD(Imm(16), v, lsb)
		VPAND(one, lsb, lsb)
		VPADDD(bias, v, v)
		VPADDD(lsb, v, v)
		return v
	}
	vec := func(f combine, dst, a, b Mem, st store) {
		x, y := load(a), load(b)
		hi := round(f(odd(x), odd(y)))
		lo := round(f(even(x), even(y)))
		VPAND(upper, hi, hi)
		VPSRLD(Imm(16), lo, lo)
		VPOR(lo, hi, hi)
		st(hi, dst)
	}
	return kind{name: "BF16", setup: setup, ops: singles(&nan), vector: vec}
}

func i32() kind {
	return kind{name: "I32", vector: plain, ops: map[string]combine{
		"sum":  three(func(o ...Op) { VPADDD(o[0], o[1], o[2]) }),
		"prod": three(func(o ...Op) { VPMULLD(o[0], o[1], o[2]) }),
		"min":  three(func(o ...Op) { VPMINSD(o[0], o[1], o[2]) }),
		"max":  three(func(o ...Op) { VPMAXSD(o[0], o[1], o[2]) }),
	}}
}

func i64() kind {
	mul := func(x, y VecVirtual) VecVirtual { // lo·lo + ((hi·lo + lo·hi) << 32)
		xh, yh, r := YMM(), YMM(), YMM()
		VPSRLQ(Imm(32), x, xh)
		VPSRLQ(Imm(32), y, yh)
		VPMULUDQ(y, xh, xh)
		VPMULUDQ(x, yh, yh)
		VPADDQ(yh, xh, xh)
		VPSLLQ(Imm(32), xh, xh)
		VPMULUDQ(y, x, r)
		VPADDQ(xh, r, r)
		return r
	}
	order := func(min bool) combine {
		return func(x, y VecVirtual) VecVirtual {
			greater := YMM()
			VPCMPGTQ(y, x, greater) // x > y
			if min {
				x, y = y, x
			}
			r := YMM()
			VPBLENDVB(greater, x, y, r)
			return r
		}
	}
	return kind{name: "I64", vector: plain, ops: map[string]combine{
		"sum":  three(func(o ...Op) { VPADDQ(o[0], o[1], o[2]) }),
		"prod": mul, "min": order(true), "max": order(false),
	}}
}

func u8() kind {
	mul := func(x, y VecVirtual) VecVirtual { // even and odd bytes as 16-bit products
		xo, yo, even := YMM(), YMM(), YMM()
		VPSRLW(Imm(8), x, xo)
		VPSRLW(Imm(8), y, yo)
		VPMULLW(yo, xo, xo)
		VPSLLW(Imm(8), xo, xo)
		VPMULLW(y, x, even)
		VPSLLW(Imm(8), even, even)
		VPSRLW(Imm(8), even, even)
		VPOR(xo, even, even)
		return even
	}
	return kind{name: "U8", vector: plain, ops: map[string]combine{
		"sum": three(func(o ...Op) { VPADDB(o[0], o[1], o[2]) }), "prod": mul,
		"min": three(func(o ...Op) { VPMINUB(o[0], o[1], o[2]) }),
		"max": three(func(o ...Op) { VPMAXUB(o[0], o[1], o[2]) }),
	}}
}
