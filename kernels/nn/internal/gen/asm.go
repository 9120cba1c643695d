//go:build ignore || generate

// Command asm writes the AVX2 loops of package nn. Run it with
// go generate ./kernels/nn; what it writes is committed.
//
// Every loop takes n elements, a multiple of 8, at any alignment, and computes
// what the function that calls it computes in portable Go, with the same
// roundings (no fused multiplications).
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

const vector = 32 // bytes in a YMM register

func main() {
	ConstraintExpr("amd64")
	reluForward()
	reluBackward()
	lrnForward()
	lrnRatio()
	lrnBackward()
	maxRows()
	maxColumns("maxColumns1", 1)
	maxColumns("maxColumns2", 2)
	Generate()
}

// elementwise emits a loop over n elements of the pointers named; the last
// parameters of the signature are scalars, broadcast before the loop.
func elementwise(name string, pointers, scalars []string, body func(p map[string]Mem, s map[string]VecVirtual)) {
	sig := "func("
	for i, p := range pointers {
		if i > 0 {
			sig += ", "
		}
		sig += p
	}
	sig += " *float32, n int"
	for i, s := range scalars {
		if sig += ", " + s; i == len(scalars)-1 {
			sig += " float32"
		}
	}
	asm.Begin(name, sig+")")
	at := GP64()
	XORQ(at, at)
	mems := map[string]Mem{}
	for _, p := range pointers {
		mems[p] = Mem{Base: asm.Arg(p), Index: at, Scale: 1}
	}
	n := asm.Arg("n")
	SHLQ(U8(2), n)
	consts := map[string]VecVirtual{}
	for _, s := range scalars {
		consts[s] = asm.Broadcast(s)
	}
	JMP(LabelRef("check"))
	Label("loop")
	body(mems, consts)
	ADDQ(U8(vector), at)
	Label("check")
	CMPQ(at, n)
	JLT(LabelRef("loop"))
	asm.End()
}

func load(m Mem) VecVirtual {
	r := YMM()
	VMOVUPS(m, r)
	return r
}

func zero() VecVirtual {
	r := YMM()
	VXORPS(r, r, r)
	return r
}

func reluForward() {
	elementwise("reluForward", []string{"y", "x"}, nil, func(p map[string]Mem, _ map[string]VecVirtual) {
		z, r := zero(), YMM()
		VMAXPS(p["x"], z, r) // a NaN stays: MAXPS returns its second source
		VADDPS(z, r, r)      // −0 becomes +0
		VMOVUPS(r, p["y"])
	})
}

func reluBackward() {
	elementwise("reluBackward", []string{"dx", "dy", "x"}, nil, func(p map[string]Mem, _ map[string]VecVirtual) {
		above := load(p["x"])
		VPCMPGTD(zero(), above, above)
		VANDPS(p["dy"], above, above)
		VMOVUPS(above, p["dx"])
	})
}

// power returns s^(3/4).
func power(s VecVirtual) VecVirtual {
	r, q := YMM(), YMM()
	VSQRTPS(s, r)
	VSQRTPS(r, q)
	VMULPS(q, r, r)
	return r
}

func lrnForward() {
	elementwise("lrnForward", []string{"y", "scale", "x", "in", "out", "acc"}, []string{"k", "alpha"}, func(p map[string]Mem, c map[string]VecVirtual) {
		acc, sq, s := load(p["in"]), load(p["out"]), YMM()
		VMULPS(acc, acc, acc)
		VADDPS(p["acc"], acc, acc)
		VMULPS(c["alpha"], acc, s)
		VADDPS(c["k"], s, s)
		VMOVUPS(s, p["scale"])
		VMULPS(sq, sq, sq)
		VSUBPS(sq, acc, acc)
		VMOVUPS(acc, p["acc"])
		y := load(p["x"])
		VDIVPS(power(s), y, y)
		VMOVUPS(y, p["y"])
	})
}

func lrnRatio() {
	elementwise("lrnRatio", []string{"dst", "acc", "y", "dy", "scale"}, nil, func(p map[string]Mem, _ map[string]VecVirtual) {
		r := load(p["y"])
		VMULPS(p["dy"], r, r)
		VDIVPS(p["scale"], r, r)
		VMOVUPS(r, p["dst"])
		VADDPS(p["acc"], r, r)
		VMOVUPS(r, p["acc"])
	})
}

func lrnBackward() {
	elementwise("lrnBackward", []string{"dx", "x", "dy", "scale", "out", "acc"}, []string{"factor"}, func(p map[string]Mem, c map[string]VecVirtual) {
		acc, t, d := load(p["acc"]), YMM(), load(p["dy"])
		VMULPS(p["x"], c["factor"], t)
		VMULPS(acc, t, t)
		VDIVPS(power(load(p["scale"])), d, d)
		VSUBPS(t, d, d)
		VMOVUPS(d, p["dx"])
		VSUBPS(p["out"], acc, acc)
		VMOVUPS(acc, p["acc"])
	})
}

