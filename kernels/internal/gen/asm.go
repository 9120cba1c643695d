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
	unroll = 2  // vectors in one turn of the main loop of a reduction

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

// copyStream emits the copy around the caches, to several places as the stream variants of reductions.
func copyStream() {
	asm.Begin("copyStream", "func(d0, d1, d2, d3, d4, d5, d6, d7, end, src *byte, n int)")
	src := asm.Arg("src")
	n := asm.Arg("n")
	at := GP64()
	XORQ(at, at)
	asm.Turns("", n, vector, unrollAround, func(vectors int) {
		prefetch(vectors, src, at)
		lines := make([][]VecVirtual, vectors)
		for i := range lines {
			lines[i] = []VecVirtual{load(Mem{Base: src, Index: at, Scale: 1, Disp: i * vector})}
		}
		spread(fmt.Sprintf("place%d", vectors), VMOVNTDQ, lines, at)
		ADDQ(U32(vectors*vector), at)
	})
	leave(true)
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
