package campaign

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// campaign is one under way.
type campaign struct {
	Config
	rows  []Row
	log   io.Writer
	bin   string // the folder of the programs
	lab   lab
	cores int

	uccPerftest string // "" where there is none
	failed      int
}

// newCampaign finds the programs and the rows that there are already.
func newCampaign(c Config, root string, log io.Writer) (*campaign, error) {
	if os.Getenv("SCAFFE_MPI_DIR") == "" {
		return nil, errors.New("no MPI here: run it as scripts/with-mpi openmpi scripts/bench sizes")
	}
	rows, err := read(c.Out)
	if err != nil {
		return nil, err
	}
	r := &campaign{Config: c, rows: rows, log: log, bin: filepath.Join(root, "bin"), lab: newLab(root, log), cores: runtime.NumCPU()}
	r.uccPerftest = findUCC()
	if len(rows) > 0 {
		fmt.Fprintf(log, "%s has %d rows already; what is missing is measured\n", c.Out, len(rows))
	}
	return r, nil
}

// findUCC returns the path of UCC's benchmark, which is built for Open MPI.
func findUCC() string {
	path := os.Getenv("UCC_PERFTEST")
	if path == "" {
		path, _ = exec.LookPath("ucc_perftest")
	}
	if library() != "openmpi" {
		return ""
	}
	return path
}

// library returns which MPI library this is, as scripts/with-mpi calls it.
func library() string { return filepath.Base(os.Getenv("SCAFFE_MPI_DIR")) }

// longest is how long a program may run; training has deadlines of its own.
const longest = 15 * time.Minute

// all executes jobs, those of one lab after another. The error is the context's or that of
// the file; a job that fails is reported and left out.
func (c *campaign) all(ctx context.Context, jobs []*job) error {
	defer c.lab.down()
	for i, j := range jobs {
		missing := j.missing(c.rows)
		if len(missing) == 0 {
			continue
		}
		fmt.Fprintf(c.log, "%d of %d: %v\n", i+1, len(jobs), j)
		rows, err := c.one(ctx, j, missing[0])
		c.rows = append(c.rows, c.fresh(j, rows)...)
		if e := write(c.Out, c.rows); e != nil {
			return e
		}
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted: the same command goes on from %s", c.Out)
		}
		if err != nil {
			c.failed++
			fmt.Fprintf(c.log, "  failed: %v\n", err)
		}
	}
	return nil
}

// fresh returns the rows whose sizes are not there yet.
func (c *campaign) fresh(j *job, rows []Row) (left []Row) {
	for _, size := range j.missing(c.rows) {
		for _, r := range rows {
			if r.Size == size {
				left = append(left, r)
			}
		}
	}
	return left
}

// one executes a job from a size on.
func (c *campaign) one(ctx context.Context, j *job, from int) ([]Row, error) {
	line := append([]string{"mpirun", "-np", fmt.Sprint(j.layout.Ranks())}, j.mpirun...)
	if j.layout.Nodes > 1 {
		if err := c.lab.up(ctx, j.layout, "1gbit"); err != nil {
			return nil, err
		}
		line = append([]string{c.lab.path, "run", "--ppn", fmt.Sprint(j.layout.PPN), "--np", fmt.Sprint(j.ranks()), "--"}, j.mpirun...)
	}
	line = append(line, j.command(from)...)
	out, err := execute(ctx, append(os.Environ(), j.env...), line)
	rows, e := j.read(j, out)
	if err == nil {
		err = e
	}
	return rows, err
}

// ranks returns how many a job starts: the wire has two ends.
func (j *job) ranks() int {
	if j.name == "wire" {
		return 2
	}
	return j.layout.Ranks()
}

// execute runs a command for as long as a program may run.
func execute(ctx context.Context, env, line []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	return start(ctx, env, line)
}

// start runs a command in a process group of its own, so that Ctrl-C comes to this
// program alone, which ends the command.
func start(ctx context.Context, env, line []string) (string, error) {
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	var stdout, stderr bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = env, &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	if err != nil {
		said := strings.TrimSpace(stderr.String())
		if n := 500; len(said) > 2*n {
			said = said[:n] + "\n...\n" + said[len(said)-n:]
		}
		err = fmt.Errorf("%s: %w\n%s", strings.Join(line, " "), err, said)
	}
	return stdout.String(), err
}

// possible leaves out the layouts that this machine cannot have, by name.
func (c *campaign) possible(ctx context.Context) (layouts []Layout) {
	labs := -1
	for _, l := range c.Layouts {
		if l.Nodes > 1 && labs < 0 {
			labs = 1
			if _, err := execute(ctx, os.Environ(), []string{c.lab.path, "check"}); err != nil {
				labs = 0
			}
		}
		if l.Nodes > 1 && labs == 0 {
			fmt.Fprintf(c.log, "%v: skipped: this machine cannot have a lab (run as root; hostfiles/lab check says more)\n", l)
			continue
		}
		layouts = append(layouts, l)
	}
	return layouts
}

// end says what failed.
func (c *campaign) end() error {
	if c.failed > 0 {
		return fmt.Errorf("%d runs failed, see above; the same command tries them again", c.failed)
	}
	return nil
}
