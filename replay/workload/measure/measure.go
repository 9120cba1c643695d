package measure

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"time"

	pb "google.golang.org/protobuf/proto"

	"github.com/scaffe/scaffe/caffe/net"
	"github.com/scaffe/scaffe/caffe/proto"
	"github.com/scaffe/scaffe/caffe/solver"
	"github.com/scaffe/scaffe/kernels/dnn"
	"github.com/scaffe/scaffe/replay/workload"
)

// Times are those of one thing over the iterations.
type Times struct{ Mean, Min, Max time.Duration }

// LayerTiming is what one layer took.
type LayerTiming struct {
	Name, Type        string
	Params            []int // as in workload.Layer, and
	Rows, Cols        int
	Input             bool // it reads data: not counted in the net's times
	Forward, Backward Times
}

// Timing is what a net took.
type Timing struct {
	Net               string
	Batch, Iterations int
	Layers            []LayerTiming
	Forward, Backward Times // of all layers but those that read data
	Both              Times // forward and backward of one iteration
	Input             Times // of the layers that read data
	// Update is that of all parameters, by SGD with momentum, and clearing
	// the gradients.
	Update Times
}

// Rate returns samples per second of forward, backward and update.
func (t *Timing) Rate() float64 {
	return float64(t.Batch) / max(t.Both.Mean+t.Update.Mean, 1).Seconds()
}

