// Package kernels combines and copies buffers: dst = a ⊕ b and dst = src,
// where ⊕ is a mem.Op over elements of a mem.Datatype. It also has the loops over
// float32 vectors that layers and solvers share; see Vectors below.
//
//	cpu, err := kernels.NewCPU()
//	…
//	err = cpu.Reduce(mem.Float32, mem.Sum, dst, a, b) // dst[i] = a[i] + b[i]
//
// It knows nothing of ranks and messages: package nbc calls it where a chunk
// has arrived.
//
// # What a result is
//
// Every path (portable Go, AVX2, later a GPU) gives the same bits for the same
// input, and every operator gives the same bits when a and b change places:
//
//   - Integer sums and products wrap around.
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
// are generated from internal/gen by go generate; no path needs cgo. The vector
// functions follow the variable too (and leave it to NewCPU to refuse a word).
//
// dst may be a, b or both, but may not overlap them in part. Addresses and
// lengths need no alignment on processors that load unaligned words (all
// that Go's 64-bit ports on amd64 and arm64 run on). Where dst is a buffer of
// its own and too big for the caches, the AVX2 path stores around them, which
// spares memory the reading of dst: three streams instead of four.
//
// # Vectors
//
// The functions over []float32 give the same bits on every path as well, apart
// from the payload of a NaN. None of them fuses a multiplication with an
// addition, and none allocates.
//
//   - Add, Mul, Scale, AddScaled, AddMul, Affine, Normalize and their kin are
//     elementwise. dst may be an operand, but not overlap one in part; operands
//     are at least as long as dst.
//
//   - Exp, Sigmoid and Tanh are within 2 units in the last place: 0.98, 1.46 and
//     1.32 are the largest errors of a fifth of all float32.
//
//   - Sums (Lanes, Sum, SumSquares, Dot) are taken in float64 in an order of their
//     own, the same for every processor.
//
//   - FirstNotFinite finds a NaN or an infinity, Max the largest element.
//
//   - Update is what a solver does to parameters, in one pass over memory:
//
//     u := kernels.Update{Scale: 1, Decay: 0.0005, Rate: 0.01, Clear: true}
//     u.SGD(0.9, w, g, h) // w by its gradient g and history h; g is 0 afterwards
//
// # Neighbours
//
// All assembly of the project stands here and in the packages below: nn (the
// loops of layers) and pixels (bytes of images to float32). What their
// generators have in common is internal/asm. blas and dnn bind libraries.
//
// # Beside the CPU
//
// A CPU's verbs are done when they return. A CUDA device joins as a second
// type, kernels.CUDA, with the same verbs over buffers of mem.CUDA, which
// only begin the work on a stream and return an event to be asked later:
//
//	Reduce(dt, op, dst, a, b) (Event, error)
//	Copy(dst, src) (Event, error) // host to device and back as well
//
// nbc.Device has a method for either kind (done at once, or a token that Poll
// reports), so a new device changes neither the engine nor this type. The
// rules above bind its kernels too.
package kernels
