package gpu

import (
	"github.com/scaffe/scaffe/kernels/cuda"
)

// order has what is begun on then from now on wait for what has been begun on first.
func (d *Device) order(then, first *cuda.Stream) {
	if d.err == nil {
		d.fail(first.Record(d.turn))
	}
	if d.err == nil {
		d.fail(then.Wait(d.turn))
	}
}

// Beside calls f with the stream of updates, which is nobody else's meanwhile. What is begun there waits for nothing that the
// passes have begun but after Fork.
func (d *Device) Beside(f func(*cuda.Stream) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		d.fail(f(d.updates))
	}
	d.joins = true
}

// Fork has the updates that are begun from now on wait for what the passes have begun.
func (d *Device) Fork() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.order(d.updates, d.stream)
}

// Join has what the passes begin from now on wait for the updates that have been begun.
func (d *Device) Join() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.joins {
		d.order(d.stream, d.updates)
		d.joins = false
	}
}

// Passes returns an event that passes when all has been done that the passes have begun so far, and Updates one for the updates.
// last, unless nil, is one that they have returned before, whose point nobody asks for any more, and is used again. They
// are given back by Close.
func (d *Device) Passes(last *cuda.Event) (*cuda.Event, error) { return d.point(d.stream, last) }

// Updates is described with Passes.
func (d *Device) Updates(last *cuda.Event) (*cuda.Event, error) { return d.point(d.updates, last) }

func (d *Device) point(s *cuda.Stream, e *cuda.Event) (*cuda.Event, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e == nil {
		e = d.newEvent()
	}
	if d.err == nil {
		d.fail(s.Record(e))
	}
	return e, d.err
}

// newEvent returns an event that Close gives back, nil where the GPU has failed.
func (d *Device) newEvent() *cuda.Event {
	if d.err != nil {
		return nil
	}
	e, err := d.gpu.NewEvent()
	if err != nil {
		d.fail(err)
		return nil
	}
	d.events = append(d.events, e)
	return e
}
