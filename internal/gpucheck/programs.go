package gpucheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/scaffe/scaffe/kernels/cuda"
)

// onHardware has tests use the driver that there is (package cudatest).
const onHardware = "SCAFFE_TEST_HARDWARE=1"

// test runs the tests of a package that a pattern names, of which at least one has to pass.
func (c *Check) test(ctx context.Context, what, name, pattern string, most time.Duration) {
	if ctx.Err() != nil {
		return
	}
	r, err := c.command(ctx, most, []string{onHardware}, filepath.Join(c.Root, "tests", name+".test"), "-test.v", "-test.run", pattern, "-test.timeout", most.String())
	passed := strings.Count(r.stdout, "--- PASS")
	switch {
	case err != nil:
		c.failed(what, "", fmt.Errorf("%w; %s", err, firstFailure(r.stdout)))
	case passed == 0:
		c.failed(what, "", errors.New("no test was run"))
	default:
		c.add(Row{What: what, Value: fmt.Sprintf("%d tests", passed), Result: right})
	}
}

// firstFailure is the first line of a test's output that says where something was wrong.
func firstFailure(text string) string {
	for l := range strings.SplitSeq(text, "\n") {
		if strings.Contains(l, "_test.go:") {
			return strings.TrimSpace(l)
		}
	}
	return "no test has said why"
}

func (c *Check) kernels(ctx context.Context) {
	c.test(ctx, "reductions, divisions, updates: the bits of the CPU's", "cuda", "HasTheBits|HaveTheBits", 2*time.Minute)
	c.test(ctx, "copies at all addresses; streams that wait for events", "cuda", "^TestCopy$|^TestStreamsWaitForEvents$", time.Minute)
	c.test(ctx, "layers: forward and backward, against the CPU's", "layers", "^TestGPUComputesWhatTheCPUDoes$", 2*time.Minute)
	for what, find := range map[string]func() (cuda.Library, error){"cuBLAS": cuda.FindBLAS, "cuDNN": cuda.FindDNN} {
		if of, err := find(); err == nil {
			c.add(Row{What: what + " " + of.Version + " computes in these and in training", Result: right})
		} else if errors.Is(err, cuda.ErrNoLibrary) {
			c.skipped(what, "", oneLine(err))
		} else {
			c.failed(what, "", err)
		}
	}
}

func (c *Check) conformance(ctx context.Context) {
	c.test(ctx, "the engine's device: nbc/devicetest", "device", "^TestCUDA", 2*time.Minute)
	c.test(ctx, "messages through pinned memory: nbc/transporttest", "staging", "^TestTransport|^TestConformance", 2*time.Minute)
	c.test(ctx, "collectives on the GPU's memory: collectives/collectivestest", "collectives", "^TestCUDA$", 2*time.Minute)
}

// row is what a benchmark prints.
type row struct {
	Size      int      `json:"size"`
	Algorithm string   `json:"algorithm"`
	Max       float64  `json:"max_us"`
	Bandwidth *float64 `json:"bandwidth_mbs"`
	Wrong     *int     `json:"wrong"`
}

// osu runs a benchmark and returns its rows.
func (c *Check) osu(ctx context.Context, env []string, args ...string) ([]row, error) {
	r, err := c.command(ctx, 90*time.Second, env, append(args, "-T", "mpi_float", "--format", "json")...)
	if err != nil {
		return nil, err
	}
	var rows []row
	for d := json.NewDecoder(strings.NewReader(r.stdout)); d.More(); {
		var x row
		if err := d.Decode(&x); err != nil {
			return nil, fmt.Errorf("a row of %s: %w", filepath.Base(args[0]), err)
		}
		if x.Wrong != nil && *x.Wrong > 0 {
			return nil, fmt.Errorf("%s, %d bytes: %d elements are wrong", x.Algorithm, x.Size, *x.Wrong)
		}
		rows = append(rows, x)
	}
	if len(rows) == 0 {
		return nil, errors.New("no rows")
	}
	return rows, nil
}

// message is a size for -m, small over the stand-in.
func (c *Check) message(n int) []string {
	n = c.size(n)
	return []string{"-m", strconv.Itoa(n) + ":" + strconv.Itoa(n)}
}

