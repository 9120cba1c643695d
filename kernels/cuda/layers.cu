// The kernels of layers, in float32: one source for GPUs and, in tests, for the host, as kernels.cu.
// go generate makes layers.ptx of it. The file layers.go names them, and caffe/layers launches them.
//
// A kernel's parameters are its buffers, each as an address and how many bytes it has, and then
// integers; a parameter with the ending _ is a number as the bits of a double. Buffers begin at
// multiples of 4, those of float64 at multiples of 8.
//
// Sums have a fixed order, so results are the same each time. Products are fused with sums in the kernel
// product alone. Where a loop of the CPU's adds in the same order, results have its bits.

#include "grid.h"

#define B(t, name) t *name, i64 name##_bytes
#define COUNT(name) (name##_bytes / (i64)sizeof *name)
#define UNUSED(name) (void)name##_bytes
#define NUMBER(name) float64((u64)name##_)

#ifdef __CUDA__
#define UNROLL _Pragma("unroll")
FUNCTION f32 fused(f32 a, f32 b, f32 c) { return __nvvm_fma_rn_f(a, b, c); }
FUNCTION f64 root64(f64 x) { return __nvvm_sqrt_rn_d(x); }
#else
#define UNROLL
FUNCTION f32 fused(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }
FUNCTION f64 root64(f64 x) { return __builtin_sqrt(x); }
#endif

FUNCTION i64 least(i64 a, i64 b) { return a < b ? a : b; }
FUNCTION i64 most(i64 a, i64 b) { return a > b ? a : b; }

// exponential has the bits of vec.Exp, whose comments say how it works.
FUNCTION f32 exponential(f32 x) {
  if (89.0f < x) x = 89.0f;
  if (-104.0f > x) x = -104.0f;
  const f32 shifter = 12582912.0f;
  f32 shifted = x * 1.4426950216293335f + shifter, n = shifted - shifter;
  f32 r = (x - n * 0.693359375f) + n * 0.00021219444170128554f;
  f32 p = 0.0013814540579915047f * r + 0.00836874540620514f;
  p = p * r + 0.04166838899254799f;
  p = p * r + 0.1666652113199234f;
  p = p * r + 0.4999999403953552f;
  p = (p * (r * r) + r) + 1;
  if (p != p) return p;
  i32 k = (i32)(bits32(shifted) - bits32(shifter)), half = k >> 1;
  p *= float32((u32)(half + 127) << 23);
  return p * float32((u32)(k - half + 127) << 23);
}

// logarithm is the natural one of a number above 0 that is not subnormal (FreeBSD's e_log.c).
FUNCTION f64 logarithm(f64 x) {
  if (x != x || bits64(x) == 0x7ff0000000000000ull) return x;
  u64 b = bits64(x);
  i64 k = (i64)(b >> 52) - 1022;
  f64 f = float64((b & 0xfffffffffffffull) | 0x3fe0000000000000ull); // in [0.5, 1)
  if (f < 0.70710678118654752440) {
    f *= 2;
    k--;
  }
  f -= 1;
  f64 s = f / (2 + f), s2 = s * s, s4 = s2 * s2;
  f64 t1 = s2 * (6.666666666666735130e-01 + s4 * (2.857142874366239149e-01 + s4 * (1.818357216161805012e-01 + s4 * 1.479819860511658591e-01)));
  f64 t2 = s4 * (3.999999999940941908e-01 + s4 * (2.222219843214978396e-01 + s4 * 1.531383769920937332e-01));
  f64 r = t1 + t2, h = 0.5 * f * f;
  return (f64)k * 6.93147180369123816490e-01 - ((h - (s * (h + r) + (f64)k * 1.90821492927058770002e-10)) - f);
}

// exponential64 is eˣ for |x| below 700, by its series after the powers of two are taken out.
FUNCTION f64 exponential64(f64 x) {
  f64 t = x * 1.44269504088896338700e+00;
  i64 k = (i64)(t < 0 ? t - 0.5 : t + 0.5);
  f64 r = (x - (f64)k * 6.93147180369123816490e-01) - (f64)k * 1.90821492927058770002e-10;
  f64 p = 1;
  for (i64 i = 14; i > 0; i--) p = 1 + p * r / (f64)i;
  return p * float64((u64)(k + 1023) << 52);
}

