package train

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/scaffe/scaffe/caffe/gpu"
	"github.com/scaffe/scaffe/caffe/solver"
	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/mem"
)

// Device is where workers compute. The zero value is the CPU.
type Device struct {
	CUDA bool
	List []int // GPUs, by their numbers on a node: the ranks of each take them in turn; none: all there are
}

// ParseDevice reads "cpu", "cuda" or "cuda:LIST", such as "cuda:0,0" for two ranks that share a GPU.
func ParseDevice(s string) (Device, error) {
	name, list, given := strings.Cut(s, ":")
	switch {
	case s == "cpu":
		return Device{}, nil
	case s == "cuda":
		return Device{CUDA: true}, nil
	case name != "cuda" || !given:
		return Device{}, badDevice(s)
	}
	d := Device{CUDA: true}
	for number := range strings.SplitSeq(list, ",") {
		n, err := strconv.ParseUint(number, 10, 15)
		if err != nil {
			return Device{}, badDevice(s)
		}
		d.List = append(d.List, int(n))
	}
	return d, nil
}

func badDevice(s string) error {
	return fmt.Errorf("invalid device %q: want cpu, cuda, or cuda:LIST with numbers of GPUs of scaffe doctor, such as cuda:0,1", s)
}

// String is what ParseDevice reads.
func (d Device) String() string {
	if !d.CUDA {
		return "cpu"
	}
	text, sep := "cuda", ":"
	for _, n := range d.List {
		text, sep = text+sep+strconv.Itoa(n), ","
	}
	return text
}

// sameDevice makes sure that either all ranks compute on GPUs or none.
func (w *Worker) sameDevice(ctx context.Context) error {
	ranks := []int64{0, 0} // on the CPU and on GPUs
	if w.device.CUDA {
		ranks[1] = 1
	} else {
		ranks[0] = 1
	}
	if err := w.comm.Allreduce(ctx, mem.Of(ranks), mem.Of(ranks), mem.Int64, mem.Sum); err != nil {
		return err
	}
	if ranks[0] == 0 || ranks[1] == 0 {
		return nil
	}
	return w.comm.Agree(ctx, fmt.Errorf("%d of %d ranks are to compute on GPUs, and %d on the CPU (here: device %v): give all of them the same device", ranks[1], w.comm.Size(), ranks[0], w.device))
}

// openDevice has the solver compute on the GPU that c asks for.
func (w *Worker) openDevice(c Config, o *solver.Options) error {
	if c.Math != cuda.F32 && !c.Device.CUDA {
		return fmt.Errorf("math %v is of GPUs, and the device is %v: use math f32, or the device cuda", c.Math, c.Device)
	}
	if !c.Device.CUDA || o.Idle {
		return nil
	}
	if o.Apart {
		return fmt.Errorf("device %v: with consistency %v passes run beside the loop, on the CPU: use consistency bsp, or the device cpu", c.Device, c.Consistency)
	}
	place, nodes := 0, w.comm.Nodes()
	for rank := range w.comm.Rank() {
		if nodes[rank] == nodes[w.comm.Rank()] {
			place++
		}
	}
	index, err := cuda.Turn(c.Device.List, place)
	if err == nil {
		w.gpu, err = gpu.Open(index)
	}
	if err == nil {
		err = w.gpu.UseLibraries(c.Math)
	}
	if err != nil {
		return fmt.Errorf("device %v: %w", c.Device, err)
	}
	o.GPU = w.gpu
	if w.engineHas(index) {
		o.AllocOn = func(bytes int) (mem.Buffer, error) { return w.comm.AllocIn(mem.CUDA, bytes) }
	}
	return nil
}

// GPUUse is what a run has taken of a GPU so far.
type GPUUse struct {
	Name           string // such as "cuda:0 (NVIDIA H200), cuBLAS 12.4.5, cuDNN 9.1.0"
	Memory, Pinned int64  // bytes of the GPU's memory, and of the host's that it copies to and from
	gpu.Counts
	Inside int64 // of Waits, those in iterations, and not in tests or for snapshots
}

// waits counts the host's waits for its GPU in iterations, beside those for what passes come to.
type waits struct{ before, inside int64 }

// enter begins an iteration, exit ends it.
func (w *Worker) enter() {
	if w.gpu != nil {
		w.waits.before = w.gpu.Counts().Waits
	}
}

func (w *Worker) exit() {
	if w.gpu != nil {
		w.waits.inside += w.gpu.Counts().Waits - w.waits.before
	}
}

func (w *Worker) gpuUse() *GPUUse {
	if w.gpu == nil {
		return nil
	}
	u := &GPUUse{Name: w.gpu.String(), Counts: w.gpu.Counts(), Inside: w.waits.inside}
	if libraries := w.gpu.Libraries(); libraries != "" {
		u.Name += ", " + libraries
	}
	u.Memory, u.Pinned = w.gpu.Bytes()
	return u
}
