package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/scaffe/scaffe/caffe/net"
	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/kernels/factors"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/syncer/coordinator"
	"github.com/scaffe/scaffe/syncer/sfb"
)

// schemes says by which scheme each layer is kept in step.
type schemes struct {
	of       []exchange.Scheme // by layer; of those without parameters it does not matter
	used     []exchange.Scheme // of layers with parameters
	factored []*factored       // by layer; nil where it has no factors, or nothing asks for them
	refuses  []string          // by layer: why an inner product has none
	rate     float64           // of products, multiplications and additions a second; 0: not measured
	audit    *coordinator.Audit
}

// factored is a layer with sufficient factors.
type factored struct {
	net    *net.Factors
	matrix sfb.Matrix // of the workers
	rows   []int      // of the factors, by rank
}

// any reports whether some layer's scheme is such.
func (s *schemes) any(such func(exchange.Scheme) bool) bool { return slices.ContainsFunc(s.used, such) }

// isPS reports whether a scheme is the parameter server's.
func isPS(s exchange.Scheme) bool { return s == exchange.PS }

// byFactors reports whether factors take the place of a layer's gradients, by a scheme.
func byFactors(s exchange.Scheme) bool { return s == exchange.SFB || s == exchange.Adam }

// SchemeText says in a few words what c asks for, as --scheme takes it.
func (c *Config) SchemeText() string { return c.Asked.Or(c.Scheme).String() }

// choose gives every layer its scheme, on all ranks the same.
func (w *Worker) choose(ctx context.Context, c Config) error {
	n := w.solver.Net()
	asked := w.inPlaceAsked(c.Asked.Or(c.Scheme).For(w.comm.Size()))
	w.schemes = schemes{
		of:       slices.Repeat([]exchange.Scheme{asked.Default}, len(n.Layers())),
		factored: make([]*factored, len(n.Layers())), refuses: make([]string, len(n.Layers())),
	}
	if _, one := asked.One(); one {
		w.schemes.used = w.schemes.of[:1]
		return nil
	}
	if err := w.findFactors(ctx, asked); err != nil {
		return err
	}
	book, err := w.book(ctx, c)
	if err != nil {
		return err
	}
	network := exchange.Network(w.team, book, c.Spec, w.product)
	f, basis := w.forecast(c, network)
	if _, w.schemes.audit, err = exchange.Choose(ctx, w.comm, w.exchangeLayers(), asked, network, f, basis); err != nil {
		return err
	}
	if f == nil && asked.Chooses() {
		w.schemes.audit.Notes = append(w.schemes.audit.Notes, "# chosen layer by layer: "+basis)
	}
	if err := w.keepChoice(ctx, c, w.schemes.audit); err != nil {
		return err
	}
	w.moves.slice = book.Slice
	w.schemes.of = exchange.Executed(w.schemes.audit, w.exchangeLayers())
	for i, l := range n.Layers() {
		if len(l.Params) == 0 {
			continue
		}
		s := w.schemes.of[i]
		w.schemes.used = append(w.schemes.used, s)
		if byFactors(s) {
			w.schemes.factored[i].net.Leave(true)
		}
	}
	return nil
}

