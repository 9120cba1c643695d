// What onednn.go calls: a pass is one primitive with the reorders around it.

#ifndef SCAFFE_DNN_SHIM_H
#define SCAFFE_DNN_SHIM_H

#include <dnnl.h>
#include <dnnl_debug.h>

#if DNNL_VERSION_MAJOR != 2
#error "package dnn is written for oneDNN 2: build without the tag onednn"
#endif

enum { max_tensors = 4, max_dims = 5 };

// A tensor of a pass: the caller's, plain, and the primitive's own, whose
// numbers lie in the workspace where the two layouts differ.
typedef struct {
	int arg;                  // DNNL_ARG_SRC ...
	int output;               // written by the primitive
	dnnl_memory_desc_t md;    // the caller's layout
	dnnl_memory_t user, own;  // own is user where the layouts agree
	dnnl_primitive_t reorder; // or NULL
	size_t offset;            // of own in the workspace
} tensor;

typedef struct {
	dnnl_primitive_t primitive;
	tensor tensors[max_tensors];
	int count;
	dnnl_memory_t scratch;
	size_t scratch_offset;
	size_t bytes; // of workspace that run needs
	char impl[64];
} pass;

// convolution is the geometry of a convolution; dilations of 1 are dense.
typedef struct {
	int n, groups, in, out; // channels of all groups together
	int h, w, oh, ow, kh, kw;
	int pad_h, pad_w, stride_h, stride_w, dil_h, dil_w;
	int bias;
} convolution;

enum { conv_forward, conv_backward_data, conv_backward_weights };

void dnn_set_threads(int n);
int dnn_threads(void);
dnnl_status_t dnn_open(dnnl_engine_t *engine);
dnnl_status_t dnn_conv(pass **p, dnnl_engine_t engine, const convolution *c, int kind);
dnnl_status_t dnn_run(pass *p, dnnl_stream_t stream, char *workspace, void *a, void *b, void *c, void *d);
dnnl_status_t dnn_gemm(char ta, char tb, long m, long n, long k, float alpha, const float *a, long lda, const float *b, long ldb, float beta, float *c, long ldc);
void dnn_free(pass *p);

#endif
