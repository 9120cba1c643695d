//go:build ignore || generate

// Command gen writes the AVX2 loops of package vec: arithmetic, sums,
// exponentials and the updates of solvers. Run it with go generate
// ./kernels/vec; what it writes is committed.
//
// No loop fuses a multiplication with an addition, and every sum has its
// order, so that plain Go computes the same bits.
//
// The build constraint keeps the command out of every build; the word generate
// in it lets go mod tidy see what it imports.
package main

import (
	"math"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	"github.com/scaffe/scaffe/kernels/internal/asm"
)

func main() {
	ConstraintExpr("amd64")
	elementwise()
	sums()
	updates()
	Generate()
}

// width is how many elements an instruction works on.
type width int

const (
	one   width = 1 // the lowest lane of an XMM register; the others hold zeros
	eight width = 8
)

func (w width) bytes() int { return 4 * int(w) }

// load emits a register with the elements at m.
func (w width) load(m Mem) VecVirtual {
	if w == one {
		r := XMM()
		VMOVSS(m, r)
		return r
	}
	r := YMM()
	VMOVUPS(m, r)
	return r
}

func (w width) store(r VecVirtual, m Mem) {
	if w == one {
		VMOVSS(r, m)
	} else {
		VMOVUPS(r, m)
	}
}

// of returns as much of c, which holds one number in every lane, as is used.
func (w width) of(c VecVirtual) VecVirtual {
	if w == one {
		return c.AsX().(VecVirtual)
	}
	return c
}

// stream is a pointer parameter that moves on with the loop.
type stream struct {
	base Register
	at   int // bytes from base
}

func (s stream) mem() Mem { return Mem{Base: s.base, Disp: s.at} }

// loop emits turns over n elements: unroll vectors at a time, then one, then
// one element.
func loop(unroll int, n Register, ptrs []Register, body func(w width, at int)) {
	for _, l := range []struct {
		name  string
		w     width
		times int
	}{{"wide", eight, unroll}, {"narrow", eight, 1}, {"single", one, 1}} {
		if l.name == "narrow" && unroll == 1 {
			continue
		}
		count := int(l.w) * l.times
		Label(l.name)
		CMPQ(n, U32(uint32(count)))
		JL(LabelRef(l.name + "done"))
		for i := 0; i < l.times; i++ {
			body(l.w, i*l.w.bytes())
		}
		for _, p := range ptrs {
			ADDQ(U32(uint32(4*count)), p)
		}
		SUBQ(U32(uint32(count)), n)
		JMP(LabelRef(l.name))
		Label(l.name + "done")
	}
}

// like emits a register as wide as r.
func like(r Op) VecVirtual {
	if r.(Register).Size() == 16 {
		return XMM()
	}
	return YMM()
}

// two emits x ⊕ y for an instruction of two sources, the second of which may
// lie in memory.
func two(ins func(...Op), x, y Op) VecVirtual {
	r := like(x)
	ins(y, x, r)
	return r
}

func add(x, y Op) VecVirtual { return two(func(o ...Op) { VADDPS(o[0], o[1], o[2]) }, x, y) }
func sub(x, y Op) VecVirtual { return two(func(o ...Op) { VSUBPS(o[0], o[1], o[2]) }, x, y) }
func mul(x, y Op) VecVirtual { return two(func(o ...Op) { VMULPS(o[0], o[1], o[2]) }, x, y) }
func div(x, y Op) VecVirtual { return two(func(o ...Op) { VDIVPS(o[0], o[1], o[2]) }, x, y) }
func and(x, y Op) VecVirtual { return two(func(o ...Op) { VANDPS(o[0], o[1], o[2]) }, x, y) }
func or(x, y Op) VecVirtual  { return two(func(o ...Op) { VORPS(o[0], o[1], o[2]) }, x, y) }

// min and max give y where x or y is NaN.
func minOf(x, y Op) VecVirtual { return two(func(o ...Op) { VMINPS(o[0], o[1], o[2]) }, x, y) }
func maxOf(x, y Op) VecVirtual { return two(func(o ...Op) { VMAXPS(o[0], o[1], o[2]) }, x, y) }

func sqrt(x Op) VecVirtual {
	r := like(x)
	VSQRTPS(x, r)
	return r
}

// Predicates of VCMPPS that are false for NaN.
const (
	equal   = 0x00
	less    = 0x11
	greater = 0x1e
)

// compare emits all ones in the lanes where x p y.
func compare(p uint8, x, y Op) VecVirtual {
	r := like(x)
	VCMPPS(Imm(uint64(p)), y, x, r)
	return r
}

// choose emits yes where mask has ones, no elsewhere.
func choose(mask, yes, no VecVirtual) VecVirtual {
	r := like(no)
	VBLENDVPS(mask, yes, no, r)
	return r
}

var constants = map[uint32]Mem{}

// word returns a place in memory with the 32-bit word eight times.
func word(name string, bits uint32) Mem {
	if m, ok := constants[bits]; ok {
		return m
	}
	m := asm.Table(name, func(int) uint32 { return bits })
	constants[bits] = m
	return m
}

// number is word for a float32.
func number(name string, f float32) Mem { return word(name, math.Float32bits(f)) }

var constants64 = map[float64]Mem{}

// number64 returns a place in memory with the float64 four times.
func number64(name string, f float64) Mem {
	if m, ok := constants64[f]; ok {
		return m
	}
	m := GLOBL(name, attr.RODATA|attr.NOPTR)
	for i := 0; i < 4; i++ {
		DATA(8*i, U64(math.Float64bits(f)))
	}
	constants64[f] = m
	return m
}

// held emits a register with what m holds, for an operand that must be one.
func (w width) held(m Mem) VecVirtual {
	r := YMM()
	if w == one {
		r = XMM()
	}
	VMOVUPS(m, r)
	return r
}

// everywhere emits a YMM register with the float32 parameter in every lane, from
// memory at once, where asm.Broadcast takes an XMM register between.
func everywhere(param string) VecVirtual {
	b, err := Param(param).Resolve()
	if err != nil {
		panic(err)
	}
	r := YMM()
	VBROADCASTSS(b.Addr, r)
	return r
}