// findFactors finds the layers whose factors can stand for their gradients, how many rows
// these have on every rank, and, where replicas may rebuild for themselves, whether the ranks
// rebuild equal bits from them.
func (w *Worker) findFactors(ctx context.Context, asked coordinator.Asked) error {
	n, passes := w.solver.Net(), int(w.solver.Param().GetIterSize())
	var found []int
	for i, l := range n.Layers() {
		if l.Type != coordinator.FC || len(l.Params) == 0 {
			continue
		}
		f, err := n.Factors(i)
		if err != nil {
			w.schemes.refuses[i] = reason(err)
			continue
		}
		m := sfb.Matrix{Name: l.Name, Passes: passes, Weights: placed(n, l.Params[0]), Put: f.Put}
		m.Shape, _ = f.Shape()
		if len(l.Params) > 1 && n.Learnable()[l.Params[1]].LRMult != 0 {
			m.Bias = placed(n, l.Params[1])
		}
		w.schemes.factored[i] = &factored{net: f, matrix: m}
		found = append(found, i)
	}
	rows := make([]int64, len(found))
	for k, i := range found {
		if w.Works() {
			_, own := w.schemes.factored[i].net.Shape()
			rows[k] = int64(own)
		}
	}
	all := make([]int64, len(rows)*w.comm.Size())
	if err := w.comm.Allgather(ctx, mem.Of(rows), mem.Of(all), nil, mem.Int64); err != nil {
		return err
	}
	var matrices []sfb.Matrix
	var kept []int // of found
	for k, i := range found {
		f := w.schemes.factored[i]
		for rank := range w.comm.Size() {
			f.rows = append(f.rows, int(all[rank*len(found)+k]))
		}
		for _, rank := range w.roles.workers {
			f.matrix.Rows = append(f.matrix.Rows, f.rows[rank])
		}
		s, _ := asked.Of(n.Layers()[i].Name)
		if values := f.stacked(); s != exchange.OneBit && values > maxStacked {
			w.schemes.factored[i], w.schemes.refuses[i] = nil, fmt.Sprintf("its factors of %d passes have %.3g values together", passes, values)
			continue
		}
		if s == exchange.Auto && f.outweighs() { // nor are products of them tried
			w.schemes.factored[i], w.schemes.refuses[i] = nil, "its factors have more values than its gradients, added and brought back"
			continue
		}
		matrices, kept = append(matrices, f.matrix), append(kept, i)
	}
	if asked.Chooses() || slices.Contains(asked.Schemes(), exchange.SFB) {
		refuses, err := w.compareProducts(ctx, matrices)
		if err != nil {
			return err
		}
		for k, i := range kept {
			if refuses[k] != "" {
				w.schemes.factored[i], w.schemes.refuses[i] = nil, refuses[k]
			}
		}
	}
	return w.measureProducts(ctx, matrices)
}

// maxStacked is how many values the factors of a layer may have: more are a mistake, and would not
// find memory.
const maxStacked = 1 << 32

// stacked is how many they have, all workers' together.
func (f *factored) stacked() float64 {
	rows := 0
	for _, n := range f.matrix.Rows {
		rows += n
	}
	return float64(rows) * float64(f.matrix.Passes) * float64(f.matrix.Shape.Row())
}

// outweighs reports whether the factors that a worker sends and receives have more values than
// what a reduction and a broadcast move (4MN, see coordinator.Book.Values): the
// scheme sfb then has nothing to gain.
func (f *factored) outweighs() bool {
	m := &f.matrix
	k := slices.Max(m.Rows) * m.Passes
	return coordinator.SFBCost(m.Shape.Out, m.Shape.In, k, len(m.Rows)).Worker > 4*float64(m.Weights.Len)
}

// compareProducts says for each of matrices why the workers cannot rebuild equal bits, "" where
// they can; all ranks learn of it.
func (w *Worker) compareProducts(ctx context.Context, matrices []sfb.Matrix) ([]string, error) {
	texts := make([]string, len(matrices))
	var err error
	if w.Works() {
		var errs []error
		errs, err = sfb.Compare(ctx, w.team.Workers(), matrices)
		for i, e := range errs {
			if e != nil {
				texts[i] = e.Error()
			}
		}
	}
	if !w.apart() {
		return texts, err
	}
	if err = w.comm.Agree(ctx, err); err != nil {
		return nil, err
	}
	told, err := json.Marshal(texts)
	if err == nil {
		told, err = w.comm.BcastBytes(ctx, told, w.roles.workers[lowest])
	}
	if err == nil {
		err = json.Unmarshal(told, &texts)
	}
	return texts, err
}

// placed is where a parameter lies in the packed buffers.
func placed(n *net.Net, param int) schedule.Range {
	p := n.Learnable()[param]
	return schedule.Range{Off: p.Offset, Len: p.Blob.Count()}
}

// reason is the innermost error: what a layer says, without its name.
func reason(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}

// Extents of the product that is measured, at most: large enough that its rate is that of
// larger ones.
const (
	measuredOut = 512
	measuredIn  = 1024
	measuredFor = 3 // times
	// measuredRows are those of each worker's factors, where the net has none.
	measuredRows = 32
)

