package replay

import (
	"context"
	"fmt"
	"time"

	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/exchange"
	"github.com/scaffe/scaffe/internal/report"
	"github.com/scaffe/scaffe/replay/workload"
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
// model says.
func (r *rank) iterationOf(w *way, nodes []int) (schemes string, ms float64, err error) {
	p := r.c.Profile
	slower := r.scale * max(r.c.Straggler.Factor, 1)
	c := coordinator.Config{Nodes: nodes, Workers: r.c.Workers.OrAll(), Servers: r.c.Servers.OrAll(), Pair: r.c.Pair, Slice: w.wanted, MaySlice: w.may, Placement: w.place, Pull: w.back, Sparse: r.c.Sparse}
	b, err := book(p, r.layers, c)
	if err != nil {
		return "", 0, fmt.Errorf("replay: predicting %d ranks: %w", len(nodes), err)
	}
	network := r.network(b, slower)
	defer network.Forget()
	f := forecast(p, r.layers, r.count, w.design, w.bucket, network, slower)
	f.FirstCome = w.firstCome
	audit, err := exchange.Predicted(w.asked, network)
	if err == nil {
		err = exchange.Weigh(audit, f, fromProfile)
	}
	if err != nil {
		return "", 0, fmt.Errorf("replay: predicting %d ranks: %w", len(nodes), err)
	}
	schemes = audit.Chosen().String()
	if len(nodes) == 1 {
		return schemes, report.Milliseconds(p.Compute()) * slower, nil
	}
	it, err := f.Iteration(exchange.Executed(audit, r.layers), b.Slice, 1)
	return schemes, report.Milliseconds(it.Time), err
}

// fromProfile says where the times of computation come from by which iterations are predicted.
const fromProfile = "computation as in the profile"

// forecast predicts iterations of a profile's net under a design, where computation takes slower times as long as it says.
func forecast(p *workload.Profile, layers []exchange.Layer, count int, d exchange.Design, bucket int, n *coordinator.Network, slower float64) *exchange.Forecast {
	times := func(d time.Duration) time.Duration { return time.Duration(float64(d) * slower) }
	f := &exchange.Forecast{Design: d, Bucket: bucket, Layers: layers, Count: count, Network: n, Update: times(p.Update)}
	for _, l := range p.Layers {
		f.Passes = append(f.Passes, exchange.Passes{Forward: times(l.Forward), Backward: times(l.Backward)})
	}
	f.Rebuilding = func(layer int) (left, product time.Duration) {
		left, product = rebuilding(&p.Layers[layer], len(n.Book.Workers))
		return times(left), times(product)
	}
	return f
}
