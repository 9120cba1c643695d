// Gen writes the files of the built-in nets below the working directory, which
// `go generate ./models` makes models/.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/scaffe/scaffe/models/internal/define"
)

func main() {
	for _, f := range define.Files() {
		if err := write(f); err != nil {
			fmt.Fprintln(os.Stderr, "gen:", err)
			os.Exit(1)
		}
	}
}

func write(f define.File) error {
	path := filepath.FromSlash(f.Path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, f.Text, 0o644)
}
