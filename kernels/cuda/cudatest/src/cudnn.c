// The part of the stand-in that answers as cuDNN does, for convolutions in float32. They are plain loops on the handle's stream.
//
// It is strict: about handles, descriptors, shapes that do not fit, the workspace, which it writes to, and how many
// passes begin. What it offers first is an algorithm whose results vary; then one that wants more memory than there is; then
// the one to take, and no other is allowed to run without a mistake in its result. With another math than FMA
// the factors lose 13 bits, as with TF32.

enum { DNN_NOT_INITIALIZED = 1, DNN_BAD_PARAM = 3, DNN_NOT_SUPPORTED = 9, DNN_EXECUTION_FAILED = 8 };

typedef struct {
  u64 magic;
  void *context;
  stream *on;
} dnn;

// A descriptor, of a tensor, of a filter or of a convolution.
typedef struct {
  u64 magic;
  enum { TENSOR = 1, FILTER, CONVOLUTION } kind;
  int set, d[4];             // n, c, h, w, or k, c, h, w
  int pad[2], stride[2], dilation[2], groups, math;
} descriptor;

static const u64 dnn_magic = 0x646e6e6468616e64ull, descriptor_magic = 0x646573637269707aull;
static int descriptors, handles; // that exist

#define DNN(f)                                                                                            \
  do {                                                                                                    \
    ANY(f);                                                                                               \
    if (!h || h->magic != dnn_magic || h->context != current) return refused(f ": no handle of this context", DNN_NOT_INITIALIZED); \
    if (__atomic_load_n(&self.broken, __ATOMIC_ACQUIRE)) return DNN_EXECUTION_FAILED;                     \
  } while (0)

API size_t cudnnGetVersion(void) { return self.cudnn; }

API const char *cudnnGetErrorString(int code) {
  switch (code) {
  case 0: return "CUDNN_STATUS_SUCCESS";
  case DNN_NOT_INITIALIZED: return "CUDNN_STATUS_NOT_INITIALIZED";
  case DNN_BAD_PARAM: return "CUDNN_STATUS_BAD_PARAM";
  case DNN_EXECUTION_FAILED: return "CUDNN_STATUS_EXECUTION_FAILED";
  case DNN_NOT_SUPPORTED: return "CUDNN_STATUS_NOT_SUPPORTED";
  }
  return "CUDNN_UNKNOWN_STATUS";
}

API int cudnnCreate(dnn **p) {
  ANY("cudnnCreate");
  if (!current) return DNN_NOT_INITIALIZED;
  dnn *h = calloc(1, sizeof *h);
  *h = (dnn){.magic = dnn_magic, .context = current};
  __atomic_add_fetch(&handles, 1, __ATOMIC_RELAXED);
  *p = h;
  return 0;
}

API int cudnnDestroy(dnn *h) {
  DNN("cudnnDestroy");
  h->magic = 0;
  if (__atomic_sub_fetch(&handles, 1, __ATOMIC_RELAXED) || !__atomic_load_n(&descriptors, __ATOMIC_RELAXED)) return 0;
  return refused("cudnnDestroy: descriptors are left", DNN_BAD_PARAM);
}

API int cudnnSetStream(dnn *h, stream *s) {
  DNN("cudnnSetStream");
  h->on = s;
  return 0;
}

static int make_descriptor(descriptor **p, int kind) {
  *p = calloc(1, sizeof **p);
  (*p)->magic = descriptor_magic;
  (*p)->kind = kind;
  __atomic_add_fetch(&descriptors, 1, __ATOMIC_RELAXED);
  return 0;
}

static int is(const descriptor *d, int kind) { return d && d->magic == descriptor_magic && (int)d->kind == kind; }

static int free_descriptor(descriptor *d, int kind) {
  if (!is(d, kind)) return refused("a descriptor that is none is freed", DNN_BAD_PARAM);
  d->magic = 0;
  __atomic_sub_fetch(&descriptors, 1, __ATOMIC_RELAXED);
  return 0;
}

#define DESCRIPTOR(name, kind)                                       \
  API int cudnnCreate##name##Descriptor(descriptor **p) {            \
    ANY("cudnnCreate" #name "Descriptor");                           \
    return make_descriptor(p, kind);                                 \
  }                                                                  \
  API int cudnnDestroy##name##Descriptor(descriptor *d) { return free_descriptor(d, kind); }
