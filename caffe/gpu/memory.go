package gpu

import (
	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/trace"
)

// Memory is a vector that knows where it is current. New ones are zeros.
type Memory struct {
	d     *Device
	bytes int
	side
}

// side is what a vector holds.
type side struct {
	host, device     mem.Buffer // each made when it is first asked for
	onHost, onDevice bool       // where it is current; neither: zeros
	copied           *cuda.Event
	copying          bool        // the GPU may still be at the host's side: copied tells
	reading          bool        // and reads its own for that: a kernel that writes there waits
	used             *cuda.Event // by the passes before Turn
}

// NewMemory returns a vector of so many bytes.
func (d *Device) NewMemory(bytes int) *Memory { return &Memory{d: d, bytes: bytes} }

// Over returns a vector over memory that others have taken, current on the host. host is pinned (AllocHost).
func (d *Device) Over(host, device mem.Buffer) *Memory {
	return &Memory{d: d, bytes: host.Len(), side: side{host: host, device: device, onHost: true}}
}

// Len returns the length in bytes.
func (m *Memory) Len() int { return m.bytes }

// OnHost reports whether the host's side is current, and HostRead does not wait.
func (m *Memory) OnHost() bool {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	return m.onHost
}

// Read returns the GPU's side, current.
func (m *Memory) Read() mem.Buffer {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	return m.read(m.d.stream)
}

// Write returns the GPU's side, which the next kernel overwrites.
func (m *Memory) Write() mem.Buffer {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	m.make()
	m.spare(m.d.stream)
	m.onDevice, m.onHost = true, false
	return m.device
}

// Change returns the GPU's side, current, of which the next kernel changes some.
func (m *Memory) Change() mem.Buffer {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	b := m.read(m.d.stream)
	m.spare(m.d.stream)
	m.onHost = false
	return b
}

// Beside returns the GPU's side, current, for the stream of updates (Device.Beside), which is to change it: nothing that the
// passes have begun touches it any more, nor before Device.Join.
func (m *Memory) Beside() mem.Buffer {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	b := m.read(m.d.updates)
	m.spare(m.d.updates)
	m.onHost = false
	return b
}

// DeviceChanged says that others have written the GPU's side, which is the current one now.
func (m *Memory) DeviceChanged() {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	m.make()
	m.onDevice, m.onHost = true, false
}

// Host returns the host's side, current, to read and to change: the GPU's is not any more.
func (m *Memory) Host() mem.Buffer {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	b := m.fetch(true)
	m.onHost, m.onDevice = true, false
	return b
}

// HostRead returns the host's side, current, to read.
func (m *Memory) HostRead() mem.Buffer {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	return m.fetch(false)
}

// Clear sets the vector to zeros, on the GPU.
func (m *Memory) Clear() {
	b := m.Write()
	m.d.Launch(cuda.Fill, b.Len()/4, []mem.Buffer{b}, cuda.Number(0))
}

// Prefetch begins to bring the host's side up to date. Nobody waits; Fetch and HostRead do later.
func (m *Memory) Prefetch() {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	m.beginDown()
}

// Fetched reports whether nothing is on its way to the host's side or from it any more, so that HostRead does not wait.
func (m *Memory) Fetched() bool {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	if m.copying && m.d.err == nil {
		passed, err := m.copied.Passed()
		if err != nil {
			m.d.fail(err)
		}
		m.copying = !passed
	}
	return !m.copying || m.d.err != nil
}

// HostChanged says that others have written the host's side, which is the current one now.
func (m *Memory) HostChanged() {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	m.onHost, m.onDevice = true, false
}

// Upload begins to copy n bytes of the host's side to the GPU's, from an offset on, which is the current one then. Others
// have written them, and leave them alone until the GPU has come to what is begun next.
func (m *Memory) Upload(at, n int) {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	m.make()
	if d := m.d; d.err == nil && n > 0 {
		d.fail(d.stream.Copy(m.device.Slice(at, n), m.host.Slice(at, n)))
		d.counts.Up += int64(n)
	}
	m.onDevice, m.onHost = true, false
}

