package main

import (
	"path/filepath"
	"testing"

	"github.com/urfave/cli/v2"
)

// A whole run does not go on from the rows of a quick one, unless both are told the same file.
func TestQuickRowsHaveAFileOfTheirOwn(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("SCAFFE_MPI_DIR", "/build/openmpi")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, filepath.Join("build", "bench", "p3-7-openmpi.csv")},
		{[]string{"--quick"}, filepath.Join("build", "bench", "p3-7-quick-openmpi.csv")},
		{[]string{"--quick", "--out", "rows.csv"}, "rows.csv"},
	} {
		got := ""
		app := cli.App{
			Flags: []cli.Flag{&cli.BoolFlag{Name: "quick"}, &cli.StringFlag{Name: "out"}},
			Action: func(c *cli.Context) (err error) {
				got, err = rowsFile(c, "p3-7")
				return err
			},
		}
		if err := app.Run(append([]string{"bench"}, tt.args...)); err != nil || got != tt.want {
			t.Errorf("%q: %s, %v; want %s", tt.args, got, err, tt.want)
		}
	}
}
