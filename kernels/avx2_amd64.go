package kernels

import (
	"slices"
	"unsafe"

	"github.com/klauspost/cpuid/v2"

	"github.com/scaffe/scaffe/mem"
)

//go:generate go run -tags generate ./internal/gen -out avx2_loops_amd64.s -stubs avx2_loops_amd64.go -pkg kernels

// AVX-512 is left out: measured on a Zen 5 core it nearly doubles the f32 sum
// of buffers up to 16 KiB, which lie in the first cache, and gains about 5 %
// at the 128 KiB and more of a chunk.

const (
	vectorBytes = 32 // what the AVX2 loops work in multiples of

	// lineBytes is a cache line, the unit of stores around the caches.
	lineBytes = 64

	// streamFrom is the length in bytes from which on results in a buffer of
	// their own are stored around the caches. BenchmarkReduceThenSend shows
	// why not earlier: a chunk that is sent on next is read from the cache up
	// to here, which outweighs the reading of dst. A result that replaces
	// an operand is not streamed, unless it goes to other places as well: its lines are in the cache already.
	streamFrom = StreamFrom

	// pieceBytes is how much one call of a loop does at most, of two operands and one place: the runtime
	// cannot stop a goroutine inside assembly, and a collection would wait
	// for it. Some 50 µs.
	pieceBytes = 1 << 20
)

// avx2Loop is a generated loop. n is a multiple of vectorBytes; x0 and x1 are there, and
// no operand follows one that is nil.
type avx2Loop func(dst, x0, x1, x2, x3, x4, x5, x6, x7 *byte, n int)

// avx2Stream is one that stores around the caches, at d0 and those after it up to the first that is nil, all aligned to vectorBytes.
// end is nil.
type avx2Stream func(d0, d1, d2, d3, d4, d5, d6, d7, end, x0, x1, x2, x3, x4, x5, x6, x7 *byte, n int)

// avx2Pair is a loop that stores through the caches and its counterpart that stores
// around them.
type avx2Pair struct {
	cached avx2Loop
	stream avx2Stream
}

var avx2Loops = alike([mem.NumDatatypes][mem.NumOps]avx2Pair{
	mem.Float32:  {{sumF32, sumF32Stream}, {prodF32, prodF32Stream}, {minF32, minF32Stream}, {maxF32, maxF32Stream}},
	mem.Float64:  {{sumF64, sumF64Stream}, {prodF64, prodF64Stream}, {minF64, minF64Stream}, {maxF64, maxF64Stream}},
	mem.Float16:  {{sumF16, sumF16Stream}, {prodF16, prodF16Stream}, {minF16, minF16Stream}, {maxF16, maxF16Stream}},
	mem.BFloat16: {{sumBF16, sumBF16Stream}, {prodBF16, prodBF16Stream}, {minBF16, minBF16Stream}, {maxBF16, maxBF16Stream}},
	mem.Int32: {
		{sumI32, sumI32Stream},
		{prodI32, prodI32Stream},
		{minI32, minI32Stream},
		{maxI32, maxI32Stream},
		mem.LogicalAnd: {landI32, landI32Stream}, mem.LogicalOr: {lorI32, lorI32Stream}, mem.LogicalXor: {lxorI32, lxorI32Stream},
	},
	mem.Int64: {
		{sumI64, sumI64Stream},
		{prodI64, prodI64Stream},
		{minI64, minI64Stream},
		{maxI64, maxI64Stream},
		mem.LogicalAnd: {landI64, landI64Stream}, mem.LogicalOr: {lorI64, lorI64Stream}, mem.LogicalXor: {lxorI64, lxorI64Stream},
	},
	mem.Uint8: {
		{sumU8, sumU8Stream},
		{prodU8, prodU8Stream},
		{minU8, minU8Stream},
		{maxU8, maxU8Stream},
		{bandU8, bandU8Stream},
		{borU8, borU8Stream},
		{bxorU8, bxorU8Stream},
		{landU8, landU8Stream},
		{lorU8, lorU8Stream},
		{lxorU8, lxorU8Stream},
	},
	mem.Uint16: {
		{sumU16, sumU16Stream},
		{prodU16, prodU16Stream},
		{minU16, minU16Stream},
		{maxU16, maxU16Stream},
		mem.LogicalAnd: {landU16, landU16Stream}, mem.LogicalOr: {lorU16, lorU16Stream}, mem.LogicalXor: {lxorU16, lxorU16Stream},
	},
	mem.Int8:   {mem.Min: {minI8, minI8Stream}, mem.Max: {maxI8, maxI8Stream}},
	mem.Int16:  {mem.Min: {minI16, minI16Stream}, mem.Max: {maxI16, maxI16Stream}},
	mem.Uint32: {mem.Min: {minU32, minU32Stream}, mem.Max: {maxU32, maxU32Stream}},
	mem.Uint64: {mem.Min: {minU64, minU64Stream}, mem.Max: {maxU64, maxU64Stream}},
})

// alike fills in the loops that are those of an alike datatype.
func alike(all [mem.NumDatatypes][mem.NumOps]avx2Pair) [mem.NumDatatypes][mem.NumOps]avx2Pair {
	for _, dt := range mem.Datatypes {
		for _, op := range mem.OpsOf(dt) {
			all[dt][op] = all[Alike(dt, op)][op]
		}
	}
	return all
}

