package replay

import (
	"fmt"
	"time"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/replay/workload"
	"github.com/scaffe/scaffe/syncer/coordinator"
)

// Book returns the information book for training a profile's net: c says who
// works and serves, and how large pairs are; every worker has the profile's batch.
func Book(p *workload.Profile, c coordinator.Config) (*coordinator.Book, error) {
	workers, err := c.Workers.Of("workers", c.Nodes)
	if err != nil {
		return nil, err
	}
	c.Batch = make([]int, len(c.Nodes))
	for _, r := range workers {
		c.Batch[r] = p.K()
	}
	placed, _ := layout(p)
	c.Layers = nil
	for i, l := range p.Layers {
		if l.Elements() > 0 {
			c.Layers = append(c.Layers, coordinator.Layer{Name: l.Name, Type: l.Type, Rows: l.Rows, Cols: l.Cols, Params: placed[i].Params})
		}
	}
	return coordinator.New(c)
}

// Schemes says by which schemes the layers of a profile's net are kept in step as
// asked, by the predictions of s.
func Schemes(p *workload.Profile, c coordinator.Config, asked coordinator.Asked, s *selection.Selector) (*coordinator.Audit, error) {
	b, err := Book(p, c)
	if err != nil {
		return nil, err
	}
	network := coordinator.Network{Book: b, Selector: s, Product: products(p, b)}
	a, err := b.Choose(asked, network.Predict)
	if err != nil {
		return nil, err
	}
	a.Notes = append(a.Notes, fmt.Sprintf("# %s; times of communication alone by the cost model (%s), with what sfb computes more", p.Name, s.From))
	return a, nil
}

// products returns how much longer computation takes where a gradient is rebuilt
// from all workers' factors: each worker's product is half of its backward pass (the
// other half is the gradient of the bottom), of which its own is left out.
func products(p *workload.Profile, b *coordinator.Book) func(l *coordinator.Layer) time.Duration {
	backward := map[*coordinator.Layer]time.Duration{}
	next := 0
	for _, l := range p.Layers {
		if l.Elements() > 0 {
			backward[&b.Layers[next]] = l.Backward
			next++
		}
	}
	more := time.Duration(len(b.Workers) - 1)
	return func(l *coordinator.Layer) time.Duration { return more * backward[l] / 2 }
}
