package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/internal/cmdline"
	"github.com/scaffe/scaffe/internal/version"
	"github.com/scaffe/scaffe/mpi"
)

func versionCommand() *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "print the version",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "verbose", Usage: "also print the revision, the MPI library, the build tags and the Go version"},
			cmdline.Choice("format", "text", "output format; json has all that --verbose prints", "text", "json"),
		},
		Before: cmdline.NoArguments,
		Action: runVersion,
	}
}

func runVersion(c *cli.Context) error {
	v, library := version.Get(), mpi.Built()
	if library == "" {
		library = "none"
	}
	if c.String("format") == "json" {
		return json.NewEncoder(stdout).Encode(struct {
			version.Info
			MPI string `json:"mpi"`
		}{v, library})
	}
	fmt.Fprintf(stdout, "scaffe %s\n", v)
	if c.Bool("verbose") {
		writeBuild(stdout, v, library)
	}
	return nil
}

// writeBuild writes how the program was built, a line for each fact.
func writeBuild(w io.Writer, v version.Info, library string) {
	revision := v.Revision
	switch {
	case revision == "":
		revision = "unknown"
	case v.Modified:
		revision += ", modified"
	}
	if v.Time != "" {
		revision += " (" + v.Time + ")"
	}
	tags := strings.Join(v.Tags, ", ")
	if tags == "" {
		tags = "none"
	}
	fmt.Fprintf(w, "revision:   %s\nMPI:        %s\nbuild tags: %s\nGo:         %s %s\n", revision, library, tags, v.Go, v.Platform)
}
