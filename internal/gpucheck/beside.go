package gpucheck

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/scaffe/scaffe/kernels/cuda"
)

// ready is what a process beside a check says when it has begun.
const ready = "ready"

// Beside does for a check what has to be undone however that ends, also killed: a process of its own does it, says so on stdout, waits
// until its stdin ends, and undoes it. What is then to be known is another line. The words are one of
//
//	mps PIPES LOG PATIENCE   an MPS daemon with these folders, which has so long for each step
//	hold                     the first GPU is open
//	hold PCI                 the same, in exclusive mode, which nvidia-smi sets and unsets
func Beside(words []string, stdin io.Reader, stdout io.Writer) (err error) {
	// A signal to end is for the check, which then ends this. It is not ignored, as that would be inherited.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	var undo func() error // nil where there is nothing to undo
	note := ""
	switch {
	case len(words) == 4 && words[0] == "mps":
		patience, e := time.ParseDuration(words[3])
		if e != nil {
			return e
		}
		m := &mps{pipes: words[1], log: words[2], patience: patience}
		undo = func() (err error) { note, err = m.end(); return err }
		err = m.start()
	case len(words) == 1 && words[0] == "hold":
		undo, err = hold()
	case len(words) == 2 && words[0] == "hold":
		undo, err = holdAlone(words[1])
	default:
		return fmt.Errorf("invalid words %q", words)
	}
	if err == nil {
		if _, err = fmt.Fprintln(stdout, ready); err == nil {
			_, err = io.Copy(io.Discard, stdin)
		}
	}
	if undo != nil {
		err = errors.Join(err, undo())
	}
	if note != "" {
		fmt.Fprintln(stdout, note)
	}
	return err
}

// hold opens the first GPU.
func hold() (undo func() error, err error) {
	d, err := cuda.Open(0)
	if err != nil {
		return nil, err
	}
	return d.Close, nil
}

// holdAlone opens the first GPU, at this place on the PCI bus, in exclusive mode.
func holdAlone(pci string) (undo func() error, err error) {
	mode := func(name string) error {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		if out, err := exec.CommandContext(ctx, "nvidia-smi", "-i", pci, "-c", name).CombinedOutput(); err != nil {
			return fmt.Errorf("nvidia-smi -c %s: %w: %s", name, err, last(string(out)))
		}
		return nil
	}
	if err := mode("EXCLUSIVE_PROCESS"); err != nil {
		return nil, err
	}
	release, err := hold()
	return func() error {
		var err error
		if release != nil {
			err = release()
		}
		return errors.Join(err, mode("DEFAULT"))
	}, err
}

// beside starts such a process, and returns what ends it, which tells what it said then.
func (c *Check) beside(ctx context.Context, env []string, words ...string) (end func() (string, error), err error) {
	p := exec.Command(c.program("gpu-check"), append([]string{"beside"}, words...)...)
	var stderr strings.Builder
	p.Env, p.Stderr, p.WaitDelay = append(os.Environ(), env...), &stderr, c.Patience
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what ends the check's group leaves it
	stdin, err := p.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := p.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.Start(); err != nil {
		return nil, err
	}
	lines := make(chan string, 2) // which is all that it says
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(stdout); s.Scan(); {
			lines <- s.Text()
		}
	}()
	most := 8 * c.Patience // it has deadlines of its own
	end = func() (note string, err error) {
		_ = stdin.Close() // which tells it
		late := time.After(most)
		for open := true; open; {
			var line string
			select {
			case line, open = <-lines:
				if open && line != ready {
					note = line
				}
			case <-late:
				err, open = fmt.Errorf("%s beside the check has not ended within %v: killed", words[0], most), false
				_ = p.Process.Kill()
			}
		}
		if e := p.Wait(); err == nil && e != nil {
			err = fmt.Errorf("%w: %s", e, last(stderr.String()))
		}
		return note, err
	}
	select {
	case line := <-lines:
		if line == ready {
			return end, nil
		}
	case <-time.After(most):
		err = fmt.Errorf("not ready within %v", most)
	case <-ctx.Done():
		err = ctx.Err()
	}
	_, e := end()
	return nil, errors.Join(err, e)
}
