// Package metrics serves the numbers of a run to Prometheus: a Registry keeps
// them, a Server answers for it over HTTP.
//
//	r := metrics.NewRegistry(metrics.Training)
//	s, err := metrics.Listen(":9100") // this machine alone
//	...
//	s.Serve(r)
//	defer s.Close()
//	r.Set("scaffe_loss", 2.3)
//	r.Add("scaffe_snapshots_total", 1)
//
// It keeps what it is told. What the numbers mean, and who counts them, is the
// caller's affair: a total may be counted here (Add), or be known elsewhere
// and handed over (Set).
package metrics

import (
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Metric is a family of numbers.
type Metric struct {
	Name, Help string
	// Total says that it only grows (a counter); else it is a gauge.
	Total bool
	// Labels tell the numbers of the family apart.
	Labels []string
}

// Training are the metrics of a training run.
var Training = []Metric{
	{Name: "scaffe_info", Help: "The run, in its labels; always 1.", Labels: []string{"design", "aggregate", "net"}},
	{Name: "scaffe_ranks", Help: "How many ranks train."},
	{Name: "scaffe_iterations_total", Help: "Iterations done by this run.", Total: true},
	{Name: "scaffe_images_total", Help: "Images that all ranks have trained on.", Total: true},
	{Name: "scaffe_loss", Help: "The loss of the last iteration over all ranks."},
	{Name: "scaffe_learning_rate", Help: "The learning rate of the last iteration."},
	{Name: "scaffe_images_per_second", Help: "Images per second over all ranks, lately."},
	{Name: "scaffe_seconds_total", Help: "Where the time of rank 0 went: compute, exposed_communication, input, tests_and_snapshots.", Total: true, Labels: []string{"part"}},
	{Name: "scaffe_collective_seconds_total", Help: "How long gradients (push) and parameters (pull) were in flight, hidden or not.", Total: true, Labels: []string{"direction"}},
	{Name: "scaffe_reader_queue", Help: "Batches that are decoded and wait, on rank 0."},
	{Name: "scaffe_reader_starved_seconds_total", Help: "How long rank 0 waited for batches that were not decoded in time.", Total: true},
	{Name: "scaffe_skipped_updates_total", Help: "Iterations without an update, for numbers that were not finite.", Total: true},
	{Name: "scaffe_snapshots_total", Help: "Snapshots written.", Total: true},
	{Name: "scaffe_test_score", Help: "The scores of the last test.", Labels: []string{"name"}},
}

// Registry keeps the numbers of some metrics. It is safe for concurrent use.
type Registry struct {
	families map[string]*family
	mu       sync.Mutex
}

// family is the numbers of one metric.
type family struct {
	Metric
	desc   *prometheus.Desc
	values map[string]*value // by labels
}

type value struct {
	labels []string
	v      float64
}

// NewRegistry returns a registry of the given metrics, none of which has a
// number yet, except for totals without labels, which begin with 0.
func NewRegistry(ms []Metric) *Registry {
	r := &Registry{families: map[string]*family{}}
	for _, m := range ms {
		f := &family{Metric: m, desc: prometheus.NewDesc(m.Name, m.Help, m.Labels, nil), values: map[string]*value{}}
		r.families[m.Name] = f
		if m.Total && len(m.Labels) == 0 {
			f.of(nil)
		}
	}
	return r
}

// Set sets a number of the metric name, that with the given values of its
// labels. Metrics that the registry does not have, and labels of another
// number, are an error.
func (r *Registry) Set(name string, v float64, labels ...string) error {
	return r.change(name, labels, func(x *value) { x.v = v })
}

// Add adds to a number, which was 0 if it was not there; else as Set.
func (r *Registry) Add(name string, v float64, labels ...string) error {
	return r.change(name, labels, func(x *value) { x.v += v })
}

func (r *Registry) change(name string, labels []string, how func(*value)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.families[name]
	if f == nil || len(labels) != len(f.Labels) {
		return fmt.Errorf("metrics: there is no metric %q with %d labels", name, len(labels))
	}
	how(f.of(labels))
	return nil
}

// of returns the number with the given labels.
func (f *family) of(labels []string) *value {
	key := fmt.Sprintf("%q", labels)
	if f.values[key] == nil {
		f.values[key] = &value{labels: labels}
	}
	return f.values[key]
}

// Describe is part of prometheus.Collector.
func (r *Registry) Describe(to chan<- *prometheus.Desc) {
	for _, f := range r.families {
		to <- f.desc
	}
}

// Collect is part of prometheus.Collector.
func (r *Registry) Collect(to chan<- prometheus.Metric) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.families {
		kind := prometheus.GaugeValue
		if f.Total {
			kind = prometheus.CounterValue
		}
		for _, v := range f.values {
			m, err := prometheus.NewConstMetric(f.desc, kind, v.v, v.labels...)
			if err != nil {
				m = prometheus.NewInvalidMetric(f.desc, err)
			}
			to <- m
		}
	}
}
