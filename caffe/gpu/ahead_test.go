//go:build cuda && cgo && linux && (amd64 || arm64)

package gpu_test

import (
	"testing"
	"time"

	"github.com/scaffe/scaffe/caffe/gpu"
	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/kernels/cuda/cudatest"
	"github.com/scaffe/scaffe/mem"
)

// A batch comes to the GPU while it still reads the one before, and is not written over while it is read, however long that takes;
// without that wait the test finds another one.
func TestAhead(t *testing.T) {
	for _, early := range []bool{false, true} {
		const n = 1000
		d := open(t)
		x, spare := d.NewMemory(4*n), d.NewMemory(4*n)
		fill := func(batch int) {
			for i, v := 0, mem.Float32s(x.Host()); i < n; i++ {
				v[i] = float32(batch*n + i)
			}
		}
		var sums []*gpu.Memory
		pass := func() {
			y := d.NewMemory(4 * n)
			d.Launch(cuda.Scaled, n, []mem.Buffer{y.Write(), x.Read()}, cuda.Number(2), 0)
			sums = append(sums, y)
		}
		fill(0)
		x.Read()
		await(t, x)
		cudatest.Change(t, library, "hold=scaled", "hold=none")
		pass() // which does not end
		x.Turn(spare)
		fill(1)
		x.Ahead()
		await(t, x) // beside it
		pass()
		x.Turn(spare) // batch 0 is still read
		if early {
			x.Forget()
		}
		fill(2)
		x.Ahead()
		pass()
		time.Sleep(20 * time.Millisecond)
		if err := cudatest.Tell(library, "hold=none"); err != nil {
			t.Fatal(err)
		}
		wrong := false
		for batch, y := range sums {
			for i, v := range mem.Float32s(y.HostRead()) {
				wrong = wrong || v != 2*float32(batch*n+i)
			}
		}
		if wrong != early || d.Err() != nil {
			t.Errorf("not waiting for who reads a batch: %v, a batch is another one: %v, %v", early, wrong, d.Err())
		}
	}
}

// await waits until nothing is on its way to or from the host's side of m.
func await(t *testing.T, m *gpu.Memory) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !m.Fetched(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a copy does not end")
		}
	}
}
