package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/internal/atomicfile"
	"github.com/scaffe/scaffe/internal/cmdline"
	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/osu-bench/port"
)

// watchCommand samples a port while a command runs. It is hostfiles/lab watch that starts it, and knows where a node's
// counters are.
func watchCommand() *cli.Command {
	return &cli.Command{
		Name: "watch", Usage: "sample what a port sends and receives while a command runs (hostfiles/lab watch)", ArgsUsage: "-- COMMAND...",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "counters", Value: "/proc/net/dev", Usage: "read the interface's counters from `FILE`"},
			&cli.StringFlag{Name: "interface", Value: "eth0", Usage: "watch the interface `NAME`"},
			cmdline.Float("kbit", 0, false, "the port's rate each way in kbit/s, of which shares are (default not known)"),
			cmdline.Duration("every", 10*time.Millisecond, "sample every `TIME`"),
			&cli.StringFlag{Name: "out", Required: true, Usage: "write the samples to `FILE`, as csv"},
		},
		Action: func(c *cli.Context) error {
			if !c.Args().Present() {
				return cmdline.Usagef("missing the command to run")
			}
			every, err := time.ParseDuration(c.String("every"))
			if err != nil {
				return cmdline.Usage(err)
			}
			w := port.Watcher{File: c.String("counters"), Interface: c.String("interface"), Every: every}
			if s := c.String("kbit"); s != "" {
				kbit, err := strconv.ParseFloat(s, 64)
				if err != nil {
					return cmdline.Usage(err)
				}
				w.Rate = 1e3 * kbit
			}
			ctx, stop := signal.NotifyContext(c.Context, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			err = watched(ctx, &w, c.Args().Slice(), c.String("out"), os.Stderr)
			if exit := (*exec.ExitError)(nil); errors.As(err, &exit) { // the command has said why
				fmt.Fprintf(os.Stderr, "%s: %v\n", c.App.Name, err)
				os.Exit(status(exit))
			}
			return err
		},
	}
}

// status is the command's, as a shell says it.
func status(exit *exec.ExitError) int {
	if s, ok := exit.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return 128 + int(s.Signal())
	}
	return exit.ExitCode()
}

// watched samples while a command runs, and then writes the samples, however the command ended: its error is
// an *exec.ExitError where it was not 0.
func watched(ctx context.Context, w *port.Watcher, line []string, out string, log io.Writer) error {
	if err := w.Check(); err != nil {
		return err
	}
	if err := makeFolder(out); err != nil {
		return err
	}
	sampling, enough := context.WithCancel(context.WithoutCancel(ctx)) // until the command has ended, interrupted or not
	defer enough()
	var samples []port.Sample
	var lost error
	var sampler sync.WaitGroup
	sampler.Go(func() { samples, lost = w.Watch(sampling) })
	failed := execute(ctx, line)
	enough()
	sampler.Wait()
	t := report.Table[port.Sample]{Columns: port.Columns, Rows: samples}
	err := atomicfile.Stream(atomicfile.OS, out, func(to io.Writer) error { return t.Write(to, report.CSV) })
	var sent, received int64
	for _, s := range samples {
		sent, received = sent+s.Sent, received+s.Received
	}
	fmt.Fprintf(log, "%s: %d intervals of %v, sent %.1f MB, received %.1f MB", w.Interface, len(samples), w.Every, float64(sent)/1e6, float64(received)/1e6)
	if w.Rate > 0 {
		s, r := port.QuietShares(samples)
		fmt.Fprintf(log, ", under %g %% of the rate in %.1f and %.1f %% of the time", 100*port.Quiet, 100*s, 100*r)
	}
	fmt.Fprintf(log, ": %s\n", out)
	return errors.Join(failed, lost, err)
}

// execute runs a command in a process group of its own, which a signal to this program ends.
func execute(ctx context.Context, line []string) error {
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", line[0], err)
	}
	return nil
}
