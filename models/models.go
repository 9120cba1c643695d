package models

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/internal/atomicfile"
	"github.com/scaffe/scaffe/models/internal/define"
)

// Names lists the nets, in alphabetical order.
func Names() []string { return define.Names() }

// Title says in a few words what the net of that name is.
func Title(name string) (string, error) {
	title := define.Title(name)
	if title == "" {
		return "", unknown(name)
	}
	return title, nil
}

// Net returns the net of that name, for all phases, ready for net.New.
func Net(name string) (*proto.NetFile, error) {
	n, ok := define.Net(name)
	if !ok {
		return nil, unknown(name)
	}
	f, err := proto.NewNetFile("built-in net "+name, n)
	if err != nil {
		return nil, err
	}
	return f, f.Validate()
}

func unknown(name string) error {
	return fmt.Errorf("no built-in net %q: there are %s", name, strings.Join(Names(), ", "))
}

// File is a file of a net: train_val.prototxt, solver.prototxt or another
// solver, in Caffe's text form.
type File struct {
	Path string
	Text []byte
}

// Files returns the files of the net of that name for the directory dir/name.
// Its solvers name the net, and where snapshots go, by paths that begin with
// dir, so they are used from the directory to which dir is relative.
func Files(dir, name string) ([]File, error) {
	defined := define.Files(filepath.ToSlash(dir), name)
	if defined == nil {
		return nil, unknown(name)
	}
	files := make([]File, len(defined))
	for i, f := range defined {
		files[i] = File{filepath.FromSlash(f.Path), f.Text}
	}
	return files, nil
}

// Write writes the files of the nets of those names below dir and returns their
// paths. It does not replace a file that says something else, unless force is
// set; then nothing is written.
func Write(dir string, force bool, names ...string) (paths []string, err error) {
	var files []File
	for _, name := range names {
		fs, err := Files(dir, name)
		if err != nil {
			return nil, err
		}
		files = append(files, fs...)
	}
	for _, f := range files {
		if force {
			break
		}
		old, err := os.ReadFile(f.Path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err == nil && !bytes.Equal(old, f.Text) {
			return nil, fmt.Errorf("%s exists and differs: remove it, name another directory, or use force to replace it", f.Path)
		}
	}
	for _, f := range files {
		if err := os.MkdirAll(filepath.Dir(f.Path), 0o755); err != nil {
			return paths, err
		}
		if err := atomicfile.Write(nil, f.Path, f.Text); err != nil {
			return paths, err
		}
		paths = append(paths, f.Path)
	}
	return paths, nil
}