// negative_power is s^−beta of a scale of LRN.
FUNCTION f32 negative_power(f32 s, f64 beta) {
  if (beta == 0.75) {
    f32 r = root(s);
    return 1 / (r * root(r));
  }
  return (f32)exponential64(-beta * logarithm((f64)s));
}

// Vectors.

KERNEL fill(B(f32, y), i64 value_) {
  f32 value = (f32)NUMBER(value);
  EACH(i, COUNT(y)) y[i] = value;
}

KERNEL multiply(B(f32, y), B(const f32, a), B(const f32, b)) {
  UNUSED(a), UNUSED(b);
  EACH(i, COUNT(y)) y[i] = a[i] * b[i];
}

// scaled: y = factor · x, or y += factor · x.
KERNEL scaled(B(f32, y), B(const f32, x), i64 factor_, i64 add) {
  UNUSED(x);
  f32 factor = (f32)NUMBER(factor);
  EACH(i, COUNT(y)) {
    f32 v = factor * x[i];
    y[i] = add ? y[i] + v : v;
  }
}

// part copies columns: row r of dst, at dst_at, takes n elements of row r of src, at src_at.
KERNEL part(B(f32, dst), B(const f32, src), i64 rows, i64 n, i64 dst_row, i64 dst_at, i64 src_row, i64 src_at) {
  UNUSED(dst), UNUSED(src);
  EACH(i, rows * n) {
    i64 r = i / n, k = i % n;
    dst[r * dst_row + dst_at + k] = src[r * src_row + src_at + k];
  }
}

// not_finite leaves where[0] = the number of an element that is NaN or infinite plus first plus 1, and where[1] its value,
// unless something is there already; of several any.
KERNEL not_finite(B(f64, where), B(const f32, x), i64 first) {
  UNUSED(where);
  EACH(i, COUNT(x)) if (!(x[i] - x[i] == 0) && where[0] == 0) {
    where[1] = (f64)x[i];
    where[0] = (f64)(first + i + 1);
  }
}

// Sums.

// add_rows: dst[j] += Σ src[r][j] over the rows.
KERNEL add_rows(B(f32, dst), B(const f32, src), i64 rows) {
  UNUSED(src);
  i64 n = COUNT(dst);
  EACH(j, n) {
    f32 sum = 0;
    for (i64 r = 0; r < rows; r++) sum += src[r * n + j];
    dst[j] += sum;
  }
}

// sum_planes: dst[i] = Σ src[i][k] over a plane.
KERNEL sum_planes(B(f32, dst), B(const f32, src), i64 plane) {
  UNUSED(src);
  EACH(i, COUNT(dst)) {
    f64 sum = 0;
    for (i64 k = 0; k < plane; k++) sum += (f64)src[i * plane + k];
    dst[i] = (f32)sum;
  }
}

// add_bias: y[n][c][k] += b[c].
KERNEL add_bias(B(f32, y), B(const f32, b), i64 plane) {
  i64 channels = COUNT(b);
  EACH(i, COUNT(y)) y[i] += b[i / plane % channels];
}

// pair_sums has for each plane of an image the sum of a, and that of a·b; without b, of a's distances from the
// channel's first element, and of their squares.
KERNEL pair_sums(B(f64, sums), B(const f32, a), B(const f32, b), i64 channels, i64 plane) {
  UNUSED(a);
  EACH(i, COUNT(sums) / 2) {
    f64 first = 0, second = 0, origin = b_bytes ? 0 : (f64)a[i % channels * plane];
    for (i64 k = i * plane; k < (i + 1) * plane; k++) {
      f64 v = (f64)a[k] - origin;
      first += v;
      second += v * (b_bytes ? (f64)b[k] : v);
    }
    sums[2 * i] = first;
    sums[2 * i + 1] = second;
  }
}

// add_pair_sums adds pair_sums, over the images, to the gradients of a bias and of factors; either may be missing.
KERNEL add_pair_sums(B(f32, bias), B(f32, factors), B(const f64, sums), i64 channels) {
  i64 images = COUNT(sums) / 2 / channels;
  EACH(c, channels) {
    f64 first = 0, second = 0;
    for (i64 n = 0; n < images; n++) {
      first += sums[2 * (n * channels + c)];
      second += sums[2 * (n * channels + c) + 1];
    }
    if (bias_bytes) bias[c] += (f32)first;
    if (factors_bytes) factors[c] += (f32)second;
  }
}

// Products of matrices.

