package gpu

import "github.com/scaffe/scaffe/kernels/cuda"

// Turn exchanges what m and spare hold, which are equally long: for a batch that is brought to the GPU while it still reads the one
// before. What m has held stays as it is until all that the passes have begun so far has been done: nobody writes there before
// (Ahead).
func (m *Memory) Turn(spare *Memory) {
	d := m.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if m.used == nil {
		m.used = d.newEvent()
	}
	if d.err == nil {
		d.fail(d.stream.Record(m.used))
	}
	m.side, spare.side = spare.side, m.side
}

// Ahead begins to bring the GPU's side up to date, beside the passes: it waits for those alone that have used this memory, and what
// they begin from now on waits for it. The host's side must not change before.
func (m *Memory) Ahead() {
	d := m.d
	d.mu.Lock()
	defer d.mu.Unlock()
	m.upload(d.stream, func(up *cuda.Stream) error {
		if m.used == nil { // nobody has
			return nil
		}
		return up.Wait(m.used)
	})
}
