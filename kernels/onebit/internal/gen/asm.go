//go:build ignore || generate

// Command asm writes the AVX2 loops of package onebit. Run it with
// go generate ./kernels/onebit; what it writes is committed.
//
// Every loop takes n columns of a row, a multiple of 32, a word of bits, at any alignment, and
// computes what the function that calls it computes in portable Go, with the same roundings.
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
	word   = 32 // columns in a turn
	line   = 64 // bytes of a cache line
	lanes  = 8  // of them in a YMM register
	vector = 32 // bytes of that
)

func main() {
	ConstraintExpr("amd64")
	sums()
	pack()
	unpack("setF32s", false)
	unpack("addF32s", true)
	Generate()
}

// turns emits a loop over the columns, a word at a time: body is called for each register of
// it, with the byte at which that begins. The pointers move on by four bytes a column; those to bits
// by a word.
func turns(columns, bits []Register, before func(), body func(i, at int)) {
	n := asm.Arg("n")
	TESTQ(n, n)
	JZ(LabelRef("done"))
	Label("loop")
	if before != nil {
		before()
	}
	for i := range word / lanes {
		body(i, i*vector)
	}
	for _, p := range columns {
		ADDQ(U32(4*word), p)
	}
	for _, p := range bits {
		ADDQ(U8(word/8), p)
	}
	SUBQ(U8(word), n)
	JNZ(LabelRef("loop"))
	Label("done")
	asm.End()
}

// prefetch returns what asks for the same columns of a row that begins so many bytes further on: where few
// columns of a row are gone through, the processor does not see by itself what comes next.
func prefetch(next Register, of ...Register) func() {
	return func() {
		for _, p := range of {
			for at := 0; at < 4*word; at += line {
				PREFETCHT0(Mem{Base: p, Index: next, Scale: 1, Disp: at})
			}
		}
	}
}

func mem(p Register, at int) Mem { return Mem{Base: p, Disp: at} }

func load(m Mem) VecVirtual {
	r := YMM()
	VMOVUPS(m, r)
	return r
}

// sums emits the loop of sums: by the sign of v + d, it goes to pos or neg, and counts.
func sums() {
	asm.Begin("sumsF32s", "func(pos, neg *float32, count *uint32, v, d *float32, n, next int)")
	pos, neg, count, v, d, next := asm.Arg("pos"), asm.Arg("neg"), asm.Arg("count"), asm.Arg("v"), asm.Arg("d"), asm.Arg("next")
	turns([]Register{pos, neg, count, v, d}, nil, prefetch(next, v, d), func(_, at int) {
		g, sign, x := load(mem(v, at)), YMM(), YMM()
		VADDPS(mem(d, at), g, g)
		VPSRAD(U8(31), g, sign)
		VANDNPS(g, sign, x)
		VADDPS(mem(pos, at), x, x)
		VMOVUPS(x, mem(pos, at))
		VANDPS(g, sign, g)
		VADDPS(mem(neg, at), g, g)
		VMOVUPS(g, mem(neg, at))
		c := load(mem(count, at))
		VPSUBD(sign, c, c)
		VMOVDQU(c, mem(count, at))
	})
}

// pack emits the loop of pack: the signs of v + d as bits, and in d what they leave out.
func pack() {
	asm.Begin("packF32s", "func(bits *int32, pos, neg, v, d *float32, n, next int)")
	bits, pos, neg, v, d, next := asm.Arg("bits"), asm.Arg("pos"), asm.Arg("neg"), asm.Arg("v"), asm.Arg("d"), asm.Arg("next")
	turns([]Register{pos, neg, v, d}, []Register{bits}, prefetch(next, v, d), func(i, at int) {
		g, mean, signs := load(mem(v, at)), load(mem(pos, at)), GP32()
		VADDPS(mem(d, at), g, g)
		VBLENDVPS(g, mem(neg, at), mean, mean) // by the sign of g
		VMOVMSKPS(g, signs)
		VSUBPS(mean, g, g)
		VMOVUPS(g, mem(d, at))
		MOVB(signs.As8(), mem(bits, i))
	})
}

// unpack emits the loops of setWord and addWord over a row: what its bits stand for, or that
// added to v.
func unpack(name string, add bool) {
	asm.Begin(name, "func(v, pos, neg *float32, bits *int32, n, next int)")
	v, pos, neg, bits, next := asm.Arg("v"), asm.Arg("pos"), asm.Arg("neg"), asm.Arg("bits"), asm.Arg("next")
	var left [word / lanes]VecVirtual // what brings a lane's bit to its sign
	for i := range left {
		left[i] = load(asm.Table([]string{"left0", "left8", "left16", "left24"}[i], func(lane int) uint32 { return uint32(word - 1 - i*lanes - lane) }))
	}
	all := YMM()
	turns([]Register{v, pos, neg}, []Register{bits}, func() { prefetch(next, v)(); VPBROADCASTD(mem(bits, 0), all) }, func(i, at int) {
		mean, sign := load(mem(pos, at)), YMM()
		VPSLLVD(left[i], all, sign)
		VBLENDVPS(sign, mem(neg, at), mean, mean)
		if add {
			x := load(mem(v, at))
			VADDPS(mean, x, mean)
		}
		VMOVUPS(mean, mem(v, at))
	})
}
