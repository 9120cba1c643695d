package train

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/scaffe/scaffe/caffe/gpu"
	"github.com/scaffe/scaffe/caffe/solver"
)

// Device is where a worker computes. The zero value is the CPU.
type Device struct {
	CUDA  bool
	Index int // the GPU's number on its node
}

// ParseDevice reads "cpu", "cuda" (which is cuda:0) or "cuda:N".
func ParseDevice(s string) (Device, error) {
	switch name, number, given := strings.Cut(s, ":"); {
	case s == "cpu":
		return Device{}, nil
	case s == "cuda":
		return Device{CUDA: true}, nil
	case name == "cuda" && given:
		if n, err := strconv.ParseUint(number, 10, 15); err == nil {
			return Device{true, int(n)}, nil
		}
	}
	return Device{}, fmt.Errorf("invalid device %q: want cpu, cuda, or cuda:N for GPU number N of scaffe doctor", s)
}

// String is what ParseDevice reads.
func (d Device) String() string {
	if !d.CUDA {
		return "cpu"
	}
	return fmt.Sprintf("cuda:%d", d.Index)
}

// openDevice has the solver compute on the GPU that c asks for.
func (w *Worker) openDevice(c Config, o *solver.Options) (err error) {
	switch {
	case !c.Device.CUDA:
		return nil
	case w.comm.Size() > 1:
		return fmt.Errorf("device %v: a GPU trains one rank alone yet, and there are %d, whose gradients would have to move from its memory: "+
			"start one rank, or use the device cpu", c.Device, w.comm.Size())
	}
	if w.gpu, err = gpu.Open(c.Device.Index); err != nil {
		return fmt.Errorf("device %v: %w", c.Device, err)
	}
	o.GPU = w.gpu
	return nil
}

// GPUUse is what a run has taken of a GPU so far.
type GPUUse struct {
	Name           string // such as "cuda:0 (NVIDIA H200)"
	Memory, Pinned int64  // bytes of the GPU's memory, and of the host's that it copies to and from
	gpu.Counts
}

func (w *Worker) gpuUse() *GPUUse {
	if w.gpu == nil {
		return nil
	}
	u := &GPUUse{Name: w.gpu.String(), Counts: w.gpu.Counts()}
	u.Memory, u.Pinned = w.gpu.Bytes()
	return u
}
