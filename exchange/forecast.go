package exchange

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/syncer/coordinator"
	"github.com/scaffe/scaffe/syncer/ps"
)

// Forecast predicts iterations of one net, whatever schemes its layers go by.
type Forecast struct {
	Design Design
	// UpdateAtOnce and Bucket are as in Config.
	UpdateAtOnce bool
	Bucket       int
	Layers       []Layer
	Count        int // elements of a packed buffer
	// FirstCome is as in Config.
	FirstCome bool
	// Network predicts what travels; the layers of its book are those of Layers with parameters.
	Network *coordinator.Network
	// Passes are how long each of Layers computes.
	Passes []Passes
	// Rebuilding is how long the backward pass of a layer takes that leaves its gradient out, and how long it takes to
	// rebuild that from the factors of all workers.
	Rebuilding func(layer int) (left, product time.Duration)
	// Update is how long updating all parameters takes.
	Update time.Duration

	lock   sync.Mutex // of what has been found already:
	inBook []int
	cut    map[coordinator.Slice]*coordinator.Network
	least  map[Scheme]int
	known  map[stretch]Expected // nets are cut at the same places by many choices
}

// stretch is what a bucket's prediction depends on.
type stretch struct {
	first, last int
	scheme      Scheme
	slice       coordinator.Slice
}

// Iteration predicts one, where layers go by schemes and are cut to slices, through ports of slower times less bandwidth
// than they seem to have. Several may be predicted side by side.
func (f *Forecast) Iteration(schemes []Scheme, slice coordinator.Slice, slower float64) (i coordinator.Foreseen, err error) {
	passes, buckets, err := f.buckets(schemes, slice)
	if err != nil {
		return i, err
	}
	for k := range buckets {
		e := &buckets[k]
		for _, of := range []struct{ took, port *time.Duration }{{&e.Push, &e.PushPort}, {&e.Pull, &e.PullPort}} {
			longer := time.Duration((slower - 1) * float64(*of.port))
			*of.took, *of.port = *of.took+longer, *of.port+longer
			i.Port += *of.port
		}
		e.Behind = time.Duration(slower * float64(e.Behind))
	}
	i.Time = PredictIteration(f.Design, f.UpdateAtOnce, passes, buckets)
	return i, nil
}

// buckets are those of layers that go by schemes, and how long each layer then computes.
func (f *Forecast) buckets(schemes []Scheme, slice coordinator.Slice) (passes []Passes, all []Expected, err error) {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.known == nil {
		f.known, f.least, f.inBook, f.cut = map[stretch]Expected{}, map[Scheme]int{}, InBook(f.Layers), map[coordinator.Slice]*coordinator.Network{}
	}
	if f.cut[slice] == nil {
		f.cut[slice] = f.Network.CutTo(slice)
	}
	for l, s := range schemes {
		if f.inBook[l] < 0 {
			continue
		}
		if _, there := f.least[s]; !there {
			if f.least[s], err = f.leastBucket(s); err != nil {
				return nil, nil, err
			}
		}
	}
	buckets, err := Divide(f.Design, f.Layers, schemes, f.Count, f.least)
	if err != nil {
		return nil, nil, err
	}
	passes, all = slices.Clone(f.Passes), make([]Expected, len(buckets))
	for i, b := range buckets {
		if all[i], err = f.expected(b, slice); err != nil {
			return nil, nil, err
		}
		all[i].Equal = f.FirstCome
		if rebuilds(b.Scheme) {
			for _, l := range b.Layers {
				passes[l].Backward, _ = f.Rebuilding(l)
			}
		}
	}
	of, members, whole := served(buckets, f.inBook)
	for i, shares := range f.cut[slice].Book.Shares(members, whole...) {
		all[of[i].Index].Shares = shares
	}
	return passes, all, nil
}

// rebuilds reports whether factors take the place of gradients.
func rebuilds(s Scheme) bool { return s == SFB || s == Adam }

// expected predicts what a bucket takes.
func (f *Forecast) expected(b Bucket, slice coordinator.Slice) (Expected, error) {
	key := stretch{b.Layers[0], b.Layers[len(b.Layers)-1], b.Scheme, slice}
	e, found := f.known[key]
	e.Bucket = b
	if found {
		return e, nil
	}
	var layers []*coordinator.Layer
	for _, i := range b.Layers {
		layers = append(layers, &f.Network.Book.Layers[f.inBook[i]])
		if rebuilds(b.Scheme) {
			_, product := f.Rebuilding(i)
			e.Rebuild += product
		}
	}
	var err error
	if e.Phases, err = f.cut[slice].Phases(layers, b.Scheme); err != nil {
		return e, fmt.Errorf("prediction of bucket %q: %w", b.Name, err)
	}
	part := float64(b.Len) / float64(f.Count)
	if b.Scheme == PS {
		part /= float64(len(f.Network.Book.Servers))
	}
	e.Update = time.Duration(part * float64(f.Update))
	f.known[key] = e
	return e, nil
}

// leastBucket returns the least size of a bucket that goes by s, as New has it.
func (f *Forecast) leastBucket(s Scheme) (int, error) {
	return leastBucket(f.Bucket, s, bytesOf(f.Layers), func(v schedule.Collective, bytes int) (time.Duration, error) {
		var asked spec.Spec
		if s.Served() {
			asked = ps.Spec(f.Network.Layout())
		}
		return f.Network.Collective(v, bytes, asked)
	})
}

// weigh is a coordinator.Iterator for the layers of the book.
func (f *Forecast) weigh(m coordinator.Moves, slower float64) (coordinator.Foreseen, error) {
	all := make([]Scheme, len(f.Layers))
	for i, at := range InBook(f.Layers) {
		if at >= 0 {
			all[i] = m.Schemes[at]
		}
	}
	return f.Iteration(all, m.Slice, slower)
}
