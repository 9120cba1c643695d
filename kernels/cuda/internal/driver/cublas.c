//go:build cuda && cgo && linux && (amd64 || arm64)

#include "libraries.h"

struct scaffe_cublas {
  int (*property)(int type, int *value);
  int (*create)(void **handle);
  int (*destroy)(void *handle);
  int (*stream)(void *handle, CUstream s);
  int (*workspace)(void *handle, void *p, size_t bytes);
  int (*math)(void *handle, int mode);
  int (*atomics)(void *handle, int mode);
  int (*pointers)(void *handle, int mode);
  int (*sgemm)(void *handle, int ta, int tb, int m, int n, int k, const float *alpha, const void *a, int lda, const void *b, int ldb,
               const float *beta, void *c, int ldc);
  int (*batched)(void *handle, int ta, int tb, int m, int n, int k, const float *alpha, const void *a, int lda, long long step_a,
                 const void *b, int ldb, long long step_b, const float *beta, void *c, int ldc, long long step_c, int batch);
};

#define AT(field) offsetof(struct scaffe_cublas, field)

static const scaffe_symbol symbols[] = {
    {"cublasGetProperty", AT(property)},       {"cublasCreate_v2", AT(create)},
    {"cublasDestroy_v2", AT(destroy)},         {"cublasSetStream_v2", AT(stream)},
    {"cublasSetWorkspace_v2", AT(workspace)},  {"cublasSetMathMode", AT(math)},
    {"cublasSetAtomicsMode", AT(atomics)},     {"cublasSetPointerMode_v2", AT(pointers)},
    {"cublasSgemm_v2", AT(sgemm)},             {"cublasSgemmStridedBatched", AT(batched)},
};

scaffe_cublas *scaffe_cublas_load(const char *name, const char **why) {
  return scaffe_library_load(name, symbols, sizeof symbols / sizeof *symbols, sizeof(scaffe_cublas), why);
}

int scaffe_cublas_version(scaffe_cublas *l, int version[3]) {
  int code = 0;
  for (int i = 0; !code && i < 3; i++) code = l->property(i, &version[i]); // MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL
  return code;
}

// Where the context cannot be made current, the calls below answer what cuBLAS and cuDNN would without one.
#define IN(context, code) \
  if (cuCtxSetCurrent(context) != CUDA_SUCCESS) return code

int scaffe_cublas_create(scaffe_cublas *l, CUcontext context, void **handle) {
  IN(context, 1);
  return l->create(handle);
}

int scaffe_cublas_destroy(scaffe_cublas *l, CUcontext context, void *handle) {
  IN(context, 1);
  return l->destroy(handle);
}

// The workspace comes after the stream: with a new stream a handle forgets it. With one that is its own, cuBLAS
// chooses the same way each time whatever else the GPU does.
int scaffe_cublas_prepare(scaffe_cublas *l, CUcontext context, void *handle, CUstream s, void *workspace, size_t bytes, int math, const char **at) {
  IN(context, 1);
  int code;
  *at = "cublasSetStream";
  if ((code = l->stream(handle, s))) return code;
  *at = "cublasSetWorkspace";
  if ((code = l->workspace(handle, workspace, bytes))) return code;
  *at = "cublasSetAtomicsMode";
  if ((code = l->atomics(handle, 0))) return code; // CUBLAS_ATOMICS_NOT_ALLOWED
  *at = "cublasSetPointerMode";
  if ((code = l->pointers(handle, 0))) return code; // CUBLAS_POINTER_MODE_HOST: alpha and beta
  *at = "cublasSetMathMode";
  return l->math(handle, math);
}

int scaffe_cublas_product(scaffe_cublas *l, CUcontext context, void *handle, const scaffe_product *p) {
  IN(context, 1);
  const float alpha = 1;
  if (p->batch == 1)
    return l->sgemm(handle, p->ta, p->tb, p->m, p->n, p->k, &alpha, p->a, p->lda, p->b, p->ldb, &p->beta, p->c, p->ldc);
  return l->batched(handle, p->ta, p->tb, p->m, p->n, p->k, &alpha, p->a, p->lda, p->step_a, p->b, p->ldb, p->step_b, &p->beta, p->c,
                    p->ldc, p->step_c, p->batch);
}
