//go:build cuda && cgo && linux && (amd64 || arm64)

package gpucheck

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/scaffe/scaffe/kernels/cuda"
)

// onGPU is a check that takes what it has for a GPU, so that lines have numbers.
func onGPU(t *testing.T, instead map[string]string) *Check {
	t.Helper()
	root := archive(t, instead)
	c := &Check{Root: root, Dir: t.TempDir(), Log: io.Discard, Patience: patience, part: "some", stopping: func() bool { return false }, mpi: filepath.Join(root, "bin", "mpirun"), rates: rates{device: 50e12}}
	if err := os.MkdirAll(filepath.Join(c.Dir, "log"), 0o777); err != nil {
		t.Fatal(err)
	}
	return c
}

// rowsAre compares the lines of a check with what they are to say.
func rowsAre(t *testing.T, c *Check, want ...Row) {
	t.Helper()
	for i, w := range want {
		if i == len(c.rows) {
			t.Fatalf("%d lines, want %+v", i, w)
		}
		if g := c.rows[i]; g.What != w.What || g.Value != w.Value || g.Ratio != w.Ratio || g.Target != w.Target || g.Result != w.Result || !strings.Contains(g.Note, w.Note) || w.Note == "" && g.Note != "" {
			t.Errorf("line %d is\n%+v, want\n%+v", i, g, w)
		}
	}
	if len(c.rows) > len(want) {
		t.Errorf("%+v is too much", c.rows[len(want):])
	}
}

// Both nets are compared with PyTorch where that is, and the lines say why not where it is not.
func TestPyTorch(t *testing.T) {
	const target = "≥ 0.7 × PyTorch"
	alex := Row{What: "alexnet, batches of 256, one rank, f32, against PyTorch", Target: target, Result: notRun}
	google := Row{What: "googlenet, batches of 128, one rank, f32, against PyTorch", Target: target, Result: notRun}
	const probe = `[ "$2" != probe ] || { echo '{"torch":"2.5.1","cuda":"12.4","cudnn":"90100"}'; exit; }; `
	for name, x := range map[string]struct {
		python  string
		dnn     bool
		version bool
		row     Row
	}{
		"met":          {stub("python3"), true, true, Row{Value: "100 images/s, PyTorch 125", Ratio: "0.8", Result: met}},
		"missed":       {probe + `echo '{"images_per_second":200}'`, true, true, Row{Value: "100 images/s, PyTorch 200", Ratio: "0.5", Result: missed}},
		"no cuDNN":     {stub("python3"), false, true, Row{Value: "100 images/s, PyTorch 125", Ratio: "0.8", Result: measured, Note: "scaffe without cuDNN: "}},
		"no python3":   {"", true, false, Row{Result: notRun, Note: "no PyTorch here: no python3"}},
		"no torch":     {`echo '{"missing":"No module named torch"}'`, true, false, Row{Result: notRun, Note: "no PyTorch here: No module named torch"}},
		"no GPU":       {`echo '{"missing":"PyTorch 2.5.1+cpu finds no GPU"}'`, true, false, Row{Result: notRun, Note: "no PyTorch here: PyTorch 2.5.1+cpu finds no GPU"}},
		"fails":        {`echo "libcublas.so.12: no such file" >&2; exit 1`, true, false, Row{Result: notRun, Note: "no PyTorch here: exit status 1: libcublas.so.12: no such file (log/"}},
		"says more":    {"echo Python 3", true, false, Row{Result: notRun, Note: `no PyTorch here: pytorch.py printed "Python 3\n"`}},
		"no memory":    {probe + `echo "CUDA out of memory" >&2; exit 1`, true, true, Row{Result: wrong, Note: "exit status 1: CUDA out of memory (log/"}},
		"no number":    {probe + "echo '{}'", true, true, Row{Result: wrong, Note: "pytorch.py tells no images a second"}},
		"other nets":   {probe + `case "$2 $3 $4" in "alexnet 256 20" | "googlenet 128 20") echo '{"images_per_second":125}' ;; esac`, true, true, Row{Value: "100 images/s, PyTorch 125", Ratio: "0.8", Result: met}},
		"not scaffe's": {stub("python3"), true, true, Row{Result: wrong, Note: "a loss is not finite"}},
	} {
		t.Run(name, func(t *testing.T) {
			instead := map[string]string{"stubs/python3": x.python}
			if x.row.Note == "a loss is not finite" {
				instead["bin/scaffe"] = `echo '{"event":"iteration","loss":null}'`
			}
			c := onGPU(t, instead)
			if x.dnn {
				t.Setenv(cuda.EnvDNN, library)
			}
			c.pytorch(context.Background())
			want := []Row{alex, google}
			for i := range want {
				if want[i].Value, want[i].Ratio, want[i].Result, want[i].Note = x.row.Value, x.row.Ratio, x.row.Result, x.row.Note; x.version {
					want[i].What += " 2.5.1 (CUDA 12.4, cuDNN 90100)"
				}
			}
			rowsAre(t, c, want...)
			// Scaffe trains and PyTorch does, in turn.
			logs, _ := filepath.Glob(filepath.Join(c.Dir, "log", "*.txt"))
			turns := ""
			for _, name := range logs {
				_, program, _ := strings.Cut(strings.TrimSuffix(filepath.Base(name), ".txt"), "-")
				turns += program[:1]
			}
			if x.row.Result == met && turns != "p"+strings.Repeat("sp", 6) {
				t.Errorf("the turns are %s", turns)
			}
		})
	}
}

