//go:build cuda && cgo && linux && (amd64 || arm64)

package driver

/*
#cgo LDFLAGS: -L${SRCDIR}/lib -ldl
#include <cuda.h>
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"os"
	"sync"
	"unsafe"
)

// Built reports whether Open can succeed on some machine.
const Built = true

// Open loads the driver and initializes it; after that package cu works. Only the
// first call does anything, all return the same. Where the machine has no driver
// the error is an ErrNoDriver, where it has no GPU ErrNoGPU.
func Open() error { return open() }

var open = sync.OnceValue(func() error {
	library := os.Getenv(EnvLibrary)
	if library == "" {
		library = "libcuda.so.1"
	}
	name := C.CString(library)
	defer C.free(unsafe.Pointer(name))
	if why := C.scaffe_cuda_load(name); why != nil {
		return fmt.Errorf("%w: %s", ErrNoDriver, C.GoString(why)) // the message has the library's name
	}
	var version C.int
	if r := C.cuDriverGetVersion(&version); r != C.CUDA_SUCCESS {
		err := fmt.Errorf("the CUDA driver %s does not tell its version: %w", library, Result(r)) // in its own words
		C.scaffe_cuda_unload()
		return err
	}
	if version < MinVersion {
		C.scaffe_cuda_unload()
		return fmt.Errorf("the CUDA driver is for CUDA %s, and scaffe needs one for %s or later: install a newer driver",
			VersionText(int(version)), VersionText(MinVersion))
	}
	switch r := C.scaffe_cuda_init(); r {
	case C.CUDA_SUCCESS:
	case C.CUDA_ERROR_NO_DEVICE:
		C.scaffe_cuda_unload()
		return ErrNoGPU
	default:
		err := fmt.Errorf("the CUDA driver %s (CUDA %s) does not start: %w", library, VersionText(int(version)), Result(r))
		C.scaffe_cuda_unload()
		return err
	}
	return nil
})

// VersionText returns 12.4 for 12040.
func VersionText(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// Result is an error code of the driver, never 0.
type Result int

// Error returns the driver's own words, such as "out of memory
// (CUDA_ERROR_OUT_OF_MEMORY, 2)".
func (r Result) Error() string {
	var text, name *C.char
	if C.cuGetErrorString(C.CUresult(r), &text) != C.CUDA_SUCCESS || C.cuGetErrorName(C.CUresult(r), &name) != C.CUDA_SUCCESS {
		return fmt.Sprintf("CUDA error %d", int(r))
	}
	return fmt.Sprintf("%s (%s, %d)", C.GoString(text), C.GoString(name), int(r))
}

// Check returns the error of a call that answered r.
func Check(r int) error {
	if r == C.CUDA_SUCCESS {
		return nil
	}
	return Result(r)
}

// PCIBus returns the address of a device on the PCI bus: "0000:3b:00.0".
func PCIBus(device int) (string, error) {
	var text [32]C.char
	if err := Check(int(C.cuDeviceGetPCIBusId(&text[0], C.int(len(text)), C.CUdevice(device)))); err != nil {
		return "", err
	}
	return C.GoString(&text[0]), nil
}
