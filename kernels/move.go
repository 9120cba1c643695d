package kernels

import (
	"unsafe"

	"github.com/klauspost/cpuid/v2"

	"github.com/scaffe/scaffe/mem"
)

// StreamFrom is the length in bytes of a buffer from which on stores around
// the caches pay: a shorter one may still be in a cache when it is needed next.
const StreamFrom = 8 << 20

// memmoveStreams is from how many bytes on the runtime's copy may store around
// the caches, wherever the data is needed next.
const memmoveStreams = 1 << 20

// PrivateCache returns the size in bytes of the cache that a core has to itself,
// the second level's, or 1 MiB where the processor does not say.
func PrivateCache() int {
	if n := cpuid.CPU.Cache.L2; n > 0 {
		return n
	}
	return 1 << 20
}

// Move makes dst = src, equally long host buffers that do not overlap. Where
// around is set it stores around the caches, if the processor can; otherwise dst is in
// them afterwards, however long it is.
func Move(dst, src mem.Buffer, around bool) {
	n := dst.Len()
	if n > 0 && !(around && copyAround(addresses{dst.Pointer()}, src.Pointer(), n)) {
		copyPortable(dst.Pointer(), src.Pointer(), n)
	}
}

// MoveTo is Move to several buffers that lie apart from each other: in one pass, where it stores around the caches and they are
// aligned alike; otherwise piece by piece.
func MoveTo(to []mem.Buffer, src mem.Buffer, around bool) {
	n := src.Len()
	if around && n > 0 && 0 < len(to) && len(to) <= Operands && copyAround(addressesOf(to), src.Pointer(), n) {
		return
	}
	for at := 0; at < n; at += spreadBytes {
		piece := src.Slice(at, min(spreadBytes, n-at))
		for _, dst := range to {
			Move(dst.Slice(at, piece.Len()), piece, around)
		}
	}
}

// spreadBytes is a piece of what goes to several places through the caches: it lies in a core's first one.
const spreadBytes = 16 << 10

// copyPortable copies through the caches. The two may overlap.
func copyPortable(dst, src unsafe.Pointer, n int) {
	to, from := unsafe.Slice((*byte)(dst), n), unsafe.Slice((*byte)(src), n)
	for apart(dst, src, n) && len(to) > memmoveStreams/2 {
		n := copy(to[:memmoveStreams/2], from)
		to, from = to[n:], from[n:]
	}
	copy(to, from)
}

// apart reports whether no byte is both among the n at dst and those at src.
func apart(dst, src unsafe.Pointer, n int) bool {
	return uintptr(dst)+uintptr(n) <= uintptr(src) || uintptr(src)+uintptr(n) <= uintptr(dst)
}
