// Package driver makes the CUDA driver's functions callable in a program that is
// not linked with the driver.
//
// gorgonia.org/cu calls cuInit, cuMemAlloc and the others by name and wants
// libcuda.so.1, which only machines with an NVIDIA driver have. Here each of these
// names is a jump through a pointer. [Open] fills the pointers, from the driver that
// dlopen finds; until then, and where there is none, each function answers
// CUDA_ERROR_NO_DEVICE. So one binary serves both kinds of machine, and a program
// that never asks for a GPU never looks for one.
//
// NVIDIA's libraries for products of matrices and for convolutions, cuBLAS and cuDNN, are loaded likewise, and are not there
// on most machines that have a driver: [FindBLAS] and [FindDNN] say.
//
// Whoever imports gorgonia.org/cu imports this package too, in the same package:
// its folder lib, where the linker finds an empty libcuda.a, then comes before all
// that cu names. Without the build tag cuda (which scripts/with-mpi adds), without cgo, and on
// other systems than Linux on amd64 and arm64, Open is an error and cu is not there.
package driver

import "errors"

// EnvLibrary is the environment variable that names the driver's library, where it
// is not the libcuda.so.1 that the dynamic linker finds.
const EnvLibrary = "SCAFFE_CUDA_LIBRARY"

// The environment variables that name the files of cuBLAS and cuDNN, where they are not those that the dynamic linker
// finds, or are to be left alone: NoLibrary.
const (
	EnvBLAS   = "SCAFFE_CUBLAS_LIBRARY"
	EnvDNN    = "SCAFFE_CUDNN_LIBRARY"
	NoLibrary = "none"
)

// Library is one of NVIDIA's.
type Library struct {
	Name    string // of its file
	Version string
}

// Shape is what convolutions have in common: n images of in channels and groups to out channels.
type Shape struct {
	N, Groups, In, Out, H, W, OutH, OutW                                 int
	KernelH, KernelW, PadH, PadW, StrideH, StrideW, DilationH, DilationW int
}

// MinVersion is the oldest driver that will do, as cuDriverGetVersion counts: CUDA
// 11.0, the first that takes code for sm_80.
const MinVersion = 11000

var (
	// ErrNotBuilt says that the program cannot use a GPU on any machine.
	ErrNotBuilt = errors.New("this program was built without CUDA: build it with `make build`, on Linux, with a C compiler")
	// ErrNoDriver says that this machine has no driver.
	ErrNoDriver = errors.New("no CUDA driver")
	// ErrNoLibrary says that this machine has no such library, or that it is to be left alone.
	ErrNoLibrary = errors.New("not found")
	// ErrNoGPU says that it has a driver, which finds no GPU.
	ErrNoGPU = errors.New("a CUDA driver, and no GPU that this process may see")
)
