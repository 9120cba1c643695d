//go:build ignore || generate

// Command asm writes the AVX2 loops of package data. Run it with
// go generate ./caffe/data; what it writes is committed.
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
	TEXT(name, NOSPLIT, "func(dst *float32, src *byte, "+meanType+", scale float32, n int)")
	Pragma("noescape")
	dst := Load(Param("dst"), GP64())
	src := Load(Param("src"), GP64())
	n := Load(Param("n"), GP64())
	scale := broadcast("scale")
	var mean Op
	var means Register
	if image {
		means = Load(Param("mean"), GP64())
	} else {
		mean = broadcast("mean")
	}
	var reversed VecVirtual
	step := 4 * lanes
	if mirrored {
		reversed = YMM()
		VMOVDQU(lanesReversed(), reversed)
		step = -step
		LEAQ(Mem{Base: dst, Index: n, Scale: 4, Disp: step}, dst)
	}
	for _, l := range []struct {
		name    string
		vectors int
	}{{"wide", unroll}, {"narrow", 1}} {
		CMPQ(n, U32(l.vectors*lanes))
		JL(LabelRef(l.name + "done"))
		Label(l.name)
		for i := 0; i < l.vectors; i++ {
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
		ADDQ(U32(l.vectors*lanes), src)
		if image {
			ADDQ(U32(4*l.vectors*lanes), means)
		}
		if mirrored {
			SUBQ(U32(-l.vectors*step), dst)
		} else {
			ADDQ(U32(l.vectors*step), dst)
		}
		SUBQ(U32(l.vectors*lanes), n)
		CMPQ(n, U32(l.vectors*lanes))
		JGE(LabelRef(l.name))
		Label(l.name + "done")
	}
	VZEROUPPER()
	RET()
}

// broadcast loads a parameter into every lane.
func broadcast(param string) VecVirtual {
	x, y := Load(Param(param), XMM()), YMM()
	VBROADCASTSS(x, y)
	return y
}

var reversedLanes *Mem

// lanesReversed is the constant 7, 6, ... 0.
func lanesReversed() Mem {
	if reversedLanes == nil {
		m := GLOBL("lanesReversed", RODATA|NOPTR)
		for i := 0; i < lanes; i++ {
			DATA(4*i, U32(lanes-1-i))
		}
		reversedLanes = &m
	}
	return *reversedLanes
}
