//go:build ignore || generate

package main

import (
	. "github.com/mmcloughlin/avo/reg"

	"github.com/scaffe/scaffe/kernels/internal/asm"
)

// element is what an update works with: one parameter, its gradient after
// scaling and regularisation, and its memory. Rules replace h and u, and
// return what is subtracted from the parameter.
type element struct {
	w    width
	d    VecVirtual
	h, u VecVirtual
	rate VecVirtual
	c    func(string) VecVirtual // the rule's constants p, q, r, s, t
}

// updates emits, for every rule, both regularisations and with and without
// clearing the gradient, func(w, diff, h, u *float32, n int, scale, decay, rate,
// p, q, r, s, t float32). Package kernels says in update.go what p to t are.
func updates() {
	number("one", 1)
	number("minusOne", -1)
	for _, k := range []struct {
		name   string
		consts string
		second bool // uses u
		f      func(e *element) VecVirtual
	}{
		{"sgd", "p", false, func(e *element) VecVirtual {
			e.h = add(mul(e.rate, e.d), mul(e.c("p"), e.h))
			return e.h
		}},
		{"nesterov", "pq", false, func(e *element) VecVirtual {
			old := mul(e.c("p"), e.h)
			e.h = add(mul(e.rate, e.d), old)
			return sub(mul(e.c("q"), e.h), old)
		}},
		{"adaGrad", "p", false, func(e *element) VecVirtual {
			e.h = add(e.h, mul(e.d, e.d))
			return mul(e.rate, div(e.d, add(sqrt(e.h), e.c("p"))))
		}},
		{"rmsProp", "pqr", false, func(e *element) VecVirtual {
			e.h = add(mul(e.c("q"), mul(e.d, e.d)), mul(e.c("p"), e.h))
			return mul(e.rate, div(e.d, add(sqrt(e.h), e.c("r"))))
		}},
		{"adaDelta", "pqr", true, func(e *element) VecVirtual {
			e.h = add(mul(e.c("q"), mul(e.d, e.d)), mul(e.c("p"), e.h))
			v := mul(e.d, sqrt(div(add(e.u, e.c("r")), add(e.h, e.c("r")))))
			e.u = add(mul(e.c("q"), mul(v, v)), mul(e.c("p"), e.u))
			return mul(e.rate, v)
		}},
		{"adam", "pqrst", true, func(e *element) VecVirtual {
			e.h = add(mul(e.c("q"), e.d), mul(e.c("p"), e.h))
			e.u = add(mul(e.c("s"), mul(e.d, e.d)), mul(e.c("r"), e.u))
			return mul(e.rate, div(e.h, add(sqrt(e.u), e.c("t"))))
		}},
	} {
		for _, l1 := range []bool{false, true} {
			for _, clear := range []bool{false, true} {
				update(k.name+norm(l1)+cleared(clear), k.consts, k.second, l1, clear, k.f)
			}
		}
	}
}

func norm(l1 bool) string {
	if l1 {
		return "L1"
	}
	return "L2"
}

func cleared(clear bool) string {
	if clear {
		return "Clear"
	}
	return ""
}

func update(name, consts string, second, l1, clear bool, f func(e *element) VecVirtual) {
	asm.Begin(name, "func(w, diff, h, u *float32, n int, scale, decay, rate, p, q, r, s, t float32)")
	params := asm.Arg("w")
	grads := asm.Arg("diff")
	history := asm.Arg("h")
	ptrs := []Register{params, grads, history}
	var other Register
	if second {
		other = asm.Arg("u")
		ptrs = append(ptrs, other)
	}
	n := asm.Arg("n")
	scale, decay, rate := everywhere("scale"), everywhere("decay"), everywhere("rate")
	held := map[string]VecVirtual{}
	for _, c := range consts {
		held[string(c)] = everywhere(string(c))
	}
	loop(2, n, ptrs, func(w width, at int) {
		x := w.load(stream{params, at}.mem())
		g := mul(w.load(stream{grads, at}.mem()), w.of(scale))
		against := x
		if l1 { // the sign of x; 0 for NaN
			zero := w.held(word("", 0))
			against = or(and(compare(greater, x, zero), number("", 1)), and(compare(less, x, zero), number("", -1)))
		}
		e := &element{
			w: w, d: add(g, mul(w.of(decay), against)), h: w.load(stream{history, at}.mem()), rate: w.of(rate),
			c: func(name string) VecVirtual { return w.of(held[name]) },
		}
		if second {
			e.u = w.load(stream{other, at}.mem())
		}
		w.store(sub(x, f(e)), stream{params, at}.mem())
		w.store(e.h, stream{history, at}.mem())
		if second {
			w.store(e.u, stream{other, at}.mem())
		}
		if clear {
			w.store(w.held(word("", 0)), stream{grads, at}.mem())
		}
	})
	asm.End()
}
