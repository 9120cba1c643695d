package omb

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
)

// period is after how many elements the test data repeat. It is prime, so no
// chunk, slice or group of ranks of a round size hides behind the repetition.
const period = 8191

// pattern returns the whole number that a rank gives at an index in an
// iteration, in [0, limit): a hash, so that elements in each other's place,
// and ranks in each other's, are seen.
func pattern(rank, index, iteration, limit int) int {
	x := uint64(rank+1)*0x9e3779b97f4a7c15 ^ uint64(index%period+1)*0xc2b2ae3d27d4eb4f ^ uint64(iteration+1)*0x165667b19e3779f9
	x ^= x >> 29
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 32
	return int(x % uint64(limit))
}

// limit bounds the data so that the sum over all ranks is exact in a type,
// whatever the order: whole numbers up to 2^(bits of the significand).
func limit(dt mem.Datatype, size int) int {
	exact := map[mem.Datatype]int{mem.BFloat16: 1 << 8, mem.Float16: 1 << 11, mem.Float32: 1 << 24, mem.Float64: 1 << 24}
	if e, ok := exact[dt]; ok {
		return max(2, min(1<<16, e/max(2, size)))
	}
	return 1 << 16 // integers wrap around, alike everywhere
}

// checker makes and checks the data of one case.
type checker struct {
	dt         mem.Datatype
	rank, size int
	tile       mem.Buffer // one period
}

func newChecker(c *testCase) *checker {
	return &checker{dt: c.typ.Datatype, rank: c.rank, size: c.size, tile: mem.Alloc(c.typ.Bytes(period))}
}

func (k *checker) free() { k.tile.Free() }

// encode stores the whole number that value says of each index as an element of b.
func encode(b mem.Buffer, dt mem.Datatype, value func(index int) int) {
	switch dt {
	case mem.Float32:
		store(b, value, func(x int) float32 { return float32(x) })
	case mem.Float64:
		store(b, value, func(x int) float64 { return float64(x) })
	case mem.Float16:
		store(b, value, half)
	case mem.BFloat16:
		store(b, value, func(x int) uint16 { return uint16(math.Float32bits(float32(x)) >> 16) })
	case mem.Int32, mem.Uint32:
		store(b, value, func(x int) uint32 { return uint32(x) })
	case mem.Int64, mem.Uint64:
		store(b, value, func(x int) uint64 { return uint64(x) })
	case mem.Int16, mem.Uint16:
		store(b, value, func(x int) uint16 { return uint16(x) })
	case mem.Int8, mem.Uint8:
		store(b, value, func(x int) uint8 { return uint8(x) })
	}
}

func store[T mem.Number](b mem.Buffer, value func(index int) int, as func(x int) T) {
	elements := mem.View[T](b)
	for i := range elements {
		elements[i] = as(value(i))
	}
}

// half returns the bits of a whole number in [0, 2048] as binary16.
func half(x int) uint16 {
	if x == 0 {
		return 0
	}
	e := uint16(bits.Len(uint(x)) - 1)
	return (e+15)<<10 | uint16(x)<<(10-e)&0x3ff
}

// fill fills b with what value says of each index.
func (k *checker) fill(b mem.Buffer, value func(index int) int) {
	k.make(b, value)
	k.tiles(b, func(at, tile []byte) { copy(at, tile) })
}

// make fills as much of the tile as b has.
func (k *checker) make(b mem.Buffer, value func(index int) int) {
	encode(k.tile.Slice(0, min(b.Len(), k.tile.Len())), k.dt, value)
}

// tiles calls f for every period of b with as much of the tile.
func (k *checker) tiles(b mem.Buffer, f func(at, tile []byte)) {
	bytes, tile := mem.Bytes(b), mem.Bytes(k.tile)
	for len(bytes) > 0 {
		n := min(len(bytes), len(tile))
		f(bytes[:n], tile[:n])
		bytes = bytes[n:]
	}
}

