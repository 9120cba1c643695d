package kernels

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/scaffe/scaffe/kernels/kernelstest"
	"github.com/scaffe/scaffe/mem"
)

// Several operands at once have the bits of one after the other, on every path, with
// dst apart or one of the first two.
func TestReduceAllEqualsOneAfterTheOther(t *testing.T) {
	const most, operandsMost = 600, 2*Operands + 3
	var whole [operandsMost + 1]mem.Buffer
	for i := range whole {
		whole[i] = mem.Alloc(mem.Float64.Bytes(most) + 256)
		defer whole[i].Free()
	}
	everyPath(t, func(t *testing.T, cpu *CPU) {
		rapid.Check(t, func(t *rapid.T) {
			dt := rapid.SampledFrom(mem.Datatypes).Draw(t, "datatype")
			op := rapid.SampledFrom(mem.OpsOf(dt)).Draw(t, "op")
			n := dt.Bytes(rapid.OneOf(rapid.IntRange(0, 70), rapid.IntRange(0, most)).Draw(t, "elements"))
			k := rapid.IntRange(2, operandsMost).Draw(t, "operands")
			at := rapid.IntRange(-1, 1).Draw(t, "dst is operand")
			r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
			g := make([]guarded, k+1) // dst is the last one
			from := make([]mem.Buffer, k)
			for i := range g {
				g[i] = newGuarded(whole[i], rapid.OneOf(rapid.Just(64), rapid.IntRange(0, 127)).Draw(t, "offset"), n)
				kernelstest.Fill(r, dt, g[i].body)
			}
			dst := &g[k]
			if at >= 0 {
				dst = &g[at]
			}
			want := bytes.Clone(g[0].body)
			before := make([][]byte, k)
			for i := range from {
				from[i] = mem.Of(g[i].body)
				before[i] = bytes.Clone(g[i].body)
				if i > 0 {
					kernelstest.Reduce(dt, op, want, want, g[i].body)
				}
			}
			if err := cpu.ReduceAll(dt, op, mem.Of(dst.body), from, rapid.Bool().Draw(t, "around")); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(dst.body, want) {
				t.Fatalf("%v of %d buffers of %v differs from one after the other", op, k, dt)
			}
			for i := range g {
				if err := g[i].check(); err != nil {
					t.Fatal(err)
				}
				if i < k && i != at && !bytes.Equal(g[i].body, before[i]) {
					t.Fatalf("operand %d was written", i)
				}
			}
		})
	})
}

// A result that is stored at several places is everywhere what it is at one, on every path, in one piece or several, with
// the first place apart or one of the first two operands.
func TestReduceToEqualsReduceAll(t *testing.T) {
	const most, operandsMost, placesMost = 9 * spreadBytes, Operands + 2, Operands + 1
	var whole [operandsMost + placesMost]mem.Buffer
	for i := range whole {
		whole[i] = mem.Alloc(most + 256)
		defer whole[i].Free()
	}
	everyPath(t, func(t *testing.T, cpu *CPU) {
		rapid.Check(t, func(t *rapid.T) {
			dt := rapid.SampledFrom(mem.Datatypes).Draw(t, "datatype")
			op := rapid.SampledFrom(mem.OpsOf(dt)).Draw(t, "op")
			n := rapid.OneOf(rapid.IntRange(0, 600), rapid.IntRange(0, most)).Draw(t, "bytes") / dt.Size() * dt.Size()
			k := rapid.IntRange(2, operandsMost).Draw(t, "operands")
			places := rapid.IntRange(1, placesMost).Draw(t, "places")
			at := rapid.IntRange(-1, 1).Draw(t, "the first place is operand")
			r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
			g := make([]guarded, k+places)
			all := make([]mem.Buffer, len(g))
			alike := rapid.IntRange(0, 127).Draw(t, "offset of all places, mostly")
			for i := range g {
				offset := rapid.OneOf(rapid.Just(64), rapid.IntRange(0, 127)).Draw(t, "offset")
				if i >= k && rapid.IntRange(0, 19).Draw(t, "apart") > 0 {
					offset = alike
				}
				g[i] = newGuarded(whole[i], offset, n)
				kernelstest.Fill(r, dt, g[i].body)
				all[i] = mem.Of(g[i].body)
			}
			from, to := all[:k], all[k:]
			if at >= 0 {
				to[0] = from[at]
			}
			want := make([]byte, n)
			around := rapid.Bool().Draw(t, "around")
			if err := cpu.ReduceAll(dt, op, mem.Of(want), from, false); err != nil {
				t.Fatal(err)
			}
			before := make([][]byte, k)
			for i := range before {
				before[i] = bytes.Clone(g[i].body)
			}
			if err := cpu.ReduceTo(dt, op, to, from, around); err != nil {
				t.Fatal(err)
			}
			for i, dst := range to {
				if !bytes.Equal(mem.Bytes(dst), want) {
					t.Fatalf("%v of %d buffers of %v differs at place %d of %d", op, k, dt, i, places)
				}
			}
			for i := range g {
				if err := g[i].check(); err != nil {
					t.Fatal(err)
				}
				if i < k && i != at && !bytes.Equal(g[i].body, before[i]) {
					t.Fatalf("operand %d was written", i)
				}
			}
		})
	})
}

