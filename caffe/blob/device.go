package blob

import (
	"slices"

	"github.com/scaffe/scaffe/caffe/gpu"
	"github.com/scaffe/scaffe/mem"
)

// Place has the blob lie where it is used, in the host's memory or a GPU's, from now on: Data and Diff bring the host's
// side up to date, and take the GPU's for changed; OnData and OnDiff are the GPU's. Values and gradients
// that there are stay.
func (b *Blob) Place(d *gpu.Device) {
	if b.device == d {
		return
	}
	b.device = d
	for _, v := range []struct {
		from *mem.Buffer
		to   **gpu.Memory
	}{{&b.data, &b.onData}, {&b.diff, &b.onDiff}} {
		if v.from.Len() > 0 {
			copy(mem.Bytes(b.side(v.to).Host()), mem.Bytes(*v.from))
			*v.from = mem.Buffer{}
		}
	}
}

// PlaceIn is Place in memory that others have taken: data and diff of the host, pinned, into which the present contents are
// copied, and of the GPU.
func (b *Blob) PlaceIn(d *gpu.Device, data, diff, onData, onDiff mem.Buffer) {
	if b.device != nil {
		b.data, b.diff = mem.Of(slices.Clone(b.HostData())), mem.Of(slices.Clone(b.HostDiff()))
		b.device = nil
	}
	b.Bind(data, diff)
	b.device, b.data, b.diff = d, mem.Buffer{}, mem.Buffer{}
	b.onData, b.onDiff = d.Over(data, onData), d.Over(diff, onDiff)
}

// Device returns where the blob lies besides the host, nil for nowhere.
func (b *Blob) Device() *gpu.Device { return b.device }

// OnData returns the values as a vector of the device that Place was told of, with Count elements or more.
func (b *Blob) OnData() *gpu.Memory { return b.side(&b.onData) }

// OnDiff returns the gradients, likewise.
func (b *Blob) OnDiff() *gpu.Memory { return b.side(&b.onDiff) }

// side makes sure that there is a vector of Count elements.
func (b *Blob) side(m **gpu.Memory) *gpu.Memory {
	if need := mem.Float32.Bytes(b.count); *m == nil || (*m).Len() < need {
		*m = b.device.NewMemory(need)
	}
	return *m
}

// The values and gradients as the next kernel needs them: what it reads, what it writes whole, and what it changes.

func (b *Blob) ReadData() mem.Buffer   { return b.exactly(b.OnData().Read()) }
func (b *Blob) WriteData() mem.Buffer  { return b.exactly(b.OnData().Write()) }
func (b *Blob) ChangeData() mem.Buffer { return b.exactly(b.OnData().Change()) }
func (b *Blob) ReadDiff() mem.Buffer   { return b.exactly(b.OnDiff().Read()) }
func (b *Blob) WriteDiff() mem.Buffer  { return b.exactly(b.OnDiff().Write()) }
func (b *Blob) ChangeDiff() mem.Buffer { return b.exactly(b.OnDiff().Change()) }

// exactly returns Count elements of a buffer; of one that could not be had, none.
func (b *Blob) exactly(v mem.Buffer) mem.Buffer {
	return v.Slice(0, min(v.Len(), mem.Float32.Bytes(b.count)))
}

// HostData returns the values on the host, to read: wherever else they are current, they stay so.
func (b *Blob) HostData() []float32 {
	if b.device == nil {
		return b.Data()
	}
	return mem.Float32s(b.exactly(b.OnData().HostRead()))
}

// HostDiff returns the gradients, likewise.
func (b *Blob) HostDiff() []float32 {
	if b.device == nil {
		return b.Diff()
	}
	return mem.Float32s(b.exactly(b.OnDiff().HostRead()))
}

// ClearDiff sets the gradients to 0, where they are.
func (b *Blob) ClearDiff() {
	if b.device != nil {
		b.OnDiff().Clear()
		return
	}
	clear(b.Diff())
}
