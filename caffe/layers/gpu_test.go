//go:build cuda && cgo && linux && (amd64 || arm64)

package layers

import (
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"github.com/scaffe/scaffe/caffe/blob"
	"github.com/scaffe/scaffe/caffe/gpu"
	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/kernels/cuda/cudatest"
)

// standIn is the file of the driver's stand-in, which has been loaded.
var standIn = sync.OnceValues(func() (library string, err error) {
	if library, err = cudatest.Build(); err != nil {
		return "", err
	}
	return library, errors.Join(os.Setenv(cudatest.Env, "delay=5"), cudatest.Load(library))
})

// What names NVIDIA's libraries where there is hardware.
var givenBLAS, givenDNN = os.Getenv(cuda.EnvBLAS), os.Getenv(cuda.EnvDNN)

// with is which of NVIDIA's libraries there are.
type with struct {
	name      string
	blas, dnn bool
	math      cuda.Math
}

// openGPU opens the stand-in, with its libraries or without.
func openGPU(t *testing.T, w with) *gpu.Device {
	t.Helper()
	library, err := standIn()
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []struct {
		env, given string
		is         bool
		find       func() (cuda.Library, error)
	}{{cuda.EnvBLAS, givenBLAS, w.blas, cuda.FindBLAS}, {cuda.EnvDNN, givenDNN, w.dnn, cuda.FindDNN}} {
		switch {
		case !of.is:
			t.Setenv(of.env, cuda.NoLibrary)
		case !cudatest.Hardware():
			t.Setenv(of.env, library)
		default:
			t.Setenv(of.env, of.given)
			if _, err := of.find(); errors.Is(err, cuda.ErrNoLibrary) {
				t.Skip(err)
			}
		}
	}
	d, err := gpu.Open(0)
	if err == nil {
		t.Cleanup(func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
		err = d.UseLibraries(w.math)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Every gradient case of a layer that a GPU computes gives there what it gives on the CPU: tops, and the gradients of
// bottoms and parameters, twice; those with products and convolutions with cuBLAS, with cuDNN, and with both, too.
func TestGPUComputesWhatTheCPUDoes(t *testing.T) {
	for _, typ := range Types() {
		ways := []with{{name: "alone"}}
		if typ == "Convolution" || typ == "InnerProduct" {
			ways = append(ways, with{name: "cuBLAS", blas: true}, with{name: "cuDNN", dnn: true}, with{name: "both", blas: true, dnn: true})
		}
		for _, c := range gradientCases[typ] {
			for _, w := range ways {
				t.Run(typ+"/"+c.name+"/"+w.name, func(t *testing.T) {
					want, _ := computed(t, typ, c, nil)
					got, err := computed(t, typ, c, func() *gpu.Device { return openGPU(t, w) })
					if err != nil {
						t.Fatal(err)
					}
					if len(want) != len(got) || len(got) == 0 {
						t.Fatalf("%d and %d vectors", len(want), len(got))
					}
					for k, want := range want {
						most := 0.0
						for _, w := range want {
							most = max(most, math.Abs(float64(w)))
						}
						for i, w := range want {
							if g := got[k][i]; !(math.Abs(float64(g-w)) <= 2e-6*(1+most)) {
								t.Fatalf("vector %d, element %d of %d: %v, on the CPU %v", k, i, len(want), g, w)
							}
						}
					}
				})
			}
		}
	}
}

// computed is what a case computes in two iterations, on the CPU or on a GPU, and how the GPU has failed.
func computed(t *testing.T, typ string, c gradientCase, open func() *gpu.Device) (got [][]float32, failed error) {
	t.Helper()
	l, bottom, top, reseed := c.make(t, typ)
	on, ok := l.(OnGPU)
	if !ok || !on.FitsGPU(bottom, top) {
		t.Skip("computed by the CPU")
	}
	var d *gpu.Device
	if open != nil {
		d = open()
		for _, bs := range [][]*blob.Blob{bottom, top, l.Params()} {
			for _, b := range bs {
				b.Place(d)
			}
		}
	}
	propagate := takeGradient(l, bottom)
	r := rand.New(rand.NewPCG(7, 13))
	keep := func(x []float32) { got = append(got, append([]float32(nil), x...)) }
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
			return got, nil
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
	if d != nil {
		failed = d.Err()
	}
	return got, failed
}
