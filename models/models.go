package models

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/scaffe/scaffe/caffe/proto"
)

// FS holds the files: NAME/train_val.prototxt and NAME/solver.prototxt of
// every net, and what other solvers it has.
//
//go:embed */*.prototxt
var FS embed.FS

// Names lists the nets, in alphabetical order.
func Names() []string {
	paths, err := fs.Glob(FS, "*/train_val.prototxt")
	if err != nil { // the pattern is right, and FS is memory
		return nil
	}
	names := make([]string, len(paths))
	for i, p := range paths {
		names[i] = path.Dir(p)
	}
	return names
}

// Net returns the net of that name, for all phases, ready for net.New.
func Net(name string) (*proto.NetFile, error) {
	text, err := read(name, "train_val.prototxt")
	if err != nil {
		return nil, err
	}
	f, err := proto.ParseNet("models/"+name+"/train_val.prototxt", text)
	if err != nil {
		return nil, err
	}
	return f, f.Validate()
}

// Solver returns the net's solver. It names its net by a path relative to the
// project's root, as Caffe's own do.
func Solver(name string) (*proto.SolverFile, error) {
	text, err := read(name, "solver.prototxt")
	if err != nil {
		return nil, err
	}
	f, err := proto.ParseSolver("models/"+name+"/solver.prototxt", text)
	if err != nil {
		return nil, err
	}
	return f, f.Validate()
}

func read(name, file string) ([]byte, error) {
	text, err := FS.ReadFile(path.Join(name, file))
	if err != nil {
		return nil, fmt.Errorf("no built-in net %q: there are %s", name, strings.Join(Names(), ", "))
	}
	return text, nil
}