// control is the stub of an MPS daemon, but for a word that it is told, or where it is to start (-d).
func control(word, text string) string {
	lines := strings.SplitN(stub(mpsControl), "\n", 3)
	return lines[1] + `
[ "$word" != ` + word + " ] || { " + text + "; exit; }\n" + lines[2]
}

// Rows under MPS are run where the check may start a daemon, which then ends, and say why not where it may not or cannot.
func TestMPS(t *testing.T) {
	last := Row{What: "reduce 256 MiB, 4 processes over IPC, under MPS", Target: "≤ 3 × (P + 1) buffers over the copy's bandwidth"}
	not := func(why string) []Row {
		r := last
		r.Result, r.Note = notRun, why
		return []Row{r}
	}
	all := func(ratio, result, note string, end Row) []Row {
		rows := []Row{{What: "MPS serves the ranks", Result: result, Note: note}}
		for _, p := range []string{"reduce", "allreduce", "bcast"} {
			rows = append(rows, Row{What: "osu_" + p + " -c, 4 processes under MPS, 4 KiB to 4 MiB", Result: right})
		}
		r := last
		if r.Value, r.Ratio, r.Result = "0.101 ms", ratio, missed; ratio == "" {
			r.Value, r.Result, r.Note = "", wrong, "1 elements are wrong"
		}
		end.What = "the MPS daemon ends"
		return append(rows, r, end)
	}
	well := Row{Result: right}
	stays := `/bin/sh -c 'trap "" TERM; sleep 300; sleep 300' & echo $! >"$CUDA_MPS_PIPE_DIRECTORY/pid"; echo >"$CUDA_MPS_PIPE_DIRECTORY/control"`
	for name, x := range map[string]struct {
		instead map[string]string
		want    []Row
	}{
		"well":                {nil, all("3.74", right, "", well)},
		"no daemon":           {map[string]string{"stubs/" + mpsControl: ""}, not("no nvidia-cuda-mps-control here")},
		"no nvidia-smi":       {map[string]string{"stubs/nvidia-smi": ""}, not("no nvidia-smi here")},
		"nvidia-smi fails":    {map[string]string{"stubs/nvidia-smi": "echo Failed to initialize NVML; exit 9"}, not("nvidia-smi does not tell whether other processes use the GPU: exit status 9: Failed to initialize NVML")},
		"others":              {map[string]string{"stubs/nvidia-smi": `case "$*" in *apps*) echo 17; echo 18 ;; *) echo 512 ;; esac`}, not("other processes use the GPU: 17, 18")},
		"others' memory":      {map[string]string{"stubs/nvidia-smi": `case "$*" in *memory*) echo 20000 ;; esac`}, not("20000 MiB of the GPU's memory are used")},
		"does not start":      {map[string]string{"stubs/" + mpsControl: control("-d", "echo no permission >&2; exit 1")}, not("the MPS daemon does not start: exit status 1: nvidia-cuda-mps-control -d: exit status 1: no permission")},
		"never starts":        {map[string]string{"stubs/" + mpsControl: control("-d", "sleep 300")}, not("nvidia-cuda-mps-control -d does not end within 2s")},
		"does not answer":     {map[string]string{"stubs/" + mpsControl: control("get_server_list", "exit 1")}, not("nvidia-cuda-mps-control get_server_list: exit status 1")},
		"serves nobody":       {map[string]string{"bin/scaffe": "echo cuda:0, no MPS"}, []Row{{What: last.What, Target: last.Target, Result: wrong, Note: "does not serve the ranks"}, {What: "the MPS daemon ends", Result: right}}},
		"a driver of before":  {map[string]string{"bin/scaffe": "echo cuda:0"}, all("3.74", notRun, "the driver does not tell", well)},
		"wrong":               {map[string]string{"bin/osu_reduce": `w=0; case "$*" in *-M*) w=1 ;; esac; echo '{"size":4096,"max_us":100.5,"wrong":'$w'}'`}, all("", right, "", well)},
		"does not quit":       {map[string]string{"stubs/" + mpsControl: control("quit", "exit 1")}, all("3.74", right, "", Row{Result: right, Note: "it did not end when told to quit, and was ended by terminated"})},
		"hears nothing":       {map[string]string{"stubs/" + mpsControl: control("quit", "sleep 300")}, all("3.74", right, "", Row{Result: right, Note: "ended by terminated"})},
		"does not end at all": {map[string]string{"stubs/" + mpsControl: control("-d", stays)}, all("3.74", right, "", Row{Result: right, Note: "ended by killed"})},
	} {
		t.Run(name, func(t *testing.T) {
			c := onGPU(t, x.instead)
			c.underMPS(context.Background())
			rowsAre(t, c, x.want...)
			noDaemon(t, c.Dir)
		})
	}
}