// product: c = op(a)·op(b), or c +=, for each of batch matrices, which lie a_step, b_step and c_step elements apart. Element
// (i, k) of op(a) is a[i·ai + k·ak], (k, j) of op(b) is b[k·bk + j·bj], (i, j) of c is c[i·cols + j].
// A thread has a tile of TILE rows and TILE columns in registers; its columns lie far apart, so that neighbors
// read what is next to each other.
enum { TILE = 4 };
KERNEL product(B(f32, c), B(const f32, a), B(const f32, b), i64 m, i64 n, i64 k, i64 ai, i64 ak, i64 bk, i64 bj, i64 cols,
               i64 batch, i64 a_step, i64 b_step, i64 c_step, i64 add) {
  UNUSED(c), UNUSED(a), UNUSED(b);
  i64 tall = (m + TILE - 1) / TILE, wide = (n + TILE - 1) / TILE;
  EACH(t, batch * tall * wide) {
    i64 j = t % wide, i = t / wide % tall * TILE, z = t / wide / tall;
    const f32 *p[TILE], *q[TILE];
    f32 sums[TILE][TILE];
    UNROLL for (int r = 0; r < TILE; r++) {
      p[r] = a + z * a_step + least(i + r, m - 1) * ai; // beyond the edge: the last again, and not written
      q[r] = b + z * b_step + least(j + r * wide, n - 1) * bj;
      UNROLL for (int s = 0; s < TILE; s++) sums[r][s] = 0;
    }
    for (i64 l = 0; l < k; l++) {
      f32 x[TILE], y[TILE];
      UNROLL for (int r = 0; r < TILE; r++) {
        x[r] = p[r][l * ak];
        y[r] = q[r][l * bk];
      }
      UNROLL for (int r = 0; r < TILE; r++) {
        UNROLL for (int s = 0; s < TILE; s++) sums[r][s] = fused(x[r], y[s], sums[r][s]);
      }
    }
    f32 *to = c + z * c_step;
    UNROLL for (int r = 0; r < TILE; r++) {
      UNROLL for (int s = 0; s < TILE; s++) {
        i64 row = i + r, col = j + s * wide;
        if (row < m && col < n) {
          i64 at = row * cols + col;
          to[at] = add ? to[at] + sums[r][s] : sums[r][s];
        }
      }
    }
  }
}

// Convolutions.

// im2col: for each image, a row for each channel and tap of the kernel, a column for each place of the output.
KERNEL im2col(B(f32, cols), B(const f32, x), i64 channels, i64 h, i64 w, i64 oh, i64 ow, i64 kh, i64 kw, i64 ph, i64 pw, i64 sh,
              i64 sw, i64 dh, i64 dw) {
  UNUSED(x);
  i64 taps = kh * kw, plane = oh * ow;
  EACH(i, COUNT(cols)) {
    i64 at = i % plane, row = i / plane % (channels * taps), image = i / plane / (channels * taps);
    i64 tap = row % taps, ch = row / taps;
    i64 y = at / ow * sh - ph + tap / kw * dh, z = at % ow * sw - pw + tap % kw * dw;
    cols[i] = y >= 0 && y < h && z >= 0 && z < w ? x[((image * channels + ch) * h + y) * w + z] : 0;
  }
}

// col2im: the reverse; each element of x takes what was made of it.
KERNEL col2im(B(f32, x), B(const f32, cols), i64 channels, i64 h, i64 w, i64 oh, i64 ow, i64 kh, i64 kw, i64 ph, i64 pw, i64 sh,
              i64 sw, i64 dh, i64 dw) {
  UNUSED(cols), (void)channels;
  i64 plane = oh * ow;
  EACH(i, COUNT(x)) {
    i64 z = i % w + pw, y = i / w % h + ph, ch = i / w / h; // of all images
    f32 sum = 0;
    for (i64 u = 0; u < kh; u++) {
      i64 r = y - u * dh;
      if (r < 0 || r % sh || r / sh >= oh) continue;
      for (i64 v = 0; v < kw; v++) {
        i64 c = z - v * dw;
        if (c < 0 || c % sw || c / sw >= ow) continue;
        sum += cols[((ch * kh + u) * kw + v) * plane + r / sh * ow + c / sw];
      }
    }
    x[i] = sum;
  }
}

// Neurons.

