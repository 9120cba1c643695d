// Command scaffe trains Caffe nets on many ranks.
//
//	mpirun -np 4 scaffe train --solver solver.prototxt
//
// This package is wiring: flags, output and signals. What the commands do
// stands in the packages that they call.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/launch"
)

func main() {
	app := &cli.App{
		Name:  "scaffe",
		Usage: "data-parallel training of Caffe nets over MPI, and the collectives below it",
		Description: "Logs and progress go to stderr, results to stdout. Started by mpirun, a process is one rank;\n" +
			"started alone, it is a world of one, or of --local N in one process.",
		Commands:        []*cli.Command{trainCommand(), dataCommand(), doctorCommand(), scheduleCommand()},
		HideHelpCommand: true,
		ExitErrHandler:  func(*cli.Context, error) {}, // below
	}
	err := app.RunContext(context.Background(), os.Args)
	switch {
	case err == nil:
		return
	case !errors.Is(err, launch.ErrReported):
		fmt.Fprintf(os.Stderr, "scaffe: %v\n", err)
	}
	os.Exit(1)
}

// noArguments refuses words that belong to no flag, which cli would ignore.
func noArguments(c *cli.Context) error {
	if c.Args().Present() {
		return fmt.Errorf("%s takes no argument %q: see scaffe %s --help", c.Command.Name, c.Args().First(), c.Command.Name)
	}
	return nil
}
