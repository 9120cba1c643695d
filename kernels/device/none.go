//go:build !(cuda && cgo && linux && (amd64 || arm64))

package device

import (
	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/nbc"
)

// CUDA returns ErrNotBuilt.
func CUDA(*cuda.Device, Host) (nbc.Accelerator, error) { return nil, cuda.ErrNotBuilt }
