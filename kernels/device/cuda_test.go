//go:build cuda && cgo && linux && (amd64 || arm64)

package device_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/kernels/cuda/cudatest"
	"github.com/scaffe/scaffe/kernels/device"
	"github.com/scaffe/scaffe/kernels/kernelstest"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/devicetest"
)

// library is the stand-in for the driver that the tests of this file load.
var library string

func TestMain(m *testing.M) { os.Exit(cudatest.Main(m, &library, usual)) }

const usual = "delay=20 seed=1 fail=none broken=0"

// tell changes what the stand-in is like, until the test ends.
func tell(t *testing.T, text string) {
	t.Helper()
	cudatest.Change(t, library, text, usual)
}

// delays is tell where a GPU has delays of its own, and is told nothing.
func delays(t *testing.T, text string) {
	t.Helper()
	if !cudatest.Hardware() {
		tell(t, text)
	}
}

// memory is that of a GPU.
type memory struct {
	t *testing.T
	d *cuda.Device
	s *cuda.Stream
}

func (m memory) Alloc(n int) (mem.Buffer, error) { return m.d.Alloc(n) }

func (m memory) Free(b mem.Buffer) {
	if err := m.d.Free(b); err != nil {
		m.t.Error(err)
	}
}

func (m memory) Write(b mem.Buffer, src []byte) error {
	host := mem.Alloc(len(src))
	defer host.Free()
	copy(mem.Bytes(host), src)
	return errors.Join(m.s.Copy(b, host), m.s.Synchronize(time.Minute))
}

func (m memory) Read(dst []byte, b mem.Buffer) error {
	host := mem.Alloc(len(dst))
	defer host.Free()
	err := errors.Join(m.s.Copy(host, b), m.s.Synchronize(time.Minute))
	copy(dst, mem.Bytes(host))
	return err
}

// open returns a GPU of the stand-in as a device.
func open(t *testing.T) (nbc.Device, memory) {
	t.Helper()
	k, err := kernels.NewCPU()
	if err != nil {
		t.Fatal(err)
	}
	g, err := cuda.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	s, err := g.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	d, err := device.CUDA(g, device.CPU(k))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(d.Close(), s.Close(), g.Close()); err != nil {
			t.Error(err)
		}
	})
	return d, memory{t, g, s}
}

// anyThread has the suite try other threads.
type anyThread struct{ nbc.Device }

func (anyThread) Migrate() bool { return true }

// One device passes the suite on a GPU's memory and on the host's, whatever the delays.
func TestCUDAConformance(t *testing.T) {
	d, m := open(t)
	for _, seed := range []int{1, 2} {
		delays(t, fmt.Sprintf("delay=30 seed=%d", seed))
		for _, c := range devicetest.Cases() {
			t.Run(fmt.Sprintf("%s, seed %d", c.Name, seed), func(t *testing.T) {
				if err := c.Run(devicetest.Subject{Device: anyThread{d}, Memory: m, Both: true}); err != nil {
					t.Error(err)
				}
			})
		}
	}
	for _, c := range devicetest.Cases() {
		if err := c.Run(devicetest.Subject{Device: d, Memory: devicetest.Host{}, Both: true}); err != nil {
			t.Errorf("%s, in host memory: %v", c.Name, err)
		}
	}
}

// hasty says that everything has been done when it has only begun.
type hasty struct{ nbc.Device }

func (h hasty) Reduce(tok nbc.Token, dt mem.Datatype, op mem.Op, dst, a, b mem.Buffer) (bool, error) {
	_, err := h.Device.Reduce(tok, dt, op, dst, a, b)
	return err == nil, err
}

func (h hasty) Poll([]nbc.Completion) (int, error) { return 0, nil }

// forgetful does not wait in Drain.
type forgetful struct{ nbc.Device }

func (forgetful) Drain() {}

// kept is memory that is not given back, so that the device does not fail when it writes there.
type kept struct{ memory }

func (kept) Free(mem.Buffer) {}

// The stand-in shows which waits are missing.
func TestMissingWaitsAreSeen(t *testing.T) {
	for _, c := range []struct {
		by     string
		spoilt func(d nbc.Device) nbc.Device
	}{
		{"reduce", func(d nbc.Device) nbc.Device { return hasty{d} }},
		{"drain", func(d nbc.Device) nbc.Device { return forgetful{d} }},
	} {
		d, m := open(t)
		tell(t, "delay=300")
		for _, k := range devicetest.Cases() {
			if k.Name != c.by {
				continue
			}
			if err := k.Run(devicetest.Subject{Device: c.spoilt(d), Memory: kept{m}, Both: true}); err == nil {
				t.Errorf("passes %q", c.by)
			} else {
				t.Log(err)
			}
		}
		d.Drain()
	}
}

// wait polls until so many operations have ended.
func wait(t *testing.T, d nbc.Device, n int) {
	t.Helper()
	var done [4]nbc.Completion
	for end := time.Now().Add(time.Minute); n > 0; {
		k, err := d.Poll(done[:])
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range done[:k] {
			if c.Err != nil {
				t.Fatal(c.Err)
			}
		}
		if n -= k; time.Now().After(end) {
			t.Fatal("not within a minute")
		}
	}
}

