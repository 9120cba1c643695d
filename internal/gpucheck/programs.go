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
	if c.standIn { // where processors do a GPU's work, perhaps beside other tests
		most *= 2
	}
	r, err := c.command(ctx, most, []string{onHardware}, filepath.Join(c.Root, "tests", name+".test"), "-test.v", "-test.run", pattern, "-test.timeout", most.String())
	passed := strings.Count(r.stdout, "--- PASS")
	switch {
	case err != nil:
		c.failed(what, "", fmt.Errorf("%w; %s", err, firstFailure(r.stdout)))
	case passed == 0:
		c.failed(what, "", errors.New("no test was run"))
	default:
		row := Row{What: what, Value: fmt.Sprintf("%d tests", passed), Result: right}
		if skipped := strings.Count(r.stdout, "--- SKIP"); skipped > 0 { // such as what tells the stand-in what to be like
			row.Note = fmt.Sprintf("%d skipped here", skipped)
		}
		c.add(row)
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

func ms(us float64) string { return fmt.Sprintf("%.3f ms", us/1000) }
