package kernels

import (
	"testing"
	"unsafe"

	"github.com/scaffe/scaffe/mem"
)

// nativePaths returns the AVX2 path as it is and with every length streamed.
func nativePaths(tb testing.TB) []path {
	native, lacks := nativePath()
	if lacks != "" {
		tb.Logf("AVX2 is not tested: %s", lacks)
		return nil
	}
	streamed := path{
		name: "avx2 stream",
		reduce: func(dt mem.Datatype, op mem.Op, dst unsafe.Pointer, from addresses, n int, _ bool) {
			native.reduce(dt, op, dst, from, n, true)
		},
		copy: func(dst, src unsafe.Pointer, n int) {
			if !apart(dst, src, n) || !copyVectors(addresses{dst}, src, n) {
				copyPortable(dst, src, n)
			}
		},
	}
	return []path{native, streamed}
}
