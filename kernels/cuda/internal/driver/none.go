//go:build !(cuda && cgo && linux && (amd64 || arm64))

package driver

// Built reports whether Open can succeed on some machine.
const Built = false

// Open returns ErrNotBuilt.
func Open() error { return ErrNotBuilt }

// FindBLAS returns ErrNotBuilt.
func FindBLAS() (Library, error) { return Library{}, ErrNotBuilt }

// FindDNN returns ErrNotBuilt.
func FindDNN() (Library, error) { return Library{}, ErrNotBuilt }
