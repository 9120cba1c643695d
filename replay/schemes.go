package replay

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/kernels/factors"
	"github.com/scaffe/scaffe/replay/workload"
	"github.com/scaffe/scaffe/syncer/coordinator"
)

// Book returns the information book for training a profile's net: c says who
// works and serves, and how large pairs are; every worker has the profile's batch.
func Book(p *workload.Profile, c coordinator.Config) (*coordinator.Book, error) {
	placed, _ := layout(p)
	return book(p, placed, c)
}

// book is Book of the net's first layers, which are placed.
func book(p *workload.Profile, placed []exchange.Layer, c coordinator.Config) (*coordinator.Book, error) {
	workers, err := c.Workers.Of("workers", c.Nodes)
	if err != nil {
		return nil, err
	}
	c.Batch = make([]int, len(c.Nodes))
	for _, r := range workers {
		c.Batch[r] = p.K()
	}
	c.Layers = nil
	for i := range placed {
		l := &p.Layers[i]
		if l.Elements() == 0 {
			continue
		}
		known := coordinator.Layer{Name: l.Name, Type: l.Type, Rows: l.Rows, Cols: l.Cols, Params: placed[i].Params}
		_, known.Refuses = shape(l)
		c.Layers = append(c.Layers, known)
	}
	return coordinator.New(c)
}

// shape returns that of the matrix of a layer with factors, and else why what is known of it
// cannot be one's. A bias tells which side the outputs are.
func shape(l *workload.Layer) (s factors.Shape, refuses string) {
	s = factors.Shape{Out: l.Rows, In: l.Cols}
	switch {
	case l.Rows == 0 || len(l.Params) == 1:
	case len(l.Params) > 2:
		refuses = fmt.Sprintf("it has %d parameters, more than weights and a bias", len(l.Params))
	case l.Params[1] == l.Rows:
	case l.Params[1] == l.Cols:
		s = factors.Shape{Out: l.Cols, In: l.Rows, Transposed: true}
	default:
		refuses = fmt.Sprintf("a parameter of %d elements is no bias beside weights of %dx%d", l.Params[1], l.Rows, l.Cols)
	}
	return s, refuses
}

// Schemes says by which schemes the layers of a profile's net are kept in step as
// asked, by the predictions of s.
func Schemes(p *workload.Profile, c coordinator.Config, asked coordinator.Asked, s *selection.Selector) (*coordinator.Audit, error) {
	placed, count := layout(p)
	b, err := book(p, placed, c)
	if err != nil {
		return nil, err
	}
	network := &coordinator.Network{Book: b, Selector: s, Product: products(p, b, 1)}
	defer network.Forget()
	a, err := exchange.Predicted(asked, network)
	if err == nil {
		err = exchange.Weigh(a, forecast(p, placed, count, exchange.SCOBR, 0, network, 1), fromProfile)
	}
	if err != nil {
		return nil, err
	}
	a.Notes = append(a.Notes, fmt.Sprintf("# %s; times of communication alone by the cost model (%s), with what sfb computes more", p.Name, s.From))
	return a, nil
}

// products returns how much longer computation, which takes slower times as long as the profile says, takes where a
// gradient is rebuilt from all workers' factors, rather than computed from the own ones.
func products(p *workload.Profile, b *coordinator.Book, slower float64) func(l *coordinator.Layer) time.Duration {
	more := map[*coordinator.Layer]time.Duration{}
	for i := range p.Layers {
		l := &p.Layers[i]
		if l.Elements() == 0 {
			continue
		}
		left, product := rebuilding(l, len(b.Workers))
		more[&b.Layers[len(more)]] = time.Duration(float64(left+product-l.Backward) * slower)
	}
	return func(l *coordinator.Layer) time.Duration { return more[l] }
}

