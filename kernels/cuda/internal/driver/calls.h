// The driver's calls as package driver makes them: each makes its context current on the calling
// thread first, since goroutines change threads.
#pragma once
#include <cuda.h>
#include <stdint.h>

enum { MOST_ARGUMENTS = 24 }; // of a kernel

int scaffe_cuda_retain(int device, CUcontext *context);
int scaffe_cuda_release(int device);
int scaffe_cuda_alloc(CUcontext context, size_t n, void **p);
int scaffe_cuda_free(CUcontext context, void *p);
int scaffe_cuda_memory(CUcontext context, size_t *left, size_t *all);
int scaffe_cuda_host_alloc(CUcontext context, size_t n, void **p);
int scaffe_cuda_host_free(CUcontext context, void *p);
int scaffe_cuda_export(CUcontext context, void *p, void *handle);
int scaffe_cuda_import(CUcontext context, const void *handle, void **p);
int scaffe_cuda_close_import(CUcontext context, void *p);
int scaffe_cuda_can_reach(int device, int peer, int *can);
int scaffe_cuda_reach(CUcontext context, CUcontext peer);
int scaffe_cuda_attribute(int device, int attribute, int *value);
int scaffe_cuda_module(CUcontext context, const char *ptx, CUmodule *m, char *log, size_t n);
int scaffe_cuda_unload_module(CUcontext context, CUmodule m);
int scaffe_cuda_function(CUcontext context, CUmodule m, const char *name, CUfunction *f);
int scaffe_cuda_stream(CUcontext context, CUstream *s);
int scaffe_cuda_stream_destroy(CUcontext context, CUstream s);
int scaffe_cuda_stream_query(CUcontext context, CUstream s);
int scaffe_cuda_event(CUcontext context, CUevent *e);
int scaffe_cuda_timer(CUcontext context, CUevent *e);
int scaffe_cuda_elapsed(CUcontext context, CUevent first, CUevent last, float *ms);
int scaffe_cuda_event_destroy(CUcontext context, CUevent e);
int scaffe_cuda_record(CUcontext context, CUevent e, CUstream s);
int scaffe_cuda_wait(CUcontext context, CUstream s, CUevent e);
int scaffe_cuda_event_query(CUcontext context, CUevent e);
int scaffe_cuda_launch(CUcontext context, CUfunction f, unsigned blocks, unsigned threads, CUstream s, uint64_t *arguments, int n);
int scaffe_cuda_to_device(CUcontext context, void *dst, const void *src, size_t n, CUstream s);
int scaffe_cuda_to_host(CUcontext context, void *dst, void *src, size_t n, CUstream s);
