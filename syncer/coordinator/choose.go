package coordinator

import (
	"fmt"
	"time"
)

// Prediction is what a scheme is expected to take for a layer.
type Prediction struct {
	Time time.Duration
	// Spec is the algorithm that would serve it.
	Spec string
	// Refused, unless it is empty, says why the scheme cannot serve the layer as collectives are
	// asked to be done.
	Refused string
	// passes, unless it is 0, is how often the whole buffer passes the busiest port of a node one way; otherwise
	// parts of it do, which sum up to less than one reduction and one broadcast.
	passes int
	// back is how much longer parameters take than gradients.
	back time.Duration
}

// Predictor says how long the communication of a layer takes alone, what it makes
// the ranks compute included. A layer that the scheme cannot serve is not asked about.
type Predictor func(l *Layer, s Scheme) (Prediction, error)

// BestScheme is Algorithm 1: sfb or ps for a layer, by what Table 1 says that a node
// which is both server and worker sends and receives. P1 and P2 are ranks, K is the
// largest part of the batch. Inner products that have no factors are not FC to it.
func (b *Book) BestScheme(name string) (Scheme, error) {
	l, err := b.Layer(name)
	if err != nil {
		return 0, err
	}
	return b.best(l), nil
}

func (b *Book) best(l *Layer) Scheme {
	if l.noFactors() == "" && algorithm1(l.Rows, l.Cols, b.factorRows(l), len(b.Workers), len(b.Servers)) {
		return SFB
	}
	return PS
}

// Outlook is what a scheme would cost for a layer.
type Outlook struct {
	Scheme Scheme
	Serves bool // the scheme can serve the layer
	// Bytes is Book.Values in bytes.
	Bytes float64
	Prediction
}

// Row is the choice for one layer.
type Row struct {
	Layer    *Layer
	Outlooks []Outlook // of Schemes, in their order
	Choice   Scheme
	// RunnerUp is what would have been taken without Choice; Auto: nothing else
	// could be.
	RunnerUp Scheme
	Reason   string
}

// Of returns the row's outlook of a scheme.
func (r *Row) Of(s Scheme) Outlook {
	for _, o := range r.Outlooks {
		if o.Scheme == s {
			return o
		}
	}
	return Outlook{Scheme: s}
}

// Audit says which scheme serves which layer, and why.
type Audit struct {
	Book  *Book
	Asked Asked
	Rows  []Row // by layer of the book
	// Notes are lines that a report has above the rows.
	Notes []string
	// Iterations are what the choice was made by; nil where it went layer by layer.
	Iterations *Iterations
}

// Chosen asks for what has been chosen: the scheme of most layers for the net, and others by
// name.
func (a *Audit) Chosen() Asked {
	var asked Asked
	count := map[Scheme]int{}
	for i := range a.Rows {
		count[a.Rows[i].Choice]++
	}
	for s, n := range count {
		if most := count[asked.Default]; n > most || n == most && s < asked.Default {
			asked.Default = s
		}
	}
	for i := range a.Rows {
		if r := &a.Rows[i]; r.Choice != asked.Default {
			asked.Rules = append(asked.Rules, Rule{r.Layer.Name, r.Choice})
		}
	}
	return asked
}

// Choose gives every layer its scheme, and its pairs to the layers that ps
// and adam serve. predict may be nil where nothing asks for auto: then no row has times.
func (b *Book) Choose(asked Asked, predict Predictor) (*Audit, error) {
	if err := asked.check(b.Layers); err != nil {
		return nil, err
	}
	a := &Audit{Book: b, Asked: asked}
	for i := range b.Layers {
		r, err := b.row(&b.Layers[i], asked, predict)
		if err != nil {
			return nil, fmt.Errorf("layer %q: %w", b.Layers[i].Name, err)
		}
		a.Rows = append(a.Rows, r)
	}
	a.noteRefused()
	a.deal()
	return a, nil
}