// noDaemon makes sure that nothing of a daemon's is left.
func noDaemon(t *testing.T, dir string) {
	t.Helper()
	m := &mps{pipes: filepath.Join(dir, "mps")}
	if left := m.processes(); len(left) > 0 {
		t.Errorf("processes %v of the daemon are still there", left)
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	if _, err := os.Stat(m.pipes); !os.IsNotExist(err) {
		t.Errorf("its folder is still there: %v", err)
	}
}

// Where somebody has an MPS daemon, none is started: it is told by the driver, by the environment, or by a process.
func TestMPSOfOthers(t *testing.T) {
	t.Run("environment", func(t *testing.T) {
		c := onGPU(t, nil)
		t.Setenv(envPipes, t.TempDir())
		if why := c.noMPS(context.Background()); why != "an MPS daemon has the GPU already" {
			t.Error(why)
		}
	})
	t.Run("process", func(t *testing.T) {
		c := onGPU(t, map[string]string{"stubs/nvidia-cuda-mps-server": "echo; sleep 300"})
		p := exec.Command(filepath.Join(c.Root, "stubs", "nvidia-cuda-mps-server"))
		p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		out, err := p.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = syscall.Kill(-p.Process.Pid, syscall.SIGKILL)
			_ = p.Wait()
		}()
		if _, err := out.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if why := c.noMPS(context.Background()); !strings.HasPrefix(why, "an MPS daemon runs here already: process ") {
			t.Error(why)
		}
	})
}

