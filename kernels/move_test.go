package kernels

import (
	"bytes"
	"testing"

	"github.com/scaffe/scaffe/mem"
)

// TestMove: both ways copy every byte, wherever the buffers begin and end, and no other.
func TestMove(t *testing.T) {
	const room = 3 << 20
	src, dst := make([]byte, room), make([]byte, room)
	for i := range src {
		src[i] = byte(i*7 + i>>8 + i>>16 + 1)
	}
	for _, n := range []int{0, 1, 31, 64, 4097, memmoveStreams/2 + 1, memmoveStreams + 3, 2*memmoveStreams + 65} {
		for _, from := range []int{0, 1, 32, 63} {
			for _, to := range []int{64, 65, 127} {
				for _, around := range []bool{false, true} {
					clear(dst)
					Move(mem.Of(dst[to:to+n]), mem.Of(src[from:from+n]), around)
					if !bytes.Equal(dst[to:to+n], src[from:from+n]) {
						t.Fatalf("%d bytes from %d to %d, around the caches %v: they differ", n, from, to, around)
					}
					clear(dst[to : to+n])
					if bytes.Count(dst, []byte{0}) != room {
						t.Fatalf("%d bytes from %d to %d, around the caches %v: others changed", n, from, to, around)
					}
				}
			}
		}
	}
}
