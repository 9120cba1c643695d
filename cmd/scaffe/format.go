package main

import (
	"github.com/urfave/cli/v2"

	"github.com/scaffe/scaffe/internal/report"
)

// formatFlag is --format of a command that writes a table; report.ParseFormat
// reads it.
func formatFlag(of string) cli.Flag {
	return &cli.StringFlag{Name: "format", Value: string(report.Text), Usage: of + ": " + report.Usage}
}
