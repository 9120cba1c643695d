//go:build cuda && cgo && linux && (amd64 || arm64)

#include "libraries.h"

#include <string.h>

// What cuDNN says of an algorithm: cudnnConvolutionFwdAlgoPerf_t, and the same for the two backward passes.
typedef struct {
  int algorithm, status;
  float time;
  size_t memory;
  int determinism, math, reserved[3];
} performance;

enum {
  FLOAT = 0,             // CUDNN_DATA_FLOAT
  NCHW = 0,              // CUDNN_TENSOR_NCHW
  CROSS_CORRELATION = 1, // CUDNN_CROSS_CORRELATION
  FMA_MATH = 3,          // CUDNN_FMA_MATH: no tensor cores
  DETERMINISTIC = 1,     // CUDNN_DETERMINISTIC
  MOST_ALGORITHMS = 16,
};

typedef int create_descriptor(void **);
typedef int destroy_descriptor(void *);
typedef int search(void *handle, const void *a, const void *b, const void *convolution, const void *to, int most, int *n, performance *p);
typedef int size(void *handle, const void *a, const void *b, const void *convolution, const void *to, int algorithm, size_t *bytes);
typedef int run(void *handle, const float *alpha, const void *a_is, const void *a, const void *b_is, const void *b, const void *convolution,
                int algorithm, void *workspace, size_t bytes, const float *beta, const void *to_is, void *to);
typedef int fold(void *handle, const float *alpha, const void *from_is, const void *from, const float *beta, const void *to_is, void *to);

struct scaffe_cudnn {
  size_t (*version)(void);
  const char *(*error)(int);
  int (*create)(void **handle);
  int (*destroy)(void *handle);
  int (*stream)(void *handle, CUstream s);
  create_descriptor *make_tensor, *make_filter, *make_convolution;
  destroy_descriptor *free_tensor, *free_filter, *free_convolution;
  int (*tensor)(void *, int format, int type, int n, int c, int h, int w);
  int (*filter)(void *, int type, int format, int k, int c, int h, int w);
  int (*convolution)(void *, int pad_h, int pad_w, int stride_h, int stride_w, int dilation_h, int dilation_w, int mode, int type);
  int (*groups)(void *, int n);
  int (*math)(void *, int mode);
  search *search[SCAFFE_PASSES];
  size *size[SCAFFE_PASSES];
  run *run[SCAFFE_PASSES];
  fold *add, *sum;
};

#define AT(field) offsetof(struct scaffe_cudnn, field)

static const scaffe_symbol symbols[] = {
    {"cudnnGetVersion", AT(version)},
    {"cudnnGetErrorString", AT(error)},
    {"cudnnCreate", AT(create)},
    {"cudnnDestroy", AT(destroy)},
    {"cudnnSetStream", AT(stream)},
    {"cudnnCreateTensorDescriptor", AT(make_tensor)},
    {"cudnnCreateFilterDescriptor", AT(make_filter)},
    {"cudnnCreateConvolutionDescriptor", AT(make_convolution)},
    {"cudnnDestroyTensorDescriptor", AT(free_tensor)},
    {"cudnnDestroyFilterDescriptor", AT(free_filter)},
    {"cudnnDestroyConvolutionDescriptor", AT(free_convolution)},
    {"cudnnSetTensor4dDescriptor", AT(tensor)},
    {"cudnnSetFilter4dDescriptor", AT(filter)},
    {"cudnnSetConvolution2dDescriptor", AT(convolution)},
    {"cudnnSetConvolutionGroupCount", AT(groups)},
    {"cudnnSetConvolutionMathType", AT(math)},
    {"cudnnGetConvolutionForwardAlgorithm_v7", AT(search[SCAFFE_FORWARD])},
    {"cudnnGetConvolutionBackwardDataAlgorithm_v7", AT(search[SCAFFE_BACKWARD_DATA])},
    {"cudnnGetConvolutionBackwardFilterAlgorithm_v7", AT(search[SCAFFE_BACKWARD_FILTER])},
    {"cudnnGetConvolutionForwardWorkspaceSize", AT(size[SCAFFE_FORWARD])},
    {"cudnnGetConvolutionBackwardDataWorkspaceSize", AT(size[SCAFFE_BACKWARD_DATA])},
    {"cudnnGetConvolutionBackwardFilterWorkspaceSize", AT(size[SCAFFE_BACKWARD_FILTER])},
    {"cudnnConvolutionForward", AT(run[SCAFFE_FORWARD])},
    {"cudnnConvolutionBackwardData", AT(run[SCAFFE_BACKWARD_DATA])},
    {"cudnnConvolutionBackwardFilter", AT(run[SCAFFE_BACKWARD_FILTER])},
    {"cudnnAddTensor", AT(add)},
    {"cudnnConvolutionBackwardBias", AT(sum)},
};

scaffe_cudnn *scaffe_cudnn_load(const char *name, const char **why) {
  return scaffe_library_load(name, symbols, sizeof symbols / sizeof *symbols, sizeof(scaffe_cudnn), why);
}

size_t scaffe_cudnn_version(scaffe_cudnn *l) { return l->version(); }

const char *scaffe_cudnn_error(scaffe_cudnn *l, int code) { return l->error(code); }

#define IN(context) \
  if (cuCtxSetCurrent(context) != CUDA_SUCCESS) return 1 // CUDNN_STATUS_NOT_INITIALIZED

#define TRY(function, call)         \
  do {                              \
    *at = function;                 \
    int code_ = (call);             \
    if (code_) return code_;        \
  } while (0)

