package gpucheck

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ranks checks and measures collectives of ranks that share the GPU.
func (c *Check) ranks(ctx context.Context) {
	for _, n := range []int{2, 4, 8} {
		c.validated(ctx, n, "", nil, false)
		c.validated(ctx, n, "", nil, true)
	}
	c.joins(ctx)
	c.staging(ctx)
	c.reduceAtOnce(ctx)
	c.underMPS(ctx)
}

// validated runs collectives of so many ranks, of one process or as processes, that check every element. Where says under what.
func (c *Check) validated(ctx context.Context, n int, where string, env []string, processes bool) {
	for _, program := range []string{"osu_reduce", "osu_allreduce", "osu_bcast"} {
		of, start := "ranks of one process", c.local
		if processes {
			of, start = "processes", c.mpirun
		}
		if what := fmt.Sprintf("%s -c, %d %s%s, 4 KiB to 4 MiB", program, n, of, where); !processes || c.processes(what, "") {
			_, err := c.osu(ctx, env, start(n, program, "-d", "cuda", "-c", "-m", "4K:4M", "--factor", "32", "-i", "3", "-x", "1")...)
			c.is(what, err)
		}
	}
}

// joins asks by which path the ranks of two processes are joined.
func (c *Check) joins(ctx context.Context) {
	const what = "the path between two processes"
	if !c.processes(what, "") {
		return
	}
	text, err := c.doctor(ctx, nil)
	if _, rest, found := strings.Cut(text, "ranks 0-1: "); found {
		c.joined = strings.TrimSpace(strings.SplitN(rest, "\n", 2)[0])
		c.add(Row{What: what + ": " + c.joined, Result: right})
		return
	}
	c.failed(what, "", errors.Join(errors.New("scaffe doctor does not say"), err))
}

// doctor is what `scaffe doctor` of two processes says, which fails where anything of the machine is not as it should be.
func (c *Check) doctor(ctx context.Context, env []string) (string, error) {
	r, err := c.command(ctx, time.Minute, env, c.mpirun(2, "scaffe", "doctor")...)
	return r.stdout, err
}

// staging is how fast messages go from a process's GPU memory to another's.
func (c *Check) staging(ctx context.Context) {
	const what, target = "staging, 256 MiB, device to another process's device", "≥ 0.85 × the slower copy direction"
	if !c.processes(what, target) {
		return
	}
	rows, err := c.osu(ctx, []string{"SCAFFE_CUDA_PATH=staging"}, c.mpirun(2, "osu_bw", append(c.message(256<<20), "-d", "cuda", "-i", "8", "-x", "2")...)...)
	switch {
	case err != nil:
		c.failed(what, target, err)
	case rows[0].Bandwidth == nil:
		c.failed(what, target, errors.New("osu_bw prints no bandwidth"))
	case c.rates.down == 0 || c.rates.up == 0:
		c.skipped(what, target, "the copies have not been measured")
	default:
		v := *rows[0].Bandwidth * 1e6
		c.ratio(what, gbs(v), v/min(c.rates.down, c.rates.up), true, 0.85, "× the slower copy direction")
	}
}

// A reduction of 256 MiB of 4 ranks: its benchmark, and what it is compared with.
const (
	reducers    = 4
	reduceBytes = 256 << 20
	overCopy    = "× (P + 1) buffers over the copy's bandwidth"
)

// reduceRow is what its lines begin with.
func reduceRow(of string) string { return fmt.Sprintf("reduce 256 MiB, %d %s", reducers, of) }

// reduceArgs are those of the benchmark, which checks every element.
func (c *Check) reduceArgs() []string {
	return append(c.message(reduceBytes), "-M", "4G", "-d", "cuda", "-c", "-i", "5", "-x", "2")
}

// reduceAtOnce is the reduction in one process and in several.
func (c *Check) reduceAtOnce(ctx context.Context) {
	c.againstCopy(ctx, reduceRow("ranks of one process"), nil, 2, c.local(reducers, "osu_reduce", c.reduceArgs()...))
	what, target := reduceRow("processes"), "≤ 1 × staging's time"
	if !c.processes(what, target) {
		return
	}
	own := c.againstCopy(ctx, what+", no MPS", nil, 0, c.mpirun(reducers, "osu_reduce", c.reduceArgs()...))
	staged, err := c.osu(ctx, []string{"SCAFFE_CUDA_PATH=staging"}, c.mpirun(reducers, "osu_reduce", c.reduceArgs()...)...)
	switch {
	case err != nil:
		c.failed(what, target, err)
	case own != 0:
		c.ratio(what+", no MPS, against staging", ms(own), own/staged[0].Max, false, 1, "× staging's time")
	}
}

// againstCopy runs such a reduction, and compares its time with what the copy would take for all buffers: most is the target, 0 for none. It
// returns the time in µs, or 0.
func (c *Check) againstCopy(ctx context.Context, what string, env []string, most float64, args []string) float64 {
	target := ""
	if most > 0 {
		target = fmt.Sprintf("≤ %.3g %s", most, overCopy)
	}
	rows, err := c.osu(ctx, env, args...)
	if err != nil {
		c.failed(what, target, err)
		return 0
	}
	took := rows[0].Max
	switch ratio := took / 1e6 / (float64((reducers+1)*reduceBytes) / c.rates.device); {
	case c.rates.device == 0:
		c.skipped(what, target, "the copy has not been measured")
	case most > 0:
		c.ratio(what, ms(took), ratio, false, most, overCopy)
	default:
		c.add(Row{What: what, Value: ms(took), Ratio: fmt.Sprintf("%.3g", ratio), Result: measured, Note: overCopy})
	}
	return took
}
