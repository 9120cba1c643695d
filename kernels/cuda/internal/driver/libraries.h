// NVIDIA's libraries for GPUs, which a program loads where they are: cuBLAS (11 to 13) and cuDNN (8 and 9). Of
// each only the functions that are declared here are used; these have kept their types over those versions. Handles of theirs
// are pointers, their enumerations ints, and a context is made current before each call, as in calls.h.
#pragma once
#include <cuda.h>
#include <stddef.h>

// A table of a library's functions. scaffe_cublas_load and scaffe_cudnn_load return one, or NULL and, in why, the
// reason, which lasts as long as the calling thread calls no other of these.
typedef struct scaffe_cublas scaffe_cublas;
typedef struct scaffe_cudnn scaffe_cudnn;
scaffe_cublas *scaffe_cublas_load(const char *name, const char **why);
scaffe_cudnn *scaffe_cudnn_load(const char *name, const char **why);

// What stands for one function of a table while it is loaded.
typedef struct {
  const char *name;
  size_t at; // in the table
} scaffe_symbol;
void *scaffe_library_load(const char *name, const scaffe_symbol *symbols, int n, size_t bytes, const char **why);

int scaffe_cublas_version(scaffe_cublas *l, int version[3]);
int scaffe_cublas_create(scaffe_cublas *l, CUcontext context, void **handle);
int scaffe_cublas_destroy(scaffe_cublas *l, CUcontext context, void *handle);
int scaffe_cublas_prepare(scaffe_cublas *l, CUcontext context, void *handle, CUstream s, void *workspace, size_t bytes, int math, const char **at);

// A product of column-major matrices, c = alpha·op(a)·op(b) + beta·c, and batch of them, which lie steps elements apart.
typedef struct {
  int ta, tb, m, n, k, lda, ldb, ldc, batch;
  long long step_a, step_b, step_c;
  float beta;
  const void *a, *b;
  void *c;
} scaffe_product;
int scaffe_cublas_product(scaffe_cublas *l, CUcontext context, void *handle, const scaffe_product *p);

// A convolution: its shape, what is computed with which algorithm, and what cuDNN has made of the shape.
enum { SCAFFE_FORWARD, SCAFFE_BACKWARD_DATA, SCAFFE_BACKWARD_FILTER, SCAFFE_PASSES };
typedef struct {
  int n, groups, in, out, h, w, out_h, out_w, kernel_h, kernel_w, pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w;
} scaffe_shape;
typedef struct {
  void *x, *y, *w, *bias, *convolution;
  int algorithm[SCAFFE_PASSES]; // -1: none that will do
  size_t workspace[SCAFFE_PASSES];
} scaffe_convolution;

size_t scaffe_cudnn_version(scaffe_cudnn *l);
const char *scaffe_cudnn_error(scaffe_cudnn *l, int code);
int scaffe_cudnn_create(scaffe_cudnn *l, CUcontext context, CUstream s, void **handle, const char **at);
int scaffe_cudnn_destroy(scaffe_cudnn *l, CUcontext context, void *handle);
// scaffe_cudnn_plan makes c of a shape, with the algorithm that is the first of cuDNN's own order for each pass that gives
// the same bits each time, computes in math, and takes at most so many bytes. What it has made is given back by
// scaffe_cudnn_forget, after an error, too.
int scaffe_cudnn_plan(scaffe_cudnn *l, CUcontext context, void *handle, const scaffe_shape *s, int math, size_t most, scaffe_convolution *c, const char **at);
void scaffe_cudnn_forget(scaffe_cudnn *l, CUcontext context, scaffe_convolution *c);
// scaffe_cudnn_run does a pass: y of x and w, x's gradient of w and y's, or adds to w's gradient that of x and y's.
int scaffe_cudnn_run(scaffe_cudnn *l, CUcontext context, void *handle, const scaffe_convolution *c, int pass, const void *a, const void *b, void *to, void *workspace, size_t bytes);
// scaffe_cudnn_bias adds a bias to y, or y's sums to the gradient of a bias.
int scaffe_cudnn_bias(scaffe_cudnn *l, CUcontext context, void *handle, const scaffe_convolution *c, int backward, const void *from, void *to);