KERNEL relu_forward(B(f32, y), B(const f32, x), i64 slope_) {
  UNUSED(x);
  f32 slope = (f32)NUMBER(slope);
  EACH(i, COUNT(y)) {
    f32 v = x[i];
    if (slope != 0) {
      y[i] = v != v ? v : (v > 0 ? v : 0) + slope * (v < 0 ? v : 0);
    } else {
      u32 b = bits32(v);
      y[i] = b - 0x80000000u <= 0x7f800000u ? 0 : v;
    }
  }
}

KERNEL relu_backward(B(f32, dx), B(const f32, dy), B(const f32, x), i64 slope_) {
  UNUSED(dy), UNUSED(x);
  f32 slope = (f32)NUMBER(slope);
  EACH(i, COUNT(dx)) {
    int above = bits32(x[i]) - 1 < 0x7fffffffu;
    dx[i] = above ? dy[i] : slope != 0 ? dy[i] * slope : 0;
  }
}

// Pooling. The windows along an axis begin at i·stride − pad.

// A key orders as the value does; a NaN with a clear sign bit is above all.
FUNCTION i32 key_of(f32 v) {
  u32 b = bits32(v + 0);
  return (i32)(b ^ (b >> 31 ? 0x7fffffffu : 0));
}

// max_forward keeps the place of each maximum in its plane, as an integer's bits.
KERNEL max_forward(B(f32, y), B(f32, mask), B(const f32, x), i64 h, i64 w, i64 oh, i64 ow, i64 kh, i64 kw, i64 ph, i64 pw,
                   i64 sh, i64 sw) {
  UNUSED(mask), UNUSED(x);
  EACH(i, COUNT(y)) {
    i64 at_y = i / ow % oh * sh - ph, at_x = i % ow * sw - pw;
    const f32 *plane = x + i / ow / oh * h * w;
    i64 best = -1;
    i32 key = 0;
    for (i64 r = most(at_y, 0); r < least(at_y + kh, h); r++)
      for (i64 c = most(at_x, 0); c < least(at_x + kw, w); c++) {
        i32 k = key_of(plane[r * w + c]);
        if (best < 0 || k > key) best = r * w + c, key = k;
      }
    y[i] = plane[best];
    mask[i] = float32((u32)best);
  }
}

// first_over is the first window over place at of an axis: windows begin every stride from −pad on.
FUNCTION i64 first_over(i64 at, i64 kernel, i64 pad, i64 stride) {
  i64 from = at + pad - kernel;
  return from < 0 ? 0 : from / stride + 1;
}

KERNEL max_backward(B(f32, dx), B(const f32, dy), B(const f32, mask), i64 h, i64 w, i64 oh, i64 ow, i64 kh, i64 kw, i64 ph,
                    i64 pw, i64 sh, i64 sw) {
  UNUSED(dy), UNUSED(mask);
  EACH(i, COUNT(dx)) {
    i64 c = i % w, r = i / w % h, out = i / w / h * oh * ow;
    f32 sum = 0;
    for (i64 y = first_over(r, kh, ph, sh); y < oh && y * sh - ph <= r; y++)
      for (i64 x = first_over(c, kw, pw, sw); x < ow && x * sw - pw <= c; x++) {
        i64 at = out + y * ow + x;
        if ((i64)bits32(mask[at]) == r * w + c) sum += dy[at];
      }
    dx[i] = sum;
  }
}

// size_of is how many elements of the padded axis a window has.
FUNCTION i64 size_of(i64 begin, i64 kernel, i64 n, i64 pad) { return least(begin + kernel, n + pad) - begin; }

KERNEL ave_forward(B(f32, y), B(const f32, x), i64 h, i64 w, i64 oh, i64 ow, i64 kh, i64 kw, i64 ph, i64 pw, i64 sh, i64 sw) {
  UNUSED(x);
  EACH(i, COUNT(y)) {
    i64 at_y = i / ow % oh * sh - ph, at_x = i % ow * sw - pw;
    const f32 *plane = x + i / ow / oh * h * w;
    f32 sum = 0;
    for (i64 c = most(at_x, 0); c < least(at_x + kw, w); c++) {
      i64 r = most(at_y, 0);
      f32 column = plane[r * w + c];
      for (r++; r < least(at_y + kh, h); r++) column += plane[r * w + c];
      sum += column;
    }
    y[i] = sum / (f32)(size_of(at_y, kh, h, ph) * size_of(at_x, kw, w, pw));
  }
}

