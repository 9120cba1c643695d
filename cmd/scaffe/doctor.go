package main

import (
	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/internal/cmdline"
	"github.com/scaffe/scaffe/internal/doctor"
	"github.com/scaffe/scaffe/launch"
)

func doctorCommand() *cli.Command {
	return &cli.Command{
		Name:  "doctor",
		Usage: "check what a run depends on: MPI, nodes, shared memory, BLAS, GPUs",
		Description: "It lists what it finds, what is wrong and how to mend it. The status is not 0 where training cannot run.\n\n" +
			cmdline.Examples("scaffe doctor", "mpirun -np 4 --hostfile hosts scaffe doctor"),
		Before: cmdline.NoArguments,
		Action: func(c *cli.Context) error {
			findings, rank := doctor.Examine(c.Context)
			if rank != 0 {
				return nil
			}
			findings = append(findings, doctor.Measured(launch.Node(0))...)
			if doctor.Print(stdout, findings) {
				return launch.ErrReported // the list has said it
			}
			return nil
		},
	}
}