DESCRIPTOR(Tensor, TENSOR)
DESCRIPTOR(Filter, FILTER)
DESCRIPTOR(Convolution, CONVOLUTION)

static int shaped(descriptor *d, int kind, int format, int type, int a, int b, int c, int e) {
  if (!is(d, kind) || format || type || a < 1 || b < 1 || c < 1 || e < 1) return refused("a shape", DNN_BAD_PARAM);
  d->d[0] = a, d->d[1] = b, d->d[2] = c, d->d[3] = e, d->set = 1;
  return 0;
}

API int cudnnSetTensor4dDescriptor(descriptor *d, int format, int type, int n, int c, int h, int w) {
  ANY("cudnnSetTensor4dDescriptor");
  return shaped(d, TENSOR, format, type, n, c, h, w);
}

API int cudnnSetFilter4dDescriptor(descriptor *d, int type, int format, int k, int c, int h, int w) {
  ANY("cudnnSetFilter4dDescriptor");
  return shaped(d, FILTER, format, type, k, c, h, w);
}

API int cudnnSetConvolution2dDescriptor(descriptor *d, int pad_h, int pad_w, int u, int v, int dil_h, int dil_w, int mode, int type) {
  ANY("cudnnSetConvolution2dDescriptor");
  if (!is(d, CONVOLUTION) || pad_h < 0 || pad_w < 0 || u < 1 || v < 1 || dil_h < 1 || dil_w < 1 || mode != 1 || type) return refused("a convolution", DNN_BAD_PARAM);
  *d = (descriptor){.magic = d->magic, .kind = d->kind, .set = 1, .pad = {pad_h, pad_w}, .stride = {u, v}, .dilation = {dil_h, dil_w}, .groups = 1, .math = 0};
  return 0;
}

API int cudnnSetConvolutionGroupCount(descriptor *d, int n) {
  ANY("cudnnSetConvolutionGroupCount");
  if (!is(d, CONVOLUTION) || !d->set || n < 1) return DNN_BAD_PARAM;
  d->groups = n;
  return 0;
}

API int cudnnSetConvolutionMathType(descriptor *d, int mode) {
  ANY("cudnnSetConvolutionMathType");
  if (!is(d, CONVOLUTION) || !d->set || (mode != 0 && mode != 3)) return DNN_BAD_PARAM;
  d->math = mode;
  return 0;
}

// What offers there are: algorithm VARIES is not deterministic, HUGE_ wants more than can be had, GOOD does.
enum { VARIES, HUGE_, GOOD, OFFERS };
typedef struct {
  int algorithm, status;
  float time;
  size_t memory;
  int determinism, math, reserved[3];
} offer;
_Static_assert(sizeof(offer) == 48, "cudnnConvolutionFwdAlgoPerf_t has 48 bytes");

enum { PASS_FORWARD, PASS_DATA, PASS_FILTER };

// fitting reports whether x, w and y are of one convolution.
static int fitting(const descriptor *x, const descriptor *w, const descriptor *c, const descriptor *y) {
  if (!is(x, TENSOR) || !is(w, FILTER) || !is(c, CONVOLUTION) || !is(y, TENSOR) || !x->set || !w->set || !c->set || !y->set) return 0;
  if (x->d[0] != y->d[0] || x->d[1] != w->d[1] * c->groups || y->d[1] != w->d[0] || w->d[0] % c->groups) return 0;
  for (int i = 0; i < 2; i++)
    if (y->d[2 + i] != (x->d[2 + i] + 2 * c->pad[i] - c->dilation[i] * (w->d[2 + i] - 1) - 1) / c->stride[i] + 1) return 0;
  return 1;
}

// Any workspace: a bit more for each image, so that it differs between shapes.
static size_t room_of(int algorithm, const descriptor *x, int pass) {
  return algorithm == HUGE_ ? (size_t)1 << 40 : algorithm == VARIES ? 0 : 1024 * (size_t)(x->d[0] + pass);
}

static int search(dnn *h, const descriptor *x, const descriptor *w, const descriptor *c, const descriptor *y, int pass, int most, int *n, offer *p) {
  if (!h->on || !fitting(x, w, c, y)) return refused("the shapes of a convolution", DNN_BAD_PARAM);
  for (*n = 0; *n < OFFERS && *n < most; ++*n)
    p[*n] = (offer){.algorithm = *n, .memory = room_of(*n, x, pass), .determinism = *n != VARIES, .math = c->math};
  return 0;
}