// nativePath returns the AVX2 path, or what it lacks.
func nativePath() (p path, lacks string) {
	if !cpuid.CPU.Supports(cpuid.AVX2, cpuid.F16C) {
		return path{}, "this processor lacks AVX2 or F16C"
	}
	return path{name: "avx2", reduce: reduceAVX2, spread: spreadAVX2, copy: copyAVX2}, ""
}

func reduceAVX2(dt mem.Datatype, op mem.Op, dst unsafe.Pointer, from addresses, n int, around bool) {
	stream := streamFrom
	if around {
		stream = 0
	}
	reduceVectors(&avx2Loops[dt][op], portableLoops[dt][op], dt.Size(), dst, from, n, stream)
}

// reduceVectors does whole vectors with v and what is left of n with scalar.
// From stream bytes on, and where dst can be aligned, it stores around the
// caches.
func reduceVectors(v *avx2Pair, scalar loop, size int, dst unsafe.Pointer, from addresses, n, stream int) {
	if n >= stream && !from.has(dst) && spreadVectors(v, scalar, size, addresses{dst}, from, n) {
		return
	}
	for n >= vectorBytes {
		p := min(n, pieceBytes) &^ (vectorBytes - 1)
		v.cached((*byte)(dst), (*byte)(from[0]), (*byte)(from[1]), (*byte)(from[2]), (*byte)(from[3]),
			(*byte)(from[4]), (*byte)(from[5]), (*byte)(from[6]), (*byte)(from[7]), p)
		if n -= p; n == 0 {
			return
		}
		dst, from = unsafe.Add(dst, p), from.after(p)
	}
	reduceScalar(scalar, dst, from, n)
}

func spreadAVX2(dt mem.Datatype, op mem.Op, to, from addresses, n int) bool {
	return spreadVectors(&avx2Loops[dt][op], portableLoops[dt][op], dt.Size(), to, from, n)
}

// spreadVectors is reduceVectors around the caches, to all places in one pass. It does nothing, and reports false, where
// they cannot be aligned.
func spreadVectors(v *avx2Pair, scalar loop, size int, to, from addresses, n int) bool {
	head, ok := to.toLine(n)
	if !ok || head%size != 0 {
		return false
	}
	to.reduceScalar(scalar, from, head)
	to, from, n = to.after(head), from.after(head), n-head
	piece := 3 * pieceBytes / (count(to[:]) + count(from[:])) &^ (lineBytes - 1)
	for n >= vectorBytes {
		p := min(n, piece) &^ (vectorBytes - 1)
		v.stream((*byte)(to[0]), (*byte)(to[1]), (*byte)(to[2]), (*byte)(to[3]), (*byte)(to[4]), (*byte)(to[5]), (*byte)(to[6]), (*byte)(to[7]), nil,
			(*byte)(from[0]), (*byte)(from[1]), (*byte)(from[2]), (*byte)(from[3]),
			(*byte)(from[4]), (*byte)(from[5]), (*byte)(from[6]), (*byte)(from[7]), p)
		if n -= p; n == 0 {
			return true
		}
		to, from = to.after(p), from.after(p)
	}
	to.reduceScalar(scalar, from, n)
	return true
}

// count returns how many addresses stand before the first that is nil.
func count(all []unsafe.Pointer) int {
	if n := slices.Index(all, nil); n >= 0 {
		return n
	}
	return len(all)
}

// toLine returns how many bytes lie between the addresses and the next cache line each; false where that is not the same for all, or n or more.
func (o *addresses) toLine(n int) (head int, ok bool) {
	head = int(-uintptr(o[0]) & (lineBytes - 1))
	for _, p := range o[:count(o[:])] {
		if int(-uintptr(p)&(lineBytes-1)) != head {
			return 0, false
		}
	}
	return head, head < n
}

// copyAVX2 copies around the caches from streamFrom bytes on, where dst and src lie apart.
func copyAVX2(dst, src unsafe.Pointer, n int) {
	if n < streamFrom || !apart(dst, src, n) || !copyVectors(addresses{dst}, src, n) {
		copyPortable(dst, src, n)
	}
}

// copyAround copies n > 0 bytes to all places, which lie apart from them and from each other, around the caches. It does nothing,
// and reports false, where it cannot.
func copyAround(to addresses, src unsafe.Pointer, n int) bool {
	return cpuid.CPU.Supports(cpuid.AVX2) && copyVectors(to, src, n)
}

// copyVectors is copyAround with a processor that can, where all places are aligned alike.
func copyVectors(to addresses, src unsafe.Pointer, n int) bool {
	head, ok := to.toLine(n)
	if !ok {
		return false
	}
	to.copyPortable(src, head)
	to, src, n = to.after(head), unsafe.Add(src, head), n-head
	piece := 2 * pieceBytes / (count(to[:]) + 1) &^ (lineBytes - 1)
	for n >= vectorBytes {
		p := min(n, piece) &^ (vectorBytes - 1)
		copyStream((*byte)(to[0]), (*byte)(to[1]), (*byte)(to[2]), (*byte)(to[3]), (*byte)(to[4]), (*byte)(to[5]), (*byte)(to[6]), (*byte)(to[7]), nil,
			(*byte)(src), p)
		if n -= p; n == 0 { // nothing lies beyond the buffers' ends
			return true
		}
		to, src = to.after(p), unsafe.Add(src, p)
	}
	to.copyPortable(src, n)
	return true
}
