package gpucheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/scaffe/scaffe/kernels/cuda"
)

// Usual is how long a run takes at most unless somebody says.
const Usual = 9 * time.Minute

// Check is one run. Root and Dir are given.
type Check struct {
	Root string    // of the archive: programs in bin, tests in tests, files in data
	Dir  string    // where the report goes, and what programs print
	Log  io.Writer // what is being done
	Only []string  // the titles of the parts to run; all where it is empty

	// Patience is how long an MPS daemon has to start, to answer and to end; 10 s where it is 0.
	Patience time.Duration

	started  time.Time
	gpu      cuda.GPU
	gpus     int
	driver   string
	standIn  bool // which is no GPU
	mpi      string
	noMPI    string // why there is no MPI here
	rows     []Row
	part     string // that is under way
	runs     int
	rates    rates
	joined   string // how ranks of two processes are, "" where nobody knows
	stopped  string // why not all has been run
	stopping func() bool
	finished bool
}

// part is one of a check.
type part struct {
	title string
	run   func(*Check, context.Context)
}

var parts = []part{
	{"Kernels", (*Check).kernels},
	{"Bandwidth", (*Check).bandwidth},
	{"Conformance", (*Check).conformance},
	{"Ranks that share the GPU", (*Check).ranks},
	{"Benchmarks", (*Check).benchmarks},
	{"Training", (*Check).training},
	{"Errors", (*Check).errors},
}

// Parts are the titles of the parts, in their order.
func Parts() []string {
	var titles []string
	for _, p := range parts {
		titles = append(titles, p.title)
	}
	return titles
}

// Run does all parts, until ctx ends. What has failed is in the report, and counted in the error; so is what is missing where
// it was stopped.
func (c *Check) Run(ctx context.Context) error {
	c.started = time.Now()
	for _, title := range c.Only {
		if !slices.ContainsFunc(parts, func(p part) bool { return p.title == title }) {
			return fmt.Errorf("no part %q: there are %s", title, strings.Join(Parts(), ", "))
		}
	}
	if c.Patience == 0 {
		c.Patience = 10 * time.Second
	}
	c.stopping = func() bool { return ctx.Err() != nil }
	if err := os.MkdirAll(filepath.Join(c.Dir, "log"), 0o777); err != nil {
		return err
	}
	if err := c.device(ctx); err != nil {
		return err
	}
	for _, p := range parts {
		if c.part = p.title; ctx.Err() != nil {
			c.stop(ctx)
			c.add(Row{What: "all of it", Result: notRun, Note: c.stopped})
			continue
		}
		if len(c.Only) > 0 && !slices.Contains(c.Only, p.title) {
			c.add(Row{What: "all of it", Result: notRun, Note: "not asked for"})
			continue
		}
		fmt.Fprintf(c.Log, "%4.0f s  %s\n", time.Since(c.started).Seconds(), p.title)
		p.run(c, ctx)
		c.stop(ctx)
	}
	c.finished = c.stopped == ""
	if err := c.write(); err != nil {
		return err
	}
	failed := 0
	for _, r := range c.rows {
		if r.Result == wrong {
			failed++
		}
	}
	switch {
	case failed > 0:
		return fmt.Errorf("%d of %d lines of %s are wrong", failed, len(c.rows), c.report())
	case c.stopped != "":
		return fmt.Errorf("%s: %s has what was run until then", c.stopped, c.report())
	}
	return nil
}

// stop says why the run has ended, once it has.
func (c *Check) stop(ctx context.Context) {
	if ctx.Err() == nil || c.stopped != "" {
		return
	}
	c.stopped = "stopped"
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		c.stopped = "the time was up"
	}
	c.stopped += fmt.Sprintf(" after %.0f s", time.Since(c.started).Seconds())
}

