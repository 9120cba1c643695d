package gpucheck

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/scaffe/scaffe/internal/atomicfile"
	"github.com/scaffe/scaffe/internal/version"
)

// Row is one line of the report.
type Row struct {
	Part   string
	What   string
	Value  string // with its unit, "" for none
	Ratio  string // to what the target names
	Target string
	Result string // one of those below
	Note   string // why
}

// Results.
const (
	right    = "right"    // as it should be
	wrong    = "wrong"    // not as it should be
	met      = "met"      // the target
	missed   = "missed"   // the target
	measured = "measured" // without a target
	notRun   = "not run"
)

// add puts a line into the report, which is written again. What failed as all was being stopped has not been run.
func (c *Check) add(r Row) {
	r.Part = c.part
	if c.standIn { // no number of it is a measurement
		r.Value, r.Ratio = "", ""
		if r.Result == met || r.Result == missed || r.Result == measured {
			r.Result = notRun
			r.Note = "a stand-in, which measures nothing"
		}
	}
	c.rows = append(c.rows, r)
	if err := c.write(); err != nil {
		fmt.Fprintln(c.Log, err)
	}
}

// ratio is a line with a target: the ratio has to be at least, or at most, so much.
func (c *Check) ratio(what, value string, ratio float64, least bool, target float64, of string) {
	r := Row{What: what, Value: value, Ratio: fmt.Sprintf("%.3g", ratio), Target: fmt.Sprintf("≥ %.3g %s", target, of), Result: missed}
	ok := ratio >= target
	if !least {
		r.Target, ok = fmt.Sprintf("≤ %.3g %s", target, of), ratio <= target
	}
	if ok {
		r.Result = met
	}
	c.add(r)
}

// failed is a line that is wrong, or, where all is being stopped, has not been run.
func (c *Check) failed(what, target string, err error) {
	r := Row{What: what, Target: target, Result: wrong, Note: oneLine(err)}
	if c.stopping() {
		r.Result = notRun
		r.Note = "it was under way when the run was stopped"
	}
	c.add(r)
}

// is is a line without a number.
func (c *Check) is(what string, err error) {
	if err != nil {
		c.failed(what, "", err)
		return
	}
	c.add(Row{What: what, Result: right})
}

// skipped is a line that is not run.
func (c *Check) skipped(what, target, why string) {
	c.add(Row{What: what, Target: target, Result: notRun, Note: why})
}

func (c *Check) report() string { return filepath.Join(c.Dir, "report.md") }

func (c *Check) write() error {
	return atomicfile.Write(atomicfile.OS, c.report(), []byte(c.text()))
}

// text is the report.
func (c *Check) text() string {
	var b strings.Builder
	kind := "GPU"
	fmt.Fprintf(&b, "# What a GPU says\n\n")
	if c.standIn {
		kind = "stand-in"
		fmt.Fprintf(&b, "**This is a run over the driver's stand-in, on no GPU: it shows that the check itself works, on small sizes. It has no measurements.**\n\n")
	}
	fmt.Fprintf(&b, "| | |\n| --- | --- |\n")
	line := func(name, value string) { fmt.Fprintf(&b, "| %s | %s |\n", name, value) }
	line("date", c.started.UTC().Format("2006-01-02 15:04 UTC"))
	line(kind, fmt.Sprintf("%s, sm_%d, %.1f GiB, PCI %s, one of %d", c.gpu.Name, c.gpu.SM, float64(c.gpu.Memory)/(1<<30), c.gpu.PCIBus, c.gpus))
	line("driver", "for CUDA "+c.driver+kernelModule())
	line("processor", fmt.Sprintf("%s, %d usable threads", processor(), runtime.NumCPU()))
	mpi := "the archive's"
	if c.noMPI != "" {
		mpi = "none: " + c.noMPI
	}
	line("MPI", mpi)
	line("scaffe", version.String())
	state := "under way"
	switch {
	case c.stopped != "":
		state = c.stopped + ", before all was run"
	case c.finished:
		state = fmt.Sprintf("complete, %.0f s", time.Since(c.started).Seconds())
		if len(c.Only) > 0 {
			state += ", of what was asked for: " + strings.Join(c.Only, ", ")
		}
	}
	line("run", state)
	of := ""
	for _, r := range c.rows {
		if r.Part != of {
			of = r.Part
			fmt.Fprintf(&b, "\n## %s\n\n| what | measured | ratio | target | result |\n| --- | --- | --- | --- | --- |\n", of)
		}
		result := r.Result
		if r.Note != "" {
			result += ": " + r.Note
		}
		cells := []string{r.What, r.Value, r.Ratio, r.Target, result}
		for i, s := range cells {
			cells[i] = strings.ReplaceAll(strings.ReplaceAll(s, "|", "\\|"), "\n", " ")
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
	}
	return b.String()
}

// processor is the CPU's name.
func processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for l := range strings.SplitSeq(string(text), "\n") {
		if name, value, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// kernelModule is the version of NVIDIA's kernel module, where there is one.
func kernelModule() string {
	text, err := os.ReadFile("/proc/driver/nvidia/version")
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(text), "\n")
	return ", " + strings.Join(strings.Fields(first), " ")
}
