package kernels

import (
	"bytes"
	"fmt"
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

// TestMoveTo: every place holds every byte, however many there are and however they are aligned, and nothing else changes.
func TestMoveTo(t *testing.T) {
	const room = 1 << 20
	src := make([]byte, room)
	for i := range src {
		src[i] = byte(i*7 + i>>8 + i>>16 + 1)
	}
	for _, n := range []int{0, 1, 63, 4097, spreadBytes + 65, room - 200} {
		for _, places := range []int{1, 2, 3, Operands, Operands + 1} {
			for _, alike := range []bool{true, false} {
				for _, around := range []bool{false, true} {
					all, to := make([][]byte, places), make([]mem.Buffer, places)
					for i := range all {
						all[i] = make([]byte, room)
						at := 33
						if !alike {
							at += i
						}
						to[i] = mem.Of(all[i][at : at+n])
					}
					MoveTo(to, mem.Of(src[5:5+n]), around)
					for i, b := range to {
						if !bytes.Equal(mem.Bytes(b), src[5:5+n]) {
							t.Fatalf("%d bytes to %d places, aligned alike %v, around the caches %v: place %d differs", n, places, alike, around, i)
						}
						clear(mem.Bytes(b))
						if bytes.Count(all[i], []byte{0}) != room {
							t.Fatalf("%d bytes to %d places, aligned alike %v, around the caches %v: others changed at place %d", n, places, alike, around, i)
						}
					}
				}
			}
		}
	}
}

// BenchmarkMoveTo stores 16 MiB at several places around the caches, in one pass and in one for each, in chunks of 512 KiB as a
// collective does. Bytes count those stored.
func BenchmarkMoveTo(b *testing.B) {
	const n, chunk = 16 << 20, 512 << 10
	for _, places := range []int{1, 2, 3, 7} {
		buffers := make([]mem.Buffer, places+1)
		for i := range buffers {
			buffers[i] = mem.Alloc(n)
			defer buffers[i].Free()
			clear(mem.Bytes(buffers[i]))
		}
		parts := make([]mem.Buffer, places)
		for name, move := range map[string]func(src mem.Buffer){
			"one pass": func(src mem.Buffer) { MoveTo(parts, src, true) },
			"a pass each": func(src mem.Buffer) {
				for _, dst := range parts {
					Move(dst, src, true)
				}
			},
		} {
			b.Run(fmt.Sprintf("%d places, %s", places, name), func(b *testing.B) {
				b.SetBytes(int64(places) * n)
				for b.Loop() {
					for at := 0; at < n; at += chunk {
						for i := range parts {
							parts[i] = buffers[i+1].Slice(at, chunk)
						}
						move(buffers[0].Slice(at, chunk))
					}
				}
			})
		}
	}
}
