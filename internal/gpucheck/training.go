package gpucheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// curve is what a run of training has come to.
type curve struct {
	losses []float64
	rate   float64 // images a second, the median of the later half of the iterations
	end    end
}

// end is the event of that name.
type end struct {
	Exposed float64 `json:"exposed_ms"`
	Compute float64 `json:"compute_ms"`
	GPU     *struct {
		Name   string
		Waits  int64
		Inside *int64 `json:"iteration_waits"` // of them, in iterations, where the log tells them apart
	}
}

// train runs one and reads its log.
func (c *Check) train(ctx context.Context, solver string, args ...string) (v curve, err error) {
	r, err := c.command(ctx, 2*time.Minute, nil, append([]string{c.program("scaffe"), "train", "--solver", solver, "--log-json", "-"}, args...)...)
	if err != nil {
		return v, err
	}
	var rates []float64
	ended := false
	for d := json.NewDecoder(strings.NewReader(r.stdout)); d.More(); {
		var text json.RawMessage
		var x struct {
			Event string
			Loss  *float64
			Rate  float64 `json:"images_per_second"`
		}
		if err := errors.Join(d.Decode(&text), json.Unmarshal(text, &x)); err != nil {
			return v, fmt.Errorf("the log of training: %w", err)
		}
		switch x.Event {
		case "iteration":
			if x.Loss == nil {
				return v, errors.New("a loss is not finite")
			}
			v.losses, rates = append(v.losses, *x.Loss), append(rates, x.Rate)
		case "end":
			if err := json.Unmarshal(text, &v.end); err != nil {
				return v, err
			}
			ended = true
		}
	}
	if !ended || len(v.losses) == 0 {
		return v, errors.New("the log of training has no end")
	}
	rates = rates[len(rates)/2:]
	slices.Sort(rates)
	v.rate = rates[len(rates)/2]
	return v, nil
}

// training compares losses and speed with the CPU's.
func (c *Check) training(ctx context.Context) {
	c.compareLosses(ctx)
	for _, x := range []struct {
		name         string
		batch, ofCPU int
		times        float64
		gpuIt, cpuIt int
	}{{quick, 100, 100, 20, 200, 10}, {"alexnet", 256, 16, 100, 10, 3}, {"googlenet", 128, 8, 50, 10, 3}} {
		c.compareSpeed(ctx, x.name, x.batch, x.ofCPU, x.gpuIt, x.cpuIt, x.times)
	}
	c.designs(ctx)
	c.overhead(ctx)
	c.pytorch(ctx)
}

// compareLosses trains a net with dropout for 50 iterations on one rank and on two, on CPU and GPU.
func (c *Check) compareLosses(ctx context.Context) {
	const what, target = "losses of 50 iterations", "the first within 1e-5; all no further than twice one CPU rank's from two"
	_, err := c.command(ctx, time.Minute, nil, c.program("scaffe"), "data", "glyphs", "--force", "--train", "1600", "--test", "100", "--out", filepath.Join(c.Dir, "log", glyphs))
	if err != nil {
		c.failed(what, target, err)
		return
	}
	solver, err := c.solver("losses", glyphs, 32, 50)
	if err != nil {
		c.failed(what, target, err)
		return
	}
	var runs [4]curve
	for i, args := range [][]string{{"--device", "cpu", "--local", "1"}, {"--device", "cpu", "--local", "2"}, {"--device", "cuda:0", "--local", "1"}, {"--device", "cuda:0,0", "--local", "2"}} {
		if runs[i], err = c.train(ctx, solver, args...); err != nil {
			c.failed(what, target, err)
			return
		}
	}
	c.add(Row{What: "computed by " + runs[2].end.name(), Result: right})
	far := 2 * distance(runs[0].losses, runs[1].losses)
	for i, ranks := range []string{"one rank", "two ranks"} {
		cpu, gpu := runs[i], runs[2+i]
		r := Row{What: what + ", " + ranks, Target: target, Result: right}
		switch first, all := distance(cpu.losses[:1], gpu.losses[:1]), distance(cpu.losses, gpu.losses); {
		case first > 1e-5:
			r.Result, r.Note = wrong, fmt.Sprintf("the first is %v, and the CPU's %v", gpu.losses[0], cpu.losses[0])
		case all > max(far, 1e-5):
			r.Result, r.Note = wrong, fmt.Sprintf("they are up to %.2g off, and the CPU's of one rank and two %.2g", all, far/2)
		}
		c.add(r)
	}
	c.waits(runs[2])
}

