package coordinator

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/internal/units"
)

// Moves is how the book's layers are kept in step: by which schemes, and in what pieces.
type Moves struct {
	Schemes []Scheme
	Slice   Slice // as in Config
}

// Iterator predicts an iteration in which layers move so, through ports that have slower times less bandwidth than they
// seem to have. It is called for several at a time, each on a goroutine of its own.
type Iterator func(m Moves, slower float64) (Foreseen, error)

// Foreseen is an iteration that is predicted.
type Foreseen struct {
	Time time.Duration
	Port time.Duration // for how long it keeps the port of a node busy
}

// Weighed is a choice of schemes for all layers that ByIteration has weighed.
type Weighed struct {
	Name string
	Time time.Duration // of an iteration
	port time.Duration // as in Foreseen
	// slow is Time where ports have half the bandwidth, which is what the choice is worth where
	// the network is not what it seemed; 0: nobody has asked.
	slow  time.Duration
	moves Moves
}

// Iterations are what a choice was made by.
type Iterations struct {
	// Basis says in words what was predicted: the design, and where the times of computation
	// come from.
	Basis   string
	Chosen  time.Duration // the iteration with what has been chosen
	Weighed []Weighed     // choices that have a name, the quickest first
	Tried   int           // choices in all
	// Cut is the least iteration with slices, and Whole that without; 0: slices were not weighed.
	Cut, Whole time.Duration

	predict Iterator // nil where the choice was told
}

const (
	// nearTie is how much longer than the least predicted one an iteration may be to count as
	// equal to it. Predictions of iterations are no better than that: a choice that hides twice the bytes
	// behind computation would be taken for a gain of 1 % that the network, where it is slower than it seemed, makes a loss of 60.
	nearTie = 1.03
	// sameSlow is how much longer than the least one an iteration on a slow network may be to count as equal to it, and
	// fewerBytes how much less it must keep the port busy than that of a choice that was weighed before, and is simpler.
	sameSlow, fewerBytes = 1.01, 0.99
	// slicesGain is how much longer than the least iteration with slices that without must be, where servers work.
	slicesGain = 1.02
	// mostTried bounds the choices that are weighed, and so the time that choosing takes, alike on
	// all machines; mostCut is how many come to it with slices.
	mostTried, mostCut = 160, 40
	// slowNetwork is how many times less bandwidth a network has that is not what it seemed.
	slowNetwork = 2
)

// ByIteration changes what Choose has left to Auto: of each layer's own least time, which is what a
// stands at, Algorithm 1, one scheme for all layers or for all that sfb does not serve, and
// what comes of these by changing layers one after another, it takes the choice with the
// least predicted iteration. Of those within 3 % of that it takes those that are, within 1 %, the quickest on a network of
// half the bandwidth; and of these the one that keeps a node's port busy for the least time, since bytes are better known than latencies, and the
// cores that carry them are not always free. Where that makes less than 1 % it takes the first of them. The order is fixed and the work is bounded: equal predictions lead to
// equal choices. Where the book may be cut to slices, it weighs these too. basis says in words what predict goes by. Without a layer that is left to Auto it changes nothing.
func (a *Audit) ByIteration(basis string, predict Iterator) error {
	s := &search{audit: a, predict: predict, slice: a.Book.Slice, most: mostTried, candidates: candidates}
	for i := range a.Rows {
		if asked, _ := a.Asked.Of(a.Rows[i].Layer.Name); asked == Auto {
			s.free = append(s.free, i)
		}
	}
	if len(s.free) == 0 {
		return nil
	}
	s.named()
	if err := s.improve(); err != nil {
		return err
	}
	if err := s.cut(); err != nil {
		return err
	}
	it := &Iterations{Basis: basis, predict: predict}
	if a.Book.MaySlice > 0 {
		it.Cut, it.Whole = s.least(a.Book.MaySlice), s.least(AutoSlice)
		if !it.slicesPay(a.Book) {
			s.slice = AutoSlice
		}
	}
	at, err := s.best()
	if err != nil {
		return err
	}
	best := s.tried[at]
	it.Chosen, it.Tried = best.Time, len(s.tried)
	for _, w := range s.tried {
		if w.Name != "" {
			it.Weighed = append(it.Weighed, w)
		}
	}
	slices.SortStableFunc(it.Weighed, func(x, y Weighed) int { return int(x.Time - y.Time) })
	a.Iterations = it
	a.Book.slice(best.moves.Slice)
	a.take(best.moves.Schemes)
	return nil
}

// told is an audit on its way to other ranks.
type told struct {
	Rows       []Row // without Layer, which they have
	Slice      Slice
	Notes      []string
	Iterations *Iterations
}

// Told returns what a has come to, for ranks with equal books to Hear: predictions take time, and one rank makes them for all.
func (a *Audit) Told() []byte {
	t := told{slices.Clone(a.Rows), a.Book.Slice, a.Notes, a.Iterations}
	for i := range t.Rows {
		t.Rows[i].Layer = nil
	}
	text, _ := json.Marshal(t) // numbers and texts
	return text
}