// Special values meet each other in every order of three operands.
func TestReduceAllOfSpecials(t *testing.T) {
	everyPath(t, func(t *testing.T, cpu *CPU) {
		for _, dt := range mem.Datatypes {
			size, some := dt.Size(), kernelstest.Specials[dt]
			n := len(some) * len(some) * len(some)
			var from [3][]byte
			for i := range from {
				from[i] = make([]byte, n*size)
			}
			for i := range n {
				for k, x := range []int{i, i / len(some), i / len(some) / len(some)} {
					kernelstest.SetElement(size, from[k], i, some[x%len(some)])
				}
			}
			for _, op := range mem.OpsOf(dt) {
				want, got := make([]byte, n*size), make([]byte, n*size)
				kernelstest.Reduce(dt, op, want, from[0], from[1])
				if err := cpu.ReduceAll(dt, op, mem.Of(got), []mem.Buffer{mem.Of(from[0]), mem.Of(from[1]), mem.Of(from[2])}, false); err != nil {
					t.Fatal(err)
				}
				if err := kernelstest.Check(dt, op, got, want, from[2]); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

func TestReduceAllRefuses(t *testing.T) {
	a, b, c := mem.Of(make([]float32, 8)), mem.Of(make([]float32, 8)), mem.Of(make([]float32, 8))
	cpu := &CPU{portable}
	two := []mem.Buffer{b, c}
	for name, err := range map[string]error{
		"one operand":                cpu.ReduceAll(mem.Float32, mem.Sum, a, []mem.Buffer{b}, false),
		"a later operand as dst":     cpu.ReduceAll(mem.Float32, mem.Sum, a, []mem.Buffer{b, c, a}, false),
		"a shorter operand":          cpu.ReduceAll(mem.Float32, mem.Sum, a, []mem.Buffer{b, c, b.Slice(0, 4)}, false),
		"an operand that overlaps":   cpu.ReduceAll(mem.Float32, mem.Sum, a.Slice(0, 16), []mem.Buffer{b.Slice(0, 16), c.Slice(0, 16), a.Slice(8, 16)}, false),
		"a place that is an operand": cpu.ReduceTo(mem.Float32, mem.Sum, []mem.Buffer{a, mem.Of(make([]float32, 8)), b}, []mem.Buffer{c, c, b}, false),
		"a shorter place":            cpu.ReduceTo(mem.Float32, mem.Sum, []mem.Buffer{a, mem.Of(make([]float32, 4))}, two, false),
		"a datatype it has not got":  cpu.ReduceAll(99, mem.Sum, a, []mem.Buffer{b, c}, false),
	} {
		if err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// BenchmarkReduceAll sums k buffers, around the caches, at once and one after the
// other. Bytes count each buffer once.
func BenchmarkReduceAll(b *testing.B) {
	cpu := benchCPU(b)
	const n = 16 << 20
	for _, k := range []int{2, 4, 8} {
		from := make([]mem.Buffer, k)
		var dst mem.Buffer
		for i := range from {
			dst, from[i], _ = benchBuffers(b, n)
		}
		b.Run(fmt.Sprintf("%d/at once", k), func(b *testing.B) {
			b.SetBytes(int64((k + 1) * n))
			for b.Loop() {
				must(b, cpu.ReduceAll(mem.Float32, mem.Sum, dst, from, true))
			}
		})
		b.Run(fmt.Sprintf("%d/one after the other", k), func(b *testing.B) {
			const chunk = 256 << 10
			b.SetBytes(int64((k + 1) * n))
			for b.Loop() {
				for off := 0; off < n; off += chunk {
					d, x := dst.Slice(off, chunk), from[0].Slice(off, chunk)
					for _, y := range from[1:] {
						must(b, cpu.Reduce(mem.Float32, mem.Sum, d, x, y.Slice(off, chunk)))
						x = d
					}
				}
			}
		})
	}
}

// BenchmarkReduceTo stores sums of k buffers around the caches at one place, at k, and at one, from where they are copied
// to the others; in chunks of 512 KiB, as a collective does. Bytes count each operand once.
func BenchmarkReduceTo(b *testing.B) {
	cpu := benchCPU(b)
	const n, chunk = 16 << 20, 512 << 10
	for _, k := range []int{2, 4, 8} {
		buffers := make([]mem.Buffer, 2*k)
		for i := range buffers {
			buffers[i] = mem.Alloc(n)
			defer buffers[i].Free()
			clear(mem.Bytes(buffers[i]))
		}
		parts := make([]mem.Buffer, len(buffers))
		for name, reduce := range map[string]func(to, from []mem.Buffer) error{
			"one place":       func(to, from []mem.Buffer) error { return cpu.ReduceAll(mem.Float32, mem.Sum, to[0], from, true) },
			"all places":      func(to, from []mem.Buffer) error { return cpu.ReduceTo(mem.Float32, mem.Sum, to, from, true) },
			"one, and copies": func(to, from []mem.Buffer) error { return cpu.reduceThenCopy(mem.Float32, mem.Sum, to, from, true) },
		} {
			b.Run(fmt.Sprintf("%d operands, %s", k, name), func(b *testing.B) {
				b.SetBytes(int64(k) * n)
				for b.Loop() {
					for at := 0; at < n; at += chunk {
						for i := range parts {
							parts[i] = buffers[i].Slice(at, chunk)
						}
						if err := reduce(parts[k:], parts[:k]); err != nil {
							b.Fatal(err)
						}
					}
				}
			})
		}
	}
}
