package main

import (
	"fmt"

	"github.com/scaffe/scaffe/caffe/net"
	"github.com/scaffe/scaffe/caffe/solver"
	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/internal/metrics"
	"github.com/scaffe/scaffe/train"
)

// metricsReport tells Prometheus. A nil one tells nobody.
type metricsReport struct {
	*metrics.Server
	to  *metrics.Registry
	err error // the first number that is none of the registry's: a mistake of ours
}

// serveMetrics takes the address.
func serveMetrics(address string) (*metricsReport, error) {
	s, err := metrics.Listen(address)
	if err != nil {
		return nil, fmt.Errorf("--metrics: %w", err)
	}
	return &metricsReport{Server: s, to: metrics.NewRegistry(metrics.Training)}, nil
}

func (m *metricsReport) close() error {
	if m == nil {
		return nil
	}
	_ = m.Close() // nobody is answered any more, which is all we want
	return m.err
}

// start begins to answer.
func (m *metricsReport) start(comm *collectives.Comm, cfg train.Config, n *net.Net) error {
	if m == nil {
		return nil
	}
	m.set("scaffe_info", 1, cfg.Design.String(), cfg.Scheme.String(), n.Name())
	m.set("scaffe_ranks", float64(comm.Size()))
	m.times(train.Summary{})
	if m.err != nil {
		return m.err
	}
	return m.Serve(m.to)
}

func (m *metricsReport) progress(p train.Progress, imagesPerSecond float64) {
	if m == nil {
		return
	}
	m.set("scaffe_iterations_total", float64(p.Iterations))
	m.set("scaffe_images_total", float64(p.Images))
	m.set("scaffe_loss", float64(p.Loss))
	m.set("scaffe_learning_rate", float64(p.Rate))
	m.set("scaffe_images_per_second", imagesPerSecond)
	m.set("scaffe_skipped_updates_total", float64(p.Skipped))
	m.times(p.Summary)
}

func (m *metricsReport) times(s train.Summary) {
	m.set("scaffe_seconds_total", s.Compute().Seconds(), "compute")
	m.set("scaffe_seconds_total", s.Exposed.Seconds(), "exposed_communication")
	m.set("scaffe_seconds_total", s.Input.Seconds(), "input")
	m.set("scaffe_seconds_total", s.Aside.Seconds(), "tests_and_snapshots")
	m.set("scaffe_collective_seconds_total", s.Moves.Push.Seconds(), "push")
	m.set("scaffe_collective_seconds_total", s.Moves.Pull.Seconds(), "pull")
	m.set("scaffe_reader_queue", float64(s.Readers.Queued))
	m.set("scaffe_reader_starved_seconds_total", s.Readers.Starved.Seconds())
}

func (m *metricsReport) test(t solver.Test) {
	if m == nil {
		return
	}
	times := map[string]int{}
	for _, s := range t.Scores {
		times[s.Name]++
	}
	seen := map[string]int{}
	for _, s := range t.Scores {
		name := s.Name
		if times[s.Name] > 1 {
			name = fmt.Sprintf("%s[%d]", s.Name, seen[s.Name])
			seen[s.Name]++
		}
		if t.Net > 0 {
			name = fmt.Sprintf("%s, test net %d", name, t.Net)
		}
		m.set("scaffe_test_score", s.Value, name)
	}
}

func (m *metricsReport) snapshot() {
	if m != nil && m.err == nil {
		m.err = m.to.Add("scaffe_snapshots_total", 1)
	}
}

func (m *metricsReport) set(name string, v float64, labels ...string) {
	if err := m.to.Set(name, v, labels...); m.err == nil {
		m.err = err
	}
}
