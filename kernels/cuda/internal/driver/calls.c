//go:build cuda && cgo && linux && (amd64 || arm64)

#include "calls.h"

#include <string.h>

#define IN(context)                          \
  do {                                       \
    int code_ = cuCtxSetCurrent(context);    \
    if (code_ != CUDA_SUCCESS) return code_; \
  } while (0)

static CUdeviceptr at(const void *p) { return (CUdeviceptr)(uintptr_t)p; }

int scaffe_cuda_retain(int device, CUcontext *context) { return cuDevicePrimaryCtxRetain(context, device); }

int scaffe_cuda_release(int device) { return cuDevicePrimaryCtxRelease(device); }

int scaffe_cuda_alloc(CUcontext context, size_t n, void **p) {
  IN(context);
  CUdeviceptr d;
  int code = cuMemAlloc(&d, n);
  if (code == CUDA_SUCCESS) *p = (void *)(uintptr_t)d;
  return code;
}

int scaffe_cuda_free(CUcontext context, void *p) {
  IN(context);
  return cuMemFree(at(p));
}

int scaffe_cuda_memory(CUcontext context, size_t *left, size_t *all) {
  IN(context);
  return cuMemGetInfo(left, all);
}

int scaffe_cuda_host_alloc(CUcontext context, size_t n, void **p) {
  IN(context);
  return cuMemHostAlloc(p, n, 1); // CU_MEMHOSTALLOC_PORTABLE: pinned for all contexts
}

int scaffe_cuda_host_free(CUcontext context, void *p) {
  IN(context);
  return cuMemFreeHost(p);
}

int scaffe_cuda_export(CUcontext context, void *p, void *handle) {
  IN(context);
  return cuIpcGetMemHandle(handle, at(p));
}

int scaffe_cuda_import(CUcontext context, const void *handle, void **p) {
  IN(context);
  CUipcMemHandle h;
  memcpy(&h, handle, sizeof h);
  CUdeviceptr d;
  int code = cuIpcOpenMemHandle(&d, h, 1); // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, the only flag
  if (code == CUDA_SUCCESS) *p = (void *)(uintptr_t)d;
  return code;
}

int scaffe_cuda_close_import(CUcontext context, void *p) {
  IN(context);
  return cuIpcCloseMemHandle(at(p));
}

int scaffe_cuda_can_reach(int device, int peer, int *can) { return cuDeviceCanAccessPeer(can, device, peer); }

int scaffe_cuda_reach(CUcontext context, CUcontext peer) {
  IN(context);
  int code = cuCtxEnablePeerAccess(peer, 0);
  return code == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED ? CUDA_SUCCESS : code;
}

int scaffe_cuda_attribute(int device, int attribute, int *value) {
  return cuDeviceGetAttribute(value, (CUdevice_attribute)attribute, device);
}

int scaffe_cuda_module(CUcontext context, const char *ptx, CUmodule *m, char *log, size_t n) {
  IN(context);
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void *values[] = {log, (void *)n};
  log[0] = 0;
  return cuModuleLoadDataEx(m, ptx, 2, options, values);
}

int scaffe_cuda_unload_module(CUcontext context, CUmodule m) {
  IN(context);
  return cuModuleUnload(m);
}

int scaffe_cuda_function(CUcontext context, CUmodule m, const char *name, CUfunction *f) {
  IN(context);
  return cuModuleGetFunction(f, m, name);
}

int scaffe_cuda_stream(CUcontext context, CUstream *s) {
  IN(context);
  return cuStreamCreate(s, CU_STREAM_NON_BLOCKING);
}

int scaffe_cuda_stream_destroy(CUcontext context, CUstream s) {
  IN(context);
  return cuStreamDestroy(s);
}

int scaffe_cuda_stream_query(CUcontext context, CUstream s) {
  IN(context);
  return cuStreamQuery(s);
}

int scaffe_cuda_event(CUcontext context, CUevent *e) {
  IN(context);
  return cuEventCreate(e, CU_EVENT_DISABLE_TIMING);
}

int scaffe_cuda_timer(CUcontext context, CUevent *e) {
  IN(context);
  return cuEventCreate(e, CU_EVENT_DEFAULT);
}

int scaffe_cuda_elapsed(CUcontext context, CUevent first, CUevent last, float *ms) {
  IN(context);
  return cuEventElapsedTime(ms, first, last);
}

int scaffe_cuda_event_destroy(CUcontext context, CUevent e) {
  IN(context);
  return cuEventDestroy(e);
}

int scaffe_cuda_record(CUcontext context, CUevent e, CUstream s) {
  IN(context);
  return cuEventRecord(e, s);
}

int scaffe_cuda_wait(CUcontext context, CUstream s, CUevent e) {
  IN(context);
  return cuStreamWaitEvent(s, e, 0);
}

int scaffe_cuda_event_query(CUcontext context, CUevent e) {
  IN(context);
  return cuEventQuery(e);
}

int scaffe_cuda_launch(CUcontext context, CUfunction f, unsigned blocks, unsigned threads, CUstream s, uint64_t *arguments, int n) {
  IN(context);
  void *parameters[MOST_ARGUMENTS];
  for (int i = 0; i < n && i < MOST_ARGUMENTS; i++) parameters[i] = &arguments[i];
  return cuLaunchKernel(f, blocks, 1, 1, threads, 1, 1, 0, s, parameters, NULL);
}

int scaffe_cuda_to_device(CUcontext context, void *dst, const void *src, size_t n, CUstream s) {
  IN(context);
  return cuMemcpyHtoDAsync(at(dst), src, n, s);
}

int scaffe_cuda_to_host(CUcontext context, void *dst, void *src, size_t n, CUstream s) {
  IN(context);
  return cuMemcpyDtoHAsync(dst, at(src), n, s);
}
