//go:build ignore || generate

// Package asm is what the programs that write the AVX2 loops of kernels and
// the packages below it have in common. They say what stands in a loop
// with github.com/mmcloughlin/avo, and here is what stands around it.
//
// The build constraint keeps the package out of every build; the word generate
// in it lets go mod tidy see what it imports.
package asm

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Begin emits the head of a function, whose pointers do not escape.
func Begin(name, signature string) {
	TEXT(name, NOSPLIT, signature)
	Pragma("noescape")
}

// End emits the return of a function that used YMM registers.
func End() {
	VZEROUPPER()
	RET()
}

// Arg emits a register with an integer or pointer parameter.
func Arg(name string) GPVirtual {
	r := GP64()
	Load(Param(name), r)
	return r
}

// Broadcast emits a register with a float32 parameter in every lane.
func Broadcast(param string) VecVirtual {
	x, y := XMM(), YMM()
	Load(Param(param), x)
	VBROADCASTSS(x, y)
	return y
}

// Turns emits a loop over unroll vectors at a time and one over the rest. n
// holds a multiple of vector, what one of them takes of it; body moves the
// pointers on. Labels begin with name.
func Turns(name string, n Register, vector, unroll int, body func(vectors int)) {
	for _, l := range []struct {
		name    string
		vectors int
	}{{name + "wide", unroll}, {name + "narrow", 1}} {
		done := l.name + "done"
		CMPQ(n, U32(l.vectors*vector))
		JL(LabelRef(done))
		Label(l.name)
		body(l.vectors)
		SUBQ(U32(l.vectors*vector), n)
		CMPQ(n, U32(l.vectors*vector))
		JGE(LabelRef(l.name))
		Label(done)
	}
}

var tables = map[string]Mem{}

// Table returns the place in memory, of that name, with eight 32-bit words.
func Table(name string, word func(i int) uint32) Mem {
	if m, ok := tables[name]; ok {
		return m
	}
	m := GLOBL(name, RODATA|NOPTR)
	for i := range 8 {
		DATA(4*i, U32(word(i)))
	}
	tables[name] = m
	return m
}
