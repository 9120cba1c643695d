package workload

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"text/tabwriter"
	"time"
)

// Work is how much a net computes, whatever computes it.
type Work struct {
	Net    string
	Layers []LayerWork
}

// LayerWork is the work of one layer and sample.
type LayerWork struct {
	Name, Type string
	Params     []int // as in Layer, and
	Rows, Cols int
	// MACs are the multiply-adds of a forward pass, 0 for layers whose time is
	// that of memory.
	MACs int
	// Values are the elements of all its bottoms and tops.
	Values int
	// Data and Weights say whether its backward pass makes gradients of a
	// bottom, and of its parameters.
	Data, Weights bool
}

// free are layers whose forward pass moves no data.
var free = map[string]bool{"Split": true, "Flatten": true, "Reshape": true}

// Machine is what decides how a net's time falls to its layers. Only the ratio
// of its two numbers counts.
type Machine struct {
	FLOPS     float64 // peak, per second; a multiply-add is two
	Bandwidth float64 // of its memory, bytes per second
}

// Published is a time for a whole net.
type Published struct {
	Batch int
	// Total is the time of an iteration, the update included. Where Forward
	// and Backward are known, it is 0.
	Total             time.Duration
	Forward, Backward time.Duration
	Source            string
}

// Spread makes a profile of a published time: layers take the larger of the
// time for their multiply-adds and that for their bytes, and all of that is
// multiplied so that the sum is what was published. The update is 5 accesses
// to every parameter (momentum SGD reads parameter, gradient and history and
// writes two of them) at the bandwidth of the memory.
func (w *Work) Spread(m Machine, t Published) (*Profile, error) {
	if !(m.FLOPS > 0) || !(m.Bandwidth > 0) || t.Batch < 1 {
		return nil, fmt.Errorf("%v with a batch of %d: want positive values", m, t.Batch)
	}
	p := &Profile{Net: w.Net, Source: t.Source, Batch: t.Batch}
	forward, backward := make([]float64, len(w.Layers)), make([]float64, len(w.Layers))
	var sumForward, sumBackward float64
	for i, l := range w.Layers {
		p.Layers = append(p.Layers, Layer{Name: l.Name, Type: l.Type, Params: l.Params, Rows: l.Rows, Cols: l.Cols})
		forward[i], backward[i] = l.seconds(m, t.Batch)
		sumForward += forward[i]
		sumBackward += backward[i]
	}
	p.Update = seconds(5 * 4 * float64(p.Elements()) / m.Bandwidth)
	if t.Total > 0 {
		rest := (t.Total - p.Update).Seconds()
		if rest <= 0 {
			return nil, fmt.Errorf("the update alone takes %v of the published %v", p.Update, t.Total)
		}
		t.Forward = seconds(rest * sumForward / (sumForward + sumBackward))
		t.Backward = seconds(rest * sumBackward / (sumForward + sumBackward))
	}
	for i := range p.Layers {
		p.Layers[i].Forward = seconds(forward[i] / sumForward * t.Forward.Seconds())
		p.Layers[i].Backward = seconds(backward[i] / sumBackward * t.Backward.Seconds())
	}
	return p, p.Validate()
}

func seconds(s float64) time.Duration { return time.Duration(math.Round(s * float64(time.Second))) }

// seconds returns how long a layer takes at a machine's peaks.
func (l LayerWork) seconds(m Machine, batch int) (forward, backward float64) {
	params := 0
	for _, n := range l.Params {
		params += n
	}
	flops := 2 * float64(l.MACs) * float64(batch)
	bytes := 4 * (float64(l.Values)*float64(batch) + float64(params))
	one := max(flops/m.FLOPS, bytes/m.Bandwidth)
	if !free[l.Type] {
		forward = one
	}
	switch {
	case l.MACs == 0 && (l.Data || l.Weights):
		backward = 2 * one // values and gradients
	case l.Data && l.Weights:
		backward = 2 * one
	case l.Data || l.Weights:
		backward = one
	}
	return forward, backward
}

// ParseWork reads the text form of a net's work.
func ParseWork(name, text string) (*Work, error) {
	w := &Work{}
	err := eachLine(name, text, func(key string, l *line) (err error) {
		switch key {
		case "net":
			w.Net, err = l.word("net name")
		case "layer":
			err = w.parseLayer(l)
		default:
			err = fmt.Errorf("unknown key %q: want net or layer", key)
		}
		return err
	})
	if err == nil && len(w.Layers) == 0 {
		err = &ParseError{Name: name, Err: errors.New("missing layers")}
	}
	return w, err
}

// passes names what a backward pass makes.
var passes = map[string][2]bool{"-": {}, "data": {true, false}, "weights": {false, true}, "both": {true, true}}

func (w *Work) parseLayer(l *line) (err error) {
	var y LayerWork
	var errs [5]error
	var back string
	y.Name, errs[0] = l.word("layer name")
	y.Type, errs[1] = l.word("layer type")
	y.MACs, errs[2] = l.integer("number of multiply-adds")
	y.Values, errs[3] = l.integer("number of values")
	back, errs[4] = l.word("gradients")
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	pass, ok := passes[back]
	if !ok {
		return fmt.Errorf("invalid gradients %q: want -, data, weights or both", back)
	}
	y.Data, y.Weights = pass[0], pass[1]
	if y.Params, y.Rows, y.Cols, err = l.params(); err != nil {
		return err
	}
	w.Layers = append(w.Layers, y)
	return Layer{Name: y.Name, Type: y.Type, Params: y.Params, Rows: y.Rows, Cols: y.Cols}.validate()
}

// String returns the text form, which ParseWork reads.
func (w *Work) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Code generated by replay/workload/measure/gen. DO NOT EDIT.\n# The work of a net, one sample: see package workload.\nnet %s\n", quote(w.Net))
	t := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
	fmt.Fprintln(t, "# layer name\ttype\tmultiply-adds\tvalues\tgradients of\telements of each parameter, of a matrix ROWSxCOLUMNS")
	for _, l := range w.Layers {
		back := "-"
		for name, pass := range passes {
			if pass == [2]bool{l.Data, l.Weights} {
				back = name
			}
		}
		fmt.Fprintf(t, "layer %s\t%s\t%d\t%d\t%s", quote(l.Name), quote(l.Type), l.MACs, l.Values, back)
		writeParams(t, l.Params, l.Rows, l.Cols)
	}
	_ = t.Flush()
	return trimLines(b.String())
}
