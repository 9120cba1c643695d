package gpucheck

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/scaffe/scaffe/internal/stats"
	"github.com/scaffe/scaffe/kernels/cuda"
)

//go:embed pytorch.py
var pytorchScript []byte

// pytorch compares AlexNet and GoogLeNet with PyTorch, where the machine has that: processes in turn.
func (c *Check) pytorch(ctx context.Context) {
	const target = 0.7
	why, version := c.findPyTorch(ctx)
	for _, x := range []struct {
		net   string
		batch int
	}{{"alexnet", 256}, {"googlenet", 128}} {
		what := fmt.Sprintf("%s, batches of %d, one rank, f32, against PyTorch%s", x.net, x.batch, version)
		goal := fmt.Sprintf("≥ %.1f × PyTorch", target)
		if ctx.Err() != nil || why != "" {
			c.skipped(what, goal, "no PyTorch here: "+why)
			continue
		}
		ours, theirs, err := c.inTurnWithPyTorch(ctx, x.net, x.batch)
		_, noDNN := cuda.FindDNN()
		switch value := fmt.Sprintf("%.0f images/s, PyTorch %.0f", ours, theirs); {
		case err != nil:
			c.failed(what, goal, err)
		case noDNN != nil:
			c.add(Row{What: what, Value: value, Ratio: fmt.Sprintf("%.3g", ours/theirs), Target: goal, Result: measured, Note: "scaffe without cuDNN: " + oneLine(noDNN)})
		default:
			c.ratio(what, value, ours/theirs, true, target, "× PyTorch")
		}
	}
}

// findPyTorch says why there is none, or which there is.
func (c *Check) findPyTorch(ctx context.Context) (why, version string) {
	if _, err := exec.LookPath("python3"); err != nil {
		return "no python3", ""
	}
	if err := os.WriteFile(c.script(), pytorchScript, 0o666); err != nil {
		return oneLine(err), ""
	}
	var is struct{ Missing, Torch, CUDA, CUDNN string }
	if err := c.python(ctx, &is, "probe"); err != nil {
		return oneLine(err), ""
	}
	if is.Missing != "" {
		return is.Missing, ""
	}
	return "", fmt.Sprintf(" %s (CUDA %s, cuDNN %s)", is.Torch, is.CUDA, is.CUDNN)
}

func (c *Check) script() string { return filepath.Join(c.Dir, "log", "pytorch.py") }

// python runs the script, which prints one object.
func (c *Check) python(ctx context.Context, v any, args ...string) error {
	r, err := c.command(ctx, 2*time.Minute, nil, append([]string{"python3", c.script()}, args...)...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(r.stdout), v); err != nil {
		return fmt.Errorf("pytorch.py printed %q: %w", shorten(r.stdout), err)
	}
	return nil
}

// inTurnWithPyTorch returns images a second of both: medians of rounds in turn, each the median of its iterations.
func (c *Check) inTurnWithPyTorch(ctx context.Context, net string, batch int) (ours, theirs float64, err error) {
	const rounds, iterations = 3, 20
	model, n := net, iterations
	if c.standIn { // which would take hours
		model, batch, n = "", 2, 4
	}
	solver, err := c.solver("pytorch-"+net, model, batch, n)
	if err != nil {
		return 0, 0, err
	}
	var all [2][]float64
	for range rounds {
		v, err := c.train(ctx, solver, "--device", "cuda:0", "--local", "1")
		if err != nil {
			return 0, 0, err
		}
		var torch struct {
			Rate float64 `json:"images_per_second"`
		}
		if err := c.python(ctx, &torch, net, fmt.Sprint(batch), fmt.Sprint(n)); err != nil {
			return 0, 0, err
		}
		if torch.Rate <= 0 {
			return 0, 0, errors.New("pytorch.py tells no images a second")
		}
		all[0], all[1] = append(all[0], v.rate), append(all[1], torch.Rate)
	}
	return stats.Median(all[0]).Median, stats.Median(all[1]).Median, nil
}
