package omb

import (
	"context"
	"fmt"
	"time"

	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/mem"
)

// localSubject is one path of package kernels.
type localSubject struct {
	name string
	cpu  *kernels.CPU
}

func newLocalSubject(name string, m *mpiWorld) (subject, error) {
	if name == spec.Library {
		return &mpiLocalSubject{m}, nil
	}
	open := kernels.NewCPU
	if name != "best" {
		open = func() (*kernels.CPU, error) { return kernels.NewCPUPath(name) }
	}
	cpu, err := open()
	if err != nil {
		return nil, fmt.Errorf("want best, %s, or a path of the kernels: %w", spec.Library, err)
	}
	return &localSubject{name, cpu}, nil
}

func (s *localSubject) label() string           { return s.name }
func (s *localSubject) ran(*testCase) string    { return s.cpu.Name() }
func (s *localSubject) prepare(*testCase) error { return nil }
func (s *localSubject) release()                {}

func (s *localSubject) run(_ context.Context, c *testCase, _ int, _ *work, out []sample) error {
	for i := range out {
		start := time.Now()
		if err := s.cpu.Reduce(c.typ.Datatype, mem.Sum, c.recv, c.send, c.recv); err != nil {
			return err
		}
		out[i].total = micros(time.Since(start))
	}
	return nil
}

// mpiLocalSubject is MPI_Reduce_local.
type mpiLocalSubject struct{ m *mpiWorld }

func (s *mpiLocalSubject) label() string           { return spec.Library }
func (s *mpiLocalSubject) ran(*testCase) string    { return "MPI_Reduce_local" }
func (s *mpiLocalSubject) prepare(*testCase) error { return nil }
func (s *mpiLocalSubject) release()                {}

func (s *mpiLocalSubject) run(ctx context.Context, c *testCase, _ int, _ *work, out []sample) error {
	return s.m.engine.Do(ctx, func() error {
		for i := range out {
			start := time.Now()
			if err := s.m.comm.ReduceLocal(c.send.Pointer(), c.recv.Pointer(), c.count, c.typ.Datatype, mem.Sum); err != nil {
				return err
			}
			out[i].total = micros(time.Since(start))
		}
		return nil
	})
}
