//go:build ignore || generate

package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	"github.com/scaffe/scaffe/kernels/internal/asm"
)

// sums emits the reductions.
func sums() {
	for _, k := range []struct {
		name         string
		b, shift     bool // takes b, subtracts shift from a
		first, later func(x, y VecVirtual) VecVirtual
	}{
		{"sumLanes", false, false, plain, nil},
		{"dotLanes", true, false, product, nil},
		{"squareLanes", false, false, square, nil},
		{"momentLanes", false, true, plain, square},
		{"sumDotLanes", true, false, plain, product},
	} {
		accumulation(k.name, k.b, k.shift, k.first, k.later)
	}
	largest()
	finite()
}

func plain(x, _ VecVirtual) VecVirtual { return x }

func product(x, y VecVirtual) VecVirtual {
	r := YMM()
	VMULPD(y, x, r)
	return r
}

func square(x, _ VecVirtual) VecVirtual { return product(x, x) }

// accumulation emits func(lanes, more, a, b *…, n int, shift float64): sixteen
// float64 lanes take first(a[i], b[i]), and those of more take later, n being
// a multiple of 16.
func accumulation(name string, usesB, shifts bool, first, later func(x, y VecVirtual) VecVirtual) {
	asm.Begin(name, "func(lanes, more *float64, a, b *float32, n int, shift float64)")
	a := asm.Arg("a")
	ptrs := []Register{a}
	var b Register
	if usesB {
		b = asm.Arg("b")
		ptrs = append(ptrs, b)
	}
	n := asm.Arg("n")
	var shift VecVirtual
	if shifts {
		p, err := Param("shift").Resolve()
		if err != nil {
			panic(err)
		}
		shift = YMM()
		VBROADCASTSD(p.Addr, shift)
	}
	type set struct {
		base Register
		f    func(x, y VecVirtual) VecVirtual
		acc  [4]VecVirtual
	}
	sets := []*set{{base: asm.Arg("lanes"), f: first}}
	if later != nil {
		sets = append(sets, &set{base: asm.Arg("more"), f: later})
	}
	for _, s := range sets {
		for j := range s.acc {
			s.acc[j] = YMM()
			VMOVUPD(Mem{Base: s.base, Disp: 32 * j}, s.acc[j])
		}
	}
	Label("blocks")
	CMPQ(n, U32(16))
	JL(LabelRef("blocksdone"))
	for j := 0; j < 4; j++ {
		x := widened(Mem{Base: a, Disp: 16 * j})
		if shifts {
			VSUBPD(shift, x, x)
		}
		var y VecVirtual
		if usesB {
			y = widened(Mem{Base: b, Disp: 16 * j})
		}
		for _, s := range sets {
			VADDPD(s.f(x, y), s.acc[j], s.acc[j])
		}
	}
	for _, p := range ptrs {
		ADDQ(U32(64), p)
	}
	SUBQ(U32(16), n)
	JMP(LabelRef("blocks"))
	Label("blocksdone")
	for _, s := range sets {
		for j, r := range s.acc {
			VMOVUPD(r, Mem{Base: s.base, Disp: 32 * j})
		}
	}
	asm.End()
}

// widened emits four float32 as float64.
func widened(m Mem) VecVirtual {
	r := YMM()
	VCVTPS2PD(m, r)
	return r
}

// largest emits func(x *float32, n int) float32: the largest of n > 0
// elements, a multiple of 32, NaN left out, -Inf where all are NaN.
func largest() {
	minusInf := word("minusInf", 0xff800000)
	asm.Begin("largestF32s", "func(x *float32, n int) float32")
	x := asm.Arg("x")
	n := asm.Arg("n")
	var acc [4]VecVirtual
	for j := range acc {
		acc[j] = YMM()
		VMOVUPS(minusInf, acc[j])
	}
	Label("blocks")
	for j, r := range acc {
		v := YMM()
		VMOVUPS(Mem{Base: x, Disp: 32 * j}, v)
		VMAXPS(r, v, r) // gives r where v is NaN
	}
	ADDQ(U32(128), x)
	SUBQ(U32(32), n)
	JNE(LabelRef("blocks"))
	VMAXPS(acc[1], acc[0], acc[0])
	VMAXPS(acc[3], acc[2], acc[2])
	VMAXPS(acc[2], acc[0], acc[0])
	low, high := acc[0].AsX(), XMM()
	VEXTRACTF128(Imm(1), acc[0], high)
	VMAXPS(high, low, low)
	VPERMILPS(Imm(0x4e), low, high)
	VMAXPS(high, low, low)
	VPERMILPS(Imm(0xb1), low, high)
	VMAXPS(high, low, low)
	r, err := ReturnIndex(0).Resolve()
	if err != nil {
		panic(err)
	}
	VMOVSS(low, r.Addr)
	asm.End()
}

// finite emits func(x *float32, n int) int: how many elements stand before the
// block of 32 with the first NaN or Inf, n where there is none. n is a
// multiple of 32.
func finite() {
	exponent := word("exponent", 0x7f800000)
	asm.Begin("finiteF32s", "func(x *float32, n int) int")
	x := asm.Arg("x")
	n := asm.Arg("n")
	at := GP64()
	XORQ(at, at)
	mask := YMM()
	VMOVUPS(exponent, mask)
	Label("blocks")
	CMPQ(at, n)
	JGE(LabelRef("blocksdone"))
	var found VecVirtual
	for j := 0; j < 4; j++ {
		v := YMM()
		VPAND(Mem{Base: x, Disp: 32 * j, Index: at, Scale: 4}, mask, v)
		VPCMPEQD(mask, v, v)
		if j == 0 {
			found = v
		} else {
			VPOR(v, found, found)
		}
	}
	VPTEST(found, found)
	JNE(LabelRef("blocksdone"))
	ADDQ(U32(32), at)
	JMP(LabelRef("blocks"))
	Label("blocksdone")
	Store(at, ReturnIndex(0))
	asm.End()
}
