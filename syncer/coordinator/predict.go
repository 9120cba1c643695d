package coordinator

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
)

// Network predicts by the cost model of the collectives, whose parameters are
// measured and rounded. Reductions, broadcasts and allreduces are those that are asked for, or
// that the selection would take. Of servers and factors it counts what passes the busiest
// node's port one way, the additions at the servers, and latencies.
type Network struct {
	Book     *Book
	Selector *selection.Selector
	// Spec, unless it has no levels, is how collectives are asked to be done, those of servers
	// apart. Library says that the MPI library's own may serve them.
	Spec    spec.Spec
	Library bool
	// Product says how long the computation goes on that sfb and adam add to a
	// layer's: rebuilding its gradient from the factors of all workers, less what its
	// own backward pass leaves out. Where it is nil, no time.
	Product func(l *Layer) time.Duration

	// What has been found already: nets have many layers of few sizes.
	batch   *selection.Batch
	classes map[selection.Query]class
}

// class is what serves the collectives of a class of sizes, and how long it takes: time is all but linear in the bytes
// between the ends of a class.
type class struct {
	spec        string
	passes      int // as in Prediction
	refused     string
	below       int // bytes; the least of the class has one more
	least, most time.Duration
}

// Predict is a Predictor.
func (n *Network) Predict(l *Layer, s Scheme) (Prediction, error) {
	if len(n.Book.Nodes) == 1 {
		return Prediction{Spec: "none"}, nil // nobody to be kept in step with
	}
	switch s {
	case Reduce:
		down := n.collective(schedule.Reduce, l)
		up := n.collective(schedule.Bcast, l)
		if up.Spec != down.Spec {
			down.Spec += ", " + up.Spec
		}
		return Prediction{Time: down.Time + up.Time, Spec: down.Spec, Refused: cmp.Or(down.Refused, up.Refused)}, nil
	case Allreduce:
		return n.collective(schedule.Allreduce, l), nil
	case PS:
		return n.servers(l), nil
	case SFB:
		return n.factors(l), nil
	case Adam:
		return n.adam(l), nil
	}
	if s == DGC {
		return n.sparse(l), nil
	}
	return n.onebit(l), nil
}

// Bucket predicts what neighboring layers cost that move as one by s. specs, as
// many as the scheme has collectives, are those that serve reduce and allreduce.
func (n *Network) Bucket(layers []*Layer, s Scheme, specs []spec.Spec) (Outlook, error) {
	o := Outlook{Scheme: s, Serves: true}
	if s.FactorsOnly() { // each by its own
		for _, l := range layers {
			one, err := n.one(l, s, specs)
			if err != nil {
				return o, err
			}
			o.Bytes, o.Time, o.Spec = o.Bytes+one.Bytes, o.Time+one.Time, one.Spec
		}
		return o, nil
	}
	all := merged(layers)
	return n.one(&all, s, specs)
}

// one predicts what a layer costs.
func (n *Network) one(l *Layer, s Scheme, specs []spec.Spec) (o Outlook, err error) {
	o.Scheme = s
	var values float64
	if values, o.Serves = n.Book.Values(l, s); !o.Serves {
		return o, fmt.Errorf("%v: %s", s, l.noFactors())
	}
	o.Bytes = 4 * values
	by := map[Scheme][]schedule.Collective{Reduce: {schedule.Reduce, schedule.Bcast}, Allreduce: {schedule.Allreduce}}[s]
	if by == nil || len(specs) != len(by) {
		o.Prediction, err = n.Predict(l, s)
		return o, err
	}
	for i, v := range by {
		o.Time += n.predict(query(v, 4*l.Elements()), specs[i])
		if text := specs[i].String(); o.Spec == "" {
			o.Spec = text
		} else if o.Spec != text {
			o.Spec += ", " + text
		}
	}
	return o, nil
}

// Layout is that of the workers, who take part in collectives.
func (n *Network) Layout() spec.Layout {
	var nodes []int
	for _, r := range n.Book.Workers {
		nodes = append(nodes, n.Book.Nodes[r])
	}
	return spec.LayoutOf(nodes)
}