func (c *Check) waits(v curve) {
	if v.end.GPU == nil {
		c.failed("host waits beside the loss, one rank", "0 an iteration", errors.New("the summary has no GPU"))
		return
	}
	waits := v.end.GPU.Waits
	if v.end.GPU.Inside != nil {
		waits = *v.end.GPU.Inside
	}
	c.ratio("host waits beside the loss, one rank", fmt.Sprintf("%d in %d iterations", waits, len(v.losses)), float64(waits)/float64(len(v.losses)), false, 0, "an iteration")
}

// name is the GPU and the libraries that computed.
func (e end) name() string {
	if e.GPU == nil {
		return "no GPU"
	}
	return e.GPU.Name
}

// distance is how far two curves are apart at most, of the larger loss.
func distance(a, b []float64) float64 {
	if len(a) != len(b) {
		return math.Inf(1)
	}
	far := 0.0
	for i := range a {
		far = max(far, math.Abs(a[i]-b[i])/max(math.Abs(a[i]), math.Abs(b[i]), 1e-30))
	}
	return far
}

// compareSpeed trains a built-in net on made-up images.
func (c *Check) compareSpeed(ctx context.Context, model string, batch, cpuBatch, iterations, cpuIterations int, times float64) {
	what, of := fmt.Sprintf("%s, batches of %d, one rank", model, batch), fmt.Sprintf("× one CPU rank (batches of %d)", cpuBatch)
	target := fmt.Sprintf("≥ %.3g %s", times, of)
	if c.standIn {
		c.skipped(what, target, "a stand-in, which would take hours")
		return
	}
	var runs [2]curve
	for i, x := range []struct {
		device       string
		batch, iters int
	}{{"cpu", cpuBatch, cpuIterations}, {"cuda:0", batch, iterations}} {
		solver, err := c.solver(strings.ReplaceAll(model, " ", "-"), model, x.batch, x.iters)
		if err == nil {
			runs[i], err = c.train(ctx, solver, "--device", x.device, "--local", "1")
		}
		if err != nil {
			c.failed(what, target, err)
			return
		}
	}
	c.ratio(what, fmt.Sprintf("%.0f images/s", runs[1].rate), runs[1].rate/runs[0].rate, true, times, of)
}

// designs compares when ranks communicate, and how much of an iteration they wait for that.
func (c *Check) designs(ctx context.Context) {
	const net, target = "alexnet, batches of 128 a rank, two ranks on one GPU", "≤ 10 % of the iteration"
	what := "SC-OBR, " + net + ": exposed communication"
	if c.standIn {
		c.skipped(what, target, "a stand-in, which would take hours")
		return
	}
	solver, err := c.solver("designs", "alexnet", 128, 10)
	var runs [3]curve
	names := [3]string{"SC-B", "SC-OB", "SC-OBR"}
	for i, design := range names {
		if err == nil {
			runs[i], err = c.train(ctx, solver, "--local", "2", "--device", "cuda:0,0", "--scal", "weak", "--design", design)
		}
	}
	if err != nil {
		c.failed(what, target, err)
		return
	}
	end := runs[2].end
	c.ratio(what, fmt.Sprintf("%.1f ms", end.Exposed), 100*end.Exposed/(end.Exposed+end.Compute), false, 10, "% of the iteration")
	for i, paper := range []string{1: "up to 1.15 × (S-Caffe, 6.6)", 2: "1.2 × on 8 GPUs (S-Caffe, 6.6)"} {
		if i > 0 {
			c.add(Row{What: names[i] + " against SC-B, " + net, Value: fmt.Sprintf("%.0f images/s", runs[i].rate), Ratio: fmt.Sprintf("%.3g", runs[i].rate/runs[0].rate), Result: measured, Note: "in the paper " + paper})
		}
	}
}
