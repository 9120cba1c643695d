package solver

import (
	"errors"
	"fmt"
	"sort"
	"sync"

	"github.com/scaffe/scaffe/caffe/net"
	"github.com/scaffe/scaffe/kernels/vec"
	"github.com/scaffe/scaffe/mem"
)

// Update is the update of one iteration. It may be applied to all parameters at
// once, or part by part, in any order and from several goroutines where the
// parts are disjoint. Parts are elements [lo, hi) of the packed buffers
// (Net().Packed), and may begin and end within a parameter: a parameter server
// updates the parts that it holds. However the buffers are cut, the bits are the same.
type Update struct {
	s           *Solver
	iter        int
	step        int // of the rule, counted from 0
	rate, scale float32
	corrected   bool
}

// Update returns the update of iteration iter, counted from 0, without
// clip_gradients. It may be called from any goroutine.
func (s *Solver) Update(iter int) Update {
	return Update{s: s, iter: iter, step: iter, rate: s.rate(iter), scale: 1 / float32(s.param.GetIterSize())}
}

// Of returns u for gradients of some workers alone, whose batches are a share of the global one, above
// 0: a step of the rule by their own mean, of a rate that is as much smaller. So each of them moves
// the parameters as far as its samples would among all, by every rule, decay included. step is how
// many steps of such elements have come before it.
func (u Update) Of(share float32, step int) Update {
	u.rate, u.scale, u.step = u.rate*share, u.scale/share, step
	return u
}

// Corrected returns u for gradients that have the momentum of the rule already, that of SGD (momentum
// correction: Lin et al. 2018, section 3.2): they change the parameters as they are, and the history is of the weight decay alone.
func (u Update) Corrected() Update {
	u.corrected = true
	return u
}

// each calls f for every parameter with elements in [lo, hi), with the range of
// them, until f fails.
func (s *Solver) each(lo, hi int, f func(p *net.Param, lo, hi int) error) error {
	params := s.net.Learnable()
	first := sort.Search(len(params), func(i int) bool { return params[i].Offset+params[i].Blob.Count() > lo })
	for i := first; i < len(params) && params[i].Offset < hi; i++ {
		p := &params[i]
		from, to := max(lo, p.Offset), min(hi, p.Offset+p.Blob.Count())
		if from >= to {
			continue
		}
		if err := f(p, from, to); err != nil {
			return err
		}
	}
	return nil
}

// Check returns a *NotFiniteError if a gradient of the part is NaN or infinite.
func (u Update) Check(lo, hi int) error {
	if i, value, found := u.FirstNotFinite(lo, hi); found {
		return u.NotFinite(i, value)
	}
	return nil
}

// FirstNotFinite returns the first element of the part whose gradient is NaN or infinite.
func (u Update) FirstNotFinite(lo, hi int) (element int, value float32, found bool) {
	if g := &u.s.gpu; g.Device != nil && !g.sums {
		return u.s.notFiniteOn(lo, hi)
	}
	_, buf := u.s.net.Packed()
	diff := mem.Float32s(buf)
	_ = u.s.each(lo, hi, func(_ *net.Param, lo, hi int) error {
		if k := vec.FirstNotFinite(diff[lo:hi]); k >= 0 && !found {
			element, value, found = lo+k, diff[lo+k], true
		}
		return nil
	})
	return element, value, found
}

// NotFinite is the error of an element whose gradient, perhaps on another worker, has
// such a value.
func (u Update) NotFinite(element int, value float32) error {
	err := u.s.NotFinite(u.iter, value)
	_ = u.s.each(element, element+1, func(p *net.Param, _, _ int) error {
		err.Layer, err.Gradient = u.s.net.LayerName(p.Layer), p.Name
		return nil
	})
	return err
}

// NotFinite is the error of a loss of such a value; of something else where more of it is set.
func (s *Solver) NotFinite(iter int, value float32) *NotFiniteError {
	e := &NotFiniteError{Iter: iter, Value: value, Advice: s.opts.InsteadOfClipping}
	switch {
	case s.Clips():
		e.Advice = "lower clip_gradients"
	case e.Advice == "":
		e.Advice = "set clip_gradients"
	}
	return e
}

// NotFiniteAt is the error of an element of the packed parameters, or of what the rule
// remembers of it, that iteration iter has given such a value.
func (s *Solver) NotFiniteAt(iter, element int, value float32, history bool) error {
	err := s.NotFinite(iter, value)
	_ = s.each(element, element+1, func(p *net.Param, _, _ int) error {
		err.Layer = s.net.LayerName(p.Layer)
		if history {
			err.History = p.Name
		} else {
			err.Parameter = p.Name
		}
		return nil
	})
	return err
}

// check checks gradients of one parameter.
func (u Update) check(p *net.Param, diff []float32) error {
	k := vec.FirstNotFinite(diff)
	if k < 0 {
		return nil
	}
	err := u.s.NotFinite(u.iter, diff[k])
	err.Layer, err.Gradient = u.s.net.LayerName(p.Layer), p.Name
	return err
}

