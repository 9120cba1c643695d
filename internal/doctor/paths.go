package doctor

import (
	"fmt"
	"strings"

	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/mpi"
)

// shared says how processes share a GPU, and which others it reaches.
func shared(g cuda.GPU, all []cuda.GPU) string {
	var b strings.Builder
	if on, known := cuda.MPS(g.Index); on {
		b.WriteString(", MPS")
	} else if known {
		b.WriteString(", no MPS")
	}
	var reached []string
	for _, other := range all {
		if can, err := cuda.CanReach(g.Index, other.Index); err == nil && can && other.Index != g.Index {
			reached = append(reached, fmt.Sprintf("cuda:%d", other.Index))
		}
	}
	if len(all) > 1 && len(reached) == 0 {
		b.WriteString(", no peer access")
	} else if len(reached) > 0 {
		b.WriteString(", peer access to " + strings.Join(reached, ", "))
	}
	return b.String()
}

// gpuPaths says by which path messages of GPUs' memory go between every two ranks, each with the GPU that it would take. It is
// a collective of several ranks; nothing where no rank has a GPU.
func gpuPaths(w *mpi.World) []Finding {
	if w.Size() < 2 {
		return nil
	}
	f := Finding{What: "GPU paths", Found: "none"}
	gather := gatherOver(w)
	d, err := openGPU(w.Nodes().LocalRank)
	text := ""
	if err != nil {
		text = err.Error()
	}
	texts, err := gather([]byte(text))
	if err != nil {
		f.Wrong = err.Error()
		return []Finding{f}
	}
	without, first := 0, ""
	for r, text := range texts {
		if text := strings.TrimSpace(string(text)); text != "" {
			if without++; without == 1 {
				first = fmt.Sprintf("rank %d has no GPU: %s", r, text)
			}
		}
	}
	if without > 0 {
		if d != nil {
			_ = d.Close()
		}
		if without == w.Size() {
			return nil
		}
		f.Wrong, f.Fix = first, "collectives on GPUs' memory want one for every rank"
		return []Finding{f}
	}
	defer d.Close()
	paths, warning, err := launch.JoinGPUs(w.Rank(), w.Nodes().Of, d, gather)
	switch {
	case err != nil:
		f.Wrong, f.Fix = err.Error(), fmt.Sprintf("unset %s", launch.EnvCUDAPath)
	default:
		f.Found, f.Wrong = strings.Join(paths.Lines(), fmt.Sprintf("\n%22s", "")), warning
	}
	return []Finding{f}
}

// openGPU opens the GPU that a rank of a node takes.
func openGPU(place int) (*cuda.Device, error) {
	all, err := cuda.GPUs()
	if err != nil {
		return nil, err
	}
	return cuda.Open(place % max(1, len(all)))
}

// gatherOver gathers over MPI.
func gatherOver(w *mpi.World) launch.Gather {
	return func(mine []byte) ([][]byte, error) {
		longest := mem.Alloc(8)
		defer longest.Free()
		n := mem.View[int64](longest)
		n[0] = max(1, int64(len(mine)))
		if err := w.Comm().Allreduce(longest.Pointer(), longest.Pointer(), 1, mem.Int64, mem.Max); err != nil {
			return nil, err
		}
		each := int(n[0])
		send, recv := mem.Alloc(each), mem.Alloc(each*w.Size())
		defer send.Free()
		defer recv.Free()
		for i := copy(mem.Bytes(send), mine); i < each; i++ {
			mem.Bytes(send)[i] = ' '
		}
		if err := w.Comm().Allgather(send.Pointer(), recv.Pointer(), mpi.PartsOf(mpi.Parts{}, each*w.Size(), w.Size(), nil), mem.Uint8); err != nil {
			return nil, err
		}
		var all [][]byte
		for r := range w.Size() {
			all = append(all, append([]byte(nil), mem.Bytes(recv.Slice(r*each, each))...))
		}
		return all, nil
	}
}
