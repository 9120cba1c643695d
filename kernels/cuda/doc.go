// Package cuda is about the GPUs of this machine, through the CUDA driver.
//
//	all, err := cuda.GPUs()
//	…
//	gpu, err := cuda.Open(0)
//	stream, err := gpu.NewStream()
//	err = stream.Reduce(mem.Float32, mem.Sum, dst, a, b) // dst[i] = a[i] + b[i], some time later
//	err = stream.Record(event)                           // which passes when it has been done
//
// Programs are not linked with the driver, and need neither it nor a GPU to be built
// or to start: [GPUs] is the first to look for one (package internal/driver says how).
//
// # Kernels
//
// kernels.cu is the one source of what GPUs compute. go generate makes kernels.ptx of it,
// which is part of the program; the driver translates that for the GPU at hand. The same
// source, compiled for the host, is what the driver's stand-in runs in tests (package cudatest), where every
// result is compared with those of packages kernels and vec, bit by bit. Buffers may begin at any
// address; those that lie alike within 16 bytes are read and written in lines of 16.
//
// docs/gpu.md says what has been tested and how, and what has run on hardware.
package cuda

import (
	"github.com/scaffe/scaffe/kernels/cuda/internal/driver"
	"github.com/scaffe/scaffe/mem"
)

//go:generate ./generate.sh

// EnvLibrary is the environment variable that names the driver's library.
const EnvLibrary = driver.EnvLibrary

// Operands is how many buffers a kernel combines at once, at most, where Folds reports that it combines more than two.
const Operands = 8

// Folds reports whether one kernel combines several buffers: the sums of floating-point numbers, at addresses of whole elements.
func Folds(dt mem.Datatype, op mem.Op) bool { return op == mem.Sum && dt.Float() }

// Built reports whether this program can use a GPU where there is one: it was built
// with the tag cuda, which scripts/with-mpi adds.
const Built = driver.Built

// Errors that callers tell apart.
var (
	ErrNotBuilt = driver.ErrNotBuilt // this program can use no GPU on any machine
	ErrNoDriver = driver.ErrNoDriver // this machine has no driver
)

// GPU is what the driver says of one.
type GPU struct {
	Index  int    // its number, as in cuda:0
	Name   string // such as NVIDIA H200
	UUID   string // as nvidia-smi -L lists it: GPU-…
	PCIBus string // its address on the bus: 0000:3b:00.0
	Memory int64  // in bytes
	SM     int    // its generation: 80 for compute capability 8.0
	Mode   Mode   // who may use it
}

// Mode is a GPU's compute mode, which its administrator sets.
type Mode int

// The modes.
const (
	Shared           Mode = 0 // any number of processes
	Prohibited       Mode = 2 // none
	ExclusiveProcess Mode = 3 // one process at a time
)

// String returns nvidia-smi's words.
func (m Mode) String() string {
	switch m {
	case Shared:
		return "Default"
	case Prohibited:
		return "Prohibited"
	case ExclusiveProcess:
		return "Exclusive_Process"
	}
	return "unknown"
}

// Turn returns the number of the GPU that the i-th takes of those who take GPUs in turn: of a list, or, where that is empty, of all
// that there are.
func Turn(list []int, i int) (int, error) {
	if len(list) > 0 {
		return list[i%len(list)], nil
	}
	all, err := GPUs()
	if err != nil {
		return 0, err
	}
	return i % max(1, len(all)), nil
}
