package omb

import (
	"context"
	"fmt"
	"time"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/schedule"
)

// The tests between two ranks. A round trip and a window of messages are
// schedules like any other; so scaffe's side of them is what a collective's
// messages cost: a request, the engine, the transport.

// pairComm is the communicator whose messages theirs are: one that no program
// here makes otherwise.
const pairComm = 1 << 63

func newPairSubject(name string, comm *collectives.Comm, m *mpiWorld) (subject, error) {
	switch name {
	case "scaffe":
		return &pairSubject{engine: comm.Engine()}, nil
	case spec.Library:
		return &mpiPairSubject{m}, nil
	}
	return nil, fmt.Errorf("want scaffe or %s", spec.Library)
}

// pairSubject is the transport below package collectives.
type pairSubject struct {
	engine   *nbc.Engine
	request  *nbc.Request
	instance uint32
}

func (s *pairSubject) label() string        { return "scaffe" }
func (s *pairSubject) ran(*testCase) string { return "scaffe" }

func (s *pairSubject) prepare(c *testCase) error {
	build := roundTrip
	if c.program.is(bandwidth) {
		build = window
	}
	plan, err := nbc.Compile(build(c.rank, c.count, c.opts.Window))
	if err != nil {
		return err
	}
	s.instance++
	s.request, err = s.engine.Prepare(plan, nbc.Binding{
		Name: fmt.Sprintf("%s of %d bytes", c.program.Name, c.bytes), In: c.send, Out: c.recv, Datatype: c.typ.Datatype,
		Comm: pairComm, Instance: s.instance, Deadline: c.opts.Deadline,
	})
	return err
}

func (s *pairSubject) release() {
	if s.request != nil {
		s.request.Close()
		s.request = nil
	}
}

func (s *pairSubject) run(ctx context.Context, c *testCase, _ int, _ *work, out []sample) error {
	for i := range out {
		start := time.Now()
		if err := s.request.Run(ctx); err != nil {
			return err
		}
		out[i].total = pairTime(c, time.Since(start))
	}
	return nil
}

// pairTime is what counts: rank 0's time, half of it for a message of a round
// trip.
func pairTime(c *testCase, d time.Duration) float64 {
	switch {
	case c.rank != 0:
		return 0
	case c.program.is(latency):
		return micros(d) / 2
	}
	return micros(d)
}

// roundTrip is a message to rank 1 and back.
func roundTrip(rank, count, _ int) *schedule.Schedule {
	whole := schedule.Range{Len: count}
	in, out := schedule.In.At(whole), schedule.Out.At(whole)
	s := &schedule.Schedule{Rank: rank, Size: 2, Count: count}
	if rank == 0 {
		s.Ops = []schedule.Op{{Kind: schedule.Send, Peer: 1, Src: in}, {Kind: schedule.Recv, Peer: 1, Dst: out}}
		return s
	}
	s.Ops = []schedule.Op{{Kind: schedule.Recv, Peer: 0, Dst: out}, {Kind: schedule.Send, Peer: 0, Src: out, Deps: []int{0}}}
	return s
}

// window is n messages to rank 1 and an element back. As in OMB all messages
// go to the same memory: none waits for the one before.
func window(rank, count, n int) *schedule.Schedule {
	whole, first := schedule.Range{Len: count}, schedule.Range{Len: 1}
	s := &schedule.Schedule{Rank: rank, Size: 2, Count: count}
	var arrived []int
	for i := range n {
		op := schedule.Op{Kind: schedule.Send, Peer: 1, Msg: i, Src: schedule.In.At(whole)}
		if rank == 1 {
			op = schedule.Op{Kind: schedule.Recv, Peer: 0, Msg: i, Dst: schedule.Out.At(whole)}
			arrived = append(arrived, i)
		}
		s.Ops = append(s.Ops, op)
	}
	answer := schedule.Op{Kind: schedule.Recv, Peer: 1, Dst: schedule.Out.At(first)}
	if rank == 1 {
		answer = schedule.Op{Kind: schedule.Send, Peer: 0, Src: schedule.Out.At(first), Deps: arrived}
	}
	s.Ops = append(s.Ops, answer)
	return s
}

// mpiPairSubject is the MPI library's own messages.
type mpiPairSubject struct{ m *mpiWorld }

func (s *mpiPairSubject) label() string           { return spec.Library }
func (s *mpiPairSubject) ran(*testCase) string    { return spec.Library }
func (s *mpiPairSubject) prepare(*testCase) error { return nil }
func (s *mpiPairSubject) release()                {}

func (s *mpiPairSubject) run(ctx context.Context, c *testCase, _ int, _ *work, out []sample) error {
	exchange := s.roundTrip
	if c.program.is(bandwidth) {
		exchange = s.window
	}
	return s.m.engine.Do(ctx, func() error {
		for i := range out {
			start := time.Now()
			if err := exchange(c); err != nil {
				return err
			}
			out[i].total = pairTime(c, time.Since(start))
		}
		return nil
	})
}

const (
	dataTag   = 100
	answerTag = 101
)

func (s *mpiPairSubject) send(b mem.Buffer, tag, peer int) error {
	return s.m.comm.Isend(s.m.reqs, 1, b.Pointer(), b.Len(), peer, tag)
}

func (s *mpiPairSubject) recv(b mem.Buffer, tag, peer int) error {
	return s.m.comm.Irecv(s.m.reqs, 2, b.Pointer(), b.Len(), peer, tag)
}

// roundTrip is a blocking send and a blocking receive, in the order of the
// rank.
func (s *mpiPairSubject) roundTrip(c *testCase) error {
	steps := []func() error{
		func() error { return s.send(c.send, dataTag, 1-c.rank) },
		func() error { return s.recv(c.recv, dataTag, 1-c.rank) },
	}
	if c.rank == 1 {
		steps[0], steps[1] = steps[1], func() error { return s.send(c.recv, dataTag, 0) }
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
		if err := s.m.finish(1); err != nil {
			return err
		}
	}
	return nil
}

func (s *mpiPairSubject) window(c *testCase) error {
	for range c.opts.Window {
		var err error
		if c.rank == 0 {
			err = s.send(c.send, dataTag, 1)
		} else {
			err = s.recv(c.recv, dataTag, 0)
		}
		if err != nil {
			return err
		}
	}
	if err := s.m.finish(c.opts.Window); err != nil {
		return err
	}
	first := c.recv.Slice(0, 1)
	if c.rank == 1 {
		if err := s.send(first, answerTag, 0); err != nil {
			return err
		}
	} else if err := s.recv(first, answerTag, 1); err != nil {
		return err
	}
	return s.m.finish(1)
}