// Unchanged says that what Host has returned was only read: where the GPU's side was current, as before tells, it still is.
func (m *Memory) Unchanged(before bool) {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	m.onDevice = m.onDevice || before && m.onHost
}

// OnDevice reports whether the GPU's side is current.
func (m *Memory) OnDevice() bool {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	return m.onDevice
}

func (m *Memory) make() {
	if m.device.Len() < m.bytes {
		m.device = m.d.alloc(m.bytes)
	}
}

// read returns the GPU's side, current for what is begun on a stream next.
func (m *Memory) read(s *cuda.Stream) mem.Buffer {
	d := m.d
	if !m.onDevice && m.onHost {
		m.upload(s, func(up *cuda.Stream) error { // kernels may still read what was there
			d.order(up, s)
			return nil
		})
		return m.device
	}
	m.make()
	if !m.onDevice && d.err == nil && m.bytes > 0 {
		d.fail(s.Launch(cuda.Fill, m.bytes/4, []mem.Buffer{m.device}, cuda.Number(0)))
	}
	m.onDevice = true
	return m.device
}

// upload begins to copy the host's side to the GPU's, after what first has the stream wait for: s waits for it.
func (m *Memory) upload(s *cuda.Stream, first func(up *cuda.Stream) error) {
	m.make()
	d := m.d
	m.onDevice = true
	if d.err != nil || m.bytes == 0 {
		return
	}
	d.fail(first(d.up))
	m.spare(d.up)
	begin := d.stamp(d.up)
	if d.err == nil {
		d.fail(d.up.Copy(m.device, m.host))
	}
	d.copied(d.up, begin, trace.CopyUp, m.bytes)
	m.begun(d.up)
	m.reading = false
	if d.err == nil {
		d.fail(s.Wait(m.copied))
	}
	d.counts.Up += int64(m.bytes)
}

// spare has what is begun on a stream next, which writes the GPU's side, spare a copy of that to the host.
func (m *Memory) spare(s *cuda.Stream) {
	if m.reading && m.copying && m.d.err == nil {
		m.d.fail(s.Wait(m.copied))
	}
}

// begun remembers that the GPU copies to or from the host's side, on a stream.
func (m *Memory) begun(s *cuda.Stream) {
	d := m.d
	if m.copied == nil {
		m.copied = d.newEvent()
	}
	if d.err == nil {
		d.fail(s.Record(m.copied))
		m.copying = true
	}
}

// beginDown begins to copy to the host's side, where that is not current, and reports whether somebody has to wait.
func (m *Memory) beginDown() bool {
	if m.onHost || !m.onDevice {
		return false
	}
	m.makeHost()
	d := m.d
	if m.bytes > 0 {
		d.order(d.down, d.stream)
		if m.copying && d.err == nil { // to or from the same place
			d.fail(d.down.Wait(m.copied))
		}
		begin := d.stamp(d.down)
		if d.err == nil {
			d.fail(d.down.Copy(m.host, m.device))
		}
		d.copied(d.down, begin, trace.CopyDown, m.bytes)
		m.begun(d.down)
		m.reading = true
		d.counts.Down += int64(m.bytes)
	}
	m.onHost = true
	return true
}

func (m *Memory) makeHost() {
	if m.host.Len() < m.bytes {
		m.host = m.d.allocHost(m.bytes)
	}
}

// fetch returns the host's side, current: to write there when the GPU is done with it, to read when it no longer writes there.
func (m *Memory) fetch(writes bool) mem.Buffer {
	m.makeHost()
	if !m.onHost && !m.onDevice {
		clear(mem.Bytes(m.host)) // zeros
		m.onHost = true
	}
	m.beginDown()
	if m.copying && (writes || m.reading) {
		m.d.wait(m.copied, &m.d.counts.Waits)
		m.copying = false
	}
	return m.host
}
