package coordinator

import (
	"time"

	"github.com/scaffe/scaffe/schedule"
)

// Phases is what a bucket's communication is expected to take: bringing gradients, or factors,
// to whoever updates by them, and bringing parameters back, each alone. Of that, PushPort and PullPort is how
// long the port of a node is busy one way, on average or, of what is reduced to one root and broadcast from it, that of the root, which all buckets
// share; for the rest it is free for other buckets, while a message travels, or where one server's port is what takes so long.
type Phases struct {
	Push, Pull, PushPort, PullPort time.Duration
	// OneWay says that gradients pass ports in one direction alone, and parameters in the other: those of servers that do not work. Elsewhere a node
	// sends and receives in either phase.
	OneWay bool
}

// Phases predicts them for neighboring layers that move as one by s, without what s makes ranks compute.
func (n *Network) Phases(layers []*Layer, s Scheme) (Phases, error) {
	var p Phases
	if len(n.Book.Nodes) == 1 {
		return p, nil
	}
	o, err := n.Bucket(layers, s, nil)
	if err != nil {
		return p, err
	}
	all, factors := merged(layers), 0.0
	bytes := 4 * float64(all.Elements())
	for _, l := range layers {
		if s == SFB || s == Adam {
			o.Time -= n.product(l)
			factors += 4 * float64(n.Book.factorRows(l)) * float64(l.Rows+l.Cols)
		}
	}
	nodes := float64(n.Book.NodeCount())
	others := float64(len(n.Book.Workers)) * (nodes - 1) / nodes // ranks of other nodes
	through := seconds(n.wire(bytes * (nodes - 1) / nodes))
	switch s {
	case SFB:
		p = Phases{Push: o.Time, PushPort: seconds(n.wire(others * factors))}
	case Adam: // the server's node takes in all factors, and sends a matrix to each of the others
		p = Phases{Push: seconds(n.hop() + n.wire(others*factors)), PushPort: seconds(n.wire(others * factors / nodes)), PullPort: through}
		p.Pull = o.Time - p.Push
	case OneBit, DGC:
		p = Phases{Push: o.Time, PushPort: o.Time}
	case Allreduce:
		p = Phases{Push: o.Time, PushPort: 2 * through}
		if o.passes > 0 {
			p.PushPort = seconds(n.wire(float64(o.passes) * bytes))
		}
	case Reduce:
		pull := n.collective(schedule.Bcast, &all)
		p = Phases{Push: o.Time - pull.Time, Pull: pull.Time, PushPort: through, PullPort: through}
		if down := n.collective(schedule.Reduce, &all); down.passes > 0 {
			p.PushPort = seconds(n.wire(float64(down.passes) * bytes))
		}
		if pull.passes > 0 {
			p.PullPort = seconds(n.wire(float64(pull.passes) * bytes))
		}
	default:
		push := (o.Time - o.back) / 2
		p = Phases{Push: push, Pull: o.Time - push, PushPort: through, PullPort: through}
		if servers, workers, both := n.Book.roles(); servers && workers && !both {
			// Every worker sends all there is, and all servers together take in as much from each.
			p.OneWay = nodes > 1
			p.PushPort = seconds(n.wire(bytes * max(1, n.senders()/float64(len(n.Book.Servers)))))
			p.PullPort = p.PushPort
		}
	}
	if nodes == 1 { // ranks share the memory, which one of these keeps busy
		p.PushPort, p.PullPort = p.Push, p.Pull
	}
	p.PushPort, p.PullPort = min(p.PushPort, p.Push), min(p.PullPort, p.Pull)
	return p, nil
}

// merged is a layer with the parameters of neighboring ones.
func merged(layers []*Layer) (all Layer) {
	for _, l := range layers {
		all.Params = append(all.Params, l.Params...)
	}
	return all
}