// Net runs a net for its times, after warmup iterations that do not
// count. It moves the parameters to packed buffers; their values stay: the
// update's rate is 0.
func Net(ctx context.Context, n *net.Net, warmup, iterations int) (*Timing, error) {
	if warmup < 0 || iterations < 1 {
		return nil, fmt.Errorf("want at least 1 iteration and 0 warm-up iterations (got %d and %d)", iterations, warmup)
	}
	if n.LocalBatch() < 1 {
		return nil, fmt.Errorf("net %q reads no data, so it has no batch", n.Name())
	}
	m, err := newMeter(n)
	if err != nil {
		return nil, err
	}
	defer func() { n.Hooks = net.Hooks{} }()
	for i := range warmup + iterations {
		if i == warmup {
			m.forget()
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := m.iteration(i); err != nil {
			return nil, err
		}
	}
	return m.timing(iterations), nil
}

// span adds up times.
type span struct {
	sum, min, max time.Duration
	n             int
}

func (s *span) add(d time.Duration) {
	if s.n == 0 || d < s.min {
		s.min = d
	}
	s.max = max(s.max, d)
	s.sum += d
	s.n++
}

func (s *span) times() Times {
	if s.n == 0 {
		return Times{}
	}
	return Times{s.sum / time.Duration(s.n), s.min, s.max}
}

// meter measures the layers of a net from its hooks.
type meter struct {
	net     *net.Net
	input   []bool
	layer   int       // whose forward runs
	since   time.Time // when it began, or the last backward ended
	sums    [3]time.Duration
	forward []span
	back    []span
	all     [5]span
	rule    *solver.Rule
	history [][]float32
}

// The parts of meter.all; the first three are those of meter.sums too.
const (
	partForward = iota
	partBackward
	partInput
	partBoth
	partUpdate
)

func newMeter(n *net.Net) (*meter, error) {
	if _, _, err := n.Pack(nil); err != nil {
		return nil, err
	}
	rule, err := solver.NewRule(&proto.SolverParameter{Type: pb.String("SGD"), Momentum: pb.Float32(0.9)})
	if err != nil {
		return nil, err
	}
	m := &meter{net: n, rule: rule}
	for range rule.Histories() {
		m.history = append(m.history, make([]float32, n.PackedCount()))
	}
	for _, l := range n.Layers() {
		m.input = append(m.input, len(l.Bottoms) == 0)
	}
	m.forget()
	n.Hooks = net.Hooks{BeforeForward: m.beforeForward, AfterBackward: m.afterBackward}
	return m, nil
}

// forget drops what was measured.
func (m *meter) forget() {
	m.forward, m.back, m.all = make([]span, len(m.input)), make([]span, len(m.input)), [5]span{}
}

func (m *meter) iteration(i int) error {
	m.layer, m.sums = -1, [3]time.Duration{}
	if _, err := m.net.Forward(); err != nil {
		return err
	}
	_ = m.beforeForward(-1) // ends the last
	if err := m.net.Backward(); err != nil {
		return err
	}
	for part, d := range m.sums {
		m.all[part].add(d)
	}
	m.all[partBoth].add(m.sums[partForward] + m.sums[partBackward])
	m.all[partUpdate].add(m.update(i))
	return nil
}

// beforeForward ends the measurement of one layer's forward and begins the
// next one's.
func (m *meter) beforeForward(layer int) error {
	now := time.Now()
	if m.layer >= 0 {
		d := now.Sub(m.since)
		m.forward[m.layer].add(d)
		if m.input[m.layer] {
			m.sums[partInput] += d
		} else {
			m.sums[partForward] += d
		}
	}
	m.layer, m.since = layer, now
	return nil
}

// afterBackward ends the measurement of a layer's backward: it began when that
// of the layer above ended.
func (m *meter) afterBackward(layer int) error {
	now := time.Now()
	d := now.Sub(m.since)
	m.back[layer].add(d)
	if !m.input[layer] {
		m.sums[partBackward] += d
	}
	m.since = now
	return nil
}

// update changes the parameters as a solver would, and measures that.
func (m *meter) update(iter int) time.Duration {
	begin := time.Now()
	for _, p := range m.net.Learnable() {
		if p.LRMult == 0 {
			continue
		}
		lo, hi := p.Offset, p.Offset+p.Blob.Count()
		hist := make([][]float32, len(m.history))
		for k := range hist {
			hist[k] = m.history[k][lo:hi]
		}
		m.rule.Update(solver.Step{Iter: iter, Scale: 1}, p.Blob.Data(), p.Blob.Diff(), hist)
	}
	m.net.ClearDiffs()
	return time.Since(begin)
}

func (m *meter) timing(iterations int) *Timing {
	t := &Timing{
		Net: m.net.Name(), Batch: m.net.LocalBatch(), Iterations: iterations,
		Forward: m.all[partForward].times(), Backward: m.all[partBackward].times(),
		Both: m.all[partBoth].times(), Input: m.all[partInput].times(), Update: m.all[partUpdate].times(),
	}
	for i, l := range m.net.Layers() {
		rows, cols := matrix(m.net, i, t.Batch)
		t.Layers = append(t.Layers, LayerTiming{
			Name: l.Name, Type: l.Type, Params: learning(m.net, l.Params), Rows: rows, Cols: cols, Input: m.input[i],
			Forward: m.forward[i].times(), Backward: m.back[i].times(),
		})
	}
	return t
}

// Source describes where the times were measured, for Profile.
func (t *Timing) Source() string {
	host, _ := os.Hostname()
	products, threads := dnn.ProductsBy()
	return fmt.Sprintf("scaffe time on %s (%d cores, %s, products by %s with %d threads), means of %d iterations",
		host, runtime.NumCPU(), runtime.GOARCH, products, threads, t.Iterations)
}

// Profile returns the means as a profile. Layers that read data take no time
// in it: readers read ahead, in parallel with the computation.
func (t *Timing) Profile(source string) *workload.Profile {
	p := &workload.Profile{Net: t.Net, Source: source, Batch: t.Batch, Update: t.Update.Mean}
	for _, l := range t.Layers {
		y := workload.Layer{Name: l.Name, Type: l.Type, Params: l.Params, Rows: l.Rows, Cols: l.Cols}
		if !l.Input {
			y.Forward, y.Backward = l.Forward.Mean, l.Backward.Mean
		}
		p.Layers = append(p.Layers, y)
	}
	return p
}
