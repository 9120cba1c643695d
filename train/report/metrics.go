package report

import (
	"fmt"

	"github.com/scaffe/scaffe/caffe/solver"
	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/internal/metrics"
	"github.com/scaffe/scaffe/train"
)

// metricsReport sets the metrics of a run. A nil one does nothing.
type metricsReport struct {
	*metrics.Server
	to *metrics.Training
}

// serveMetrics takes the address.
func serveMetrics(address string) (*metricsReport, error) {
	s, err := metrics.Listen(address)
	if err != nil {
		return nil, fmt.Errorf("--metrics: %w", err)
	}
	return &metricsReport{s, metrics.NewTraining()}, nil
}

func (m *metricsReport) close() error {
	if m == nil {
		return nil
	}
	return m.Close()
}

// start begins to answer.
func (m *metricsReport) start(comm *collectives.Comm, cfg train.Config, w *train.Worker) {
	if m == nil {
		return
	}
	m.to.Info.WithLabelValues(cfg.Design.String(), cfg.SchemeText(), w.Solver().Net().Name()).Set(1)
	m.to.Ranks.Set(float64(comm.Size()))
	m.to.Workers.Set(float64(len(w.Workers())))
	m.Serve(m.to.Registry)
}

func (m *metricsReport) progress(p train.Progress, imagesPerSecond float64) {
	if m == nil {
		return
	}
	to := m.to
	to.Iterations.Set(float64(p.Iterations))
	to.Images.Set(float64(p.Images))
	to.Loss.Set(float64(p.Loss))
	to.LearningRate.Set(float64(p.Rate))
	to.ImagesPerSecond.Set(imagesPerSecond)
	to.SkippedUpdates.Set(float64(p.Skipped))
	leftOut := 0
	for _, n := range p.LeftOut {
		leftOut += n
	}
	to.LeftOut.Set(float64(leftOut))
	to.PortInversions.Set(float64(p.Order.Inversions))
	to.SumInversions.Set(float64(p.Order.Sums))
	to.LetGo.Set(float64(p.Order.Patience))
	to.LongestWait.Set(p.Order.Longest.Seconds())
	to.Behind.Set(float64(p.Behind))
	to.Seconds.Compute.Set(p.Compute().Seconds())
	to.Seconds.ExposedCommunication.Set(p.Exposed.Seconds())
	to.Seconds.Input.Set(p.Input.Seconds())
	to.Seconds.TestsAndSnapshots.Set(p.TestsAndSnapshots.Seconds())
	to.Push.Set(p.Collectives.Push.Seconds())
	to.Pull.Set(p.Collectives.Pull.Seconds())
	to.ReaderQueue.Set(float64(p.Readers.Queued))
	if g := p.GPU; g != nil {
		to.GPU.Memory.Set(float64(g.Memory))
		to.GPU.Pinned.Set(float64(g.Pinned))
		to.GPU.Up.Set(float64(g.Up))
		to.GPU.Down.Set(float64(g.Down))
		to.GPU.ForLoss.Set(float64(g.Fetches))
		to.GPU.ForElse.Set(float64(g.Waits))
	}
	to.ReaderStarved.Set(p.Readers.Starved.Seconds())
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
		m.to.TestScore.WithLabelValues(name).Set(float64(s.Value))
	}
}

func (m *metricsReport) checkpoint() {
	if m != nil {
		m.to.Checkpoints.Inc()
	}
}

func (m *metricsReport) snapshot() {
	if m != nil {
		m.to.Snapshots.Inc()
	}
}
