// Package kernels combines and copies buffers: dst = a ⊕ b and dst = src,
// where ⊕ is a mem.Op over elements of a mem.Datatype.
//
//	cpu, err := kernels.NewCPU()
//	…
//	err = cpu.Reduce(mem.Float32, mem.Sum, dst, a, b) // dst[i] = a[i] + b[i]
//	err = cpu.ReduceAll(mem.Float32, mem.Sum, dst, all, false) // … of several, in one pass
//
// It knows nothing of ranks and messages: package nbc calls it where a chunk
// has arrived.
//
// # What a result is
//
// Every path (portable Go, AVX2, a GPU) gives the same bits for the same
// input, and every operator gives the same bits when a and b change places:
//
//   - Integer sums and products wrap around. Bitwise and logical operators combine integers alone; to
//     the logical ones all but 0 is true, and their result is 0 or 1.
//   - Floating-point sums and products are rounded to nearest even. f16 and
//     bf16 elements are widened to f32, combined there with f32's rounding, and
//     rounded to nearest even once more to be stored. Subnormal numbers
//     are kept.
//   - Min and max of floating-point numbers are IEEE 754-2019's minimum and
//     maximum: NaN if either element is NaN, and -0 is less than +0. (Go's own
//     min and max do the same.)
//   - A result that is NaN is always the same one, the positive quiet NaN
//     without payload: 0x7fc00000 for f32, 0x7ff8000000000000 for f64, 0x7e00
//     for f16, 0x7fc0 for bf16. What payload processors hand on depends on
//     their make and on the order of operands.
//
// This holds while the thread's floating-point mode is the usual one: round to
// nearest, subnormals not flushed (C libraries built with -ffast-math change
// it for a thread that they run on).
//
// # Paths
//
// NewCPU takes the best path that the processor has. The environment variable
// SCAFFE_KERNELS (portable, avx2) overrides that; a word it does not know or a
// path that the processor lacks is an error. The AVX2 loops
// are generated from internal/gen by go generate; no path needs cgo. The packages
// below follow the variable too (and leave it to NewCPU to refuse a word).
//
// dst may be a, b or both, but may not overlap them in part. Addresses and
// lengths need no alignment on processors that load unaligned words (all
// that Go's 64-bit ports on amd64 and arm64 run on). Where dst is a buffer of
// its own and too big for the caches, the AVX2 path stores around them, which
// spares memory the reading of dst: three streams instead of four. Move and ReduceAll
// leave that to the caller, who may know that what is long lies in short pieces.
//
// # The packages below
//
// All assembly of the project is here and in the packages below: vec (loops
// over float32 vectors, sums, solver updates), nn (the loops of layers), onebit
// (quantised matrices) and pixels (bytes of images to float32). What their generators have in common is
// internal/asm. blas and dnn bind libraries.
//
// # Next to the CPU
//
// A CPU's verbs are done when they return. Those of a GPU, over buffers of
// mem.CUDA, are in kernels/cuda, so that this package needs no cgo: they put work on a
// stream, and an event tells when it has been done. The rules above bind its
// kernels too: one source, compiled for GPUs and, in tests, for the host, where every
// result is compared with this package's.
//
// nbc.Device has a method for either kind (done at once, or a token that Poll
// reports), so a new device changes neither the engine nor this type.
package kernels
