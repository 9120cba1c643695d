// Package metrics serves the numbers of a training run to Prometheus: Training
// holds them, a Server answers for them over HTTP.
//
//	t := metrics.NewTraining()
//	s, err := metrics.Listen(":9100") // this machine alone
//	...
//	s.Serve(t.Registry)
//	defer s.Close()
//	t.Loss.Set(2.3)
//	t.Snapshots.Inc()
//
// The package only stores and serves the numbers: what they mean, and who counts
// them, is up to the caller.
package metrics

import (
	"math"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Training are the metrics of a training run. All may be set while they are
// served.
type Training struct {
	Registry *prometheus.Registry

	Info            *prometheus.GaugeVec // labels design, aggregate, net
	Ranks, Workers  Gauge
	Iterations      *Total
	Images          *Total
	Loss            Gauge
	LearningRate    Gauge
	ImagesPerSecond Gauge
	Seconds         Parts
	Push, Pull      *Total // seconds that gradients and parameters were in flight
	ReaderQueue     Gauge
	ReaderStarved   *Total // seconds
	SkippedUpdates  *Total
	LeftOut         *Total
	Behind          Gauge
	// Of the order of urgency on rank 0.
	PortInversions, SumInversions *Total
	LetGo                         *Total // by patience
	LongestWait                   Gauge  // seconds
	GPU                           GPU
	Snapshots                     prometheus.Counter
	Checkpoints                   prometheus.Counter
	TestScore                     *prometheus.GaugeVec // label name
}

// Parts are the seconds that rank 0 spent, by what it spent them on.
type Parts struct{ Compute, ExposedCommunication, Input, TestsAndSnapshots *Total }

// GPU is what rank 0 has taken of its GPU, all 0 on the CPU: bytes of its memory, and of the host's that is pinned for it;
// bytes that training has copied each way; how often the host has waited, for the loss and else.
type GPU struct {
	Memory, Pinned   prometheus.Gauge
	Up, Down         *Total
	ForLoss, ForElse *Total
}

// NewTraining returns metrics of which no gauge has a value yet, and every
// total is 0.
func NewTraining() *Training {
	r := prometheus.NewRegistry()
	const seconds, collective = "scaffe_seconds_total", "scaffe_collective_seconds_total"
	part := func(name string) *Total {
		return newTotal(r, seconds, "Where the time of rank 0 went: compute, exposed_communication, input, tests_and_snapshots.", prometheus.Labels{"part": name})
	}
	direction := func(name string) *Total {
		return newTotal(r, collective, "How long gradients (push) and parameters (pull) were in flight, hidden or not.", prometheus.Labels{"direction": name})
	}
	const inversions, inverted = "scaffe_inversions_total", "What was ready on rank 0 while something less urgent began, to be sent (port) or added (sum)."
	const copied, waits = "scaffe_gpu_copied_bytes_total", "scaffe_gpu_waits_total"
	on := func(memory string) prometheus.Gauge {
		return promauto.With(r).NewGauge(prometheus.GaugeOpts{Name: "scaffe_gpu_memory_bytes", Help: "What rank 0 has taken: of its GPU's memory (device), and of the host's for it (pinned).", ConstLabels: prometheus.Labels{"memory": memory}})
	}
	way := func(name string) *Total {
		return newTotal(r, copied, "What training on rank 0 has copied to its GPU (up) and from it (down).", prometheus.Labels{"direction": name})
	}
	wait := func(what string) *Total {
		return newTotal(r, waits, "How often rank 0's host has waited for its GPU, for the loss or else.", prometheus.Labels{"for": what})
	}
	make := promauto.With(r)
	return &Training{
		Registry: r,
		Info: make.NewGaugeVec(prometheus.GaugeOpts{Name: "scaffe_info", Help: "The run, in its labels; always 1."},
			[]string{"design", "aggregate", "net"}),
		Ranks:           newGauge(r, "scaffe_ranks", "How many ranks train."),
		Workers:         newGauge(r, "scaffe_workers", "How many of them compute."),
		Iterations:      newTotal(r, "scaffe_iterations_total", "Iterations done by this run.", nil),
		Images:          newTotal(r, "scaffe_images_total", "Images that all ranks have trained on.", nil),
		Loss:            newGauge(r, "scaffe_loss", "The loss of the last iteration over all ranks."),
		LearningRate:    newGauge(r, "scaffe_learning_rate", "The learning rate of the last iteration."),
		ImagesPerSecond: newGauge(r, "scaffe_images_per_second", "Images per second over all ranks, lately."),
		Seconds:         Parts{part("compute"), part("exposed_communication"), part("input"), part("tests_and_snapshots")},
		Push:            direction("push"),
		Pull:            direction("pull"),
		ReaderQueue:     newGauge(r, "scaffe_reader_queue", "Batches that are decoded and wait, on rank 0."),
		ReaderStarved:   newTotal(r, "scaffe_reader_starved_seconds_total", "How long rank 0 waited for batches that were not decoded in time.", nil),
		SkippedUpdates:  newTotal(r, "scaffe_skipped_updates_total", "Iterations without an update, for numbers that were not finite.", nil),
		Behind:          newGauge(r, "scaffe_behind_iterations", "How many iterations the last worker is behind the foremost one."),
		PortInversions:  newTotal(r, inversions, inverted, prometheus.Labels{"at": "port"}),
		SumInversions:   newTotal(r, inversions, inverted, prometheus.Labels{"at": "sum"}),
		LetGo:           newTotal(r, "scaffe_let_go_total", "Large messages of rank 0 that left without room, since nothing had ended for a while.", nil),
		LongestWait:     newGauge(r, "scaffe_longest_wait_seconds", "The longest that a large message of rank 0 was held back."),
		LeftOut:         newTotal(r, "scaffe_left_out_total", "How often workers were left out of iterations for being late, all together.", nil),
		GPU:             GPU{on("device"), on("pinned"), way("up"), way("down"), wait("loss"), wait("other")},
		Snapshots:       make.NewCounter(prometheus.CounterOpts{Name: "scaffe_snapshots_total", Help: "Snapshots written."}),
		Checkpoints:     make.NewCounter(prometheus.CounterOpts{Name: "scaffe_checkpoints_total", Help: "Checkpoints written."}),
		TestScore: make.NewGaugeVec(prometheus.GaugeOpts{Name: "scaffe_test_score", Help: "The scores of the last test."},
			[]string{"name"}),
	}
}

// Gauge is a number that is not served before it is set: a loss of 0 would be
// a lie.
type Gauge struct{ vec *prometheus.GaugeVec }

func newGauge(r prometheus.Registerer, name, help string) Gauge {
	return Gauge{promauto.With(r).NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, nil)}
}

// Set sets the number.
func (g Gauge) Set(x float64) { g.vec.WithLabelValues().Set(x) }

// Total is a counter that somebody else counts: it is told the value it has.
type Total struct{ bits atomic.Uint64 }

func newTotal(r prometheus.Registerer, name, help string, labels prometheus.Labels) *Total {
	t := new(Total)
	promauto.With(r).NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels}, t.value)
	return t
}

func (t *Total) value() float64 { return math.Float64frombits(t.bits.Load()) }

// Set sets the count, which must not be less than before.
func (t *Total) Set(x float64) { t.bits.Store(math.Float64bits(x)) }
