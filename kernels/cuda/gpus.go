//go:build cuda && cgo && linux && (amd64 || arm64)

package cuda

import (
	"errors"
	"fmt"

	"gorgonia.org/cu"

	"github.com/scaffe/scaffe/kernels/cuda/internal/driver"
)

// GPUs returns those that the driver lets this process see (CUDA_VISIBLE_DEVICES is
// the driver's own variable), in its order. Where the machine has no driver the error is
// an ErrNoDriver; where it has one and no GPU there are none.
func GPUs() ([]GPU, error) {
	switch err := driver.Open(); {
	case errors.Is(err, driver.ErrNoGPU):
		return nil, nil
	case err != nil:
		return nil, err
	}
	n, err := cu.NumDevices()
	if err != nil {
		return nil, fmt.Errorf("cuda: the driver does not tell how many GPUs there are: %w", err)
	}
	all := make([]GPU, n)
	for i := range all {
		if all[i], err = gpu(i); err != nil {
			return nil, fmt.Errorf("cuda: GPU %d: %w", i, err)
		}
	}
	return all, nil
}

func gpu(i int) (g GPU, err error) {
	g.Index = i
	d, err := cu.GetDevice(i)
	if err != nil {
		return g, err
	}
	if g.Name, err = d.Name(); err != nil {
		return g, fmt.Errorf("its name: %w", err)
	}
	id, err := d.UUID()
	if err != nil {
		return g, fmt.Errorf("its UUID: %w", err)
	}
	g.UUID = "GPU-" + id.String()
	if g.PCIBus, err = driver.PCIBus(int(d)); err != nil {
		return g, fmt.Errorf("its place on the PCI bus: %w", err)
	}
	if g.Memory, err = d.TotalMem(); err != nil {
		return g, fmt.Errorf("its memory: %w", err)
	}
	var of [3]int
	for i, a := range []cu.DeviceAttribute{cu.ComputeCapabilityMajor, cu.ComputeCapabilityMinor, cu.ComputeMode} {
		if of[i], err = d.Attribute(a); err != nil {
			return g, fmt.Errorf("its attribute %d: %w", a, err)
		}
	}
	g.SM, g.Mode = 10*of[0]+of[1], Mode(of[2])
	return g, nil
}

// DriverVersion returns the latest CUDA that the driver is for, such as 12.4.
func DriverVersion() (string, error) {
	if err := driver.Open(); err != nil {
		return "", err
	}
	v := cu.Version()
	if v < 0 {
		return "", errors.New("cuda: the driver does not tell its version")
	}
	return driver.VersionText(v), nil
}