// block is how many elements are checked and then updated, while they are in
// the cache.
const block = 32 << 10

// Apply changes the parameters of the part by their gradients and clears
// these for the next backward pass. It returns a *NotFiniteError where a
// gradient is NaN or infinite; what comes before that has changed then, what
// comes after has not.
func (u Update) Apply(lo, hi int) error {
	s := u.s
	if s.gpu.Device != nil {
		return u.applyOn(lo, hi)
	}
	s.makeHistory()
	dataBuf, diffBuf := s.net.Packed()
	data, diff := mem.Float32s(dataBuf), mem.Float32s(diffBuf)
	return s.each(lo, hi, func(p *net.Param, lo, hi int) error {
		if p.LRMult == 0 {
			clear(diff[lo:hi])
			return nil
		}
		var hist [2][]float32
		step := Step{Iter: u.step, Rate: u.rate * p.LRMult, Decay: s.rule.WeightDecay() * p.DecayMult, Scale: u.scale, Clear: true}
		for ; lo < hi; lo += block {
			end := min(lo+block, hi)
			if err := u.check(p, diff[lo:end]); err != nil {
				return err
			}
			at := s.place(lo)
			for k, h := range s.history {
				hist[k] = h[at:][:end-lo]
			}
			if u.corrected {
				s.rule.updateCorrected(step, data[lo:end], diff[lo:end], hist[:len(s.history)])
				continue
			}
			s.rule.Update(step, data[lo:end], diff[lo:end], hist[:len(s.history)])
		}
		return nil
	})
}

// ClearGradients sets the gradients of a part to 0: those that are of no more
// use without having been applied.
func (s *Solver) ClearGradients(lo, hi int) {
	if s.gpu.Device != nil {
		_ = s.each(lo, hi, func(p *net.Param, lo, hi int) error {
			s.clearOn(p, lo, hi)
			return nil
		})
		return
	}
	_, buf := s.net.Packed()
	clear(mem.Float32s(buf)[lo:hi])
}

// ApplyUpdate applies the update of the current iteration to all parameters,
// or returns a *NotFiniteError; with SkipNotFinite none has changed then.
func (s *Solver) ApplyUpdate() error {
	u, all := s.Update(s.iter), s.net.PackedCount()
	if s.opts.SkipNotFinite {
		if err := u.Check(0, all); err != nil {
			return err
		}
	}
	if s.Clips() {
		u = u.Clip()
	}
	return u.Apply(0, all)
}

// held is elements [lo, hi) of the packed parameters whose memory begins at a place of the
// history.
type held struct{ lo, hi, at int }

// Hold has this worker remember nothing but the elements of some parts, ascending, and
// update no others: a server's shard. Their memory is 0 again.
func (s *Solver) Hold(parts [][2]int) {
	s.holds, s.held, s.history, s.historyOnce = true, nil, nil, sync.Once{}
	s.gpu.history = nil
	at := 0
	for _, p := range parts {
		s.held = append(s.held, held{p[0], p[1], at})
		at += p[1] - p[0]
	}
}

// place returns where the memory of an element lies in a history.
func (s *Solver) place(element int) int {
	if !s.holds {
		return element
	}
	h := s.held[sort.Search(len(s.held), func(i int) bool { return s.held[i].hi > element })]
	return h.at + element - h.lo
}

// makeHistory allocates the history. Workers that never update need none.
func (s *Solver) makeHistory() {
	s.historyOnce.Do(func() {
		n := s.net.PackedCount()
		if s.holds {
			n = 0
			for _, h := range s.held {
				n += h.hi - h.lo
			}
		}
		for s.gpu.Device != nil && len(s.gpu.history) < s.rule.Histories() {
			s.gpu.history = append(s.gpu.history, s.gpu.NewMemory(mem.Float32.Bytes(n)))
		}
		for s.gpu.Device == nil && len(s.history) < s.rule.Histories() {
			s.history = append(s.history, make([]float32, n))
		}
	})
}

// History returns the rule's memory, each slice laid out as the packed
// parameters are; after Hold, of its parts one after the other.
func (s *Solver) History() [][]float32 {
	s.makeHistory()
	if s.gpu.Device != nil {
		return s.historyOn()
	}
	return s.history
}

// Remembered returns history k of elements [lo, hi), which lie in one of Hold's parts.
func (s *Solver) Remembered(k, lo, hi int) []float32 {
	return s.History()[k][s.place(lo):][:hi-lo]
}

// NotFiniteError is why an iteration ends without an update, and training with
// it unless Options.SkipNotFinite: the loss or a gradient is NaN or infinite. A
// parameter that is ends training in any case, and no snapshot is written of it.
type NotFiniteError struct {
	Iter  int
	Value float32
	// Layer is the first layer with an output that is not finite, or with
	// Gradient, Parameter or History the layer of that parameter; "" if there is
	// none on this worker.
	Layer, Top string
	// Advice is what may help besides a lower base_lr.
	Advice string
	// Gradient, Parameter and History name the parameter whose gradient, value
	// after the update, or memory of the update rule is not finite; all are "" for
	// the loss.
	Gradient, Parameter, History string
}