// Hear returns the audit that another rank, whose book is equal and who was asked the same, has Told.
func (b *Book) Hear(asked Asked, text []byte) (*Audit, error) {
	var t told
	if err := json.Unmarshal(text, &t); err != nil {
		return nil, fmt.Errorf("a choice of schemes that was told: %w", err)
	}
	if len(t.Rows) != len(b.Layers) {
		return nil, fmt.Errorf("a choice of schemes that was told has %d layers, and this net %d", len(t.Rows), len(b.Layers))
	}
	for i := range t.Rows {
		t.Rows[i].Layer = &b.Layers[i]
	}
	b.slice(t.Slice)
	a := &Audit{Book: b, Asked: asked, Rows: t.Rows, Notes: t.Notes, Iterations: t.Iterations}
	a.deal()
	return a, nil
}

// Schemes returns what has been chosen, by layer of the book.
func (a *Audit) Schemes() []Scheme {
	all := make([]Scheme, len(a.Rows))
	for i := range a.Rows {
		all[i] = a.Rows[i].Choice
	}
	return all
}

// slicesPay reports whether slices make iterations so much shorter that they are worth their messages: thousands, which keep
// cores busy that are not always free. ResNet-152 over eight nodes took 1.04 times as long with slices that had won a tie as without any.
// Servers on nodes of their own send while they receive by slices alone: a whole layer's gradients are all there before its parameters go, and
// which server has how much to do at a time is not predicted. There nothing but the shorter iteration counts.
func (it *Iterations) slicesPay(b *Book) bool {
	gain := slicesGain
	if b.apart() {
		gain = 1
	}
	return float64(it.Whole) > gain*float64(it.Cut)
}

// take gives the layers such schemes, which were chosen by the iteration.
func (a *Audit) take(schemes []Scheme) {
	for i := range a.Rows {
		r := &a.Rows[i]
		if r.Choice == schemes[i] {
			continue
		}
		alone := r.Choice
		r.Choice = schemes[i]
		r.RunnerUp = r.fastest(r.Choice)
		r.Reason = fmt.Sprintf("for the iteration; alone it takes %.2f of %v's time", r.Of(r.Choice).Time.Seconds()/max(r.Of(alone).Time.Seconds(), 1e-9), alone)
	}
	a.deal()
}

// least returns the least iteration of those tried that are cut by slice; 0 if there is none.
func (s *search) least(slice Slice) (least time.Duration) {
	for i := range s.tried {
		if w := &s.tried[i]; w.moves.Slice == slice && (least == 0 || w.Time < least) {
			least = w.Time
		}
	}
	return least
}

// search is what ByIteration has weighed so far.
type search struct {
	audit   *Audit
	predict Iterator
	free    []int // rows
	tried   []Weighed
	known   int   // the first of tried have been predicted
	slice   Slice // of what is tried
	most    int   // tries
	// candidates are the schemes that are tried.
	candidates []Scheme
}

// try has a choice weighed, unless it has been already.
func (s *search) try(name string, schemes []Scheme) {
	for i := range s.tried {
		w := &s.tried[i]
		if w.moves.Slice == s.slice && slices.Equal(w.moves.Schemes, schemes) {
			switch {
			case w.Name == "":
				w.Name = name
			case name != "":
				w.Name += ", " + name
			}
			return
		}
	}
	s.tried = append(s.tried, Weighed{Name: name, moves: Moves{schemes, s.slice}})
}

// foresee predicts iterations of some choices, side by side, for take.
func (s *search) foresee(of []*Weighed, slower float64, take func(w *Weighed, f Foreseen)) error {
	errs := make([]error, len(of))
	var all sync.WaitGroup
	for i, w := range of {
		all.Go(func() {
			f, err := s.predict(w.moves, slower)
			take(w, f)
			errs[i] = err
		})
	}
	all.Wait()
	return cmp.Or(errs...)
}

// cut weighs slices, where there may be any: of ps, beside which sfb sends factors as they are. What reductions and allreduces of
// thousands of slices take is not predicted well enough to choose them: all of Inception-V3 by these, predicted to hide
// behind computation, took 1.75 times that in the lab.
func (s *search) cut() error {
	b := s.audit.Book
	if b.MaySlice <= 0 {
		return nil
	}
	best, err := s.best()
	if err != nil {
		return err
	}
	was := s.tried[best].moves.Schemes
	s.slice, s.most, s.candidates = b.MaySlice, min(len(s.tried), mostTried)+mostCut, []Scheme{SFB, PS}
	served := s.with(was, func(*Row) Scheme { return PS })
	for _, i := range s.free {
		if was[i] == SFB {
			served[i] = SFB
		}
	}
	s.try("", served)
	s.named()
	if _, err := s.best(); err != nil || s.least(s.slice) >= s.least(AutoSlice) { // then there is nothing to improve
		return err
	}
	return s.improve()
}