int scaffe_cudnn_create(scaffe_cudnn *l, CUcontext context, CUstream s, void **handle, const char **at) {
  IN(context);
  TRY("cudnnCreate", l->create(handle));
  TRY("cudnnSetStream", l->stream(*handle, s));
  return 0;
}

int scaffe_cudnn_destroy(scaffe_cudnn *l, CUcontext context, void *handle) {
  IN(context);
  return l->destroy(handle);
}

// operands says of what a pass is a function, and what it writes.
static void operands(const scaffe_convolution *c, int pass, void **a, void **b, void **to) {
  *a = pass == SCAFFE_BACKWARD_DATA ? c->w : c->x;
  *b = pass == SCAFFE_FORWARD ? c->w : c->y;
  *to = pass == SCAFFE_FORWARD ? c->y : pass == SCAFFE_BACKWARD_DATA ? c->x : c->w;
}

static const char *const searches[SCAFFE_PASSES] = {
    [SCAFFE_FORWARD] = "cudnnGetConvolutionForwardAlgorithm_v7",
    [SCAFFE_BACKWARD_DATA] = "cudnnGetConvolutionBackwardDataAlgorithm_v7",
    [SCAFFE_BACKWARD_FILTER] = "cudnnGetConvolutionBackwardFilterAlgorithm_v7",
};

int scaffe_cudnn_plan(scaffe_cudnn *l, CUcontext context, void *handle, const scaffe_shape *s, int math, size_t most, scaffe_convolution *c, const char **at) {
  IN(context);
  TRY("cudnnCreateTensorDescriptor", l->make_tensor(&c->x));
  TRY("cudnnCreateTensorDescriptor", l->make_tensor(&c->y));
  TRY("cudnnCreateTensorDescriptor", l->make_tensor(&c->bias));
  TRY("cudnnCreateFilterDescriptor", l->make_filter(&c->w));
  TRY("cudnnCreateConvolutionDescriptor", l->make_convolution(&c->convolution));
  TRY("cudnnSetTensor4dDescriptor", l->tensor(c->x, NCHW, FLOAT, s->n, s->in, s->h, s->w));
  TRY("cudnnSetTensor4dDescriptor", l->tensor(c->y, NCHW, FLOAT, s->n, s->out, s->out_h, s->out_w));
  TRY("cudnnSetTensor4dDescriptor", l->tensor(c->bias, NCHW, FLOAT, 1, s->out, 1, 1));
  TRY("cudnnSetFilter4dDescriptor", l->filter(c->w, FLOAT, NCHW, s->out, s->in / s->groups, s->kernel_h, s->kernel_w));
  TRY("cudnnSetConvolution2dDescriptor", l->convolution(c->convolution, s->pad_h, s->pad_w, s->stride_h, s->stride_w, s->dilation_h, s->dilation_w, CROSS_CORRELATION, FLOAT));
  TRY("cudnnSetConvolutionGroupCount", l->groups(c->convolution, s->groups));
  TRY("cudnnSetConvolutionMathType", l->math(c->convolution, math));
  for (int pass = 0; pass < SCAFFE_PASSES; pass++) {
    void *a, *b, *to;
    operands(c, pass, &a, &b, &to);
    performance p[MOST_ALGORITHMS];
    int n = 0;
    memset(p, 0, sizeof p);
    TRY(searches[pass], l->search[pass](handle, a, b, c->convolution, to, MOST_ALGORITHMS, &n, p));
    c->algorithm[pass] = -1;
    for (int i = 0; i < n && c->algorithm[pass] < 0; i++) {
      if (p[i].status || p[i].determinism != DETERMINISTIC || p[i].memory > most || (math == FMA_MATH && p[i].math != FMA_MATH && p[i].math != 0)) continue;
      size_t bytes;
      if (l->size[pass](handle, a, b, c->convolution, to, p[i].algorithm, &bytes) || bytes > most) continue;
      c->algorithm[pass] = p[i].algorithm;
      c->workspace[pass] = bytes;
    }
  }
  return 0;
}

void scaffe_cudnn_forget(scaffe_cudnn *l, CUcontext context, scaffe_convolution *c) {
  if (cuCtxSetCurrent(context) != CUDA_SUCCESS) return;
  if (c->x) l->free_tensor(c->x);
  if (c->y) l->free_tensor(c->y);
  if (c->bias) l->free_tensor(c->bias);
  if (c->w) l->free_filter(c->w);
  if (c->convolution) l->free_convolution(c->convolution);
  memset(c, 0, sizeof *c);
}

int scaffe_cudnn_run(scaffe_cudnn *l, CUcontext context, void *handle, const scaffe_convolution *c, int pass, const void *a, const void *b, void *to, void *workspace, size_t bytes) {
  IN(context);
  const float alpha = 1, beta = pass == SCAFFE_BACKWARD_FILTER;
  void *a_is, *b_is, *to_is;
  operands(c, pass, &a_is, &b_is, &to_is);
  return l->run[pass](handle, &alpha, a_is, a, b_is, b, c->convolution, c->algorithm[pass], workspace, bytes, &beta, to_is, to);
}

int scaffe_cudnn_bias(scaffe_cudnn *l, CUcontext context, void *handle, const scaffe_convolution *c, int backward, const void *from, void *to) {
  IN(context);
  const float one = 1;
  if (backward) return l->sum(handle, &one, c->y, from, &one, c->bias, to);
  return l->add(handle, &one, c->bias, from, &one, c->y, to);
}