// Copies go between the two memories, up and down at once.
func TestCUDACopiesBetweenMemories(t *testing.T) {
	d, m := open(t)
	r := rand.New(rand.NewPCG(4, 1))
	for _, n := range []int{0, 1, 1000, 70000} {
		var device [2]mem.Buffer
		data := make([]byte, 2*n)
		kernelstest.Fill(r, mem.Uint8, data)
		host, back := mem.Alloc(n), mem.Alloc(n)
		copy(mem.Bytes(host), data[:n])
		for i := range device {
			var err error
			if device[i], err = m.Alloc(n); err != nil {
				t.Fatal(err)
			}
		}
		if n > 0 {
			if err := m.Write(device[1], data[n:]); err != nil {
				t.Fatal(err)
			}
		}
		up, errUp := d.Copy(1, device[0], host)
		down, errDown := d.Copy(2, back, device[1])
		if err := errors.Join(errUp, errDown); err != nil || up != (n == 0) || down != (n == 0) {
			t.Fatalf("%d bytes: %v, done %v and %v", n, err, up, down)
		}
		if n > 0 {
			wait(t, d, 2)
			got := make([]byte, n)
			if err := m.Read(got, device[0]); err != nil || !bytes.Equal(got, data[:n]) || !bytes.Equal(mem.Bytes(back), data[n:]) {
				t.Errorf("%d bytes: %v, or what was copied is not what there was", n, err)
			}
		}
		for _, b := range []mem.Buffer{host, back} {
			b.Free()
		}
		for _, b := range device {
			m.Free(b)
		}
	}
	b, err := m.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free(b)
	if _, err := d.Copy(3, b, mem.Of(make([]byte, 64))); err == nil || !strings.Contains(err.Error(), "Go heap") {
		t.Errorf("from the Go heap: %v", err)
	}
}

// Several buffers are added in their order, as one after the other would be.
func TestCUDAReducesSeveral(t *testing.T) {
	d, m := open(t)
	const n = 4 * 1000
	r := rand.New(rand.NewPCG(5, 1))
	for count := 2; count <= 11; count++ {
		want := make([]byte, n)
		var from []mem.Buffer
		for i := range count {
			b, err := m.Alloc(n)
			if err != nil {
				t.Fatal(err)
			}
			data := make([]byte, n)
			kernelstest.Fill(r, mem.Float32, data)
			if err := m.Write(b, data); err != nil {
				t.Fatal(err)
			}
			if from = append(from, b); i == 0 {
				copy(want, data)
			} else {
				kernelstest.Reduce(mem.Float32, mem.Sum, want, want, data)
			}
		}
		dst := from[count%2]
		if done, err := d.(nbc.Folder).ReduceAll(7, mem.Float32, mem.Sum, dst, from); done || err != nil {
			t.Fatalf("%d buffers: done %v, %v", count, done, err)
		}
		wait(t, d, 1)
		got := make([]byte, n)
		if err := m.Read(got, dst); err != nil || !bytes.Equal(got, want) {
			t.Errorf("the sum of %d buffers has other bits than one after the other, or %v", count, err)
		}
		if count > 2 {
			if _, err := d.(nbc.Folder).ReduceAll(7, mem.Float32, mem.Sum, from[2], from); err == nil {
				t.Errorf("%d buffers: the third is overwritten before it is read", count)
			}
		}
		for _, b := range from {
			m.Free(b)
		}
	}
	host := mem.Alloc(n)
	defer host.Free()
	for _, from := range [][]mem.Buffer{nil, {host}, {host, mem.At(host.Pointer(), n, mem.CUDA)}} {
		if _, err := d.(nbc.Folder).ReduceAll(7, mem.Float32, mem.Sum, host, from); err == nil {
			t.Errorf("%d buffers are accepted", len(from))
		}
	}
}

// A GPU that fails under way says so to whoever looks, and Drain returns.
func TestCUDAFailsUnderWay(t *testing.T) {
	d, m := open(t)
	b, err := m.Alloc(256)
	if err != nil {
		t.Fatal(err)
	}
	tell(t, "delay=300")
	outside := mem.At(b.Pointer(), 512, mem.CUDA)
	_, err = d.Reduce(1, mem.Int64, mem.Sum, outside, outside, outside) // may see it already
	var done [1]nbc.Completion
	for end := time.Now().Add(time.Minute); err == nil && time.Now().Before(end); {
		var n int
		if n, err = d.Poll(done[:]); n > 0 {
			t.Fatal("the addition outside of the buffer is reported as done")
		}
	}
	if err == nil || !strings.Contains(err.Error(), "an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS, 700)") || !strings.Contains(err.Error(), "cuda:0 (stand-in 0)") {
		t.Errorf("error %v", err)
	}
	if _, err := d.Reduce(2, mem.Int64, mem.Sum, b, b, b); err == nil {
		t.Error("a GPU that has failed takes more")
	}
	d.Drain()
	tell(t, usual)
	m.Free(b)
}

// Nothing is allocated where operations go on and on.
func TestCUDAAllocatesNothing(t *testing.T) {
	d, m := open(t)
	b, err := m.Alloc(256)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free(b)
	delays(t, "delay=0")
	var done [4]nbc.Completion
	if n := testing.AllocsPerRun(100, func() {
		if _, err := d.Reduce(1, mem.Float32, mem.Sum, b, b, b); err != nil {
			t.Fatal(err)
		}
		for n := 0; n == 0; {
			if n, err = d.Poll(done[:]); err != nil {
				t.Fatal(err)
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations for an addition", n)
	}
}
