//go:build cuda && cgo && linux && (amd64 || arm64)

package gpucheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/scaffe/scaffe/kernels/cuda/cudatest"
)

var library string

// This program is two of the archive's, too: what a check starts beside itself, and a check that can be killed.
func TestMain(m *testing.M) {
	var err error
	switch args := os.Args[1:]; {
	case len(args) > 0 && args[0] == "beside":
		err = Beside(args[1:], os.Stdin, os.Stdout)
	case len(args) == 3 && args[0] == "check":
		err = (&Check{Root: args[1], Dir: args[2], Log: os.Stderr, Patience: patience}).Run(context.Background())
	default:
		os.Exit(cudatest.Main(m, &library, "delay=5"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// patience is that of tests, of which some wait for its end.
const patience = 2 * time.Second

// archive is a folder of programs that say what they would if all were well. Those that are given say something else.
func archive(t *testing.T, instead map[string]string) string {
	t.Helper()
	osu := `size=4096; wrong=0
for word; do case $word in *:*) size=${word%%:*} ;; esac; done
echo '{"size":'"${size%K}"',"algorithm":"tuned","max_us":100.5,"bandwidth_mbs":20000,"wrong":'$wrong'}'`
	programs := map[string]string{
		"bin/osu_reduce": osu, "bin/osu_allreduce": osu, "bin/osu_bcast": osu, "bin/osu_bw": osu, "bin/osu_barrier": "echo",
		"bin/mpirun": `while [ "${1#-}" != "$1" ]; do [ "$1" != --mca ] || shift; shift 2; done; exec "$@"`,
		"bin/scaffe": `echo '{"event":"iteration","loss":2.5,"images_per_second":100}'
echo '{"event":"end","exposed_ms":1,"compute_ms":9,"gpu":{"name":"cuda:0 (GPU), cuBLAS 12","waits":0}}'
case "$*" in doctor) echo "ok  GPU paths        ranks 0-1: ipc"; [ ! -e "$CUDA_MPS_PIPE_DIRECTORY/control" ] || echo "cuda:0, MPS"; exit ;; esac
case "$SCAFFE_STANDIN" in *mode=3*) echo "its compute mode is Exclusive_Process, so one other process may have it" >&2; exit 1 ;; esac
case "$*" in *"--device cuda:0 : -np 1"*"--device cpu") echo "1 of 2 ranks are to use GPUs, and the others are not" >&2; exit 1 ;; esac
case "$*" in *cuda:99*) echo "there is no GPU cuda:99: there are 1" >&2; exit 1 ;; *tf32*) echo "math tf32 takes cuBLAS, which is missing" >&2; exit 1 ;; esac
case "$SCAFFE_CUDA_LIBRARY" in /nonexistent*) echo "no CUDA driver: $SCAFFE_CUDA_LIBRARY" >&2; exit 1 ;; esac`,
	}
	programs["bin/osu_reduce"] = `case "$*" in *900G*) echo "rank 1: cuda:0 (stand-in 0): allocate 966367641600 bytes: out of memory (CUDA_ERROR_OUT_OF_MEMORY, 2): 12 bytes of 16 are free" >&2; exit 1 ;; esac
case "$SCAFFE_STANDIN$SCAFFE_CUDA_PATH" in
*cuIpc*ipc) echo "SCAFFE_CUDA_PATH=ipc cannot serve ranks 0 and 1" >&2; exit 1 ;;
*cuIpc*) echo "scaffe: warning: ranks 0 and 1 cannot read each other's memory on the GPU: their messages are staged in the host's memory" >&2 ;;
esac
` + osu + `
case "$*" in *binomial*) echo '{"size":4096,"algorithm":"binomial","max_us":200}' ;; esac`
	programs["bin/osu_allreduce"] = `case "$*" in *cuda*mpi*) case "$*" in *mpi_float*) ;; *) echo "it is not used on cuda memory" >&2; exit 1 ;; esac ;; esac; ` + osu
	for _, name := range []string{"cuda", "device", "staging", "collectives", "layers"} {
		programs["tests/"+name+".test"] = `[ "$SCAFFE_TEST_HARDWARE" = 1 ] || exit 1; echo "--- PASS: TestSome"`
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	programs["bin/gpu-check"] = "exec " + self + ` "$@"`
	for _, name := range []string{"python3", "nvidia-smi", mpsControl} {
		programs["stubs/"+name] = stub(name)
	}
	for name, text := range instead {
		if programs[name] = text; text == "" {
			delete(programs, name)
		}
	}
	root := t.TempDir()
	for name, text := range programs {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	// Nothing else is found here, but one that waits.
	sleep, err := exec.LookPath("sleep")
	if err == nil {
		err = os.Symlink(sleep, filepath.Join(root, "stubs", "sleep"))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Join(root, "stubs"))
	return root
}

// stub is a program that a machine may have besides a GPU, which says what it would if all were well: python3, nvidia-smi, nvidia-cuda-mps-control.
func stub(name string) string {
	text, err := os.ReadFile(filepath.Join("testdata", "stubs", name))
	if err != nil {
		panic(err)
	}
	return string(text)
}

// checked runs a check, and returns its report and error.
func checked(ctx context.Context, t *testing.T, instead map[string]string) (string, error) {
	t.Helper()
	c := &Check{Root: archive(t, instead), Dir: t.TempDir(), Log: io.Discard, Patience: patience}
	err := c.Run(ctx)
	text, e := os.ReadFile(filepath.Join(c.Dir, "report.md"))
	if e != nil {
		t.Fatal(e)
	}
	return string(text), err
}

// Over the stand-in a check is complete, says so, says what it was run on, and has no number.
func TestStandInIsNoMeasurement(t *testing.T) {
	text, err := checked(context.Background(), t, nil)
	if err != nil {
		t.Errorf("%v\n%s", err, text)
	}
	for _, w := range []string{
		"**This is a run over the driver's stand-in, on no GPU", "| stand-in | stand-in 0, sm_80", "| run | complete, ", "| layers: forward and backward, against the CPU's |  |  |  | right |", "| a sum of 4 KiB, from Reduce to Poll |  |  | ≤ 15 µs | not run: a stand-in, which measures nothing |",
		"| the runtime over the solver alone, one rank |  |  | ≤ 1 % | not run: a stand-in, which measures nothing |", "| no more memory: asked, free, by whom |  |  |  | right",
		"| the path between two processes: ipc |  |  |  | right |", "| MPS serves the ranks |  |  |  | right |", "| osu_bcast -c, 4 processes under MPS, 4 KiB to 4 MiB |  |  |  | right |", "| the MPS daemon ends |  |  |  | right |",
		"| reduce 256 MiB, 4 processes over IPC, under MPS |  |  | ≤ 3 × (P + 1) buffers over the copy's bandwidth | not run: a stand-in",
		"| googlenet, batches of 128, one rank, f32, against PyTorch 2.5.1 (CUDA 12.4, cuDNN 90100) |  |  | ≥ 0.7 × PyTorch | not run: a stand-in",
		"| ranks with different devices |  |  |  | right: 1 of 2", "| IPC that is forbidden, and asked for |  |  |  | right: ", "| IPC that is forbidden, and not asked for |  |  |  | right: scaffe: warning: ", "| a GPU in exclusive mode that another process has |  |  |  | right: ",
	} {
		if !strings.Contains(text, w) {
			t.Errorf("want %q in\n%s", w, text)
		}
	}
	for _, p := range parts {
		if !strings.Contains(text, "\n## "+p.title+"\n") {
			t.Errorf("no part %s", p.title)
		}
	}
	numbers := regexp.MustCompile(`^\| [^|]* \| *[^ |]`)
	_, rows, _ := strings.Cut(text, "\n## ")
	for l := range strings.SplitSeq(rows, "\n") {
		if numbers.MatchString(l) && !strings.HasPrefix(l, "| what |") && !strings.HasPrefix(l, "| ---") {
			t.Errorf("a number of the stand-in: %s", l)
		}
	}
}

// Some parts alone are run where they are asked for, and a part that is not there is an error. What tests skip is told.
func TestSomeParts(t *testing.T) {
	c := &Check{Root: archive(t, map[string]string{"tests/cuda.test": `echo "--- PASS: TestSome"; echo "--- SKIP: TestOther"`}), Dir: t.TempDir(), Log: io.Discard, Patience: patience, Only: []string{"Kernels"}}
	err := c.Run(context.Background())
	text, e := os.ReadFile(c.report())
	if err := errors.Join(err, e); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, w := range []string{"| right: 1 skipped here |", "s, of what was asked for: Kernels |", "\n## Training\n", "| all of it |  |  |  | not run: not asked for |"} {
		if !strings.Contains(string(text), w) {
			t.Errorf("want %q in\n%s", w, text)
		}
	}
	if strings.Contains(string(text), "copy on the device") {
		t.Errorf("bandwidths were not asked for:\n%s", text)
	}
	c.Only = []string{"Kernel"}
	if err := c.Run(context.Background()); err == nil || !strings.HasPrefix(err.Error(), `no part "Kernel": there are Kernels, Bandwidth, `) {
		t.Errorf("the error is %v", err)
	}
}

// What is wrong is a line that says why, and an error that counts them; all else is run.
func TestWhatIsWrongIsCounted(t *testing.T) {
	text, err := checked(context.Background(), t, map[string]string{
		"tests/device.test":      `echo "    cuda_test.go:12: not the bits"; echo "--- FAIL: TestCUDAConformance"; exit 1`,
		"tests/staging.test":     "echo testing: warning: no tests to run",
		"tests/collectives.test": "exit 3",
		"bin/osu_bcast":          `echo '{"size":4096,"algorithm":"tuned","max_us":1,"wrong":3}'`,
		"bin/osu_bw":             `echo '{"size":4096,"max_us":1}'`,
	})
	if err == nil || !regexp.MustCompile(`^12 of \d+ lines of .*report.md are wrong$`).MatchString(err.Error()) {
		t.Errorf("the error is %v", err)
	}
	for _, w := range []string{"nbc/devicetest |  |  |  | wrong: exit status 1: --- FAIL: TestCUDAConformance (log/", "; cuda_test.go:12: not the bits |", "nbc/transporttest |  |  |  | wrong: no test was run |", "wrong: tuned, 4096 bytes: 3 elements are wrong |", "wrong: osu_bw prints no bandwidth |", "\n## Errors\n", "| run | complete, "} {
		if !strings.Contains(text, w) {
			t.Errorf("want %q in\n%s", w, text)
		}
	}
}

// A run that is stopped, or whose time is up, keeps what it has: the report has it before the end, and says of the rest that it was not run.
func TestStoppedRunKeepsWhatItHas(t *testing.T) {
	for name, c := range map[string]struct {
		begin func() (context.Context, context.CancelFunc)
		says  string
	}{
		"stopped": {func() (context.Context, context.CancelFunc) { return context.WithCancel(context.Background()) }, "stopped after "},
		"time up": {func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), 6*time.Second)
		}, "the time was up after "},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := c.begin()
			defer cancel()
			child := filepath.Join(t.TempDir(), "child")
			check := &Check{Root: archive(t, map[string]string{"tests/staging.test": "sleep 60 & echo $! > " + child + "; wait"}), Dir: t.TempDir(), Log: io.Discard}
			ended := make(chan error, 1)
			go func() { ended <- check.Run(ctx) }()
			// The report is there, without an end, as soon as there is something.
			deadline := time.Now().Add(time.Minute)
			for {
				text, _ := os.ReadFile(check.report())
				pid, _ := os.ReadFile(child) // which is there before it says anything
				if strings.HasSuffix(string(pid), "\n") && strings.Contains(string(text), "| run | under way |") && strings.Contains(string(text), "nbc/devicetest |  |  |  | right |") {
					break
				}
				if time.Now().After(deadline) || name == "time up" && ctx.Err() != nil {
					t.Fatalf("no report in time:\n%s", text)
				}
				time.Sleep(10 * time.Millisecond)
			}
			if name == "stopped" {
				cancel()
			}
			select {
			case err := <-ended:
				if err == nil || !strings.HasPrefix(err.Error(), c.says) || !strings.HasSuffix(err.Error(), "report.md has what was run until then") {
					t.Errorf("the error is %v", err)
				}
			case <-time.After(30 * time.Second):
				t.Fatal("it does not end")
			}
			text, err := os.ReadFile(check.report())
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range []string{"| run | " + c.says, "nbc/devicetest |  |  |  | right |", "nbc/transporttest |  |  |  | not run: it was under way when the run was stopped |", "\n## Training\n", "| all of it |  |  |  | not run: " + c.says} {
				if !strings.Contains(string(text), w) {
					t.Errorf("want %q in\n%s", w, text)
				}
			}
			if strings.Contains(string(text), "wrong") {
				t.Errorf("what was stopped is not wrong:\n%s", text)
			}
			pid, _ := os.ReadFile(child)
			if _, err := os.Stat("/proc/" + strings.TrimSpace(string(pid))); err == nil {
				stat, _ := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
				if !strings.Contains(string(stat), ") Z ") {
					t.Errorf("process %s of a program that was stopped is still there", pid)
				}
			}
		})
	}
}

// On a GPU, ratios are compared with their targets.
func TestTargets(t *testing.T) {
	c := &Check{Dir: t.TempDir(), Log: io.Discard, part: "Bandwidth", stopping: func() bool { return false }}
	for _, x := range []struct {
		ratio  float64
		least  bool
		target float64
		want   string
	}{{0.9, true, 0.9, met}, {0.89, true, 0.9, missed}, {15, false, 15, met}, {15.1, false, 15, missed}} {
		c.ratio("it", "1 GB/s", x.ratio, x.least, x.target, "×")
		if r := c.rows[len(c.rows)-1]; r.Result != x.want || r.Ratio == "" || r.Value == "" {
			t.Errorf("%v of %v: %+v", x.ratio, x.target, r)
		}
	}
	text, err := os.ReadFile(c.report())
	if err != nil || strings.Contains(string(text), "stand-in") || !strings.Contains(string(text), fmt.Sprintf("| it | 1 GB/s | 0.89 | ≥ 0.9 × | %s |", missed)) {
		t.Errorf("%v\n%s", err, text)
	}
	if d := distance([]float64{1, 2}, []float64{1, 2.2}); d < 0.0909 || d > 0.091 {
		t.Errorf("a distance of %v", d)
	}
}
