// The kernels: one source for GPUs and, in tests, for the host (cudatest). It is C and
// CUDA at once, and uses neither barriers nor shared memory, so that a grid may be run thread
// by thread. go generate makes kernels.ptx of it.
//
// Results have the bits that package kernels prescribes, and those of vec.Update. So
// there is no -ffast-math, and no product is fused with a sum.
//
// All parameters are 64 bits wide: addresses, counts of elements, and numbers as the
// bits of a double. Buffers may begin at any address; where all of a kernel's buffers
// lie alike within 16 bytes, memory is read and written in lines of 16 bytes.

#include "grid.h"

// Lines are read and written by one instruction; the compiler by itself would read
// a line of small elements in four.
FUNCTION line get(const line *p) {
#ifdef __CUDA_ARCH__
  u32 x, y, z, w;
  asm volatile("{ .reg .u64 a; cvta.to.global.u64 a, %4; ld.global.v4.u32 {%0, %1, %2, %3}, [a]; }"
               : "=r"(x), "=r"(y), "=r"(z), "=r"(w) : "l"(p));
  return (line){x, y, z, w};
#else
  return *p;
#endif
}
FUNCTION void put(line *p, line v) {
#ifdef __CUDA_ARCH__
  asm volatile("{ .reg .u64 a; cvta.to.global.u64 a, %0; st.global.v4.u32 [a], {%1, %2, %3, %4}; }"
               : : "l"(p), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]) : "memory");
#else
  *p = v;
#endif
}

// A NaN that is a result is always this one.
FUNCTION f32 canonical32(f32 x) { return x != x ? float32(0x7fc00000) : x; }
FUNCTION f64 canonical64(f64 x) { return x != x ? float64(0x7ff8000000000000ull) : x; }

#ifdef __CUDA_ARCH__
FUNCTION f32 widen16(f16 h) { f32 x; asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h)); return x; }
FUNCTION f16 round16(f32 x) {
  f16 h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return x != x ? 0x7e00 : h;
}
#else
FUNCTION f32 widen16(f16 h) {
  u32 v = (u32)(h & 0x7fff) << 13, sign = (u32)(h & 0x8000) << 16;
  if ((v & 0x0f800000) == 0x0f800000) v |= 0x7f800000; // infinity and NaN
  else if ((v & 0x0f800000) == 0) v = bits32((f32)(h & 0x7fff) * 0x1p-24f);
  else v += (127 - 15) << 23;
  return float32(sign | v);
}
FUNCTION f16 round16(f32 x) {
  u32 v = bits32(x) & 0x7fffffff;
  f16 sign = (f16)(bits32(x) >> 16 & 0x8000);
  if (v > 0x7f800000) return 0x7e00;
  if (v >= 0x47800000) return sign | 0x7c00;                                                      // 2^16
  if (v < 0x38800000) return sign | (f16)(bits32(float32(v) + 0.5f) - bits32(0.5f)); // next to 0.5 numbers lie as far apart as subnormal f16
  v -= (127 - 15) << 23;
  return sign | (f16)((v + 0xfff + (v >> 13 & 1)) >> 13);
}
#endif
FUNCTION f32 widenb16(bf16 h) { return float32((u32)h << 16); }
FUNCTION bf16 roundb16(f32 x) {
  u32 v = bits32(x);
  return x != x ? 0x7fc0 : (bf16)((v + 0x7fff + (v >> 16 & 1)) >> 16);
}

// The operators. Sums and products of integers wrap around, to logical operators all but 0 is true; the minimum is NaN if either is, and
// -0 is less than +0.

// Some types have no kernels of their own for some of these: see operators.h.
#define INTEGER FUNCTION __attribute__((unused))
#define INTEGERS(t, unsigned)                                                                              \
  INTEGER t sum_##t(t x, t y) { return (t)((unsigned)x + (unsigned)y); }                                   \
  INTEGER t prod_##t(t x, t y) { return (t)((unsigned)x * (unsigned)y); }                                  \
  INTEGER t min_##t(t x, t y) { return x < y ? x : y; }                                                    \
  INTEGER t max_##t(t x, t y) { return x > y ? x : y; }                                                    \
  INTEGER t band_##t(t x, t y) { return x & y; }                                                           \
  INTEGER t bor_##t(t x, t y) { return x | y; }                                                            \
  INTEGER t bxor_##t(t x, t y) { return x ^ y; }                                                           \
  INTEGER t land_##t(t x, t y) { return (t)((x != 0) & (y != 0)); }                                        \
  INTEGER t lor_##t(t x, t y) { return (t)((x | y) != 0); }                                                \
  INTEGER t lxor_##t(t x, t y) { return (t)((x != 0) ^ (y != 0)); }                                        \
  INTEGER t quotient_##t(t x, i64 by) { return (t)(x / (t)by); }
