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
	text := ""
	index, err := cuda.Turn(nil, w.Nodes().LocalRank)
	var d *cuda.Device
	if err == nil {
		d, err = cuda.Open(index)
	}
	if err != nil {
		text = err.Error()
	}
	texts, err := launch.GatherJSON(gather, w.Size(), text)
	if err != nil {
		f.Wrong = err.Error()
		return []Finding{f}
	}
	without, first := 0, ""
	for r, text := range texts {
		if text == "" {
			continue
		}
		if without++; without == 1 {
			first = fmt.Sprintf("rank %d has no GPU: %s", r, text)
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
	nodes := w.Nodes().Of
	direct := func(rank int) bool { return w.CUDAAware() == mpi.Yes && nodes[rank] != nodes[w.Rank()] }
	joined, err := launch.JoinGPUs(w.Rank(), nodes, d, direct, gather)
	switch {
	case err != nil:
		f.Wrong, f.Fix = err.Error(), fmt.Sprintf("unset %s", launch.EnvCUDAPath)
	default:
		lines := joined.Paths.Lines()
		if joined.Turns {
			lines = append(lines, "processes that share a GPU take turns: no MPS server is known to have it")
		}
		f.Found, f.Wrong = strings.Join(lines, fmt.Sprintf("\n%22s", "")), joined.Warning
	}
	return []Finding{f}
}

// gatherOver gathers over MPI.
func gatherOver(w *mpi.World) launch.Gather {
	return func(mine, all []byte) error {
		send, recv := mem.Alloc(len(mine)), mem.Alloc(len(all))
		defer send.Free()
		defer recv.Free()
		copy(mem.Bytes(send), mine)
		err := w.Comm().Allgather(send.Pointer(), recv.Pointer(), mpi.PartsOf(mpi.Parts{}, len(all), w.Size(), nil), mem.Uint8)
		copy(all, mem.Bytes(recv))
		return err
	}
}
