//go:build ignore || generate

// Command asm writes the AVX2 loops of package kernels. Run it with
// go generate ./kernels; what it writes is committed.
//
// A loop is func(dst, x0, x1, x2, x3, x4, x5, x6, x7 *byte, n int): dst = ((x0 ⊕ x1) ⊕ x2) … for n
// bytes, a multiple of 32, at any alignment; x2 and those after it may be nil, all that
// follow one that is nil are. The stream variants are func(d0, d1, d2, d3, d4, d5, d6, d7, end, x0, …) and store around the caches, at d0 and
// those after it that are not nil, which are aligned to 32 bytes; end is nil. They take
// several lines at a time and store them at one place after the other: what goes around the caches is
// gathered line by line, and the next line of a place waits for the one before.
//
// The build constraint keeps this file out of every build; the word generate
// in it lets go mod tidy see what it imports.
package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	"github.com/scaffe/scaffe/kernels/internal/asm"
)

const (
	vector = 32 // bytes in a YMM register; vectorBytes in package kernels
	unroll = 2  // vectors in one turn of the main loop of a reduction,
	copies = 4  // in that of a copy

	unrollTwo = 4 // and in that of a reduction of two operands

	unrollAround = 8 // in those around the caches, unless their registers are needed otherwise
	unrollHalves = 4 // where numbers of 16 bits need them

	line  = 64   // bytes of a cache line
	ahead = 1024 // bytes before which the loops around the caches ask for what they read

	unordered = 3 // VCMPPS: one of the two is a NaN
	nearest   = 0 // VCVTPS2PH: round to nearest even
)

// combine emits x = x ⊕ y for one register of elements.
type combine func(x, y VecVirtual)

// operator is combine, and what is to be done once after the last one.
type operator struct {
	combine combine
	finish  func(x VecVirtual) // nil: nothing
	// due emits a register that is not 0 where finish changes x or y, which is seldom so; nil: it is not told.
	due func(x, y VecVirtual) VecVirtual
}

// kind is a datatype, as far as package kernels calls no other one alike: how its name ends in function names, which constants its
// loops keep in registers, its operators, and how a vector of its elements is
// loaded, into one register or more, and another one in memory added to it.
type kind struct {
	name  string
	setup func()
	ops   map[string]operator
	load  func(m Mem) []VecVirtual
	add   func(f combine, sum []VecVirtual, m Mem)
	// around is how many vectors a turn around the caches takes.
	around int
}

// store is an instruction from a YMM or XMM register to memory.
type store func(src, dst Op)

var opNames = []string{"sum", "prod", "min", "max", "band", "bor", "bxor", "land", "lor", "lxor"}

func main() {
	ConstraintExpr("amd64")
	for _, k := range []kind{
		f32(), f64(), f16(), bf16(), i32(), i64(), u8(), u16(), i8(), i16(), u32(), u64(), bits(),
		logic("U8", 0x0101010101010101, func(o ...Op) { VPCMPEQB(o[0], o[1], o[2]) }),
		logic("U16", 0x0001000100010001, func(o ...Op) { VPCMPEQW(o[0], o[1], o[2]) }),
		logic("I32", 0x0000000100000001, func(o ...Op) { VPCMPEQD(o[0], o[1], o[2]) }),
		logic("I64", 1, func(o ...Op) { VPCMPEQQ(o[0], o[1], o[2]) }),
	} {
		for _, op := range opNames {
			if f, ok := k.ops[op]; ok {
				reduction(op+k.name, k, f, VMOVDQU, false)
				reduction(op+k.name+"Stream", k, f, VMOVNTDQ, true)
			}
		}
	}
	copyStream()
	Generate()
}

// operands are the parameters of a loop besides dst and n.
var operands = []string{"x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7"}

// reduction emits one loop.
func reduction(name string, k kind, f operator, st store, around bool) {
	unroll, unrollTwo := unroll, unrollTwo
	var dst Register
	if around {
		unroll, unrollTwo = k.around, k.around
		asm.Begin(name, "func(d0, d1, d2, d3, d4, d5, d6, d7, end, x0, x1, x2, x3, x4, x5, x6, x7 *byte, n int)")
	} else {
		asm.Begin(name, "func(dst, x0, x1, x2, x3, x4, x5, x6, x7 *byte, n int)")
		dst = asm.Arg("dst")
	}
	from := make([]Register, len(operands))
	for i, p := range operands {
		from[i] = asm.Arg(p)
	}
	n := asm.Arg("n")
	at := GP64()
	XORQ(at, at)
	if k.setup != nil {
		k.setup()
	}
	keep := func(name string, sums [][]VecVirtual) {
		if around {
			spread(name, st, sums, at)
		} else {
			keep(st, sums, dst, at)
		}
		ADDQ(U32(len(sums)*vector), at)
	}
	if f.due != nil {
		TESTQ(from[2], from[2])
		JZ(LabelRef("two"))
	}
	turn := 0
	asm.Turns("", n, vector, unroll, func(vectors int) {
		turn++
		stored := fmt.Sprintf("store%d", turn)
		sums := make([][]VecVirtual, vectors)
		for o, p := range from {
			if o > 1 && (o > 2 || f.due == nil) {
				TESTQ(p, p)
				JZ(LabelRef(stored))
			}
			take(k, f, sums, p, at, o == 0, around)
		}
		Label(stored)
		f.finishAll(sums)
		keep(fmt.Sprintf("place%d", turn), sums)
	})
	leave(around)
	if f.due != nil {
		Label("two")
		two(k, f, unrollTwo, keep, from, n, at, around)
	}
}