typedef struct {
  int pass, algorithm, math;
  descriptor x, w, c;
  int out, oh, ow;
  float alpha, beta;
  u64 px, pw, py, workspace;
  size_t bytes;
} convolution;

static size_t elements(const descriptor *d) { return sizeof(f32) * d->d[0] * d->d[1] * d->d[2] * d->d[3]; }

static void convolve(void *of) {
  convolution *p = of;
  const int N = p->x.d[0], G = p->c.groups, ci = p->w.d[1], co = p->out / G, H = p->x.d[2], W = p->x.d[3], kh = p->w.d[2], kw = p->w.d[3];
  const size_t outs = sizeof(f32) * N * p->out * p->oh * p->ow;
  allocation *kx, *kf = NULL, *ky = NULL, *ks = NULL;
  f32 *x = (void *)use(p->px, elements(&p->x), calling, &kx), *w = !x ? NULL : (void *)use(p->pw, elements(&p->w), calling, &kf), *y = !w ? NULL : (void *)use(p->py, outs, calling, &ky);
  u8 *room = y && p->bytes ? use(p->workspace, p->bytes, calling, &ks) : NULL;
  if (room) memset(room, 0x5a, p->bytes);
  f32 *to = p->pass == PASS_FORWARD ? y : p->pass == PASS_DATA ? x : w;
  size_t n = (p->pass == PASS_FORWARD ? outs : p->pass == PASS_DATA ? elements(&p->x) : elements(&p->w)) / sizeof(f32);
  f64 *sums = y && (room || !p->bytes) ? calloc(n, sizeof *sums) : NULL;
  for (int i = 0; sums && i < N; i++)
    for (int o = 0; o < p->out; o++)
      for (int r = 0; r < p->oh; r++)
        for (int s = 0; s < p->ow; s++)
          for (int c = 0; c < ci; c++)
            for (int u = 0; u < kh; u++)
              for (int v = 0; v < kw; v++) {
                int a = r * p->c.stride[0] - p->c.pad[0] + u * p->c.dilation[0], b = s * p->c.stride[1] - p->c.pad[1] + v * p->c.dilation[1];
                if (a < 0 || a >= H || b < 0 || b >= W) continue;
                size_t at_x = (((size_t)i * ci * G + o / co * ci + c) * H + a) * W + b, at_w = (((size_t)o * ci + c) * kh + u) * kw + v,
                       at_y = (((size_t)i * p->out + o) * p->oh + r) * p->ow + s;
                f32 f = p->pass == PASS_DATA ? y[at_y] : x[at_x], g = p->pass == PASS_FILTER ? y[at_y] : w[at_w];
                if (p->math != 3) f = as_tf32(f), g = as_tf32(g);
                sums[p->pass == PASS_FORWARD ? at_y : p->pass == PASS_DATA ? at_x : at_w] += (f64)f * g;
              }
  if (sums && p->algorithm != GOOD && n) sums[0] += 1; // not one to take
  for (size_t i = 0; sums && i < n; i++) to[i] = p->beta == 0 ? p->alpha * (f32)sums[i] : p->alpha * (f32)sums[i] + p->beta * to[i];
  free(sums);
  leave(kx), leave(kf), leave(ky), leave(ks);
}

static int begin(dnn *h, int pass, const float *alpha, const descriptor *x, u64 px, const descriptor *w, u64 pw, const descriptor *c, int algorithm,
                 u64 workspace, size_t bytes, const float *beta, const descriptor *y, u64 py) {
  if (!h->on || !fitting(x, w, c, y) || algorithm < 0 || algorithm >= OFFERS) return refused("a convolution's shapes and algorithm", DNN_BAD_PARAM);
  if (bytes < room_of(algorithm, x, pass) || (bytes && (!workspace || workspace % 16))) return refused("a convolution's workspace", DNN_BAD_PARAM);
  if (*beta != (pass == PASS_FILTER)) return refused("a convolution: gradients of filters are added to, and nothing else", DNN_BAD_PARAM);
  convolution *p = malloc(sizeof *p);
  *p = (convolution){pass, algorithm, c->math, *x, *w, *c, y->d[1], y->d[2], y->d[3], *alpha, *beta, px, pw, py, workspace, bytes};
  return give(h->on, (operation){.kind = CALL_, .call = convolve, .of = p}) ? DNN_EXECUTION_FAILED : 0;
}