// collective predicts one of a layer's parameters, as it is asked for or selected.
func (n *Network) collective(v schedule.Collective, l *Layer) Prediction {
	bytes := 4 * l.Elements()
	q := n.classOf(v, bytes)
	c := n.class(q)
	part := 1.0
	if q.Bytes > bytes {
		part = float64(bytes-c.below) / float64(q.Bytes-c.below)
	}
	return Prediction{Time: c.least + time.Duration(part*float64(c.most-c.least)), Spec: c.spec, Refused: c.refused, passes: c.passes}
}

// classOf is the query that stands for a collective of so many bytes.
func (n *Network) classOf(v schedule.Collective, bytes int) selection.Query {
	q := query(v, bytes)
	q.Library = n.Library
	return n.Selector.Class(q)
}

// class finds what serves a class.
func (n *Network) class(q selection.Query) class {
	c, found := n.found()[q]
	if found {
		return c
	}
	choice, err := n.asking().Select(n.Layout(), q, n.Spec)
	if err != nil { // what is asked for cannot be had
		c.refused = err.Error()
	} else {
		c.spec = choice.Spec.String()
		switch top := choice.Spec.Levels[len(choice.Spec.Levels)-1].Algorithm; {
		case top == "doubling", top == "binomial":
			c.passes = bits.Len(uint(n.Book.NodeCount() - 1))
		case top == "linear" && q.Collective != schedule.Allgather:
			c.passes = n.Book.NodeCount() - 1
		case top == "chain" && n.Book.NodeCount() > 2: // each node between its ends takes in, and sends on, all there is
			if c.passes = 1; q.Collective == schedule.Allreduce {
				c.passes = 2
			}
		}
		c.below, c.most = n.Selector.Below(q), n.predict(q, choice.Spec)
		least := q
		least.Bytes = c.below
		c.least = n.predict(least, choice.Spec)
	}
	n.classes[q] = c
	return c
}

// found returns what has been found of classes.
func (n *Network) found() map[selection.Query]class {
	if n.classes == nil {
		n.classes = map[selection.Query]class{}
	}
	return n.classes
}

// Share has n know what other has found of collectives, and other what n finds: both predict for workers on the same nodes, by one
// selector, as is asked for by one spec. They take turns.
func (n *Network) Share(other *Network) { n.classes = other.found() }

// Ahead cuts into parts what a choice of schemes is going to ask of collectives, of buckets of such sizes in bytes besides the
// layers'. The parts can be done side by side; when they have been, take has n know what they came to.
func (n *Network) Ahead(parts int, buckets []int) (do []func(), take func()) {
	var queries []selection.Query
	ask := func(bytes int) {
		for _, v := range []schedule.Collective{schedule.Reduce, schedule.Bcast, schedule.Allreduce} {
			q := n.classOf(v, bytes)
			if _, found := n.found()[q]; !found && !slices.Contains(queries, q) {
				queries = append(queries, q)
			}
		}
	}
	for i := range n.Book.Layers {
		ask(4 * n.Book.Layers[i].Elements())
	}
	for _, bytes := range buckets {
		ask(bytes)
	}
	slices.SortStableFunc(queries, func(x, y selection.Query) int { return y.Bytes - x.Bytes }) // so that parts are alike
	var all []*Network
	for i := range min(parts, len(queries)) {
		one := &Network{Book: n.Book, Selector: n.Selector, Spec: n.Spec, Library: n.Library}
		all = append(all, one)
		do = append(do, func() {
			for k := i; k < len(queries); k += parts {
				one.class(queries[k])
			}
		})
	}
	return do, func() {
		for _, one := range all {
			maps.Copy(n.found(), one.classes)
		}
	}
}

// Collective predicts one of so many bytes between the workers, as it is asked for; without levels as
// Spec says, or is selected.
func (n *Network) Collective(v schedule.Collective, bytes int, asked spec.Spec) (time.Duration, error) {
	if len(asked.Levels) > 0 {
		return n.predict(query(v, bytes), asked), nil
	}
	p := n.collective(v, &Layer{Params: []Range{{Len: bytes / 4}}})
	if p.Refused != "" {
		return 0, errors.New(p.Refused)
	}
	return p.Time, nil
}

// query asks about a collective of registered buffers.
func query(v schedule.Collective, bytes int) selection.Query {
	return selection.Query{Collective: v, Bytes: bytes, Type: mem.Float32, Buffers: selection.Registered}
}