// best returns which of those tried is taken that are cut by s.slice.
func (s *search) best() (best int, err error) {
	var unknown []*Weighed
	for i := range s.tried[s.known:] {
		unknown = append(unknown, &s.tried[s.known+i])
	}
	s.known = len(s.tried)
	if err := s.foresee(unknown, 1, func(w *Weighed, f Foreseen) { w.Time, w.port = f.Time, f.Port }); err != nil {
		return 0, err
	}
	least := s.least(s.slice)
	var near []int
	unknown = unknown[:0]
	for i := range s.tried {
		w := &s.tried[i]
		if w.moves.Slice != s.slice || float64(w.Time) > nearTie*float64(least) {
			continue
		}
		if near = append(near, i); w.slow == 0 {
			unknown = append(unknown, w)
		}
	}
	if err := s.foresee(unknown, slowNetwork, func(w *Weighed, f Foreseen) { w.slow = f.Time }); err != nil {
		return 0, err
	}
	quickest := time.Duration(math.MaxInt64) // on a slow network
	for _, i := range near {
		quickest = min(quickest, s.tried[i].slow)
	}
	best = -1
	for _, i := range near {
		w := &s.tried[i]
		if float64(w.slow) <= sameSlow*float64(quickest) && (best < 0 || float64(w.port) < fewerBytes*float64(s.tried[best].port)) {
			best = i
		}
	}
	return best, nil
}

// with returns the choice of the layers by of, where that serves them, else as they stand in schemes.
func (s *search) with(schemes []Scheme, of func(r *Row) Scheme) []Scheme {
	schemes = slices.Clone(schemes)
	for _, i := range s.free {
		r := &s.audit.Rows[i]
		if c := of(r); r.Of(c).Serves {
			schemes[i] = c
		}
	}
	return schemes
}

// named weighs the choices that have a name.
func (s *search) named() {
	cut := ""
	if s.slice > 0 {
		cut = " in slices"
	}
	alone := s.audit.Schemes()
	if len(s.candidates) == len(candidates) {
		s.try("each layer's least"+cut, alone)
	}
	s.try("poseidon"+cut, s.with(alone, func(r *Row) Scheme { return s.audit.Book.best(r.Layer) }))
	for _, c := range s.candidates {
		if c == SFB {
			continue
		}
		s.try("all "+c.String()+cut, s.with(alone, func(*Row) Scheme { return c }))
		factors := s.with(alone, func(r *Row) Scheme {
			if r.Choice == SFB {
				return SFB
			}
			return c
		})
		s.try("sfb and "+c.String()+cut, factors)
	}
}

// improve changes the best choice so far layer by layer, the largest first, and runs of layers at the front of
// the net, whose gradients come last and whose parameters are needed first, until nothing is better.
func (s *search) improve() error {
	order := slices.Clone(s.free)
	slices.SortStableFunc(order, func(x, y int) int {
		return s.audit.Rows[y].Layer.Elements() - s.audit.Rows[x].Layer.Elements()
	})
	for before := -1; ; {
		best, err := s.best()
		if err != nil || best == before {
			return err
		}
		before = best
		for n := 1; n < len(s.free); n *= 2 { // the front of the net
			if err := s.change(s.free[:n]); err != nil {
				return err
			}
		}
		for _, i := range order {
			if err := s.change([]int{i}); err != nil {
				return err
			}
		}
	}
}

// change weighs every other scheme for some layers of the best choice so far.
func (s *search) change(rows []int) error {
	best, err := s.best()
	if err != nil {
		return err
	}
	from := s.tried[best].moves
	for _, c := range s.candidates {
		if len(s.tried) >= s.most {
			return nil
		}
		schemes := slices.Clone(from.Schemes)
		for _, i := range rows {
			if s.audit.Rows[i].Of(c).Serves {
				schemes[i] = c
			}
		}
		s.try("", schemes)
	}
	return nil
}

// Text says in a line what the choice was made by.
func (it *Iterations) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "chosen by the predicted iteration (%s): %v as chosen", it.Basis, units.Rough(it.Chosen))
	for _, w := range it.Weighed {
		fmt.Fprintf(&b, "; %v %s", units.Rough(w.Time), w.Name)
	}
	return b.String()
}

// sliced says in a line whether slices were taken, and why; "" where they were not weighed.
func (it *Iterations) sliced(s Slice) string {
	if it == nil || it.Whole == 0 || it.Cut == 0 {
		return ""
	}
	why := fmt.Sprintf("the least iteration with them is predicted to take %.3g of the least without", it.Cut.Seconds()/it.Whole.Seconds())
	switch {
	case s > 0:
		return fmt.Sprintf("cut to slices of %v: %s", s, why)
	case it.Cut < it.Whole:
		why += ", too little to gain for so many messages"
	}
	return "not cut to slices: " + why
}

// table is what was weighed, for programs.
func (it *Iterations) table() *report.Table[Weighed] {
	t := &report.Table[Weighed]{Columns: []report.Column[Weighed]{
		{Name: "choice", Value: func(w Weighed) any { return w.Name }},
		{Name: "iteration_ms", Digits: 3, Value: func(w Weighed) any { return w.Time }},
	}}
	if it != nil {
		t.Rows = append([]Weighed{{Name: "as chosen", Time: it.Chosen}}, it.Weighed...)
	}
	return t
}