// Error says where the numbers went wrong and what usually helps.
func (e *NotFiniteError) Error() string {
	advice := "lower base_lr, " + e.Advice + ", or look at the data"
	switch {
	case e.Gradient != "":
		return fmt.Sprintf("iteration %d: a gradient is %v, that of parameter %q of layer %q: %s", e.Iter, e.Value, e.Gradient, e.Layer, advice)
	case e.Parameter != "":
		return fmt.Sprintf("iteration %d: its update made parameter %q of layer %q %v, and no snapshot of it is written: %s", e.Iter, e.Parameter, e.Layer, e.Value, advice)
	case e.History != "":
		return fmt.Sprintf("iteration %d: its update made the solver's history of parameter %q of layer %q %v, and no snapshot of it is written: %s", e.Iter, e.History, e.Layer, e.Value, advice)
	}
	where := "every layer output of this worker is finite"
	if e.Layer != "" {
		where = fmt.Sprintf("the first layer output that is not finite is %q of layer %q", e.Top, e.Layer)
	}
	return fmt.Sprintf("iteration %d: the loss is %v; %s: %s", e.Iter, e.Value, where, advice)
}

// checkParams returns a *NotFiniteError if a parameter, or what the rule
// remembers of it, is NaN or infinite on this worker.
func (s *Solver) checkParams() error {
	if !s.holds {
		history := s.history
		if len(s.gpu.history) > 0 {
			history = s.historyOn()
		}
		return s.checkNumbers(history)
	}
	if err := s.checkNumbers(nil); err != nil {
		return err
	}
	return s.checkHeld()
}

// checkNumbers is checkParams with a history of all parameters.
func (s *Solver) checkNumbers(history [][]float32) error {
	s.net.ToHost()
	buf, _ := s.net.Packed()
	data := mem.Float32s(buf)
	for i := range s.net.Learnable() {
		p := &s.net.Learnable()[i]
		e := s.NotFinite(max(s.iter-1, 0), 0)
		e.Layer = s.net.LayerName(p.Layer)
		part := func(v []float32) []float32 { return v[p.Offset : p.Offset+p.Blob.Count()] }
		if k := vec.FirstNotFinite(part(data)); k >= 0 {
			e.Parameter, e.Value = p.Name, part(data)[k]
			return e
		}
		for _, h := range history {
			if k := vec.FirstNotFinite(part(h)); k >= 0 {
				e.History, e.Value = p.Name, part(h)[k]
				return e
			}
		}
	}
	return nil
}

// checkHeld is checkParams of what is remembered of parts.
func (s *Solver) checkHeld() error {
	for _, h := range s.History() {
		for _, p := range s.held {
			if k := vec.FirstNotFinite(h[p.at:][:p.hi-p.lo]); k >= 0 {
				return s.NotFiniteAt(max(s.iter-1, 0), p.lo+k, h[p.at+k], true)
			}
		}
	}
	return nil
}

// checkResult ends training where the last update has left numbers that are not
// finite, on all workers if it has on one: no later loss would tell.
func (s *Solver) checkResult() error {
	if err := call(s.Callbacks.OnParams, s.iter); err != nil {
		return err
	}
	e := s.NotFinite(max(s.iter-1, 0), 0)
	bad := []float64{0}
	if errors.As(s.checkParams(), &e) {
		bad[0] = 1
	}
	bad, err := s.sum(bad)
	switch {
	case err != nil:
		return err
	case bad[0] == 0:
		return nil
	case s.Callbacks.OnNotFinite != nil:
		return s.Callbacks.OnNotFinite(e)
	}
	return e
}

// Finite reports whether x is neither NaN nor infinite.
func Finite(x float64) bool { return x-x == 0 }

// checkLoss refuses a loss that is not finite, before it spoils parameters.
func (s *Solver) checkLoss(loss float32) error {
	if Finite(float64(loss)) {
		return nil
	}
	e := s.NotFinite(s.iter, loss)
	if !s.opts.Idle && (!s.opts.Apart || s.share() > 0) {
		e.Layer, e.Top, _ = s.computes.NotFinite()
	}
	if s.Callbacks.OnNotFinite != nil {
		return s.Callbacks.OnNotFinite(e)
	}
	return e
}

// smoother averages the last losses as Caffe's UpdateSmoothedLoss does.
type smoother struct {
	window int
	losses []float32
	next   int
	value  float32
}

func (m *smoother) reset() { m.losses, m.next, m.value = m.losses[:0], 0, 0 }

func (m *smoother) add(loss float32) {
	if len(m.losses) < m.window {
		m.losses = append(m.losses, loss)
		n := float32(len(m.losses))
		m.value = (m.value*(n-1) + loss) / n
		return
	}
	m.value += (loss - m.losses[m.next]) / float32(m.window)
	m.losses[m.next] = loss
	m.next = (m.next + 1) % m.window
}
