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
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/launch"
)

func main() {
	launch.Main()
	app := &cli.App{
		Name:  "scaffe",
		Usage: "data-parallel training of Caffe nets over MPI, and the collectives below it",
		Description: "Logs and progress go to stderr, results to stdout. Started by mpirun, a process is one rank;\n" +
			"started alone, it is a world of one, or of --local N in one process.",
		Commands:        []*cli.Command{trainCommand(), dataCommand(), doctorCommand(), scheduleCommand(), explainCommand(), tuneCommand(), timeCommand(), replayCommand(), traceCommand()},
		HideHelpCommand: true,
		ExitErrHandler:  func(*cli.Context, error) {}, // below
	}
	err := app.RunContext(context.Background(), flagsFirst(app, os.Args))
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

// flagsFirst puts a command's flags before its arguments, where cli wants them:
// people write "explain reduce 64M --nodes 4".
func flagsFirst(app *cli.App, args []string) []string {
	if len(args) < 2 {
		return args
	}
	command, head := app.Command(args[1]), 2
	if command != nil && len(command.Subcommands) > 0 && len(args) > head {
		sub := slices.IndexFunc(command.Subcommands, func(s *cli.Command) bool { return s.HasName(args[head]) })
		if sub < 0 {
			return args
		}
		command, head = command.Subcommands[sub], head+1
	}
	if command == nil || len(command.Subcommands) > 0 {
		return args
	}
	alone := func(name string) bool { // a flag without a value
		return !slices.ContainsFunc(command.Flags, func(f cli.Flag) bool {
			_, isBool := f.(*cli.BoolFlag)
			return slices.Contains(f.Names(), name) && !isBool
		})
	}
	var flags, rest []string
	for i := head; i < len(args); i++ {
		a := args[i]
		switch name := strings.TrimLeft(a, "-"); {
		case a == "--":
			return slices.Concat(args[:head], flags, []string{a}, rest, args[i+1:])
		case name == a || name == "":
			rest = append(rest, a)
		case strings.Contains(a, "=") || alone(name) || i+1 == len(args):
			flags = append(flags, a)
		default:
			flags = append(flags, a, args[i+1])
			i++
		}
	}
	return slices.Concat(args[:head], flags, rest)
}