// noteRefused notes the exact schemes that no layer can go by as collectives are asked to be done.
func (a *Audit) noteRefused() {
	for _, s := range candidates {
		for i := range a.Rows {
			if o := a.Rows[i].Of(s); o.Refused != "" {
				a.Notes = append(a.Notes, fmt.Sprintf("# %v cannot be had: %s", s, o.Refused))
				break
			}
		}
	}
}

// deal gives pairs to the layers that servers update.
func (a *Audit) deal() {
	var served [][]int
	var whole []int
	for i := range a.Rows {
		switch a.Rows[i].Choice {
		case Adam:
			whole = append(whole, i)
			fallthrough
		case PS:
			served = append(served, []int{i})
		}
	}
	a.Book.Deal(served, whole...)
}

// row decides on one layer.
func (b *Book) row(l *Layer, asked Asked, predict Predictor) (r Row, err error) {
	r.Layer = l
	for _, s := range Schemes() {
		o := Outlook{Scheme: s}
		var values float64
		if values, o.Serves = b.Values(l, s); o.Serves {
			o.Bytes = 4 * values
			if predict != nil {
				if o.Prediction, err = predict(l, s); err != nil {
					return r, err
				}
				o.Serves = o.Refused == ""
			}
		}
		r.Outlooks = append(r.Outlooks, o)
	}
	s, named := asked.Of(l.Name)
	why := l.noFactors()
	switch {
	case s == Auto && predict == nil:
		return r, fmt.Errorf("scheme %v needs predictions", Auto)
	case s == Auto:
		r.auto()
	case s == Poseidon:
		b.poseidon(&r)
	case s.FactorsOnly() && why != "":
		r.Choice, r.RunnerUp, r.Reason = PS, r.fastest(PS), fmt.Sprintf("%v serves inner products alone: %s", s, why)
	default:
		r.Choice, r.RunnerUp, r.Reason = s, r.fastest(s), "asked for this layer"
		if !named {
			r.Reason = "asked for"
		}
	}
	return r, nil
}

// auto takes the least predicted time.
func (r *Row) auto() {
	r.Choice = r.fastest(Auto)
	r.RunnerUp = r.fastest(r.Choice)
	best, next := r.Of(r.Choice).Time, r.Of(r.RunnerUp).Time
	switch {
	case best == next:
		r.Reason = fmt.Sprintf("predicted to take as long as %v, which comes after it", r.RunnerUp)
	default:
		r.Reason = fmt.Sprintf("the least predicted time, %.2f of %v's", best.Seconds()/next.Seconds(), r.RunnerUp)
	}
}

// fastest returns the exact scheme with the least predicted time, other than not;
// where there are no predictions, the one with the fewest bytes.
func (r *Row) fastest(not Scheme) Scheme {
	best := Auto
	for _, s := range candidates {
		o := r.Of(s)
		if s == not || !o.Serves {
			continue
		}
		b := r.Of(best)
		if best == Auto || o.Time < b.Time || o.Spec == "" && o.Bytes < b.Bytes {
			best = s
		}
	}
	return best
}

// poseidon is Algorithm 1 with its reason.
func (b *Book) poseidon(r *Row) {
	r.Choice = b.best(r.Layer)
	if why := r.Layer.noFactors(); why != "" {
		r.RunnerUp, r.Reason = r.fastest(PS), "Algorithm 1: "+why
		return
	}
	l, p1, p2 := r.Layer, len(b.Workers), len(b.Servers)
	sfb := SFBCost(l.Rows, l.Cols, b.factorRows(l), p1).Both
	ps := PSCost(l.Rows*l.Cols, p1, p2).Both
	sign := "≤"
	r.RunnerUp = PS
	if r.Choice == PS {
		sign, r.RunnerUp = ">", SFB
	}
	r.Reason = fmt.Sprintf("Algorithm 1: 2K(P1−1)(M+N) = %s %s %s = 2MN(P1+P2−2)/P2", millions(sfb), sign, millions(ps))
}

// millions prints a number of values.
func millions(x float64) string {
	if x < 1e5 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.4g M", x/1e6)
}
