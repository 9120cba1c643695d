//go:build !(cuda && cgo && linux && (amd64 || arm64))

package cuda

// GPUs returns ErrNotBuilt.
func GPUs() ([]GPU, error) { return nil, ErrNotBuilt }

// DriverVersion returns ErrNotBuilt.
func DriverVersion() (string, error) { return "", ErrNotBuilt }
