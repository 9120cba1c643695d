// The part of the stand-in that answers as cuBLAS does. Products are plain loops on the handle's stream.
//
// It is strict: about handles and the context that they were made in, about modes and a workspace that nobody has set, which
// a handle forgets with its stream, leading dimensions, alignment. It writes to the workspace while it
// computes. With TF32 the factors lose 13 bits.

enum { BLAS_NOT_INITIALIZED = 1, BLAS_INVALID_VALUE = 7, BLAS_EXECUTION_FAILED = 13, BLAS_INTERNAL_ERROR = 14 };

typedef struct {
  u64 magic;
  void *context;
  stream *on;
  u64 workspace;
  size_t bytes;
  int math, atomics, pointers; // -1: not set
} blas;

static const u64 blas_magic = 0x626c617362616d6eull;

// refused says on stderr what a library would not, and fails the call.
static int refused(const char *what, int code) {
  fprintf(stderr, "standin: %s\n", what);
  return code;
}

#define BLAS(f)                                                                                             \
  do {                                                                                                      \
    ANY(f);                                                                                                 \
    if (!h || h->magic != blas_magic || h->context != current) return refused(f ": no handle of this context", BLAS_NOT_INITIALIZED); \
    if (__atomic_load_n(&self.broken, __ATOMIC_ACQUIRE)) return BLAS_EXECUTION_FAILED;                      \
  } while (0)

API int cublasGetProperty(int type, int *value) {
  ANY("cublasGetProperty");
  if (type < 0 || type > 2) return BLAS_INVALID_VALUE;
  *value = type == 0 ? self.cublas / 10000 : type == 1 ? self.cublas / 100 % 100 : self.cublas % 100;
  return 0;
}

API int cublasCreate_v2(blas **p) {
  ANY("cublasCreate_v2");
  if (!current) return BLAS_NOT_INITIALIZED;
  blas *h = calloc(1, sizeof *h);
  *h = (blas){.magic = blas_magic, .context = current, .math = -1, .atomics = -1, .pointers = -1};
  *p = h;
  return 0;
}

// The handle stays, so that one who still uses it is known.
API int cublasDestroy_v2(blas *h) {
  BLAS("cublasDestroy_v2");
  h->magic = 0;
  return 0;
}

API int cublasSetStream_v2(blas *h, stream *s) {
  BLAS("cublasSetStream_v2");
  h->on = s;
  h->workspace = 0;
  h->bytes = 0;
  return 0;
}

API int cublasSetWorkspace_v2(blas *h, u64 p, size_t n) {
  BLAS("cublasSetWorkspace_v2");
  if (p % 256) return BLAS_INVALID_VALUE;
  h->workspace = p;
  h->bytes = n;
  return 0;
}

API int cublasSetMathMode(blas *h, int mode) {
  BLAS("cublasSetMathMode");
  if (mode != 0 && mode != 3) return BLAS_INVALID_VALUE; // others than the default and TF32 nobody wants here
  h->math = mode;
  return 0;
}

API int cublasSetAtomicsMode(blas *h, int mode) {
  BLAS("cublasSetAtomicsMode");
  h->atomics = mode;
  return 0;
}

API int cublasSetPointerMode_v2(blas *h, int mode) {
  BLAS("cublasSetPointerMode_v2");
  h->pointers = mode;
  return 0;
}

typedef struct {
  int ta, tb, m, n, k, lda, ldb, ldc, batch, tf32;
  i64 step_a, step_b, step_c;
  float alpha, beta;
  u64 a, b, c, workspace;
  size_t bytes;
} matrices;

static f32 as_tf32(f32 x) { return float32((bits32(x) + 0x1000) & 0xffffe000u); }

// extent is how many bytes from the first element of a column-major matrix to its last.
static size_t extent(int rows, int cols, int ld, i64 step, int batch) {
  return sizeof(f32) * (size_t)((batch - 1) * step + (i64)(cols - 1) * ld + rows);
}

