package tune

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/internal/units"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/sim"
)

// Question is what Explain answers: which spec serves a call, and why.
type Question struct {
	Query    selection.Query
	Asked    spec.Spec // by the call; usually none
	Nodes    []int     // the node of every rank
	Simulate bool      // simulate the spec and the runner-up as well
	Paths    []string  // of messages of GPUs' memory between the ranks
}

// Explain writes to w which spec serves a call, what decided so, and what the
// model makes of it.
func Explain(w io.Writer, s *selection.Selector, q Question) error {
	l := spec.LayoutOf(q.Nodes)
	c, err := s.Explain(l, q.Query, q.Asked)
	if err != nil {
		return err
	}
	blocking := "blocking"
	if !q.Query.Blocking {
		blocking = "non-blocking"
	}
	fmt.Fprintf(w, "%v of %s of %v, %s, %v buffers, on %v\n", q.Query.Collective, units.FormatBytes(q.Query.Bytes), q.Query.Type, blocking, q.Query.Buffers, l)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "  %-11s %s\n", name, fmt.Sprintf(format, args...))
	}
	row("spec", "%v", c.Spec)
	row("decided by", "%s", c.Why)
	row("predicted", "%s%s", Duration(c.Predicted), rate(q.Query.Bytes, c.Predicted))
	if len(c.RunnerUp.Levels) > 0 {
		row("runner-up", "%v, predicted %s (%.2f ×)", c.RunnerUp, Duration(c.RunnerUpPredicted), c.RunnerUpPredicted.Seconds()/c.Predicted.Seconds())
	}
	if limit := selection.Limit(q.Query.Collective, q.Query.Bytes, l, selection.Where(s.Model, l, q.Query.Buffers)); limit > 0 {
		row("limit", "%s: what must pass %s, over its bandwidth", Duration(seconds(limit)), map[bool]string{true: "a node's port", false: "memory"}[l.Nodes > 1])
	}
	if q.Simulate {
		for _, spec := range []spec.Spec{c.Spec, c.RunnerUp} {
			if len(spec.Levels) == 0 || spec.IsLibrary() {
				continue
			}
			t, err := simulate(spec, q, s.Model)
			if err != nil {
				return err
			}
			row("simulated", "%s for %v", Duration(seconds(t)), spec)
		}
	}
	for i, words := range lines(s.Model.String(), 76) {
		row(map[bool]string{true: "model"}[i == 0], "%s", words)
	}
	row("", "(%s)", s.From)
	if q.Query.Buffers == selection.CUDA {
		for i, line := range gpuLines(s.Model.GPU) {
			row(map[bool]string{true: "buffers"}[i == 0], "%s", line)
		}
	}
	for i, line := range q.Paths {
		row(map[bool]string{true: "paths"}[i == 0], "%s", line)
	}
	if q.Query.Buffers == selection.Unregistered && l.PPN > 1 {
		row("buffers", "Not from Comm.Alloc, so the ranks of a node cannot read them in place: what goes")
		row("", "from rank to rank is copied by the kernel first (process_vm_readv), or by its sender")
		row("", "into memory that they share: of 8 MiB and more what is added, and all where ranks share")
		row("", "cores; and where the former is forbidden. Registered ones save that copy.")
	}
	return nil
}

// gpuLines says what the model makes of buffers in GPUs' memory.
func gpuLines(g sim.GPU) []string {
	if !g.Known() {
		return []string{
			"In a GPU's memory. The model takes them for unregistered ones of the host, with",
			"chunks from 512K to 16M: nobody has measured a GPU, or named its parameters.",
		}
	}
	read := map[float64]string{
		sim.LendsNone: "Messages are staged in the host's memory", sim.LendsOwn: "Those of a rank on the same GPU are read in place, others staged",
		sim.LendsAll: "Those of a rank on the same node are read in place, others staged",
	}[g.Lends]
	shared := "a GPU"
	if g.Devices > 1 {
		shared = fmt.Sprintf("%g GPUs", g.Devices)
	}
	sharing := fmt.Sprintf("The ranks of a node share %s, where kernels run side by side.", shared)
	switch {
	case g.Devices == 0:
		sharing = "Each rank has a GPU of its own."
	case g.Turns > 0:
		sharing = fmt.Sprintf("The ranks of a node share %s, where kernels take turns.", shared)
	}
	return []string{"In a GPU's memory. " + read + ".", sharing}
}

// lines breaks text between words into lines of at most width bytes.
func lines(text string, width int) (out []string) {
	line := ""
	for _, w := range strings.Fields(text) {
		if line != "" && len(line)+1+len(w) > width {
			out, line = append(out, line), ""
		}
		line = strings.TrimPrefix(line+" "+w, " ")
	}
	return append(out, line)
}

// simulate returns in seconds what package sim makes of a spec.
func simulate(sp spec.Spec, q Question, m sim.Model) (float64, error) {
	var all []*schedule.Schedule
	size := q.Query.Type.Size()
	for r := range q.Nodes {
		s, err := spec.Build(spec.Call{
			Collective: q.Query.Collective, Rank: r, Size: len(q.Nodes), Count: q.Query.Bytes / size, ElemSize: size, Nodes: q.Nodes,
		}, sp)
		if err != nil {
			return 0, err
		}
		all = append(all, s)
	}
	res, err := sim.Simulate(all, sim.Setup{
		Model: m, Nodes: q.Nodes, ElemSize: size, Unregistered: q.Query.Buffers != selection.Registered,
		GPU: q.Query.Buffers == selection.CUDA && m.GPU.Known(), ByRank: q.Query.Collective.ByRank(),
	})
	return res.Max, err
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Duration writes a time with three digits and a unit that people read.
func Duration(d time.Duration) string {
	s := d.Seconds()
	for _, u := range []struct {
		of   float64
		name string
	}{{1, "s"}, {1e-3, "ms"}, {1e-6, "µs"}} {
		if s >= u.of || u.name == "µs" {
			v := s / u.of
			digits := 0
			if v < 10 {
				digits = 2
			} else if v < 100 {
				digits = 1
			}
			return fmt.Sprintf("%.*f %s", digits, v, u.name)
		}
	}
	return d.String()
}

func rate(bytes int, d time.Duration) string {
	if d <= 0 || bytes == 0 {
		return ""
	}
	return fmt.Sprintf(" (%.3g GB/s)", float64(bytes)/d.Seconds()/1e9)
}
