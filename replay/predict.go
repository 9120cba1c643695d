package replay

import (
	"context"
	"fmt"
	"time"

	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/syncer/coordinator"
)

// predict fills in what the cost model says of the rows of systems, and adds rows for numbers
// of nodes that do not run.
func (r *rank) predict(ctx context.Context, res *Result) error {
	if len(r.c.Systems) == 0 {
		return nil
	}
	var wrong error
	for i, w := range r.ways {
		var err error
		if _, res.Rows[i].Predicted, err = r.iterationOf(w, r.comm.Nodes()); err != nil {
			wrong = err
		}
	}
	perNode := r.comm.Layout().PPN
	for _, n := range r.c.Predict {
		for _, w := range r.ways {
			row := Row{System: w.name, Design: w.design.String(), Nodes: n, Ranks: n * perNode}
			var err error
			if row.Schemes, row.Predicted, err = r.iterationOf(w, spec.NodesOf(n, perNode)); err != nil {
				wrong = err
			}
			res.Rows = append(res.Rows, row)
		}
	}
	return r.comm.Agree(ctx, wrong)
}

// iterationOf predicts an iteration of a system where ranks lie on nodes, in ms, and says by which schemes:
// those that the system would take there, each bucket as long on the network as the cost
// model says. Buckets are as large as they are here.
func (r *rank) iterationOf(w *way, nodes []int) (schemes string, ms float64, err error) {
	p := r.c.Profile
	slower := r.scale * max(r.c.Straggler.Factor, 1)
	c := coordinator.Config{Nodes: nodes, Workers: r.c.Workers.OrAll(), Servers: r.c.Servers.OrAll(), Pair: r.c.Pair, Tensors: w.tensors}
	b, err := book(p, r.layers, c)
	if err != nil {
		return "", 0, fmt.Errorf("replay: predicting %d ranks: %w", len(nodes), err)
	}
	network := exchange.Network(r.team, b, r.c.Spec, products(p, b))
	audit, err := b.Choose(w.asked, network.Predict)
	if err != nil {
		return "", 0, fmt.Errorf("replay: predicting %d ranks: %w", len(nodes), err)
	}
	schemes = audit.Chosen().String()
	if len(nodes) == 1 {
		return schemes, report.Milliseconds(p.Compute()) * slower, nil
	}
	chosen := exchange.Executed(audit, r.layers)
	buckets, err := exchange.Divide(w.design, r.layers, chosen, r.count, w.buckets)
	if err != nil {
		return "", 0, err
	}
	times := func(d time.Duration) time.Duration { return time.Duration(float64(d) * slower) }
	passes := make([]exchange.Passes, len(p.Layers))
	for i, l := range p.Layers {
		passes[i] = exchange.Passes{Forward: times(l.Forward), Backward: times(l.Backward)}
	}
	var all []exchange.Expected
	at := exchange.InBook(r.layers)
	for _, bucket := range buckets {
		e := exchange.Expected{Bucket: bucket}
		var layers []*coordinator.Layer
		for _, i := range bucket.Layers {
			layers = append(layers, &b.Layers[at[i]])
			if bucket.Scheme == exchange.SFB || bucket.Scheme == exchange.Adam {
				left, product := rebuilding(&p.Layers[i], len(b.Workers))
				passes[i].Backward = times(left)
				e.Rebuild += times(product)
			}
		}
		if e.Phases, err = network.Phases(layers, bucket.Scheme); err != nil {
			return "", 0, err
		}
		part := float64(bucket.Len) / float64(r.count)
		if bucket.Scheme == exchange.PS {
			part /= float64(len(b.Servers))
		}
		e.Update = time.Duration(part * float64(times(p.Update)))
		all = append(all, e)
	}
	return schemes, report.Milliseconds(exchange.PredictIteration(w.design, passes, all)), nil
}
