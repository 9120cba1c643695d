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

// paths returns every path that this machine has.
func paths(t *testing.T) []path { return append([]path{portable}, nativePaths(t)...) }

// everyPath runs f on every path that this machine has.
func everyPath(t *testing.T, f func(t *testing.T, cpu *CPU)) {
	for _, p := range paths(t) {
		t.Run(p.name, func(t *testing.T) { f(t, &CPU{p}) })
	}
}

// guarded is n bytes at some offset from a page, between guard bytes.
type guarded struct {
	all  []byte
	off  int
	body []byte
}

const guard = 0xa5

func newGuarded(whole mem.Buffer, off, n int) guarded {
	all := mem.Bytes(whole)[:off+n+64]
	for i := range all {
		all[i] = guard
	}
	return guarded{all, off, all[off : off+n : off+n]}
}

func (g guarded) check() error {
	end := g.off + len(g.body)
	for i, v := range g.all {
		if v != guard && (i < g.off || i >= end) {
			return fmt.Errorf("byte %d next to a buffer [%d:%d] was written", i, g.off, end)
		}
	}
	return nil
}

func TestReduceEqualsReference(t *testing.T) {
	const most = 1200 // elements
	var whole [3]mem.Buffer
	for i := range whole {
		whole[i] = mem.Alloc(mem.Float64.Bytes(most) + 256)
		defer whole[i].Free()
	}
	everyPath(t, func(t *testing.T, cpu *CPU) {
		rapid.Check(t, func(t *rapid.T) {
			dt := rapid.SampledFrom(mem.Datatypes).Draw(t, "datatype")
			op := rapid.SampledFrom(mem.OpsOf(dt)).Draw(t, "op")
			n := dt.Bytes(rapid.OneOf(rapid.IntRange(0, 70), rapid.IntRange(0, most)).Draw(t, "elements"))
			alias := rapid.SampledFrom([]string{"apart", "dst=a", "dst=b", "a=b", "all"}).Draw(t, "alias")
			r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
			var g [3]guarded
			for i := range g { // any address, whole elements or not
				off := rapid.OneOf(rapid.Just(64), rapid.SampledFrom([]int{0, 2, 4, 8, 16, 32, 96}), rapid.IntRange(0, 127)).Draw(t, "offset")
				g[i] = newGuarded(whole[i], off, n)
				kernelstest.Fill(r, dt, g[i].body)
			}
			dst, a, b := &g[0], &g[1], &g[2]
			switch alias {
			case "dst=a":
				dst = a
			case "dst=b":
				dst = b
			case "a=b":
				b = a
			case "all":
				b, dst = a, a
			}
			x, y := bytes.Clone(a.body), bytes.Clone(b.body)
			if err := cpu.Reduce(dt, op, mem.Of(dst.body), mem.Of(a.body), mem.Of(b.body)); err != nil {
				t.Fatal(err)
			}
			if err := kernelstest.Check(dt, op, dst.body, x, y); err != nil {
				t.Fatal(err)
			}
			if dst != a && !bytes.Equal(a.body, x) || dst != b && !bytes.Equal(b.body, y) {
				t.Fatal("an operand was written")
			}
			for i := range g {
				if err := g[i].check(); err != nil {
					t.Fatal(err)
				}
			}
		})
	})
}

// Special values meet each other in every lane, and a ⊕ b has the bits of b ⊕ a.
func TestSpecialsEqualReferenceAndCommute(t *testing.T) {
	everyPath(t, func(t *testing.T, cpu *CPU) {
		for _, dt := range mem.Datatypes {
			var a, b []byte
			size := dt.Size()
			for range 32 / size { // so that pairs come to lie in other lanes
				for _, x := range kernelstest.Specials[dt] {
					for _, y := range kernelstest.Specials[dt] {
						a, b = append(a, make([]byte, size)...), append(b, make([]byte, size)...)
						kernelstest.SetElement(size, a, len(a)/size-1, x)
						kernelstest.SetElement(size, b, len(b)/size-1, y)
					}
				}
				a, b = append(a, make([]byte, size)...), append(b, make([]byte, size)...)
			}
			ab, ba := make([]byte, len(a)), make([]byte, len(a))
			for _, op := range mem.OpsOf(dt) {
				reduce(t, cpu, dt, op, ab, a, b)
				reduce(t, cpu, dt, op, ba, b, a)
				if err := kernelstest.Check(dt, op, ab, a, b); err != nil {
					t.Error(err)
				}
				if !bytes.Equal(ab, ba) {
					t.Errorf("%v %v does not commute", dt, op)
				}
			}
		}
	})
}

func reduce(t *testing.T, cpu *CPU, dt mem.Datatype, op mem.Op, dst, a, b []byte) {
	t.Helper()
	if err := cpu.Reduce(dt, op, mem.Of(dst), mem.Of(a), mem.Of(b)); err != nil {
		t.Fatal(err)
	}
}

