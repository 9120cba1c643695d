//go:build cuda && cgo && linux && (amd64 || arm64)

package gpu_test

import (
	"os"
	"slices"
	"testing"

	"github.com/scaffe/scaffe/caffe/gpu"
	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/kernels/cuda/cudatest"
	"github.com/scaffe/scaffe/mem"
)

// library is the driver's stand-in, which begins what it is given after a random delay.
var library string

func TestMain(m *testing.M) { os.Exit(cudatest.Main(m, &library, "delay=5")) }

func open(t *testing.T) *gpu.Device {
	t.Helper()
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

// A vector is copied where it is not current, and nowhere else; the host waits for what the GPU has written.
func TestMemory(t *testing.T) {
	const n = 1000
	d := open(t)
	x, y := d.NewMemory(4*n), d.NewMemory(4*n)
	in := mem.Float32s(x.Host())
	for i := range in {
		in[i] = float32(i)
	}
	twice := func() { d.Launch(cuda.Scaled, n, []mem.Buffer{y.Write(), x.Read()}, cuda.Number(2), 0) }
	check := func(what string, factor float32, want gpu.Counts) {
		t.Helper()
		for i, v := range mem.Float32s(y.HostRead()) {
			if v != factor*float32(i) {
				t.Fatalf("%s: element %d is %g", what, i, v)
			}
		}
		got := d.Counts()
		if got.Waits > want.Waits {
			t.Errorf("%s: the host has waited %d times, not %d", what, got.Waits, want.Waits)
		}
		if got.Waits = want.Waits; got != want {
			t.Errorf("%s: %+v, not %+v", what, got, want)
		}
	}
	twice()
	check("computed", 2, gpu.Counts{Up: 4 * n, Down: 4 * n, Waits: 1})
	check("read again", 2, gpu.Counts{Up: 4 * n, Down: 4 * n, Waits: 1})
	twice()
	check("of what is there", 2, gpu.Counts{Up: 4 * n, Down: 8 * n, Waits: 2})
	before := x.OnDevice()
	_ = x.Host()
	x.Unchanged(before)
	twice()
	check("read on the host", 2, gpu.Counts{Up: 4 * n, Down: 12 * n, Waits: 3})
	for i, v := range mem.Float32s(x.Host()) {
		mem.Float32s(x.Host())[i] = 2 * v
	}
	twice()
	check("changed on the host", 4, gpu.Counts{Up: 8 * n, Down: 16 * n, Waits: 4})
	y.Clear()
	check("cleared", 0, gpu.Counts{Up: 8 * n, Down: 20 * n, Waits: 5})
	if zeros := mem.Float32s(d.NewMemory(4 * n).HostRead()); slices.ContainsFunc(zeros, func(v float32) bool { return v != 0 }) {
		t.Error("a new vector is not of zeros")
	}
	if err := d.Err(); err != nil {
		t.Error(err)
	}
}

// Fetch waits once, whatever it is asked for.
func TestFetch(t *testing.T) {
	const n = 300
	d := open(t)
	var all []*gpu.Memory
	for i := range 5 {
		m := d.NewMemory(4 * n)
		d.Launch(cuda.Fill, n, []mem.Buffer{m.Write()}, cuda.Number(float64(i+1)))
		all = append(all, m)
	}
	d.Fetch(all...)
	for i, m := range all {
		if v := mem.Float32s(m.HostRead()); v[0] != float32(i+1) || v[n-1] != float32(i+1) {
			t.Errorf("vector %d: %g and %g", i, v[0], v[n-1])
		}
	}
	if c := d.Counts(); c.Waits > 1 || c.Fetches > 0 || c.Down != 5*4*n {
		t.Errorf("%+v", c)
	}
}

// The first error stays, and vectors can be asked for all the same.
func TestErrorStays(t *testing.T) {
	d := open(t)
	m := d.NewMemory(400)
	d.Launch(cuda.Scaled, 100, []mem.Buffer{m.Write()}, cuda.Number(2), 0) // its source is missing
	first := d.Err()
	if first == nil {
		t.Fatal("a launch without all of its buffers is no error")
	}
	d.Launch(cuda.Fill, 100, []mem.Buffer{m.Write()}, cuda.Number(1))
	if b := m.Host(); b.Len() != 400 || d.Err() != first {
		t.Errorf("%d bytes, %v", b.Len(), d.Err())
	}
}