KERNEL ave_backward(B(f32, dx), B(const f32, dy), i64 h, i64 w, i64 oh, i64 ow, i64 kh, i64 kw, i64 ph, i64 pw, i64 sh, i64 sw) {
  UNUSED(dy);
  EACH(i, COUNT(dx)) {
    i64 c = i % w, r = i / w % h;
    const f32 *out = dy + i / w / h * oh * ow;
    f32 sum = 0;
    for (i64 y = first_over(r, kh, ph, sh); y < oh && y * sh - ph <= r; y++) {
      f32 row = 0;
      for (i64 x = first_over(c, kw, pw, sw); x < ow && x * sw - pw <= c; x++)
        row += out[y * ow + x] / (f32)(size_of(y * sh - ph, kh, h, ph) * size_of(x * sw - pw, kw, w, pw));
      sum += row;
    }
    dx[i] = sum;
  }
}

// Softmax and losses, over outer × channels × inner.

KERNEL softmax_forward(B(f32, y), B(const f32, x), i64 channels, i64 inner) {
  UNUSED(x);
  EACH(i, COUNT(y) / channels) {
    i64 at = i / inner * channels * inner + i % inner, end = at + channels * inner;
    f32 top = x[at];
    for (i64 k = at; k < end; k += inner) top = x[k] > top ? x[k] : top;
    f64 sum = 0;
    for (i64 k = at; k < end; k += inner) {
      f32 e = exponential(x[k] - top);
      y[k] = e;
      sum += (f64)e;
    }
    f32 by = (f32)(1 / sum);
    for (i64 k = at; k < end; k += inner) y[k] = by * y[k];
  }
}

KERNEL softmax_backward(B(f32, dx), B(const f32, dy), B(const f32, y), i64 channels, i64 inner) {
  UNUSED(dy), UNUSED(y);
  EACH(i, COUNT(dx) / channels) {
    i64 at = i / inner * channels * inner + i % inner, end = at + channels * inner;
    f64 sum = 0;
    for (i64 k = at; k < end; k += inner) sum += (f64)y[k] * (f64)dy[k];
    f32 mean = (f32)sum;
    for (i64 k = at; k < end; k += inner) dx[k] = (dy[k] - mean) * y[k];
  }
}

// label_of is a label's class, −1 for one to leave out; the host has seen that it is a class.
FUNCTION i64 label_of(f32 v, i64 leaves, i64 ignored) {
  i64 c = (i64)v;
  return leaves && c == ignored ? -1 : c;
}

KERNEL loss_of_each(B(f64, each), B(const f32, prob), B(const f32, labels), i64 channels, i64 inner, i64 leaves, i64 ignored) {
  UNUSED(prob), UNUSED(labels);
  EACH(i, COUNT(each)) {
    i64 c = label_of(labels[i], leaves, ignored);
    f64 p = c < 0 ? 1 : (f64)prob[(i / inner * channels + c) * inner + i % inner];
    each[i] = c < 0 ? 0 : logarithm(p < 0x1p-126 ? 0x1p-126 : p);
  }
}

// mean_of sums up what there is of each, in order; sign is that of the loss.
KERNEL mean_of(B(f32, to), B(const f64, each), i64 divisor_, i64 sign) {
  UNUSED(to);
  EACH(one, 1) {
    f64 sum = 0;
    for (i64 i = 0; i < COUNT(each); i++) sum = sign < 0 ? sum - each[i] : sum + each[i];
    to[one] = (f32)(sum / NUMBER(divisor));
  }
}

KERNEL loss_backward(B(f32, dx), B(const f32, prob), B(const f32, labels), i64 channels, i64 inner, i64 leaves, i64 ignored,
                     i64 g_) {
  UNUSED(prob), UNUSED(labels);
  f32 g = (f32)NUMBER(g);
  EACH(i, COUNT(dx)) {
    i64 c = label_of(labels[i / inner / channels * inner + i % inner], leaves, ignored);
    f32 d = g * prob[i];
    dx[i] = c < 0 ? 0 : i / inner % channels == c ? d - g : d;
  }
}

KERNEL hits(B(f64, each), B(const f32, x), B(const f32, labels), i64 channels, i64 inner, i64 most_better, i64 leaves,
            i64 ignored) {
  UNUSED(x), UNUSED(labels);
  EACH(i, COUNT(each)) {
    i64 c = label_of(labels[i], leaves, ignored), first = i / inner * channels * inner + i % inner, better = 0;
    each[i] = 0;
    if (c < 0) continue;
    f32 score = x[first + c * inner];
    for (i64 k = 0; k < channels; k++) better += k != c && !(x[first + k * inner] < score);
    each[i] = better < most_better;
  }
}