func TestEveryPairOfBytes(t *testing.T) {
	a, b, dst := make([]byte, 1<<16), make([]byte, 1<<16), make([]byte, 1<<16)
	for i := range a {
		a[i], b[i] = byte(i), byte(i>>8)
	}
	everyPath(t, func(t *testing.T, cpu *CPU) {
		for _, dt := range []mem.Datatype{mem.Uint8, mem.Int8} {
			for _, op := range mem.OpsOf(dt) {
				reduce(t, cpu, dt, op, dst, a, b)
				if err := kernelstest.Check(dt, op, dst, a, b); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// Every 16-bit number meets the special ones, and random ones.
func TestEveryHalf(t *testing.T) {
	if testing.Short() {
		t.Skip("half a minute with the race detector, and nothing that could race")
	}
	const values = 1 << 16
	a, b, dst, want := make([]byte, 2*values), make([]byte, 2*values), make([]byte, 2*values), make([]byte, 2*values)
	for i := range values {
		kernelstest.SetElement(2, a, i, uint64(i))
	}
	for _, dt := range []mem.Datatype{mem.Float16, mem.BFloat16, mem.Int16, mem.Uint16} {
		for k := range len(kernelstest.Specials[dt]) + 2 {
			if k < len(kernelstest.Specials[dt]) {
				for i := range values {
					kernelstest.SetElement(2, b, i, kernelstest.Specials[dt][k])
				}
			} else {
				kernelstest.Fill(rand.New(rand.NewPCG(uint64(k), 1)), dt, b)
			}
			for _, op := range mem.OpsOf(dt) {
				kernelstest.Reduce(dt, op, want, a, b)
				for _, p := range paths(t) {
					reduce(t, &CPU{p}, dt, op, dst, a, b)
					if !bytes.Equal(dst, want) {
						t.Fatalf("%s: %v", p.name, kernelstest.Check(dt, op, dst, a, b))
					}
				}
			}
		}
	}
}

// A buffer of several pieces, and one that is stored around the caches by its
// size alone.
func TestLongBuffers(t *testing.T) {
	const n = 9<<20 + 104
	a, b, dst := mem.Alloc(n), mem.Alloc(n), mem.Alloc(n)
	defer a.Free()
	defer b.Free()
	defer dst.Free()
	kernelstest.Fill(rand.New(rand.NewPCG(3, 1)), mem.Float32, mem.Bytes(a))
	kernelstest.Fill(rand.New(rand.NewPCG(4, 1)), mem.Float32, mem.Bytes(b))
	want := make([]byte, n)
	for _, c := range []struct{ off, n int }{{4, n - 4}, {60, 3<<20 + 4}} {
		d, x, y, w := dst.Slice(c.off, c.n), a.Slice(c.off, c.n), b.Slice(0, c.n), want[:c.n]
		kernelstest.Reduce(mem.Float32, mem.Sum, w, mem.Bytes(x), mem.Bytes(y))
		for _, p := range paths(t) {
			reduce(t, &CPU{p}, mem.Float32, mem.Sum, mem.Bytes(d), mem.Bytes(x), mem.Bytes(y))
			if !bytes.Equal(mem.Bytes(d), w) {
				t.Errorf("%s: %v", p.name, kernelstest.Check(mem.Float32, mem.Sum, mem.Bytes(d), mem.Bytes(x), mem.Bytes(y)))
			}
			if err := (&CPU{p}).Copy(d, y); err != nil || !bytes.Equal(mem.Bytes(d), mem.Bytes(y)) {
				t.Errorf("%s: a copy of %d bytes differs, error %v", p.name, c.n, err)
			}
		}
	}
}

func TestCopy(t *testing.T) {
	var whole [2]mem.Buffer
	for i := range whole {
		whole[i] = mem.Alloc(8192)
		defer whole[i].Free()
	}
	everyPath(t, func(t *testing.T, cpu *CPU) {
		rapid.Check(t, func(t *rapid.T) {
			n := rapid.IntRange(0, 3000).Draw(t, "bytes")
			from, to := rapid.IntRange(0, 200).Draw(t, "from"), rapid.IntRange(0, 200).Draw(t, "to")
			one := rapid.Bool().Draw(t, "within one buffer")
			dst, src := newGuarded(whole[0], to, n), newGuarded(whole[1], from, n)
			from0 := src.body
			if one {
				from0 = mem.Bytes(whole[0])[from : from+n]
			}
			for i := range from0 {
				from0[i] = byte(i*7 + i>>8)
			}
			want := bytes.Clone(from0)
			if err := cpu.Copy(mem.Of(dst.body), mem.Of(from0)); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(dst.body, want) {
				t.Fatal("dst is not what src was")
			}
			if one {
				return // the source lies where the guards are
			}
			if !bytes.Equal(src.body, want) {
				t.Fatal("src was written")
			}
			if err := dst.check(); err != nil {
				t.Fatal(err)
			}
		})
	})
}
