package device_test

import (
	"testing"

	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/kernels/device"
	"github.com/scaffe/scaffe/nbc/devicetest"
)

func TestConformance(t *testing.T) {
	for _, path := range []string{"", "portable"} {
		k, err := kernels.NewCPUPath(path)
		if err != nil {
			t.Fatal(err)
		}
		d := device.CPU(k)
		for _, c := range devicetest.Cases() {
			t.Run(k.Name()+"/"+c.Name, func(t *testing.T) {
				if err := c.Run(devicetest.Subject{Device: d, Memory: devicetest.Host{}}); err != nil {
					t.Error(err)
				}
			})
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}
