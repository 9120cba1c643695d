//go:build cuda && cgo && linux && (amd64 || arm64)

package layers

import (
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/gpu"
	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/kernels/cuda/cudatest"
)

// openGPU opens the driver's stand-in, which the first test that asks loads.
func openGPU(t *testing.T) *gpu.Device {
	t.Helper()
	if os.Getenv(cuda.EnvLibrary) == "" {
		dir, err := os.MkdirTemp("", "scaffe-layers")
		if err != nil {
			t.Fatal(err)
		}
		library, err := cudatest.Build(dir)
		if err != nil {
			t.Fatal(err)
		}
		os.Setenv(cuda.EnvLibrary, library)
		os.Setenv(cudatest.Env, "delay=5")
		if _, err := cuda.GPUs(); err != nil {
			t.Fatal(err)
		}
		os.RemoveAll(dir) // it is loaded
	}
	d, err := gpu.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// Every gradient case of a layer that a GPU computes gives there what it gives on the CPU: tops, and the gradients of
// bottoms and parameters, twice.
func TestGPUComputesWhatTheCPUDoes(t *testing.T) {
	for _, typ := range Types() {
		for _, c := range gradientCases[typ] {
			t.Run(typ+"/"+c.name, func(t *testing.T) {
				var got [2][][]float32
				for side := range got {
					l, bottom, top, reseed := c.make(t, typ)
					on, ok := l.(OnGPU)
					if !ok || !on.FitsGPU(bottom, top) {
						t.Skip("computed by the CPU")
					}
					var d *gpu.Device
					if side == 1 {
						d = openGPU(t)
						for _, bs := range [][]*blob.Blob{bottom, top, l.Params()} {
							for _, b := range bs {
								b.Place(d)
							}
						}
					}
					propagate := takeGradient(l, bottom)
					r := rand.New(rand.NewPCG(7, 13))
					keep := func(x []float32) { got[side] = append(got[side], append([]float32(nil), x...)) }
					values := make([][]float32, len(bottom))
					for i, b := range bottom {
						values[i] = append([]float32(nil), b.Data()...)
					}
					for range 2 {
						for i, b := range bottom {
							copy(b.Data(), values[i])
						}
						reseed()
						var err error
						if d != nil {
							err = on.ForwardGPU(d, bottom, top)
						} else {
							err = l.Forward(bottom, top)
						}
						if err != nil {
							t.Fatal(err)
						}
						for _, b := range top {
							keep(b.HostData())
							dy := b.Diff()
							for i := range dy {
								dy[i] = float32(r.NormFloat64())
							}
						}
						if d != nil {
							err = on.BackwardGPU(d, top, propagate, bottom)
						} else {
							err = l.Backward(top, propagate, bottom)
						}
						if err != nil {
							if c.opts.gradTops == 0 && typ != "Accuracy" {
								t.Fatal(err)
							}
							return
						}
						for i, b := range bottom {
							if propagate[i] {
								keep(b.HostDiff())
							}
						}
						for _, p := range l.Params() {
							keep(p.HostDiff())
							keep(p.HostData())
						}
					}
					if d != nil && d.Err() != nil {
						t.Fatal(d.Err())
					}
				}
				if len(got[0]) != len(got[1]) || len(got[0]) == 0 {
					t.Fatalf("%d and %d vectors", len(got[0]), len(got[1]))
				}
				for k, want := range got[0] {
					most := 0.0
					for _, w := range want {
						most = max(most, math.Abs(float64(w)))
					}
					for i, w := range want {
						if g := got[1][k][i]; !(math.Abs(float64(g-w)) <= 2e-6*(1+most)) {
							t.Fatalf("vector %d, element %d of %d: %v, on the CPU %v", k, i, len(want), g, w)
						}
					}
				}
			})
		}
	}
}
