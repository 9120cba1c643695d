//go:build ignore || generate

// Command asm writes the AVX2 loops of package pixels. Run it with
// go generate ./kernels/pixels; what it writes is committed.
//
// Every loop turns n bytes, a multiple of 8, into (byte - mean) * scale, with
// one mean or one a byte. The mirrored ones write from the end of dst to its
// beginning.
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
	lanes  = 8 // floats in a YMM register
	unroll = 4 // registers in one turn of the main loop
)

func main() {
	ConstraintExpr("amd64")
	loop("subtractImage", true, false)
	loop("subtractImageMirrored", true, true)
	loop("subtractValue", false, false)
	loop("subtractValueMirrored", false, true)
	Generate()
}

// loop emits one loop.
func loop(name string, image, mirrored bool) {
	meanType := "mean float32"
	if image {
		meanType = "mean *float32"
	}
	asm.Begin(name, "func(dst *float32, src *byte, "+meanType+", scale float32, n int)")
	dst := asm.Arg("dst")
	src := asm.Arg("src")
	n := asm.Arg("n")
	scale := asm.Broadcast("scale")
	var mean Op
	var means Register
	if image {
		means = asm.Arg("mean")
	} else {
		mean = asm.Broadcast("mean")
	}
	var reversed VecVirtual
	step := 4 * lanes
	if mirrored {
		reversed = YMM()
		VMOVDQU(asm.Table("lanesReversed", func(i int) uint32 { return uint32(lanes - 1 - i) }), reversed)
		step = -step
		LEAQ(Mem{Base: dst, Index: n, Scale: 4, Disp: step}, dst)
	}
	asm.Turns("", n, lanes, unroll, func(vectors int) {
		for i := range vectors {
			x := YMM()
			VPMOVZXBD(Mem{Base: src, Disp: i * lanes}, x)
			VCVTDQ2PS(x, x)
			if image {
				mean = Mem{Base: means, Disp: 4 * i * lanes}
			}
			VSUBPS(mean, x, x)
			VMULPS(scale, x, x)
			if mirrored {
				VPERMPS(x, reversed, x)
			}
			VMOVUPS(x, Mem{Base: dst, Disp: i * step})
		}
		ADDQ(U32(vectors*lanes), src)
		if image {
			ADDQ(U32(4*vectors*lanes), means)
		}
		if mirrored {
			SUBQ(U32(-vectors*step), dst)
		} else {
			ADDQ(U32(vectors*step), dst)
		}
	})
	asm.End()
}