// rebuilding returns how long the backward pass of a layer takes that leaves its
// gradient out, and how long the product of so many workers' factors that makes it: a
// worker's is half of the backward pass, whose other half is the gradient of the bottom.
func rebuilding(l *workload.Layer, workers int) (left, product time.Duration) {
	half := l.Backward / 2
	return l.Backward - half, time.Duration(workers) * half
}

// choose gives every layer of a system its scheme as asked, on all ranks the same.
func (r *rank) choose(ctx context.Context, s System, asked coordinator.Asked) (*plan, error) {
	one, alone := asked.One()
	p := &plan{asked: asked, bucket: r.c.Bucket, layers: slices.Clone(r.layers), schemes: slices.Repeat([]exchange.Scheme{one}, len(r.layers))}
	p.place, p.back, p.wanted, p.credit, p.firstCome = s.moves(&r.c, r.comm.Layout().Nodes, r.team.Layout().Nodes)
	p.slice, p.may = p.wanted, r.c.MaySlice
	if s.ByLayer && p.bucket == 0 {
		p.bucket = 1
	}
	for i := range r.layers {
		p.backward = append(p.backward, r.c.Profile.Layers[i].Backward)
	}
	if !alone || one == exchange.PS {
		b, err := r.book(r.layers, p)
		if err = r.comm.Agree(ctx, err); err != nil {
			return nil, err
		}
		if err := exchange.SameBook(ctx, r.comm, b); err != nil {
			return nil, err
		}
		if !alone {
			slower := r.scale * max(r.c.Straggler.Factor, 1)
			network := r.network(b, slower)
			var f *exchange.Forecast
			if r.known() {
				f = forecast(r.c.Profile, r.layers, r.count, s.Design, p.bucket, network, slower)
			}
			if p.schemes, p.audit, err = exchange.Choose(ctx, r.comm, r.layers, asked, network, f, fromProfile); err != nil {
				return nil, err
			}
			if p.slice = b.Slice; p.slice != p.wanted {
				p.credit = coordinator.Credit(r.c.Credit, p.slice, r.comm.Layout().Nodes, r.team.Layout().Nodes)
			}
		}
	}
	if p.audit != nil && p.audit.Asked.Chooses() && !r.known() {
		p.audit.Notes = append(p.audit.Notes, "# auto chosen layer by layer: with --ratio, how long computation takes is known when communication has been measured")
	}
	for i, s := range p.schemes {
		switch {
		case !s.FactorsOnly() || len(r.layers[i].Params) == 0:
		case s == exchange.OneBit:
			p.layers[i].Factors = matrixOf(&r.c.Profile.Layers[i], &p.layers[i], r.c.Profile.K(), len(r.team.Members()))
		default:
			r.factor(p, i)
		}
	}
	return p, nil
}

// network predicts for the workers on b's nodes. Systems that are compared share what is found of collectives there.
func (r *rank) network(b *coordinator.Book, slower float64) *coordinator.Network {
	n := exchange.Network(r.team, b, r.c.Spec, products(r.c.Profile, b, slower))
	where := fmt.Sprint(b.Nodes)
	if first := r.networks[where]; first != nil && first.Selector == n.Selector {
		n.Share(first)
	} else {
		r.networks[where] = n
	}
	return n
}

// known reports whether it is known how long computation takes when schemes are chosen: with a ratio communication is measured first, which is what
// designs that have been chosen for come to, but for systems that of a scheme.
func (r *rank) known() bool { return r.c.Ratio == 0 || len(r.c.Systems) > 0 }

// book returns the information book of the net's first layers.
func (r *rank) book(layers []exchange.Layer, p *plan) (*coordinator.Book, error) {
	c := coordinator.Config{Nodes: r.comm.Nodes(), Workers: r.c.Workers.OrAll(), Servers: r.c.Servers.OrAll(), Pair: r.c.Pair, Slice: p.slice, MaySlice: p.may, Placement: p.place, Pull: p.back, Sparse: r.c.Sparse}
	return book(r.c.Profile, layers, c)
}
