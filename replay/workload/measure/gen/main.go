// Gen writes nets/*.work, the work of the nets that built-in profiles are made
// of, as `go generate ./replay/workload` does. AlexNet and GoogLeNet are those
// that Caffe ships: without their files, in the folder that SCAFFE_CAFFE_NETS
// names, theirs are left as they are.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/scaffe/scaffe/replay/workload/measure"
)

func main() {
	for _, b := range measure.BuiltinNets() {
		if err := write(b); err != nil {
			fmt.Fprintln(os.Stderr, "gen:", err)
			os.Exit(1)
		}
	}
}

func write(b measure.BuiltinNet) error {
	f, err := b.File(os.Getenv("SCAFFE_CAFFE_NETS"))
	if f == nil || err != nil {
		return err
	}
	w, err := measure.WorkOf(f)
	if err != nil {
		return fmt.Errorf("%s: %w", b.Name, err)
	}
	return os.WriteFile(filepath.Join("nets", b.Name+".work"), []byte(w.String()), 0o644)
}