// predict says how long a collective takes by a spec.
func (n *Network) predict(q selection.Query, how spec.Spec) time.Duration {
	return seconds(n.asking().Predict(n.Layout(), q, how))
}

// Forget drops the schedules that predictions were made of, which take some dozen megabytes of a big net. Later
// predictions are the same, and build them again.
func (n *Network) Forget() { n.batch = nil }

func (n *Network) asking() *selection.Batch {
	if n.batch == nil {
		n.batch = n.Selector.Batch()
	}
	return n.batch
}

// CutTo returns n for parameters that are cut by s; what has been found already they share.
func (n *Network) CutTo(s Slice) *Network {
	n.asking()
	n.found()
	book, cut := *n.Book, *n
	book.slice(s)
	cut.Book = &book
	return &cut
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// wire is how long it takes until every node has so many bytes through its port,
// each way, or until the cores of a machine have carried those of all its nodes; on one node, until every rank has so many of others' memory, at what one
// core reads and what the memory gives to all.
func (n *Network) wire(bytes float64) float64 {
	m := &n.Selector.Model
	if n.Book.NodeCount() > 1 {
		return max(bytes/m.Inter.Bandwidth, m.Carrying(2*bytes))
	}
	all := float64(len(n.Book.Nodes))
	turns := 1.0 // on fewer cores than ranks
	if m.Cores > 0 {
		turns = max(1, all/m.Cores)
	}
	return max(turns*bytes/m.Fresh, 2*all*bytes/m.Memory.At(2*bytes+1, m.Cache))
}

// hop is the latency of a message.
func (n *Network) hop() float64 {
	m := &n.Selector.Model
	if n.Book.NodeCount() == 1 {
		return m.Intra.Latency + 2*m.Op
	}
	return m.Inter.Latency + 2*m.Op
}

// add is how long one rank takes to add so many bytes to others.
func (n *Network) add(bytes float64) float64 {
	m := &n.Selector.Model
	return 3 * bytes / m.Core.At(3*bytes+1, m.Cache)
}

// credit is that of slices, the default one: what is chosen does not depend on what is asked for.
func (n *Network) credit() int { return DefaultCredit(n.Book.NodeCount(), n.Book.workingNodes()) }

// under returns how many slices of so many bytes are under way from a rank.
func (n *Network) under(bytes float64) float64 {
	return max(1, float64(n.Book.Slice.CreditBytes(n.credit()))/min(bytes, spec.DefaultChunk))
}

// senders is how many send through the network to a server: nodes, whose ranks
// are summed first; on one node, ranks.
func (n *Network) senders() float64 {
	if nodes := n.Book.NodeCount(); nodes > 1 {
		return float64(min(nodes, len(n.Book.Workers)))
	}
	return float64(len(n.Book.Workers))
}

// servers predicts ps: all pairs of a bucket are pushed at once, and so arrive at about the same
// time, when the server with the most of them has them all; then they are pulled. What the ranks of a
// node add up before is one node-level reduction and broadcast more.
func (n *Network) servers(l *Layer) Prediction {
	b := n.Book
	bytes, others := 4*float64(l.Elements()), n.senders()
	most, least, pairs := n.shares(l)
	if _, _, both := b.roles(); both {
		others-- // a server keeps its own part
	} else {
		least = 0
	}
	oneWay := n.wire(max(most*others, bytes-least))
	pair := most
	if b.PairBytes > 0 {
		pair = min(most, float64(b.PairBytes))
	}
	messages := n.messages(pairs, others)
	oneWay = max(oneWay, n.handling(messages))
	if b.Slice > 0 && b.NodeCount() > 1 { // of which so many are under way
		oneWay = max(oneWay, messages*(n.wire(pair)+2*n.hop())/n.under(pair))
	}
	t := 2*n.hop() + 2*oneWay + n.add(pair)
	specText := "linear"
	if layout := n.Layout(); layout.Nodes > 1 && layout.PPN > 1 {
		specText = "linear/linear"
		m := &n.Selector.Model
		t += 2*(m.Intra.Latency+m.Op) + float64(layout.PPN)*bytes/m.Memory.At(bytes, m.Cache)
	}
	p := Prediction{Time: seconds(t), Spec: specText}
	if b.Pull == PullRequest { // notice and question; and every worker has an answer of its own
		p.back = seconds(2*n.hop() + float64(max(1, n.Layout().PPN)-1)*oneWay)
		p.Time += p.back
	}
	return p
}

// messages is how many of so many pairs a rank has to do with one way: each worker sends every pair, and each server takes its
// own from all others.
func (n *Network) messages(pairs, others float64) float64 {
	return math.Ceil(max(pairs, pairs/float64(len(n.Book.Servers))*others))
}

// handling is how long so many messages take the cores of a machine, whose ranks have as many each.
func (n *Network) handling(messages float64) float64 {
	m := &n.Selector.Model
	turns := 1.0
	if m.Cores > 0 {
		turns = max(1, max(1, m.Hosted)*float64(max(1, n.Layout().PPN))/m.Cores)
	}
	return turns * messages * (m.Op + m.Packet)
}

// shares returns how many bytes of a layer alone the server with the most has, and that with the least, and how many pairs
// the layer has.
func (n *Network) shares(l *Layer) (most, least, pairs float64) {
	alone := Book{Servers: n.Book.Servers, PairBytes: n.Book.PairBytes, Placement: n.Book.Placement, Seed: n.Book.Seed, Layers: []Layer{*l}}
	alone.Deal([][]int{{0}})
	of := map[int]float64{}
	for _, p := range alone.Pairs {
		of[p.Server] += 4 * float64(p.Len)
		most = max(most, of[p.Server])
	}
	pairs = float64(len(alone.Pairs))
	if len(of) < len(n.Book.Servers) {
		return most, 0, pairs
	}
	return most, slices.Min(slices.Collect(maps.Values(of))), pairs
}

// factors predicts sfb: an allgather of the factors, and the product.
func (n *Network) factors(l *Layer) Prediction {
	b := n.Book
	if asked := n.Spec; len(asked.Levels) > 0 {
		rows := b.factorRows(l) * len(b.Workers)
		p := n.collective(schedule.Allgather, &Layer{Params: []Range{{Len: rows * (l.Rows + l.Cols)}}})
		p.Time += n.product(l)
		return p
	}
	part := 4 * float64(b.factorRows(l)) * float64(l.Rows+l.Cols)
	p, ppn := float64(len(b.Workers)), float64(n.Layout().PPN)
	if n.Layout().Nodes == 1 {
		ppn = 1
	}
	linear := n.hop() + n.wire((p-ppn)*ppn*part)
	ring := (p-1)*n.hop() + n.wire((p-ppn)*part)
	if p < 2 {
		linear, ring = 0, 0
	}
	product := n.product(l)
	if ring < linear {
		return Prediction{Time: seconds(ring) + product, Spec: "ring"}
	}
	return Prediction{Time: seconds(linear) + product, Spec: "linear"}
}

func (n *Network) product(l *Layer) time.Duration {
	if n.Product == nil {
		return 0
	}
	return n.Product(l)
}

// adam predicts adam: all factors to one server, the matrix from it to all.
func (n *Network) adam(l *Layer) Prediction {
	b := n.Book
	part := 4 * float64(b.factorRows(l)) * float64(l.Rows+l.Cols)
	others := float64(len(b.Workers) - 1)
	if _, _, both := b.roles(); !both { // the server has none of the factors itself
		others++
	}
	t := 2*n.hop() + n.wire(others*part) + n.wire(others*4*float64(l.Elements()))
	return Prediction{Time: seconds(t) + n.product(l), Spec: "linear"}
}

// sparse predicts dgc: everyone sends places and values to everyone. What it takes to select them is left out,
// as with onebit.
func (n *Network) sparse(l *Layer) Prediction {
	p, ppn := float64(len(n.Book.Workers)), float64(n.Layout().PPN)
	if n.Layout().Nodes == 1 {
		ppn = 1
	}
	if p < 2 {
		return Prediction{Spec: "none"}
	}
	message := 8 * float64(n.Book.sent(l))
	return Prediction{Time: seconds(n.hop() + n.wire((p-ppn)*ppn*message)), Spec: "linear"}
}

// onebit predicts onebit: stripes of quantised values in, and out again.
func (n *Network) onebit(l *Layer) Prediction {
	values, _ := n.Book.Values(l, OneBit) // in and out
	return Prediction{Time: seconds(2*n.hop() + n.wire(2*values)), Spec: "direct"}
}