// device asks for the GPU, and remembers what the report begins with.
func (c *Check) device(ctx context.Context) error {
	all, err := cuda.GPUs()
	if err == nil && len(all) == 0 {
		err = errors.New("a CUDA driver, and no GPU")
	}
	if err != nil {
		return fmt.Errorf("nothing to check: %w", err)
	}
	c.gpus, c.gpu = len(all), all[0]
	c.standIn = strings.HasPrefix(c.gpu.Name, "stand-in")
	if c.driver, err = cuda.DriverVersion(); err != nil {
		return err
	}
	// Only with what works are programs started.
	if c.noMPI = os.Getenv(noMPI); c.noMPI == "" {
		c.mpi = filepath.Join(c.Root, "bin", "mpirun")
		if _, err := c.command(ctx, time.Minute, nil, c.mpirun(2, "osu_barrier", "-i", "10")...); err != nil {
			c.mpi, c.noMPI = "", "the archive's MPI does not work here: "+oneLine(err)
		}
	}
	return c.write()
}

// noMPI is the environment variable that says why ranks are to be threads of one process alone.
const noMPI = "SCAFFE_CHECK_NO_MPI"

// program is the path of one of the archive.
func (c *Check) program(name string) string { return filepath.Join(c.Root, "bin", name) }

// mpirun is the command that starts n processes of a program.
func (c *Check) mpirun(n int, name string, args ...string) []string {
	command := []string{c.mpi, "-np", fmt.Sprint(n)}
	if n > runtime.NumCPU() {
		command = append(command, "--mca", "mpi_yield_when_idle", "1")
	}
	return append(append(command, c.program(name)), args...)
}

// local is the command that starts n ranks of a program in one process.
func (c *Check) local(n int, name string, args ...string) []string {
	return append([]string{c.program(name), "--local", fmt.Sprint(n)}, args...)
}

// result is what a command printed. Its error has the last line of that.
type result struct{ stdout, stderr string }

// command runs one, for so long at most, and keeps what it prints in the folder log.
func (c *Check) command(ctx context.Context, most time.Duration, env []string, args ...string) (result, error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	var stdout, stderr strings.Builder
	p := exec.CommandContext(ctx, args[0], args[1:]...)
	// What is measured of the machine once is kept here.
	p.Env = append(append(os.Environ(), "XDG_CACHE_HOME="+filepath.Join(c.Dir, "log", "cache")), env...)
	p.Dir, p.Stdout, p.Stderr = c.Dir, &stdout, &stderr
	// Ranks are processes of its group, which go with it.
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p.Cancel = func() error { return syscall.Kill(-p.Process.Pid, syscall.SIGKILL) }
	p.WaitDelay = 5 * time.Second
	err := p.Run()
	c.runs++
	text := fmt.Sprintf("$ %s\n%s\n%s%s", strings.Join(append(env, args...), " "), time.Now().UTC().Format(time.RFC3339), stdout.String(), stderr.String())
	if err != nil {
		text += fmt.Sprintf("%v\n", err)
	}
	name := fmt.Sprintf("%02d-%s.txt", c.runs, filepath.Base(args[0]))
	if e := os.WriteFile(filepath.Join(c.Dir, "log", name), []byte(text), 0o666); e != nil && err == nil {
		err = e
	}
	switch {
	case err == nil:
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("%s: stopped after %v (log/%s)", filepath.Base(args[0]), most, name)
	default:
		err = fmt.Errorf("%w: %s (log/%s)", err, last(stdout.String()+stderr.String()), name)
	}
	return result{stdout.String(), stderr.String()}, err
}

// last returns the last line that says something, of the program and not of its launcher.
func last(text string) (line string) {
	for l := range strings.SplitSeq(text, "\n") {
		l = strings.TrimSpace(l)
		switch {
		case strings.HasPrefix(l, "Primary job"), strings.HasPrefix(l, "mpirun detected"), strings.HasPrefix(l, "MPI_ABORT was invoked"):
			if line != "" {
				return shorten(line)
			}
		case l != "" && !strings.HasPrefix(l, "-----"):
			line = l
		}
	}
	return shorten(line)
}

func shorten(s string) string {
	if r := []rune(s); len(r) > 300 {
		return string(r[:300]) + "…"
	}
	return s
}

func oneLine(err error) string { return shorten(strings.ReplaceAll(err.Error(), "\n", "; ")) }
