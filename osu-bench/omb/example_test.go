package omb_test

import (
	"context"
	"log"
	"os"

	"github.com/scaffe/scaffe/osu-bench/omb"
)

// What osu_allreduce does, on two ranks of this process.
func ExampleRun() {
	p, err := omb.Find("osu_allreduce")
	if err != nil {
		log.Fatal(err)
	}
	args := []string{"--local", "2", "-m", "4:1M", "-T", "mpi_float"}
	if err := omb.Run(context.Background(), p, args, os.Stdout, os.Stderr); err != nil {
		log.Fatal(err)
	}
}
