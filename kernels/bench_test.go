package kernels

import (
	"fmt"
	"testing"
	"time"

	"github.com/scaffe/scaffe/mem"
)

// Bytes per second count each buffer once as it is read or written: a
// reduction moves three times its length, a copy twice.

func benchCPU(b *testing.B) *CPU {
	cpu, err := NewCPU()
	if err != nil {
		b.Fatal(err)
	}
	return cpu
}

// benchBuffers returns buffers whose pages are there, holding small numbers of
// any type.
func benchBuffers(b *testing.B, n int) (dst, x, y mem.Buffer) {
	var bufs [3]mem.Buffer
	for i := range bufs {
		bufs[i] = mem.Alloc(n)
		b.Cleanup(bufs[i].Free)
		for j, s := 0, mem.Bytes(bufs[i]); j < len(s); j++ {
			s[j] = 0x30
		}
	}
	return bufs[0], bufs[1], bufs[2]
}

func must(b *testing.B, err error) {
	if err != nil {
		b.Fatal(err)
	}
}

func sizeName(n int) string {
	if n >= 1<<20 {
		return fmt.Sprintf("%dMiB", n>>20)
	}
	return fmt.Sprintf("%dKiB", n>>10)
}

var benchSizes = []int{4 << 10, 32 << 10, 128 << 10, 512 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20}

// BenchmarkReduce sums into a buffer apart, per datatype and size in bytes.
func BenchmarkReduce(b *testing.B) {
	cpu := benchCPU(b)
	for _, dt := range mem.Datatypes {
		for _, n := range benchSizes {
			b.Run(fmt.Sprintf("%v/%s", dt, sizeName(n)), func(b *testing.B) {
				dst, x, y := benchBuffers(b, n)
				b.SetBytes(int64(3 * n))
				for b.Loop() {
					must(b, cpu.Reduce(dt, mem.Sum, dst, x, y))
				}
			})
		}
	}
}

// BenchmarkReduceInPlace sums into the first operand.
func BenchmarkReduceInPlace(b *testing.B) {
	cpu := benchCPU(b)
	for _, n := range benchSizes {
		b.Run("f32/"+sizeName(n), func(b *testing.B) {
			dst, _, y := benchBuffers(b, n)
			b.SetBytes(int64(3 * n))
			for b.Loop() {
				must(b, cpu.Reduce(mem.Float32, mem.Sum, dst, dst, y))
			}
		})
	}
}

// BenchmarkCopyBaseline is Go's own copy, the measure of what memory allows.
func BenchmarkCopyBaseline(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(sizeName(n), func(b *testing.B) {
			dst, x, _ := benchBuffers(b, n)
			d, s := mem.Bytes(dst), mem.Bytes(x)
			b.SetBytes(int64(2 * n))
			for b.Loop() {
				copy(d, s)
			}
		})
	}
}

// BenchmarkAddAgainstCopy takes turns between Go's copy, Copy and the f32 sum
// into a buffer apart, so that other load on the machine meets all of them,
// and reports the bytes per second of each and the sum's share of the better
// copy's.
func BenchmarkAddAgainstCopy(b *testing.B) {
	cpu := benchCPU(b)
	for _, n := range []int{16 << 20, 64 << 20} {
		b.Run(sizeName(n), func(b *testing.B) {
			dst, x, y := benchBuffers(b, n)
			var spent [3]time.Duration
			rounds := 0
			for b.Loop() {
				for i, f := range []func(){
					func() { copy(mem.Bytes(dst), mem.Bytes(x)) },
					func() { must(b, cpu.Copy(dst, x)) },
					func() { must(b, cpu.Reduce(mem.Float32, mem.Sum, dst, x, y)) },
				} {
					start := time.Now()
					f()
					spent[i] += time.Since(start)
				}
				rounds++
			}
			rate := func(streams int, d time.Duration) float64 { return float64(streams*n*rounds) / d.Seconds() / 1e9 }
			goCopy, ours, sum := rate(2, spent[0]), rate(2, spent[1]), rate(3, spent[2])
			b.ReportMetric(goCopy, "copy-GB/s")
			b.ReportMetric(ours, "Copy-GB/s")
			b.ReportMetric(sum, "sum-GB/s")
			b.ReportMetric(sum/max(goCopy, ours), "sum/copy")
		})
	}
}

// BenchmarkReduceThenSend is how collectives use the loops: operands stream
// from 64 MiB, each sum goes to one of two slots of a chunk's size and is then
// read ("sent", a copy) once. The bytes are the payload.
func BenchmarkReduceThenSend(b *testing.B) {
	cpu := benchCPU(b)
	const total = 64 << 20
	for _, chunk := range []int{128 << 10, 512 << 10, 1 << 20, 4 << 20, 8 << 20, 16 << 20} {
		b.Run(sizeName(chunk), func(b *testing.B) {
			wire, x, y := benchBuffers(b, total)
			slots, _, _ := benchBuffers(b, 2*chunk)
			b.SetBytes(total)
			for b.Loop() {
				for off := 0; off < total; off += chunk {
					slot := slots.Slice(off/chunk%2*chunk, chunk)
					must(b, cpu.Reduce(mem.Float32, mem.Sum, slot, x.Slice(off, chunk), y.Slice(off, chunk)))
					copy(mem.Bytes(wire.Slice(off, chunk)), mem.Bytes(slot))
				}
			}
		})
	}
}