INTEGERS(i8, u32)
INTEGERS(i16, u32)
INTEGERS(i32, u32)
INTEGERS(i64, u64)
INTEGERS(u8, u32)
INTEGERS(u16, u32)
INTEGERS(u32, u32)
INTEGERS(u64, u64)

#define FLOATS(t, n, u)                                                                                    \
  FUNCTION t sum_##t(t x, t y) { return canonical##n(x + y); }                                             \
  FUNCTION t prod_##t(t x, t y) { return canonical##n(x * y); }                                            \
  FUNCTION t min_##t(t x, t y) {                                                                           \
    if (x == y) return float##n(bits##n(x) | bits##n(y));                                                  \
    return x < y ? x : y < x ? y : canonical##n(x + y);                                                    \
  }                                                                                                        \
  FUNCTION t max_##t(t x, t y) {                                                                           \
    if (x == y) return float##n(bits##n(x) & bits##n(y));                                                  \
    return x > y ? x : y > x ? y : canonical##n(x + y);                                                    \
  }                                                                                                        \
  FUNCTION t quotient_##t(t x, i64 by) { /* a NaN keeps its payload, as on CPUs */                         \
    return x != x ? float##n(bits##n(x) | u) : x / (t)float64((u64)by);                                    \
  }
FLOATS(f32, 32, 0x400000u)
FLOATS(f64, 64, 0x8000000000000ull)

#define HALVES(t, h)                                                                                       \
  FUNCTION t sum_##t(t x, t y) { return round##h(widen##h(x) + widen##h(y)); }                             \
  FUNCTION t prod_##t(t x, t y) { return round##h(widen##h(x) * widen##h(y)); }                            \
  FUNCTION t min_##t(t x, t y) { return round##h(min_f32(widen##h(x), widen##h(y))); }                     \
  FUNCTION t max_##t(t x, t y) { return round##h(max_f32(widen##h(x), widen##h(y))); }                     \
  FUNCTION t quotient_##t(t x, i64 by) { return round##h(widen##h(x) / (f32)float64((u64)by)); }
HALVES(f16, 16)
HALVES(bf16, b16)

// How a kernel goes over its buffers: in lines, in elements, or, where an element may begin at
// an address that no load takes, in bytes.

FUNCTION u64 apart(const void *p, const void *q) { return (u64)p ^ (u64)q; }
FUNCTION int multiples(u64 addresses, u64 size) { return !(addresses & (size - 1)); }

// head is how many elements lie before the first line.
FUNCTION i64 head(const void *p, i64 size, i64 n) {
  i64 before = (i64)(-(u64)p & 15) / size;
  return before < n ? before : n;
}

