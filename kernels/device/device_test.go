package device_test

import (
	"fmt"
	"testing"

	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/kernels/device"
	"github.com/scaffe/scaffe/nbc/devicetest"
	"github.com/scaffe/scaffe/schedule/sim"
)

func TestConformance(t *testing.T) {
	for _, path := range []string{"", "portable"} {
		k, err := kernels.NewCPUPath(path)
		if err != nil {
			t.Fatal(err)
		}
		d := device.CPU(k)
		for _, expected := range []int{0, kernels.StreamFrom} { // bytes of the collective: through the caches, and around them
			d.Expect(expected)
			for _, c := range devicetest.Cases() {
				t.Run(fmt.Sprintf("%s/%d/%s", k.Name(), expected, c.Name), func(t *testing.T) {
					if err := c.Run(devicetest.Subject{Device: d, Memory: devicetest.Host{}}); err != nil {
						t.Error(err)
					}
				})
			}
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestTheSimulationKnowsThePlaces: the cost model has a copy of how many places results are stored at.
func TestTheSimulationKnowsThePlaces(t *testing.T) {
	cpu := device.CPU(nil)
	for bytes, most := range map[int]int{sim.StreamFrom: sim.MostPlaces, sim.StreamFrom - 1: sim.FewPlaces, 1: sim.FewPlaces} {
		for places := 1; places <= sim.MostPlaces+1; places++ {
			if got, want := cpu.Spreads(bytes, places), places <= most; got != want {
				t.Errorf("results at %d places, of %d bytes: %v, in the simulation %v", places, bytes, got, want)
			}
		}
	}
}

// TestTheSimulationKnowsTheOperands: and of how many a GPU's kernel adds at once.
func TestTheSimulationKnowsTheOperands(t *testing.T) {
	if sim.GPUOperands != cuda.Operands {
		t.Errorf("%d operands in the simulation, %d of a kernel", sim.GPUOperands, cuda.Operands)
	}
}