// A daemon ends with its check, however that ends.
func TestDaemonEndsWithItsCheck(t *testing.T) {
	for _, how := range []string{"killed", "stopped", "group"} {
		t.Run(how, func(t *testing.T) {
			under := filepath.Join(t.TempDir(), "under")
			root := archive(t, map[string]string{"bin/osu_allreduce": `[ ! -e "$CUDA_MPS_PIPE_DIRECTORY/control" ] || { echo >` + under + "; exec sleep 300; }\n" + `echo '{"size":4096,"max_us":1}'`})
			dir := t.TempDir()
			p := exec.Command(os.Args[0], "check", root, dir)
			p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
			var said bytes.Buffer
			p.Stderr = &said
			p.WaitDelay = time.Second
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			defer p.Process.Kill()
			wait := func(what string, f func() bool) {
				t.Helper()
				for end := time.Now().Add(time.Minute); !f(); time.Sleep(10 * time.Millisecond) {
					if time.Now().After(end) {
						t.Fatalf("not %s within a minute: %s", what, &said)
					}
				}
			}
			wait("under way", func() bool { _, err := os.Stat(under); return err == nil })
			m := &mps{pipes: filepath.Join(dir, "mps")}
			if len(m.processes()) < 2 {
				t.Errorf("processes %v: want a daemon and a client", m.processes())
			}
			switch how {
			case "killed":
				_ = p.Process.Kill()
			case "group":
				_ = syscall.Kill(-p.Process.Pid, syscall.SIGKILL)
			default:
				_ = p.Process.Signal(os.Interrupt)
			}
			_ = p.Wait()
			wait("ended", func() bool { _, err := os.Stat(m.pipes); return os.IsNotExist(err) })
			noDaemon(t, dir)
		})
	}
}

// A GPU is set to exclusive mode where that is allowed, and set back; it is not where others use it.
func TestExclusive(t *testing.T) {
	const what = "a GPU in exclusive mode that another process has"
	said := filepath.Join(t.TempDir(), "said")
	smi := `case "$*" in *" -c "*) echo "$*" >>` + said + ` ;; *memory*) echo 512 ;; esac`
	scaffe := map[string]string{"bin/scaffe": `echo "its compute mode is Exclusive_Process, so one other process may have it" >&2; exit 1`, "stubs/nvidia-smi": smi}
	for name, x := range map[string]struct {
		allowed, smi string
		mode         cuda.Mode
		row          Row
		set          string
	}{
		"not allowed": {"", smi, cuda.Shared, Row{Result: notRun, Note: "SCAFFE_CHECK_EXCLUSIVE is not set"}, ""},
		"allowed":     {"1", smi, cuda.Shared, Row{Result: right, Note: "its compute mode is"}, "-i 0000:3b:00.0 -c EXCLUSIVE_PROCESS\n-i 0000:3b:00.0 -c DEFAULT\n"},
		"not root":    {"1", strings.Replace(smi, " ;; *memory", "; exit 4 ;; *memory", 1), cuda.Shared, Row{Result: wrong, Note: "nvidia-smi -c EXCLUSIVE_PROCESS: exit status 4"}, "-i 0000:3b:00.0 -c EXCLUSIVE_PROCESS\n"},
		"others":      {"1", "echo 17", cuda.Shared, Row{Result: notRun, Note: "other processes use the GPU: 17"}, ""},
		"already":     {"", smi, cuda.ExclusiveProcess, Row{Result: right, Note: "its compute mode is"}, ""},
		"of nobody":   {"1", smi, cuda.Prohibited, Row{Result: notRun, Note: "its compute mode is Prohibited"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_ = os.Remove(said)
			scaffe["stubs/nvidia-smi"] = x.smi
			c := onGPU(t, scaffe)
			c.gpu = cuda.GPU{PCIBus: "0000:3b:00.0", Mode: x.mode}
			t.Setenv(mayChangeMode, x.allowed)
			c.otherProcess(context.Background(), []string{c.program("scaffe"), "train"})
			x.row.What = what
			rowsAre(t, c, x.row)
			if set, _ := os.ReadFile(said); string(set) != x.set {
				t.Errorf("nvidia-smi was told\n%swant\n%s", set, x.set)
			}
		})
	}
}
