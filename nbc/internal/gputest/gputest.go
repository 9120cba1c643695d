// Package gputest is a GPU's memory as tests of transports want it.
package gputest

import (
	"errors"
	"testing"
	"time"

	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/kernels/device"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
)

// Memory is that of a GPU, for one rank (transporttest.Memory), which keeps what it has for the next who asks: the
// driver's stand-in never gives an address out again.
type Memory struct {
	Device *cuda.Device
	stream *cuda.Stream
	spare  map[int][]mem.Buffer
	whole  map[mem.Buffer]mem.Buffer
}

// New opens a GPU by its number.
func New(gpu int) (*Memory, error) {
	d, err := cuda.Open(gpu)
	if err != nil {
		return nil, err
	}
	s, err := d.NewStream()
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return &Memory{d, s, map[int][]mem.Buffer{}, map[mem.Buffer]mem.Buffer{}}, nil
}

// Open is New until the test ends.
func Open(t *testing.T, gpu int) *Memory {
	t.Helper()
	m, err := New(gpu)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// Accelerator returns the GPU as an engine's device.
func (m *Memory) Accelerator() (nbc.Accelerator, error) {
	k, err := kernels.NewCPU()
	if err != nil {
		return nil, err
	}
	return device.CUDA(m.Device, device.CPU(k))
}

// Alloc returns n bytes, with others after them.
func (m *Memory) Alloc(n int) (mem.Buffer, error) {
	size := 256
	for size < n {
		size *= 2
	}
	var b mem.Buffer
	if last := len(m.spare[size]) - 1; last >= 0 {
		b, m.spare[size] = m.spare[size][last], m.spare[size][:last]
	} else {
		var err error
		if b, err = m.Device.Alloc(size); err != nil {
			return b, err
		}
	}
	m.whole[b.Slice(0, n)] = b
	return b.Slice(0, n), nil
}

// Free keeps them for the next.
func (m *Memory) Free(b mem.Buffer) {
	whole := m.whole[b]
	delete(m.whole, b)
	m.spare[whole.Len()] = append(m.spare[whole.Len()], whole)
}

// FreeAll gives everything back to the GPU.
func (m *Memory) FreeAll() error {
	var err error
	for _, b := range m.whole {
		err = errors.Join(err, m.Device.Free(b))
	}
	for _, all := range m.spare {
		for _, b := range all {
			err = errors.Join(err, m.Device.Free(b))
		}
	}
	clear(m.whole)
	clear(m.spare)
	return err
}

// Close gives everything back, and the GPU.
func (m *Memory) Close() error {
	return errors.Join(m.stream.Close(), m.FreeAll(), m.Device.Close())
}

// Write makes b hold src.
func (m *Memory) Write(b mem.Buffer, src []byte) error {
	host := mem.Alloc(len(src))
	defer host.Free()
	copy(mem.Bytes(host), src)
	return errors.Join(m.stream.Copy(b, host), m.stream.Synchronize(time.Minute))
}

// Read makes dst hold what b does.
func (m *Memory) Read(dst []byte, b mem.Buffer) error {
	host := mem.Alloc(len(dst))
	defer host.Free()
	err := errors.Join(m.stream.Copy(host, b), m.stream.Synchronize(time.Minute))
	copy(dst, mem.Bytes(host))
	return err
}