// own is what this rank gives in an iteration.
func (k *checker) own(iteration int) func(int) int {
	return k.of(k.rank, iteration)
}

// of is what a rank gives.
func (k *checker) of(rank, iteration int) func(int) int {
	l := limit(k.dt, k.size)
	return func(i int) int { return pattern(rank, i, iteration, l) }
}

// sum is what all give together.
func (k *checker) sum(iteration int) func(int) int {
	l := limit(k.dt, k.size)
	return func(i int) int {
		s := 0
		for r := range k.size {
			s += pattern(r, i, iteration, l)
		}
		return s
	}
}

// poison fills b with bytes that no result has everywhere, so that what is
// not written is found.
func poison(b mem.Buffer) {
	bytes := mem.Bytes(b)
	for i := range bytes {
		bytes[i] = 0xa5
	}
}

// wrong counts the elements of b that are not what value says.
func (k *checker) wrong(b mem.Buffer, value func(index int) int) int {
	k.make(b, value)
	n, size := 0, k.dt.Size()
	k.tiles(b, func(at, tile []byte) {
		if string(at) == string(tile) {
			return
		}
		for i := 0; i < len(at); i += size {
			if string(at[i:i+size]) != string(tile[i:i+size]) {
				n++
			}
		}
	})
	return n
}

// before makes the data of an iteration.
func (k *checker) before(c *testCase, iteration int) {
	switch {
	case c.program.is(latency | bandwidth):
		k.fill(c.send, k.of(0, iteration))
		poison(c.recv)
	case c.program.verb == schedule.Bcast && !c.program.is(local):
		poison(c.recv)
		if c.rank == c.root(iteration) {
			k.fill(c.recv, k.own(iteration))
		}
	case c.program.is(local):
		k.fill(c.send, k.of(0, iteration))
		k.fill(c.recv, k.of(1, iteration))
	default:
		poison(c.recv)
		k.fill(c.in(), k.own(iteration))
	}
}

// after counts the wrong elements of an iteration's result on this rank.
func (k *checker) after(c *testCase, iteration int) int {
	switch {
	case c.program.is(latency):
		return k.wrong(c.recv, k.of(0, iteration))
	case c.program.is(bandwidth):
		if c.rank == 0 {
			return 0
		}
		return k.wrong(c.recv, k.of(0, iteration))
	case c.program.is(local):
		l := limit(k.dt, k.size)
		return k.wrong(c.recv, func(i int) int { return pattern(0, i, iteration, l) + pattern(1, i, iteration, l) })
	case c.program.verb == schedule.Bcast:
		return k.wrong(c.recv, k.of(c.root(iteration), iteration))
	case (c.program.verb == schedule.Reduce || c.program.verb == schedule.Gather) && c.rank != c.root(iteration):
		return 0
	case c.program.deals():
		gave := k.of(c.root(iteration), iteration)
		return k.wrong(c.recv, func(i int) int { return gave(c.count*c.rank + i) })
	case c.program.gathers():
		wrong := 0
		for rank := range c.size {
			wrong += k.wrong(c.recv.Slice(c.bytes*rank, c.bytes), k.of(rank, iteration))
		}
		return wrong
	case c.program.exchanges():
		wrong := 0
		for rank := range c.size {
			gave := k.of(rank, iteration)
			wrong += k.wrong(c.recv.Slice(c.bytes*rank, c.bytes), func(i int) int { return gave(c.count*c.rank + i) })
		}
		return wrong
	}
	off, _ := c.result()
	sum := k.sum(iteration)
	return k.wrong(c.recv, func(i int) int { return sum(off/k.dt.Size() + i) })
}

// errInvalid says that results were wrong.
type errInvalid struct {
	program, what string
	bytes, wrong  int
}

func (e *errInvalid) Error() string {
	return fmt.Sprintf("%s: validation failed: %s left %d wrong elements at %d bytes", e.program, e.what, e.wrong, e.bytes)
}