// Local response normalization.

// lrn_across: scale = k + alpha · Σ x² over the neighboring channels, y = x · scale^−beta.
KERNEL lrn_across(B(f32, y), B(f32, scale), B(const f32, x), i64 channels, i64 plane, i64 half, i64 k_, i64 alpha_, i64 beta_) {
  UNUSED(scale), UNUSED(x);
  f32 one = (f32)NUMBER(k), alpha = (f32)NUMBER(alpha);
  EACH(i, COUNT(y)) {
    i64 c = i / plane % channels, from = most(c - half, 0), to = least(c + half, channels - 1);
    f32 sum = 0;
    for (i64 d = from; d <= to; d++) {
      f32 v = x[i + (d - c) * plane];
      sum += v * v;
    }
    f32 s = one + alpha * sum;
    scale[i] = s;
    y[i] = x[i] * negative_power(s, NUMBER(beta));
  }
}

KERNEL lrn_across_backward(B(f32, dx), B(const f32, x), B(const f32, y), B(const f32, dy), B(const f32, scale), i64 channels,
                           i64 plane, i64 half, i64 factor_, i64 beta_) {
  UNUSED(x), UNUSED(y), UNUSED(dy), UNUSED(scale);
  f32 factor = (f32)NUMBER(factor);
  EACH(i, COUNT(dx)) {
    i64 c = i / plane % channels, from = most(c - half, 0), to = least(c + half, channels - 1);
    f32 sum = 0;
    for (i64 d = from; d <= to; d++) {
      i64 j = i + (d - c) * plane;
      sum += y[j] * dy[j] / scale[j];
    }
    dx[i] = dy[i] * negative_power(scale[i], NUMBER(beta)) - factor * x[i] * sum;
  }
}

// lrn_within takes the means of squares in scale, and makes the scales of them.
KERNEL lrn_within(B(f32, y), B(f32, scale), B(const f32, x), i64 alpha_, i64 beta_) {
  UNUSED(scale), UNUSED(x);
  f32 alpha = (f32)NUMBER(alpha);
  EACH(i, COUNT(y)) {
    f32 s = 1 + alpha * scale[i];
    scale[i] = s;
    y[i] = x[i] * negative_power(s, NUMBER(beta));
  }
}

KERNEL lrn_ratio(B(f32, to), B(const f32, y), B(const f32, dy), B(const f32, scale)) {
  UNUSED(y), UNUSED(dy), UNUSED(scale);
  EACH(i, COUNT(to)) to[i] = y[i] * dy[i] / scale[i];
}

// lrn_within_backward takes the second term's sums in sums; dx may be these.
KERNEL lrn_within_backward(B(f32, dx), B(const f32, sums), B(const f32, x), B(const f32, dy), B(const f32, scale), i64 factor_,
                           i64 beta_) {
  UNUSED(sums), UNUSED(x), UNUSED(dy), UNUSED(scale);
  f32 factor = (f32)NUMBER(factor);
  EACH(i, COUNT(dx)) dx[i] = dy[i] * negative_power(scale[i], NUMBER(beta)) - factor * x[i] * sums[i];
}

// Eltwise.

// greater takes x where it is above y, and its number; the first time everything.
KERNEL greater(B(f32, y), B(f32, winner), B(const f32, x), i64 number, i64 first) {
  UNUSED(winner), UNUSED(x);
  EACH(i, COUNT(y)) if (first || x[i] > y[i]) {
    y[i] = x[i];
    winner[i] = (f32)number;
  }
}

KERNEL where_number(B(f32, dx), B(const f32, dy), B(const f32, winner), i64 number) {
  UNUSED(dy), UNUSED(winner);
  EACH(i, COUNT(dx)) dx[i] = winner[i] == (f32)number ? dy[i] : 0;
}

// product_gradient: dx = y / x · dy.
KERNEL product_gradient(B(f32, dx), B(const f32, y), B(const f32, x), B(const f32, dy)) {
  UNUSED(y), UNUSED(x), UNUSED(dy);
  EACH(i, COUNT(dx)) dx[i] = y[i] / x[i] * dy[i];
}

