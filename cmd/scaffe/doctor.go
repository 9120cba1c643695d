package main

import (
	"os"

	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/internal/doctor"
	"github.com/scaffe/scaffe/launch"
)

func doctorCommand() *cli.Command {
	return &cli.Command{
		Name:   "doctor",
		Usage:  "say what this program finds (MPI, nodes, shared memory, BLAS, GPUs) and what is wrong with it",
		Before: noArguments,
		Action: func(c *cli.Context) error {
			findings, rank := doctor.Examine(c.Context)
			if rank != 0 {
				return nil
			}
			if doctor.Print(os.Stdout, findings) {
				return launch.ErrReported // the list has said it
			}
			return nil
		},
	}
}
