package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/internal/cmdline"
	"github.com/scaffe/scaffe/internal/units"
	"github.com/scaffe/scaffe/mpi"
)

// preloaded is the library that a program's MPI calls come to.
const preloaded = "libscaffe-mpi.so"

func withCommand() *cli.Command {
	return &cli.Command{
		Name:      "with",
		Usage:     "run any MPI program with scaffe's collectives, without changing it",
		ArgsUsage: cmdline.ProgramArguments,
		Description: "The program's collectives of large buffers (MPI_Reduce, MPI_Bcast, MPI_Allreduce and more) are served by scaffe where that is faster, and\n" +
			"passed on to its own MPI library otherwise. `make lib` builds what it needs.\n\n" +
			cmdline.Examples("mpirun -np 8 scaffe with ./program", "mpirun -np 8 scaffe with --report python3 script.py"),
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "report", Usage: "say at the end which calls were served, and why others were not"},
			cmdline.Checked("min", "", "pass on calls of fewer bytes than `SIZE`, such as 256K (default: 64K)", func(s string) error {
				if n, err := units.ParseBytes(s); err != nil || n < 1 {
					return fmt.Errorf("want a size of at least 1 byte, such as 64K")
				}
				return nil
			}),
			&cli.BoolFlag{Name: "eager", Usage: "set MPI_COMM_WORLD up in MPI_Init, so that its first calls are served, and those that do not block"},
			&cli.StringFlag{Name: "lib", Usage: "take " + preloaded + " from `DIR` (default: where make lib and make install put it)"},
		},
		Action: runWith,
	}
}

func runWith(c *cli.Context) error {
	line := c.Args().Slice()
	if len(line) > 0 && line[0] == "--" {
		line = line[1:]
	}
	if len(line) == 0 {
		return cmdline.Usagef("which program? Name it, and its arguments, after the flags")
	}
	library, err := findPreloaded(c.String("lib"))
	if err != nil {
		return err
	}
	program, err := exec.LookPath(line[0])
	if err != nil {
		return fmt.Errorf("with: %w", err)
	}
	environment := os.Environ()
	set := func(name, value string) { environment = append(environment, name+"="+value) }
	set("LD_PRELOAD", strings.Join(slices.DeleteFunc([]string{library, os.Getenv("LD_PRELOAD")}, func(s string) bool { return s == "" }), ":"))
	if c.Bool("report") {
		set("SCAFFE_REPORT", "1")
	}
	if c.Bool("eager") {
		set("SCAFFE_EAGER", "1")
	}
	if c.IsSet("min") {
		set("SCAFFE_MIN", c.String("min"))
	}
	return fmt.Errorf("with: %s: %w", program, syscall.Exec(program, line, environment))
}

// findPreloaded returns the library for the MPI that this program was built with.
func findPreloaded(dir string) (string, error) {
	family := mpi.ParseLibrary(mpi.Built()).Family()
	if mpi.Built() == "" {
		return "", fmt.Errorf("with: this scaffe was built without MPI: build it, and the library, with make build lib MPI=openmpi or MPI=mpich")
	}
	dirs := []string{dir}
	if dir == "" {
		self, err := os.Executable()
		if err == nil {
			self, err = filepath.EvalSymlinks(self)
		}
		if err != nil {
			return "", fmt.Errorf("with: %w", err)
		}
		root := filepath.Dir(filepath.Dir(self))
		dirs = []string{filepath.Join(root, "build", family, "lib"), filepath.Join(root, "lib", "scaffe", family)}
	}
	for _, d := range dirs {
		path, err := filepath.Abs(filepath.Join(d, preloaded))
		if err != nil {
			return "", fmt.Errorf("with: %w", err)
		}
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("with: there is no %s for %s in %s: make lib MPI=%s builds it, and --lib DIR says where it is", preloaded,
		mpi.Built(), cmdline.Or(dirs), cmp.Or(family, "openmpi"))
}