// processes says whether there is an MPI; where there is none, a line says so.
func (c *Check) processes(what, target string) bool {
	if c.noMPI != "" {
		c.skipped(what, target, c.noMPI)
	}
	return c.noMPI == ""
}

// ranks checks and measures collectives of ranks that share the GPU.
func (c *Check) ranks(ctx context.Context) {
	for _, n := range []int{2, 4, 8} {
		for _, program := range []string{"osu_reduce", "osu_allreduce", "osu_bcast"} {
			what := fmt.Sprintf("%s -c, %d ranks of one process, 4 KiB to 4 MiB", program, n)
			_, err := c.osu(ctx, nil, c.local(n, program, "-d", "cuda", "-c", "-m", "4K:4M", "--factor", "32", "-i", "3", "-x", "1")...)
			c.is(what, err)
			if what = strings.Replace(what, "ranks of one process", "processes", 1); c.processes(what, "") {
				_, err := c.osu(ctx, nil, c.mpirun(n, program, "-d", "cuda", "-c", "-m", "4K:4M", "--factor", "32", "-i", "3", "-x", "1")...)
				c.is(what, err)
			}
		}
	}
	c.staging(ctx)
	c.reduceAtOnce(ctx)
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

// reduceAtOnce is a reduction of 256 MiB of 4 ranks, in one process and in several.
func (c *Check) reduceAtOnce(ctx context.Context) {
	const ranks, bytes = 4, 256 << 20
	args := append(c.message(bytes), "-M", "4G", "-d", "cuda", "-i", "5", "-x", "2")
	what := "reduce 256 MiB, 4 ranks of one process"
	rows, err := c.osu(ctx, nil, c.local(ranks, "osu_reduce", args...)...)
	switch {
	case err != nil:
		c.failed(what, "≤ 2 × (P + 1) buffers over the copy's bandwidth", err)
	case c.rates.device == 0:
		c.skipped(what, "≤ 2 × (P + 1) buffers over the copy's bandwidth", "the copy has not been measured")
	default:
		c.ratio(what, ms(rows[0].Max), rows[0].Max/1e6/(float64((ranks+1)*bytes)/c.rates.device), false, 2, "× (P + 1) buffers over the copy's bandwidth")
	}
	what = "reduce 256 MiB, 4 processes"
	if !c.processes(what, "≤ staging's time") {
		return
	}
	own, err := c.osu(ctx, nil, c.mpirun(ranks, "osu_reduce", args...)...)
	staged, err2 := c.osu(ctx, []string{"SCAFFE_CUDA_PATH=staging"}, c.mpirun(ranks, "osu_reduce", args...)...)
	if err := errors.Join(err, err2); err != nil {
		c.failed(what, "≤ staging's time", err)
		return
	}
	c.ratio(what, ms(own[0].Max), own[0].Max/staged[0].Max, false, 1, "× staging's time")
	c.skipped(what+" under MPS", "≤ 3 × (P + 1) buffers over the copy's bandwidth", "the check starts no MPS: run it under one")
}

// benchmarks compares osu_reduce on the GPU's memory with a copy down, the MPI library's on the host, and a copy up.
func (c *Check) benchmarks(ctx context.Context) {
	for _, n := range []int{2, 4, 8} {
		for _, mib := range []int{1, 16, 256} {
			what := fmt.Sprintf("osu_reduce -d cuda, %d processes, %d MiB", n, mib)
			const target = "≤ 0.7 × copy down, MPI_Reduce, copy up"
			if ctx.Err() != nil || !c.processes(what, target) {
				return
			}
			args := append(c.message(mib<<20), "-M", "4G", "-i", "7", "-x", "2")
			own, err := c.osu(ctx, nil, c.mpirun(n, "osu_reduce", append(args, "-d", "cuda")...)...)
			host, err2 := c.osu(ctx, nil, c.mpirun(n, "osu_reduce", append(args, "--algorithm", "mpi")...)...)
			switch err := errors.Join(err, err2); {
			case err != nil:
				c.failed(what, target, err)
			case c.rates.down == 0 || c.rates.up == 0:
				c.skipped(what, target, "the copies have not been measured")
			default:
				// All ranks' copies go over the one GPU's bus; the root's goes up.
				bytes := float64(mib << 20)
				staged := 1e6*(float64(n)*bytes/c.rates.down+bytes/c.rates.up) + host[0].Max
				c.ratio(what, ms(own[0].Max), own[0].Max/staged, false, 0.7, "× copy down, MPI_Reduce, copy up")
			}
		}
	}
	for _, program := range []string{"osu_allreduce", "osu_bcast"} {
		rows, err := c.osu(ctx, nil, c.mpirun(4, program, append(c.message(64<<20), "-M", "4G", "-d", "cuda", "-i", "7", "-x", "2")...)...)
		if what := program + " -d cuda, 4 processes, 64 MiB"; err != nil {
			c.failed(what, "", err)
		} else {
			c.add(Row{What: what, Value: ms(rows[0].Max), Result: measured})
		}
	}
	c.chains(ctx)
	c.skipped("osu_reduce against a CUDA-aware library's own", "≤ 1.0 ×", "the archive's MPI is not CUDA-aware")
}

// chains compares a chunked chain with a binomial tree: "for buffer sizes greater than eight megabytes (8M) … chunked chain (CC) performs much better"
// on up to eight GPUs (S-Caffe, section 5).
func (c *Check) chains(ctx context.Context) {
	const what, target = "a chunked chain of 8 ranks, 64 MiB", "≤ 1 × a binomial tree (S-Caffe, section 5)"
	rows, err := c.osu(ctx, nil, c.local(8, "osu_reduce", append(c.message(64<<20), "-M", "4G", "-d", "cuda", "-i", "7", "-x", "2", "--algorithm", "chain,chunk=4M,binomial")...)...)
	switch {
	case err != nil:
		c.failed(what, target, err)
	case len(rows) != 2:
		c.failed(what, target, fmt.Errorf("%d rows, not 2", len(rows)))
	default:
		c.ratio(what, ms(rows[0].Max), rows[0].Max/rows[1].Max, false, 1, "× a binomial tree (S-Caffe, section 5)")
	}
}

func ms(us float64) string { return fmt.Sprintf("%.3f ms", us/1000) }

// errors checks what cannot be had, and what must not be done: each is one message and a status that is not 0.
func (c *Check) errors(ctx context.Context) {
	solver, err := c.solver("small", "", 4, 2)
	if err != nil {
		c.failed("errors", "", err)
		return
	}
	for _, x := range []struct {
		what string
		env  []string
		args []string
		says string
	}{
		{"a GPU that is not there", nil, []string{c.program("scaffe"), "train", "--local", "1", "--solver", solver, "--device", "cuda:99"}, "there is no GPU cuda:99: there are "},
		{"no driver", []string{"SCAFFE_CUDA_LIBRARY=/nonexistent/libcuda.so.1"}, []string{c.program("scaffe"), "train", "--local", "1", "--solver", solver, "--device", "cuda"}, "no CUDA driver: /nonexistent/libcuda.so.1"},
		{"TF32 without cuBLAS", []string{"SCAFFE_CUBLAS_LIBRARY=none"}, []string{c.program("scaffe"), "train", "--local", "1", "--solver", solver, "--device", "cuda", "--math", "tf32"}, "math tf32 takes cuBLAS, which is missing"},
		{"no more memory", nil, c.local(2, "osu_reduce", "-d", "cuda", "-m", "900G:900G", "-M", "4000G", "-i", "1", "-x", "0"), "CUDA_ERROR_OUT_OF_MEMORY"},
		{"the MPI library's own on the GPU's memory", nil, c.local(2, "osu_allreduce", "-d", "cuda", "-m", "4K:4K", "--algorithm", "mpi"), "not used on cuda memory"},
	} {
		r, err := c.command(ctx, 30*time.Second, x.env, x.args...)
		switch {
		case ctx.Err() != nil:
			c.failed(x.what, "", err)
		case err == nil:
			c.failed(x.what, "", errors.New("it is no error"))
		case strings.Contains(oneLine(err), "stopped after"), !strings.Contains(r.stderr, x.says):
			c.failed(x.what, "", fmt.Errorf("%w; want %q", err, x.says))
		default:
			c.add(Row{What: x.what, Result: right, Note: last(r.stderr)})
		}
	}
}
