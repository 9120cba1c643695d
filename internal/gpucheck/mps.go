package gpucheck

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/scaffe/scaffe/kernels/cuda"
)

// mpsControl starts an MPS daemon, and tells one what to do.
const mpsControl = "nvidia-cuda-mps-control"

// envPipes names the folder by which an MPS daemon and its clients find each other.
const envPipes = "CUDA_MPS_PIPE_DIRECTORY"

// mps is an MPS daemon: the folder that it is found by, that of its log, and how long each step may take.
type mps struct {
	pipes, log string
	patience   time.Duration
}

// env is what makes programs its clients.
func (m *mps) env() []string {
	return []string{envPipes + "=" + m.pipes, "CUDA_MPS_LOG_DIRECTORY=" + m.log}
}

// start starts it, and waits until it answers.
func (m *mps) start() error {
	if err := errors.Join(os.RemoveAll(m.pipes), os.MkdirAll(m.pipes, 0o777), os.MkdirAll(m.log, 0o777), m.control("", "-d")); err != nil {
		return err
	}
	return m.control("get_server_list\n")
}

// control runs mpsControl. What that prints goes to a file, since a daemon that it starts would keep a pipe open.
func (m *mps) control(say string, args ...string) error {
	said, err := os.Create(filepath.Join(m.log, "said.txt"))
	if err != nil {
		return err
	}
	defer said.Close()
	ctx, cancel := context.WithTimeout(context.Background(), m.patience)
	defer cancel()
	p := exec.CommandContext(ctx, mpsControl, args...)
	p.Env, p.Stdin, p.Stdout, p.Stderr = append(os.Environ(), m.env()...), strings.NewReader(say), said, said
	p.WaitDelay = m.patience
	switch err := p.Run(); {
	case ctx.Err() != nil:
		return fmt.Errorf("%s does not end within %v", strings.TrimSpace(strings.Join(append(p.Args, say), " ")), m.patience)
	case err != nil:
		text, _ := os.ReadFile(said.Name())
		return fmt.Errorf("%s: %w: %s", strings.TrimSpace(strings.Join(append(p.Args, say), " ")), err, last(string(text)))
	}
	return nil
}

// end ends it and what is left of its servers and clients: as the daemon does where it is told to quit, else by signals, which the note says.
func (m *mps) end() (note string, err error) {
	err = m.control("quit\n")
	for _, s := range []syscall.Signal{0, syscall.SIGTERM, syscall.SIGKILL} {
		left := m.processes()
		if len(left) > 0 && s != 0 {
			note = fmt.Sprintf("it did not end when told to quit, and was ended by %v", s)
			for _, pid := range left {
				_ = syscall.Kill(pid, s)
			}
		}
		for until := time.Now().Add(m.patience); len(left) > 0 && time.Now().Before(until); left = m.processes() {
			time.Sleep(10 * time.Millisecond)
		}
		if len(left) == 0 {
			return note, os.RemoveAll(m.pipes)
		}
		if s == syscall.SIGKILL {
			err = errors.Join(err, fmt.Errorf("processes %v of the MPS daemon are still there", left))
		}
	}
	return note, err
}

// processes are those that have been started with its folder: the daemon, its servers and its clients.
func (m *mps) processes() (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, name := range files {
		if text, err := os.ReadFile(name); err == nil && bytes.Contains(append([]byte{0}, text...), []byte("\x00"+m.env()[0]+"\x00")) {
			if pid, err := strconv.Atoi(strings.Split(name, "/")[2]); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// noMPS says why no MPS daemon is to be started here, "" where one may: none is, and nobody else uses the GPU.
func (c *Check) noMPS(ctx context.Context) string {
	if _, err := exec.LookPath(mpsControl); err != nil {
		return "no " + mpsControl + " here"
	}
	if on, _ := cuda.MPS(0); on || os.Getenv(envPipes) != "" {
		return "an MPS daemon has the GPU already"
	}
	names, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, name := range names {
		if text, err := os.ReadFile(name); err == nil && strings.HasPrefix(string(text), mpsControl[:15]) {
			if words, err := os.ReadFile(filepath.Join(filepath.Dir(name), "cmdline")); err == nil && len(words) > 0 { // else it has ended
				return fmt.Sprintf("an MPS daemon runs here already: process %s", strings.Split(name, "/")[2])
			}
		}
	}
	return c.inUse(ctx)
}

// atRest is how many MiB of a GPU's memory may be used where nobody has it: the driver has some for itself.
const atRest = 1024

// inUse says who else uses the GPU, or why nobody knows.
func (c *Check) inUse(ctx context.Context) string {
	if _, err := exec.LookPath("nvidia-smi"); err != nil {
		return "no nvidia-smi here, so nobody knows whether other processes use the GPU"
	}
	ask := func(what string) (string, error) {
		r, err := c.command(ctx, time.Minute, nil, "nvidia-smi", "-i", c.gpu.PCIBus, what, "--format=csv,noheader,nounits")
		return strings.TrimSpace(r.stdout), err
	}
	text, err := ask("--query-compute-apps=pid")
	processes := slices.DeleteFunc(strings.Fields(text), func(pid string) bool { return pid == strconv.Itoa(os.Getpid()) })
	used, err2 := ask("--query-gpu=memory.used")
	mib, err3 := strconv.Atoi(used)
	switch {
	case errors.Join(err, err2) != nil:
		return "nvidia-smi does not tell whether other processes use the GPU: " + oneLine(errors.Join(err, err2))
	case len(processes) > 0:
		return "other processes use the GPU: " + strings.Join(processes, ", ")
	case err3 != nil || mib > atRest: // a container does not see others' processes
		return fmt.Sprintf("%s MiB of the GPU's memory are used, by somebody that nvidia-smi does not tell", used)
	}
	return ""
}

// underMPS repeats rows of four processes under an MPS daemon of the check's own.
func (c *Check) underMPS(ctx context.Context) {
	const most = 3
	what, target := reduceRow("processes over IPC, under MPS"), fmt.Sprintf("≤ %d %s", most, overCopy)
	if ctx.Err() != nil || !c.processes(what, target) {
		return
	}
	if why := c.noMPS(ctx); why != "" {
		c.skipped(what, target, why)
		return
	}
	m := &mps{pipes: filepath.Join(c.Dir, "mps"), log: filepath.Join(c.Dir, "log", "mps")}
	end, err := c.beside(ctx, nil, "mps", m.pipes, m.log, c.Patience.String())
	if err != nil {
		if ctx.Err() != nil {
			c.failed(what, target, err)
			return
		}
		c.skipped(what, target, "the MPS daemon does not start: "+oneLine(err))
		return
	}
	defer func() {
		r := Row{What: "the MPS daemon ends", Result: right}
		if r.Note, err = end(); err != nil {
			r.Result, r.Note = wrong, oneLine(err)
		}
		c.add(r)
	}()
	switch text, _ := c.doctor(ctx, m.env()); {
	case strings.Contains(text, "no MPS"):
		c.failed(what, target, errors.New("the MPS daemon does not serve the ranks"))
		return
	case strings.Contains(text, "MPS"):
		c.is("MPS serves the ranks", nil)
	default: // one for a CUDA before 12.3
		c.skipped("MPS serves the ranks", "", "the driver does not tell")
	}
	c.validated(ctx, reducers, " under MPS", m.env(), true)
	c.againstCopy(ctx, what, append(m.env(), "SCAFFE_CUDA_PATH=ipc"), most, c.mpirun(reducers, "osu_reduce", c.reduceArgs()...))
}