// measureProducts measures how fast the slowest rank rebuilds the largest of
// matrices, rounded, so that run after run finds the same.
func (w *Worker) measureProducts(ctx context.Context, matrices []sfb.Matrix) error {
	if len(matrices) == 0 { // it is the rate of convolutions, as far as that is known
		matrices = []sfb.Matrix{{Shape: factors.Shape{Out: measuredOut, In: measuredIn}, Rows: slices.Repeat([]int{measuredRows}, len(w.roles.workers)), Passes: 1}}
	}
	m := slices.MaxFunc(matrices, func(a, b sfb.Matrix) int { return a.Weights.Len - b.Weights.Len })
	m.Shape.Out, m.Shape.In = min(m.Shape.Out, measuredOut), min(m.Shape.In, measuredIn)
	stack, err := factors.NewStack(m.Shape, m.Rows, m.Passes)
	if !w.Works() {
		w.schemes.rate = math.Inf(1)
	} else if err == nil {
		stacked, weights := make([]float32, stack.Len()), make([]float32, m.Shape.Out*m.Shape.In)
		for range measuredFor {
			begin := time.Now()
			err = errors.Join(err, stack.Rebuild(stacked, weights, nil))
			took := max(time.Since(begin), time.Microsecond).Seconds()
			w.schemes.rate = max(w.schemes.rate, 2*float64(stack.Len()/m.Shape.Row())*float64(len(weights))/took)
		}
	}
	if err := w.comm.Agree(ctx, err); err != nil {
		return err
	}
	rate := []float64{w.schemes.rate}
	if err := w.comm.Allreduce(ctx, mem.Of(rate), mem.Of(rate), mem.Float64, mem.Min); err != nil {
		return err
	}
	if w.schemes.rate = 0; rate[0] > 0 {
		w.schemes.rate = selection.Rounded(rate[0], 1, 2, 5)
	}
	return nil
}

// product is how much longer a rank computes where it rebuilds a layer's gradient from
// all factors, rather than from its own.
func (w *Worker) product(l *coordinator.Layer) time.Duration {
	if w.schemes.rate == 0 || l.Factors == nil {
		return 0
	}
	others, least := 0, math.MaxInt
	for _, rank := range w.roles.workers {
		others, least = others+l.Factors[rank], min(least, l.Factors[rank])
	}
	others -= least
	return time.Duration(2 * float64(others) * float64(l.Rows*l.Cols) / w.schemes.rate * float64(time.Second))
}

// describe adds to the book's layer what is known of its factors.
func (s *schemes) describe(l *coordinator.Layer, layer int) {
	l.Refuses = s.refuses[layer]
	f := s.factored[layer]
	if f == nil {
		return
	}
	l.Rows, l.Cols = f.matrix.Shape.Out, f.matrix.Shape.In
	if f.matrix.Shape.Transposed {
		l.Rows, l.Cols = l.Cols, l.Rows
	}
	for _, rows := range f.rows {
		l.Factors = append(l.Factors, rows*f.matrix.Passes)
	}
}

// Audit says which scheme serves which layer, and why; nil where one scheme was asked
// for that serves all.
func (w *Worker) Audit() *coordinator.Audit { return w.schemes.audit }

// sameReplicas makes sure that what every rank updates for itself is still the same on all
// of them.
func (w *Worker) sameReplicas() error {
	err := w.compareReplicas()
	if w.apart() { // those who have not compared are told
		return w.comm.Agree(w.ctx, err)
	}
	return err
}

// compareReplicas is sameReplicas among the workers.
func (w *Worker) compareReplicas() error {
	if !w.Works() {
		return nil
	}
	n := w.solver.Net()
	var digests []uint64
	var names []string
	data, _ := n.Packed()
	for i, l := range n.Layers() {
		if !w.schemes.of[i].Replicated() {
			continue
		}
		for _, p := range l.Params {
			if n.Learnable()[p].LRMult == 0 { // statistics, which are the lowest worker's
				continue
			}
			at := placed(n, p)
			digests = append(digests, factors.Digest(mem.Float32s(data)[at.Off:at.End()]))
			names = append(names, fmt.Sprintf("layer %q: parameter %s, which every rank updates (scheme %v), is not the same everywhere", l.Name, n.Learnable()[p].Name, w.schemes.of[i]))
		}
	}
	who, err := w.team.Workers().Compare(w.ctx, digests)
	if err != nil {
		return err
	}
	for i, text := range who {
		if text != "" {
			return w.team.Workers().Agree(w.ctx, fmt.Errorf("%s: %s", names[i], text))
		}
	}
	return nil
}