// order turns the bits of floats into integers that order as the floats do.
func order(v VecVirtual) {
	s := YMM()
	VADDPS(zero(), v, v) // −0 is +0
	VPSRAD(U8(31), v, s)
	VPSRLD(U8(1), s, s)
	VPXOR(s, v, v)
}

// maxRows emits the loop over columns, and inside it over rows.
func maxRows() {
	asm.Begin("maxRows", "func(keys, positions *int32, src *float32, n, rows, width, first int)")
	keys, pos, src := asm.Arg("keys"), asm.Arg("positions"), asm.Arg("src")
	n, rows, width := asm.Arg("n"), asm.Arg("rows"), asm.Arg("width")
	first := asm.Arg("first")

	down, p, eight := YMM(), YMM(), YMM() // a row further, positions of the first row, 8
	x := XMM()
	VMOVD(width.As32(), x)
	VPBROADCASTD(x, down)
	VMOVD(first.As32(), x)
	VPBROADCASTD(x, p)
	VPADDD(asm.Table("iota8", func(i int) uint32 { return uint32(i) }), p, p)
	MOVL(U32(8), first.As32())
	VMOVD(first.As32(), x)
	VPBROADCASTD(x, eight)
	SHLQ(U8(2), width)
	SHLQ(U8(2), n)

	at := GP64()
	XORQ(at, at)
	JMP(LabelRef("check"))
	Label("loop")
	best, where, here := YMM(), YMM(), YMM()
	VMOVUPS(Mem{Base: src, Index: at, Scale: 1}, best)
	order(best)
	VMOVDQA(p, where)
	VMOVDQA(p, here)
	row, left := GP64(), GP64()
	LEAQ(Mem{Base: src, Index: at, Scale: 1}, row)
	MOVQ(rows, left)
	Label("down")
	DECQ(left)
	JLE(LabelRef("store"))
	ADDQ(width, row)
	VPADDD(down, here, here)
	v, gt := YMM(), YMM()
	VMOVUPS(Mem{Base: row}, v)
	order(v)
	VPCMPGTD(best, v, gt)
	VPMAXSD(v, best, best)
	VPBLENDVB(gt, here, where, where)
	JMP(LabelRef("down"))
	Label("store")
	VMOVDQU(best, Mem{Base: keys, Index: at, Scale: 1})
	VMOVDQU(where, Mem{Base: pos, Index: at, Scale: 1})
	VPADDD(eight, p, p)
	ADDQ(U8(vector), at)
	Label("check")
	CMPQ(at, n)
	JLT(LabelRef("loop"))
	asm.End()
}

// maxColumns emits the loop over outputs stride apart, and inside it over the
// columns of their windows.
func maxColumns(name string, stride int) {
	asm.Begin(name, "func(dst *float32, mask *int32, src *float32, keys, positions *int32, n, kernel int)")
	dst, mask, src := asm.Arg("dst"), asm.Arg("mask"), asm.Arg("src")
	keys, pos := asm.Arg("keys"), asm.Arg("positions")
	n, kernel := asm.Arg("n"), asm.Arg("kernel")
	SHLQ(U8(2), n)

	every := func(base, index Register) VecVirtual {
		a := YMM()
		VMOVUPS(Mem{Base: base, Index: index, Scale: 4}, a)
		if stride == 2 { // elements 0, 2, … 14
			VSHUFPS(U8(0x88), Mem{Base: base, Index: index, Scale: 4, Disp: vector}, a, a)
			VPERMQ(U8(0xd8), a, a)
		}
		return a
	}
	at, c := GP64(), GP64()
	XORQ(at, at)
	JMP(LabelRef("check"))
	Label("loop")
	XORQ(c, c)
	best, where := every(keys, c), every(pos, c)
	Label("right")
	INCQ(c)
	CMPQ(c, kernel)
	JGE(LabelRef("store"))
	k, p := every(keys, c), every(pos, c)
	gt, eq, before := YMM(), YMM(), YMM()
	VPCMPGTD(best, k, gt)
	VPCMPEQD(best, k, eq)
	VPCMPGTD(p, where, before) // where is after p
	VPAND(before, eq, eq)
	VPOR(eq, gt, gt)
	VPMAXSD(k, best, best)
	VPBLENDVB(gt, p, where, where)
	JMP(LabelRef("right"))
	Label("store")
	all, v := YMM(), YMM()
	VPCMPEQD(all, all, all)
	VGATHERDPS(all, Mem{Base: src, Index: where, Scale: 4}, v)
	VMOVUPS(v, Mem{Base: dst, Index: at, Scale: 1})
	VMOVDQU(where, Mem{Base: mask, Index: at, Scale: 1})
	ADDQ(I32(int32(vector*stride)), keys)
	ADDQ(I32(int32(vector*stride)), pos)
	ADDQ(U8(vector), at)
	Label("check")
	CMPQ(at, n)
	JLT(LabelRef("loop"))
	asm.End()
}