// Each pass has three functions, whose descriptors come in its own order.
#define PASS(name, pass, A, B, TO)                                                                                                        \
  API int cudnnGetConvolution##name##Algorithm_v7(dnn *h, const descriptor *A, const descriptor *B, const descriptor *c, const descriptor *TO, \
                                                  int most, int *n, offer *p) {                                                           \
    DNN("cudnnGetConvolution" #name "Algorithm_v7");                                                                                      \
    return search(h, x, w, c, y, pass, most, n, p);                                                                                       \
  }                                                                                                                                       \
  API int cudnnGetConvolution##name##WorkspaceSize(dnn *h, const descriptor *A, const descriptor *B, const descriptor *c, const descriptor *TO, \
                                                   int algorithm, size_t *n) {                                                            \
    DNN("cudnnGetConvolution" #name "WorkspaceSize");                                                                                     \
    if (!fitting(x, w, c, y)) return DNN_BAD_PARAM;                                                                                       \
    *n = room_of(algorithm, x, pass);                                                                                                     \
    return 0;                                                                                                                             \
  }                                                                                                                                       \
  API int cudnnConvolution##name(dnn *h, const float *alpha, const descriptor *A, u64 p##A, const descriptor *B, u64 p##B, const descriptor *c, \
                                 int algorithm, u64 workspace, size_t bytes, const float *beta, const descriptor *TO, u64 p##TO) {        \
    DNN("cudnnConvolution" #name);                                                                                                        \
    return begin(h, pass, alpha, x, px, w, pw, c, algorithm, workspace, bytes, beta, y, py);                                              \
  }
PASS(Forward, PASS_FORWARD, x, w, y)
PASS(BackwardData, PASS_DATA, w, y, x)
PASS(BackwardFilter, PASS_FILTER, x, y, w)

// A bias: y += bias, or bias += y's sums.
typedef struct {
  int sums;
  descriptor y;
  u64 bias, py;
} biased;

static void add_biased(void *of) {
  biased *p = of;
  allocation *kb, *ky = NULL;
  const int channels = p->y.d[1], plane = p->y.d[2] * p->y.d[3];
  f32 *b = (void *)use(p->bias, sizeof(f32) * channels, calling, &kb), *y = !b ? NULL : (void *)use(p->py, elements(&p->y), calling, &ky);
  for (int c = 0; y && c < channels; c++) {
    f64 sum = 0;
    for (int n = 0; n < p->y.d[0]; n++)
      for (int k = 0; k < plane; k++) {
        f32 *at = &y[((size_t)n * channels + c) * plane + k];
        if (p->sums) sum += *at;
        else *at += b[c];
      }
    if (p->sums) b[c] += (f32)sum;
  }
  leave(kb), leave(ky);
}

static int begin_bias(dnn *h, int sums, const float *alpha, const float *beta, const descriptor *b, u64 bias, const descriptor *y, u64 py) {
  if (!h->on || !is(b, TENSOR) || !is(y, TENSOR) || b->d[0] != 1 || b->d[1] != y->d[1] || b->d[2] != 1 || b->d[3] != 1 || *alpha != 1 || *beta != 1)
    return refused("a bias", DNN_BAD_PARAM);
  biased *p = malloc(sizeof *p);
  *p = (biased){sums, *y, bias, py};
  return give(h->on, (operation){.kind = CALL_, .call = add_biased, .of = p}) ? DNN_EXECUTION_FAILED : 0;
}

API int cudnnAddTensor(dnn *h, const float *alpha, const descriptor *b, u64 bias, const float *beta, const descriptor *y, u64 py) {
  DNN("cudnnAddTensor");
  return begin_bias(h, 0, alpha, beta, b, bias, y, py);
}

API int cudnnConvolutionBackwardBias(dnn *h, const float *alpha, const descriptor *y, u64 py, const float *beta, const descriptor *b, u64 bias) {
  DNN("cudnnConvolutionBackwardBias");
  return begin_bias(h, 1, alpha, beta, b, bias, y, py);
}