// two emits a loop over two operands, in which it is seldom that sums have to be finished.
func two(k kind, f operator, unroll int, keep func(string, [][]VecVirtual), from []Register, n, at Register, around bool) {
	var wide [][]VecVirtual
	asm.Turns("two", n, vector, unroll, func(vectors int) {
		sums := make([][]VecVirtual, vectors)
		take(k, f, sums, from[0], at, true, around)
		take(k, f, sums, from[1], at, false, around)
		if vectors == 1 {
			f.finishAll(sums)
		} else {
			wide = sums
			mask, bits := f.due(sums[0][0], sums[1][0]), GP32()
			for i := 2; i < vectors; i += 2 {
				VPOR(f.due(sums[i][0], sums[i+1][0]), mask, mask)
			}
			VMOVMSKPS(mask, bits)
			TESTL(bits, bits)
			JNZ(LabelRef("finish"))
			Label("finished")
		}
		keep(fmt.Sprintf("placeoftwo%d", vectors), sums)
	})
	leave(around)
	Label("finish") // out of the loop's way
	f.finishAll(wide)
	JMP(LabelRef("finished"))
}

// take emits that the next vectors of an operand are loaded, the first one's into sums, or added to those.
func take(k kind, f operator, sums [][]VecVirtual, from, at Register, first, around bool) {
	if around {
		prefetch(len(sums), from, at)
	}
	for i := range sums {
		m := Mem{Base: from, Index: at, Scale: 1, Disp: i * vector}
		if first {
			sums[i] = k.load(m)
		} else {
			k.add(f.combine, sums[i], m)
		}
	}
}

// keep emits that sums are stored.
func keep(st store, sums [][]VecVirtual, dst, at Register) {
	for i, sum := range sums {
		o := i * vector
		for _, r := range sum {
			st(r, Mem{Base: dst, Index: at, Scale: 1, Disp: o})
			o += vector / len(sum)
		}
	}
}

// spread emits that sums are stored at all places.
func spread(name string, st store, sums [][]VecVirtual, at Register) {
	first, err := Param("d0").Resolve()
	if err != nil {
		panic(err)
	}
	next, dst := GP64(), GP64()
	LEAQ(first.Addr, next)
	MOVQ(Mem{Base: next}, dst)
	Label(name)
	keep(st, sums, dst, at)
	ADDQ(Imm(8), next)
	MOVQ(Mem{Base: next}, dst)
	TESTQ(dst, dst)
	JNZ(LabelRef(name))
}

// leave emits the end of a loop.
func leave(around bool) {
	if around {
		SFENCE() // streamed stores are weakly ordered
	}
	asm.End()
}

// finishAll emits what is to be done with sums after the last operand.
func (f *operator) finishAll(sums [][]VecVirtual) {
	for _, sum := range sums {
		for _, r := range sum {
			if f.finish != nil {
				f.finish(r)
			}
		}
	}
}

// copyStream emits the copy around the caches.
func copyStream() {
	asm.Begin("copyStream", "func(dst, src *byte, n int)")
	dst := asm.Arg("dst")
	src := asm.Arg("src")
	n := asm.Arg("n")
	at := GP64()
	XORQ(at, at)
	asm.Turns("", n, vector, copies, func(vectors int) {
		prefetch(vectors, src, at)
		regs := make([]VecVirtual, vectors)
		for i := range regs {
			regs[i] = load(Mem{Base: src, Index: at, Scale: 1, Disp: i * vector})
		}
		for i, r := range regs {
			VMOVNTDQ(r, Mem{Base: dst, Index: at, Scale: 1, Disp: i * vector})
		}
		ADDQ(U32(vectors*vector), at)
	})
	SFENCE()
	asm.End()
}

// prefetch asks for the lines that a turn of so many vectors will read some turns later.
// What a loop around the caches reads comes from memory, and the processor's own
// prefetching begins anew on every page.
func prefetch(vectors int, from, at Register) {
	for o := 0; o < vectors*vector && vectors > 1; o += line {
		PREFETCHT0(Mem{Base: from, Index: at, Scale: 1, Disp: ahead + o})
	}
}

func load(m Mem) VecVirtual {
	r := YMM()
	VMOVDQU(m, r)
	return r
}

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
