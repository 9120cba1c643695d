// What kernels.cu and layers.cu have in common: types, and a grid of threads, which on the host is
// run one by one.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef float f32;
typedef double f64;
typedef u16 f16;  // their bits
typedef u16 bf16;
typedef u32 line __attribute__((vector_size(16)));

#ifdef __CUDA__
#define KERNEL extern "C" __attribute__((global)) void
#define FUNCTION static inline __attribute__((device, always_inline))
FUNCTION i64 thread(void) {
  return (i64)__nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x() + __nvvm_read_ptx_sreg_tid_x();
}
FUNCTION i64 threads(void) { return (i64)__nvvm_read_ptx_sreg_nctaid_x() * __nvvm_read_ptx_sreg_ntid_x(); }
FUNCTION f32 root(f32 x) { return __nvvm_sqrt_rn_f(x); }
#else
#define KERNEL static void
#define FUNCTION static inline __attribute__((always_inline, unused))
static __thread i64 the_thread, of_threads;
FUNCTION i64 thread(void) { return the_thread; }
FUNCTION i64 threads(void) { return of_threads; }
FUNCTION f32 root(f32 x) { return __builtin_sqrtf(x); }
#endif

// EACH goes over n items, a thread's every so many.
#define EACH(i, n) for (i64 i = thread(), step_ = threads(); i < (n); i += step_)

// Bits and numbers.

FUNCTION u32 bits32(f32 x) { u32 b; __builtin_memcpy(&b, &x, 4); return b; }
FUNCTION f32 float32(u32 b) { f32 x; __builtin_memcpy(&x, &b, 4); return x; }
FUNCTION u64 bits64(f64 x) { u64 b; __builtin_memcpy(&b, &x, 8); return b; }
FUNCTION f64 float64(u64 b) { f64 x; __builtin_memcpy(&x, &b, 8); return x; }
