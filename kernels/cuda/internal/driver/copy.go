//go:build cuda && cgo && linux && (amd64 || arm64)

package driver

/*
#include <cuda.h>
#include <stdint.h>

static int scaffe_cuda_on_device(CUcontext context, void *dst, const void *src, size_t n, CUstream s) {
  int code = cuCtxSetCurrent(context);
  return code != CUDA_SUCCESS ? code : (int)cuMemcpyDtoDAsync((CUdeviceptr)(uintptr_t)dst, (CUdeviceptr)(uintptr_t)src, n, s);
}
*/
import "C"

import "unsafe"

// OnDevice puts the driver's own copy of n bytes of device memory on a stream.
func (c Context) OnDevice(dst, src unsafe.Pointer, n int, s Stream) error {
	return check(C.scaffe_cuda_on_device(c.c, dst, src, C.size_t(n), s.s))
}