#define LOAD(t, p, i)                                                                                      \
  t p##_i;                                                                                                 \
  __builtin_memcpy(&p##_i, (const u8 *)(p) + (i) * (i64)sizeof(t), sizeof(t))

// LINE does something to each of the up to 16 elements of a line. It is no loop: elements at indices
// that only a later pass of the compiler knows would lie in memory, not in registers.
#define LINE(n, at, f)                                                                                     \
  at(n, f, 0) at(n, f, 1) at(n, f, 2) at(n, f, 3) at(n, f, 4) at(n, f, 5) at(n, f, 6)                      \
  at(n, f, 7) at(n, f, 8) at(n, f, 9) at(n, f, 10) at(n, f, 11) at(n, f, 12) at(n, f, 13)                  \
  at(n, f, 14) at(n, f, 15)
#define COMBINE_AT(n, f, k) if ((k) < (n)) xs[(k) % (n)] = f(xs[(k) % (n)], ys[(k) % (n)]);
#define APPLY_AT(n, f, k) if ((k) < (n)) xs[(k) % (n)] = f(xs[(k) % (n)], by);
#define STEP_AT(n, f, k)                                                                                   \
  if ((k) < (n)) f(&ws[(k) % (n)], &gs[(k) % (n)], &hs[(k) % (n)], &us[(k) % (n)], scale, decay, rate, flags, p, q, r, s, t);

#define MAP2(t, f)                                                                                         \
  enum { V = 16 / sizeof(t) };                                                                             \
  u64 all = (u64)dst | (u64)a | (u64)b;                                                                    \
  if (multiples(apart(dst, a) | apart(dst, b), 16) && multiples(all, sizeof(t))) {                         \
    i64 h = head(dst, sizeof(t), n), lines = (n - h) / V, ends = n - lines * V;                            \
    line *d = (line *)(dst + h);                                                                           \
    const line *p = (const line *)(a + h), *q = (const line *)(b + h);                                     \
    EACH(i, lines) {                                                                                       \
      line x = get(&p[i]), y = get(&q[i]);                                                                 \
      t xs[V], ys[V];                                                                                      \
      __builtin_memcpy(xs, &x, 16);                                                                        \
      __builtin_memcpy(ys, &y, 16);                                                                        \
      LINE(V, COMBINE_AT, f)                                                                               \
      __builtin_memcpy(&x, xs, 16);                                                                        \
      put(&d[i], x);                                                                                       \
    }                                                                                                      \
    EACH(i, ends) {                                                                                        \
      i64 j = i < h ? i : i + lines * V;                                                                   \
      dst[j] = f(a[j], b[j]);                                                                              \
    }                                                                                                      \
  } else if (multiples(all, sizeof(t))) {                                                                  \
    EACH(i, n) dst[i] = f(a[i], b[i]);                                                                     \
  } else {                                                                                                 \
    EACH(i, n) {                                                                                           \
      LOAD(t, a, i);                                                                                       \
      LOAD(t, b, i);                                                                                       \
      t r = f(a_i, b_i);                                                                                   \
      __builtin_memcpy((u8 *)dst + i * (i64)sizeof(t), &r, sizeof(t));                                     \
    }                                                                                                      \
  }

#define MAP1(t, f)                                                                                         \
  enum { V = 16 / sizeof(t) };                                                                             \
  u64 all = (u64)dst | (u64)a;                                                                             \
  if (multiples(apart(dst, a), 16) && multiples(all, sizeof(t))) {                                         \
    i64 h = head(dst, sizeof(t), n), lines = (n - h) / V, ends = n - lines * V;                            \
    line *d = (line *)(dst + h);                                                                           \
    const line *p = (const line *)(a + h);                                                                 \
    EACH(i, lines) {                                                                                       \
      line x = get(&p[i]);                                                                                 \
      t xs[V];                                                                                             \
      __builtin_memcpy(xs, &x, 16);                                                                        \
      LINE(V, APPLY_AT, f)                                                                                 \
      __builtin_memcpy(&x, xs, 16);                                                                        \
      put(&d[i], x);                                                                                       \
    }                                                                                                      \
    EACH(i, ends) {                                                                                        \
      i64 j = i < h ? i : i + lines * V;                                                                   \
      dst[j] = f(a[j], by);                                                                                \
    }                                                                                                      \
  } else if (multiples(all, sizeof(t))) {                                                                  \
    EACH(i, n) dst[i] = f(a[i], by);                                                                       \
  } else {                                                                                                 \
    EACH(i, n) {                                                                                           \
      LOAD(t, a, i);                                                                                       \
      t r = f(a_i, by);                                                                                    \
      __builtin_memcpy((u8 *)dst + i * (i64)sizeof(t), &r, sizeof(t));                                     \
    }                                                                                                      \
  }

// reduce_T_OP: dst[i] = a[i] ⊕ b[i] for n elements; dst may be a, b or both.
// divide_T: dst[i] = a[i] / by, by a double's bits or, for integers, an integer.

#define COMBINES(t, op)                                                                                    \
  KERNEL reduce_##t##_##op(t *dst, const t *a, const t *b, i64 n) { MAP2(t, op##_##t) }
#define DIVIDES(t)                                                                                         \
  KERNEL divide_##t(t *dst, const t *a, i64 by, i64 n) { MAP1(t, quotient_##t) }
#include "operators.h"
ALL_OPERATORS(COMBINES, DIVIDES)

// sums_T: dst[i] = a[i] + b[i] + c[i] + …, one after the other, of the first count of eight operands, at least two, for n
// elements; dst may be any of them. All buffers begin at multiples of an element's size; pointers beyond count repeat another. All
// lines are read before the first is added, which hides how long memory lets a thread wait.

#define MORE(k, p) if (count > (k)) x##k = get((const line *)((p) + at));
#define SUM_LINE(t, k)                                                                                     \
  if (count > (k)) {                                                                                       \
    t ys[V];                                                                                               \
    __builtin_memcpy(ys, &x##k, 16);                                                                       \
    LINE(V, COMBINE_AT, sum_##t)                                                                           \
  }
#define SUM_AT(t, p, k, i) if (count > (k)) x = sum_##t(x, p[i]);
#define SUM_ONE(t, i)                                                                                      \
  {                                                                                                        \
    t x = sum_##t(a[i], b[i]);                                                                             \
    SUM_AT(t, c, 2, i) SUM_AT(t, d, 3, i) SUM_AT(t, e, 4, i) SUM_AT(t, f, 5, i) SUM_AT(t, g, 6, i)         \
    SUM_AT(t, h, 7, i)                                                                                     \
    dst[i] = x;                                                                                            \
  }
#define SUMS(t)                                                                                            \
  KERNEL sums_##t(t *dst, const t *a, const t *b, const t *c, const t *d, const t *e, const t *f,          \
                  const t *g, const t *h, i64 n, i64 count) {                                              \
    enum { V = 16 / sizeof(t) };                                                                           \
    u64 unlike = apart(dst, a) | apart(dst, b) | apart(dst, c) | apart(dst, d) | apart(dst, e) |           \
                 apart(dst, f) | apart(dst, g) | apart(dst, h);                                            \
    if (multiples(unlike, 16)) {                                                                           \
      i64 first = head(dst, sizeof(t), n), lines = (n - first) / V, ends = n - lines * V;                  \
      EACH(i, lines) {                                                                                     \
        i64 at = first + i * V;                                                                            \
        line x0 = get((const line *)(a + at)), x1 = get((const line *)(b + at));                           \
        line x2 = x1, x3 = x1, x4 = x1, x5 = x1, x6 = x1, x7 = x1;                                         \
        MORE(2, c) MORE(3, d) MORE(4, e) MORE(5, f) MORE(6, g) MORE(7, h)                                  \
        t xs[V];                                                                                           \
        __builtin_memcpy(xs, &x0, 16);                                                                     \
        SUM_LINE(t, 1) SUM_LINE(t, 2) SUM_LINE(t, 3) SUM_LINE(t, 4) SUM_LINE(t, 5) SUM_LINE(t, 6)          \
        SUM_LINE(t, 7)                                                                                     \
        __builtin_memcpy(&x0, xs, 16);                                                                     \
        put((line *)(dst + at), x0);                                                                       \
      }                                                                                                    \
      EACH(i, ends) {                                                                                      \
        i64 j = i < first ? i : i + lines * V;                                                             \
        SUM_ONE(t, j)                                                                                      \
      }                                                                                                    \
    } else {                                                                                               \
      EACH(i, n) SUM_ONE(t, i)                                                                             \
    }                                                                                                      \
  }
SUMS(f32) SUMS(f64) SUMS(f16) SUMS(bf16)

// copy: dst[i] = a[i] for n bytes.

FUNCTION u8 same(u8 x, i64 unused) { return (void)unused, x; }
KERNEL copy(u8 *dst, const u8 *a, i64 n) {
  const i64 by = 0;
  MAP1(u8, same)
}

// update_RULE: what vec.Update does, with its names: parameters w, gradients g, history
// h and, for two rules, u, of n elements; p to t are the rule's factors. flags are 1 for L1 and
// 2 to clear g. All buffers begin at multiples of 4.

enum { L1 = 1, CLEAR = 2 };

FUNCTION f32 sign(f32 x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : 0.0f; }

#define FACTOR(x) f32 x = (f32)float64((u64)x##_)
#define RULE(name, has_u, ...)                                                                             \
  FUNCTION void step_##name(f32 *w, f32 *g, f32 *h, f32 *u, f32 scale, f32 decay, f32 rate, i64 flags,     \
                            f32 p, f32 q, f32 r, f32 s, f32 t) {                                           \
    (void)u, (void)p, (void)q, (void)r, (void)s, (void)t;                                                  \
    f32 d = *g * scale + decay * (flags & L1 ? sign(*w) : *w);                                             \
    __VA_ARGS__                                                                                            \
    if (flags & CLEAR) *g = 0;                                                                             \
  }                                                                                                        \
  KERNEL update_##name(f32 *w, f32 *g, f32 *h, f32 *u, i64 n, i64 scale_, i64 decay_, i64 rate_, i64 flags, \
                       i64 p_, i64 q_, i64 r_, i64 s_, i64 t_) {                                           \
    FACTOR(scale); FACTOR(decay); FACTOR(rate);                                                            \
    FACTOR(p); FACTOR(q); FACTOR(r); FACTOR(s); FACTOR(t);                                                 \
    if (multiples(apart(w, g) | apart(w, h) | (has_u ? apart(w, u) : 0), 16)) {                            \
      i64 first = head(w, 4, n), lines = (n - first) / 4, ends = n - lines * 4;                            \
      line *wl = (line *)(w + first), *gl = (line *)(g + first), *hl = (line *)(h + first);                \
      line *ul = (line *)(has_u ? u + first : h + first);                                                  \
      EACH(i, lines) {                                                                                     \
        line x = get(&wl[i]), y = get(&gl[i]), z = get(&hl[i]), o = z;                                     \
        if (has_u) o = get(&ul[i]);                                                                        \
        f32 ws[4], gs[4], hs[4], us[4];                                                                    \
        __builtin_memcpy(ws, &x, 16);                                                                      \
        __builtin_memcpy(gs, &y, 16);                                                                      \
        __builtin_memcpy(hs, &z, 16);                                                                      \
        __builtin_memcpy(us, &o, 16);                                                                      \
        LINE(4, STEP_AT, step_##name)                                                                      \
        __builtin_memcpy(&x, ws, 16);                                                                      \
        __builtin_memcpy(&y, gs, 16);                                                                      \
        __builtin_memcpy(&z, hs, 16);                                                                      \
        __builtin_memcpy(&o, us, 16);                                                                      \
        put(&wl[i], x);                                                                                    \
        put(&hl[i], z);                                                                                    \
        if (flags & CLEAR) put(&gl[i], y);                                                                 \
        if (has_u) put(&ul[i], o);                                                                         \
      }                                                                                                    \
      EACH(i, ends) {                                                                                      \
        i64 j = i < first ? i : i + lines * 4;                                                             \
        step_##name(w + j, g + j, h + j, has_u ? u + j : h + j, scale, decay, rate, flags, p, q, r, s, t); \
      }                                                                                                    \
    } else {                                                                                               \
      EACH(i, n) step_##name(w + i, g + i, h + i, has_u ? u + i : h + i, scale, decay, rate, flags, p, q, r, s, t); \
    }                                                                                                      \
  }

RULE(sgd, 0, {
  f32 v = rate * d + p * *h;
  *h = v;
  *w -= v;
})
RULE(nesterov, 0, {
  f32 old = p * *h, v = rate * d + old;
  *h = v;
  *w -= q * v - old;
})
RULE(adagrad, 0, {
  f32 v = *h + d * d;
  *h = v;
  *w -= rate * (d / (root(v) + p));
})
RULE(rmsprop, 0, {
  f32 v = q * (d * d) + p * *h;
  *h = v;
  *w -= rate * (d / (root(v) + r));
})
RULE(adadelta, 1, {
  f32 second = q * (d * d) + p * *h;
  f32 v = d * root((*u + r) / (second + r));
  *h = second;
  *u = q * (v * v) + p * *u;
  *w -= rate * v;
})
RULE(adam, 1, {
  f32 first = q * d + p * *h, second = s * (d * d) + r * *u;
  *h = first;
  *u = second;
  *w -= rate * (first / (root(second) + t));
})
