package train

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"

	"github.com/scaffe/scaffe/caffe/net"
	"github.com/scaffe/scaffe/syncer"
	"github.com/scaffe/scaffe/syncer/coordinator"
)

// divide settles who works and who serves, alike on all ranks.
func (w *Worker) divide(ctx context.Context, c Config) error {
	var err error
	w.roles.workers, w.roles.servers, err = coordinator.Roles(w.comm.Nodes(), c.Workers.OrAll(), c.Servers.OrAll())
	if err = w.comm.Agree(ctx, err); err != nil {
		return err
	}
	roles := []struct {
		name  string
		ranks []int
	}{{"workers", w.roles.workers}, {"servers", w.roles.servers}}
	var digests []uint64
	for _, r := range roles {
		h := fnv.New64a()
		fmt.Fprint(h, r.ranks)
		digests = append(digests, h.Sum64())
	}
	who, err := w.comm.Compare(ctx, append(digests, c.Consistency.digest()))
	if err != nil {
		return err
	}
	if text := who[len(roles)]; text != "" {
		return w.comm.Agree(ctx, fmt.Errorf("the flags of the ranks differ in consistency: %s; here it is %v", text, c.Consistency))
	}
	who = who[:len(roles)]
	for i, text := range who {
		if text != "" {
			return w.comm.Agree(ctx, fmt.Errorf("the flags of the ranks differ in %s: %s; here they are %v", roles[i].name, text, roles[i].ranks))
		}
	}
	w.team, err = syncer.NewTeam(ctx, w.comm, w.roles.workers, w.roles.servers)
	return w.comm.Agree(ctx, err)
}

// Works reports whether this rank works, and does not only serve.
func (w *Worker) Works() bool { return w.team.Works(w.comm.Rank()) }

// Workers and Servers are the ranks that do so, ascending.
func (w *Worker) Workers() []int { return w.roles.workers }

// Servers are the ranks that hold parameters with the scheme PS.
func (w *Worker) Servers() []int { return w.roles.servers }

// LocalBatch is how many samples of a batch this rank reads.
func (w *Worker) LocalBatch() int {
	if !w.Works() {
		return 0
	}
	return w.solver.Computes().LocalBatch()
}

// apart reports whether some rank only serves.
func (w *Worker) apart() bool { return len(w.roles.workers) < w.comm.Size() }

// isLowest reports whether this rank is the lowest worker.
func (w *Worker) isLowest() bool { return w.comm.Rank() == w.roles.workers[lowest] }

// build builds the ranks' solvers: first the workers', then those of ranks that only serve, which
// read no data and are told by the lowest worker what its data sets hold.
func (w *Worker) build(ctx context.Context, c Config) (err error) {
	if w.Works() {
		err = w.load(c, c.Options)
	}
	if err = w.comm.Agree(ctx, err); err != nil || !w.apart() {
		return err
	}
	var mine []byte
	if w.isLowest() {
		all := [][][]int{}
		for _, n := range append([]*net.Net{w.solver.Computes()}, w.solver.TestNets()...) {
			all = append(all, n.DataShapes()...)
		}
		if mine, err = json.Marshal(all); err != nil {
			return err
		}
	}
	text, err := w.comm.BcastBytes(ctx, mine, w.roles.workers[lowest])
	if err != nil {
		return err
	}
	if !w.Works() {
		var shapes [][][]int
		if err = json.Unmarshal(text, &shapes); err == nil {
			o := c.Options
			o.Idle, o.MadeAs = true, net.WithoutData(shapes)
			err = w.load(c, o)
		}
	}
	return w.comm.Agree(ctx, err)
}