// Channels: BatchNorm and Scale.

// affine: y = f[c] · x, + b[c] where there is a b.
KERNEL affine(B(f32, y), B(const f32, x), B(const f32, f), B(const f32, b), i64 plane) {
  UNUSED(x);
  i64 channels = COUNT(f);
  EACH(i, COUNT(y)) {
    i64 c = i / plane % channels;
    f32 v = f[c] * x[i];
    y[i] = b_bytes ? v + b[c] : v;
  }
}

// moments takes pair_sums of a batch to means and 1/√(variance + eps), and into the running ones.
KERNEL moments(B(f32, mean), B(f32, inverse), B(f32, run_mean), B(f32, run_variance), B(f32, run_weight), B(const f64, sums),
               B(const f32, x), i64 plane, i64 fraction_, i64 eps_) {
  UNUSED(inverse), UNUSED(run_mean), UNUSED(run_variance), UNUSED(run_weight), UNUSED(x);
  i64 channels = COUNT(mean), images = COUNT(sums) / 2 / channels;
  f64 n = (f64)(images * plane), unbiased = n > 1 ? n / (n - 1) : 1;
  f32 fraction = (f32)NUMBER(fraction);
  EACH(c, channels) {
    f64 first = 0, second = 0;
    for (i64 i = 0; i < images; i++) {
      first += sums[2 * (i * channels + c)];
      second += sums[2 * (i * channels + c) + 1];
    }
    f64 off = first / n, middle = (f64)x[c * plane] + off, variance = second / n - off * off;
    if (variance < 0) variance = 0;
    mean[c] = (f32)middle;
    inverse[c] = (f32)(1 / root64(variance + NUMBER(eps)));
    run_mean[c] = run_mean[c] * fraction + (f32)middle;
    run_variance[c] = run_variance[c] * fraction + (f32)(unbiased * variance);
    if (c == 0) run_weight[0] = run_weight[0] * fraction + 1;
  }
}

// global_moments has them of the running ones.
KERNEL global_moments(B(f32, mean), B(f32, inverse), B(const f32, run_mean), B(const f32, run_variance),
                      B(const f32, run_weight), i64 eps_) {
  UNUSED(inverse), UNUSED(run_mean), UNUSED(run_variance), UNUSED(run_weight);
  f64 weight = run_weight[0] != 0 ? 1 / (f64)run_weight[0] : 0;
  EACH(c, COUNT(mean)) {
    mean[c] = (f32)(weight * (f64)run_mean[c]);
    inverse[c] = (f32)(1 / root64(weight * (f64)run_variance[c] + NUMBER(eps)));
  }
}

// normalize: y = (x − mean)·inverse, and the same in kept where there is one.
KERNEL normalize(B(f32, y), B(f32, kept), B(const f32, x), B(const f32, mean), B(const f32, inverse), i64 plane) {
  UNUSED(x), UNUSED(inverse);
  i64 channels = COUNT(mean);
  EACH(i, COUNT(y)) {
    i64 c = i / plane % channels;
    f32 v = (x[i] - mean[c]) * inverse[c];
    y[i] = v;
    if (kept_bytes) kept[i] = v;
  }
}

// mean_gradients has the means over the batch of pair_sums of dy and y.
KERNEL mean_gradients(B(f32, dy), B(f32, dy_y), B(const f64, sums), i64 plane) {
  UNUSED(dy_y);
  i64 channels = COUNT(dy), images = COUNT(sums) / 2 / channels;
  EACH(c, channels) {
    f64 first = 0, second = 0, n = (f64)(images * plane);
    for (i64 i = 0; i < images; i++) {
      first += sums[2 * (i * channels + c)];
      second += sums[2 * (i * channels + c) + 1];
    }
    dy[c] = (f32)(first / n);
    dy_y[c] = (f32)(second / n);
  }
}

KERNEL normalize_backward(B(f32, dx), B(const f32, dy), B(const f32, y), B(const f32, mean_dy), B(const f32, mean_dy_y),
                          B(const f32, inverse), i64 plane) {
  UNUSED(dy), UNUSED(y), UNUSED(mean_dy_y), UNUSED(inverse);
  i64 channels = COUNT(mean_dy);
  EACH(i, COUNT(dx)) {
    i64 c = i / plane % channels;
    dx[i] = ((dy[i] - mean_dy[c]) - mean_dy_y[c] * y[i]) * inverse[c];
  }
}
