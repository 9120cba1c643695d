package devicetest_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/kernels/device"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/devicetest"
)

// stream is a device that works as a GPU does: operations begin when they are
// asked for, are done some polls later, the last first, and then reported. The
// fields break it.
type stream struct {
	nbc.Device
	queue []operation

	twice    bool // an end is reported twice
	silent   bool // no end is reported
	wild     bool // a reduction writes one byte too many
	swapped  bool // min is max
	lenient  bool // errors are not said
	drainsNo bool // Drain forgets to wait
}

type operation struct {
	tok nbc.Token
	run func()
}

func (s *stream) Reduce(tok nbc.Token, dt mem.Datatype, op mem.Op, dst, a, b mem.Buffer) (bool, error) {
	if s.swapped && op == mem.Min {
		op = mem.Max
	}
	none := mem.Buffer{}
	if _, err := s.Device.Reduce(tok, dt, op, none, none, none); err != nil || dst.Len() != a.Len() || a.Len() != b.Len() || dst.Len()%dt.Size() != 0 ||
		dst.Space() != mem.Host || a.Space() != mem.Host || b.Space() != mem.Host || dst.Overlaps(a) && !dst.Same(a) || dst.Overlaps(b) && !dst.Same(b) {
		if s.lenient {
			return true, nil
		}
		return false, fmt.Errorf("refused: %v", err)
	}
	s.queue = append(s.queue, operation{tok, func() {
		_, _ = s.Device.Reduce(tok, dt, op, dst, a, b)
		if s.wild && dst.Len() > 0 {
			mem.Bytes(mem.At(dst.Pointer(), dst.Len()+1, mem.Host))[dst.Len()] = 0
		}
	}})
	return false, nil
}

func (s *stream) Poll(done []nbc.Completion) (int, error) {
	n := 0
	for n < len(done)-1 && len(s.queue) > 0 {
		last := s.queue[len(s.queue)-1]
		s.queue = s.queue[:len(s.queue)-1]
		last.run()
		if s.silent {
			continue
		}
		done[n] = nbc.Completion{Token: last.tok}
		n++
		if s.twice {
			done[n] = done[n-1]
			n++
		}
	}
	if len(done) == 1 && len(s.queue) > 0 { // nothing may be left where this is asked
		s.queue[0].run()
		done[0] = nbc.Completion{Token: s.queue[0].tok}
		return 1, nil
	}
	return n, nil
}

func (s *stream) Drain() {
	if s.drainsNo {
		return
	}
	s.queue = nil
}

func (s *stream) Migrate() bool { return true }

func newStream(t *testing.T) *stream {
	k, err := kernels.NewCPU()
	if err != nil {
		t.Fatal(err)
	}
	return &stream{Device: device.CPU(k)}
}

// TestADeviceThatEndsLater passes.
func TestADeviceThatEndsLater(t *testing.T) {
	d := newStream(t)
	for _, c := range devicetest.Cases() {
		if err := c.Run(devicetest.Subject{Device: d, Memory: devicetest.Host{}}); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
}

// TestBrokenDevicesAreRefused, each by the case that is for it.
func TestBrokenDevicesAreRefused(t *testing.T) {
	for _, b := range []struct {
		name, by string
		spoil    func(s *stream)
	}{
		{"ends twice", "many under way", func(s *stream) { s.twice = true }},
		{"never ends", "many under way", func(s *stream) { s.silent = true }},
		{"writes too much", "reduce", func(s *stream) { s.wild = true }},
		{"another operator", "reduce", func(s *stream) { s.swapped = true }},
		{"another operator", "special numbers", func(s *stream) { s.swapped = true }},
		{"no errors", "what cannot be done is refused", func(s *stream) { s.lenient = true }},
		{"does not drain", "drain", func(s *stream) { s.drainsNo = true }},
	} {
		t.Run(b.name, func(t *testing.T) {
			d := newStream(t)
			b.spoil(d)
			for _, c := range devicetest.Cases() {
				if c.Name != b.by {
					continue
				}
				synctest.Test(t, func(t *testing.T) {
					if err := c.Run(devicetest.Subject{Device: d, Memory: devicetest.Host{}}); err == nil {
						t.Errorf("passes %q", c.Name)
					} else {
						t.Log(err)
					}
				})
			}
		})
	}
}
