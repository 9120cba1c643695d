// Command scaffe trains Caffe nets on many ranks.
//
//	mpirun -np 4 scaffe train --solver solver.prototxt
//
// This package is flags and calls. What the commands do stands in the packages
// that they call; how a command line behaves, in internal/cmdline.
package main

import (
	"errors"
	"io"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/internal/cmdline"
	"github.com/scaffe/scaffe/internal/output"
	"github.com/scaffe/scaffe/internal/version"
	"github.com/scaffe/scaffe/launch"
	"github.com/scaffe/scaffe/mpi"
)

// stdout takes the results of all commands.
var stdout io.Writer = output.Stdout

func main() {
	launch.Main()
	if mpi.StdoutClosed() {
		output.Stdout.Break(errors.New("it is closed"))
	}
	program := cmdline.Program{
		App: newApp(), Stdout: output.Stdout, Stderr: os.Stderr,
		Reported: launch.ErrReported, Brief: mpi.DetectLauncher().Rank > 0,
	}
	program.Exit()
}

func newApp() *cli.App {
	return &cli.App{
		Name:    "scaffe",
		Usage:   "train Caffe nets on many ranks over MPI, and measure the collectives underneath",
		Version: version.String(),
		Description: "Results go to stdout, logs and progress to stderr. Under mpirun a process is one rank.\n" +
			"Started alone it is the only rank, or N ranks in one process with --local N.\n\n" +
			cmdline.Examples(
				"mpirun -np 4 scaffe train --solver solver.prototxt",
				"scaffe explain reduce 64M --nodes 4 --ppn 2",
				"scaffe doctor",
			),
		Commands: []*cli.Command{
			trainCommand(), dataCommand(), modelsCommand(), timeCommand(), replayCommand(), traceCommand(),
			scheduleCommand(), explainCommand(), tuneCommand(), withCommand(), doctorCommand(), versionCommand(),
		},
	}
}