static void multiply_matrices(void *of) {
  matrices *p = of;
  allocation *ka, *kb = NULL, *kc = NULL, *kw = NULL;
  const f32 *a = (void *)use(p->a, extent(p->ta ? p->k : p->m, p->ta ? p->m : p->k, p->lda, p->step_a, p->batch), calling, &ka);
  const f32 *b = !a ? NULL : (void *)use(p->b, extent(p->tb ? p->n : p->k, p->tb ? p->k : p->n, p->ldb, p->step_b, p->batch), calling, &kb);
  f32 *c = !b ? NULL : (void *)use(p->c, extent(p->m, p->n, p->ldc, p->step_c, p->batch), calling, &kc);
  u8 *w = !c ? NULL : use(p->workspace, p->bytes, calling, &kw);
  if (w) memset(w, 0xa5, p->bytes < 4096 ? p->bytes : 4096);
  for (i64 z = 0; w && z < p->batch; z++, a += p->step_a, b += p->step_b, c += p->step_c)
    for (i64 j = 0; j < p->n; j++)
      for (i64 i = 0; i < p->m; i++) {
        f32 sum = 0;
        for (i64 l = 0; l < p->k; l++) {
          f32 x = p->ta ? a[i * p->lda + l] : a[l * p->lda + i], y = p->tb ? b[l * p->ldb + j] : b[j * p->ldb + l];
          if (p->tf32) x = as_tf32(x), y = as_tf32(y);
          sum = __builtin_fmaf(x, y, sum);
        }
        f32 *to = &c[j * p->ldc + i];
        *to = p->beta == 0 ? p->alpha * sum : p->alpha * sum + p->beta * *to;
      }
  leave(ka), leave(kb), leave(kc), leave(kw);
}

API int cublasSgemmStridedBatched(blas *h, int ta, int tb, int m, int n, int k, const float *alpha, u64 a, int lda, long long step_a, u64 b,
                                  int ldb, long long step_b, const float *beta, u64 c, int ldc, long long step_c, int batch) {
  BLAS("cublasSgemmStridedBatched");
  if (m < 0 || n < 0 || k < 0 || batch < 0 || ta < 0 || ta > 1 || tb < 0 || tb > 1) return refused("a product: numbers", BLAS_INVALID_VALUE);
  if (lda < (ta ? k : m) || ldb < (tb ? n : k) || ldc < m || lda < 1 || ldb < 1 || ldc < 1) return refused("a product: leading dimensions", BLAS_INVALID_VALUE);
  if ((a | b | c) % 4) return refused("a product: alignment", BLAS_INVALID_VALUE);
  if (batch > 1 && step_c < (i64)(n - 1) * ldc + m && step_c < m) return refused("a product: results overlap", BLAS_INVALID_VALUE);
  if (!h->on || h->math < 0 || h->atomics != 0 || h->pointers != 0) return refused("a product: the handle's stream and modes", BLAS_INTERNAL_ERROR);
  if (h->bytes < 4 << 20) return refused("a product: no workspace of 4 MiB, so that its bits may vary", BLAS_INTERNAL_ERROR);
  if (!m || !n || !batch) return 0;
  matrices *p = malloc(sizeof *p);
  *p = (matrices){ta, tb, m, n, k, lda, ldb, ldc, batch, h->math == 3, step_a, step_b, step_c, *alpha, *beta, a, b, c, h->workspace, h->bytes};
  return give(h->on, (operation){.kind = CALL_, .call = multiply_matrices, .of = p}) ? BLAS_EXECUTION_FAILED : 0;
}

API int cublasSgemm_v2(blas *h, int ta, int tb, int m, int n, int k, const float *alpha, u64 a, int lda, u64 b, int ldb, const float *beta,
                       u64 c, int ldc) {
  BLAS("cublasSgemm_v2");
  return cublasSgemmStridedBatched(h, ta, tb, m, n, k, alpha, a, lda, 0, b, ldb, 0, beta, c, ldc, 0, 1);
}
