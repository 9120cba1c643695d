package coordinator

import (
	"math"
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
	// ServerPort is how long the port of one of these servers would be busy one way if it had all of the bucket.
	ServerPort time.Duration
	// Parts is how many pieces pass one after another, each of which is summed, updated and brought back by itself: what the bucket
	// is cut into, and of KV pairs, which travel side by side, as many rounds. With PullRequest it is one, since notice is given of a
	// whole layer.
	Parts int
	// Behind is how long what is more urgent waits at a port behind messages of the bucket that are under way: two on each
	// link, or with slices DefaultCredit of them on all links together (P3, section 4.2).
	Behind time.Duration
	// FirstCome says that what is more urgent waits behind all that has been handed over before it: each message takes so long that
	// a link's patience lets the others go.
	FirstCome bool
}

// Patience is for how long, at most, nothing ends on a link until it takes one message more (nbc).
const Patience = 50 * time.Millisecond

// part is how large the messages of reductions and allreduces are taken to be, in bytes.
const part = 1 << 20

// Phases predicts them for neighboring layers that move as one by s, without what s makes ranks compute.
func (n *Network) Phases(layers []*Layer, s Scheme) (Phases, error) {
	if len(n.Book.Nodes) == 1 {
		return Phases{Parts: 1}, nil
	}
	all := merged(layers)
	if s != Reduce && s != Allreduce || n.Book.Slice <= 0 {
		return n.whole(layers, s)
	}
	parts := len(n.Book.Slice.Cut(all.Params))
	p, err := n.whole([]*Layer{{Params: []Range{{Len: (all.Elements() + parts - 1) / parts}}}}, s)
	p.Parts = parts
	for _, phase := range []struct{ took, port *time.Duration }{{&p.Push, &p.PushPort}, {&p.Pull, &p.PullPort}} {
		next := max(*phase.port, *phase.took/time.Duration(n.credit())) // what each after the first takes
		*phase.took += time.Duration(parts-1) * next
		*phase.port *= time.Duration(parts)
	}
	return p, err
}

// whole is Phases of what is not cut, or of KV pairs.
func (n *Network) whole(layers []*Layer, s Scheme) (Phases, error) {
	p := Phases{Parts: 1}
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
	behind := math.Inf(1)
	parted := min(bytes, part)
	switch s {
	case SFB:
		p = Phases{Push: o.Time, PushPort: seconds(n.wire(others * factors))}
	case Adam: // the server's node takes in all factors, and sends a matrix to each of the others
		p = Phases{Push: seconds(n.hop() + n.wire(others*factors)), PushPort: seconds(n.wire(others * factors / nodes)), PullPort: through}
		p.Pull = o.Time - p.Push
	case OneBit, DGC:
		p = Phases{Push: o.Time, PushPort: o.Time}
	case Allreduce:
		p, behind = Phases{Push: o.Time, PushPort: 2 * through}, n.wire(2*parted)
		if o.passes > 0 {
			p.PushPort = seconds(n.wire(float64(o.passes) * bytes))
		}
	case Reduce:
		pull := n.collective(schedule.Bcast, &all)
		p, behind = Phases{Push: o.Time - pull.Time, Pull: pull.Time, PushPort: through, PullPort: through}, n.wire(2*parted)
		if down := n.collective(schedule.Reduce, &all); down.passes > 0 {
			p.PushPort = seconds(n.wire(float64(down.passes) * bytes))
		}
		if pull.passes > 0 {
			p.PullPort = seconds(n.wire(float64(pull.passes) * bytes))
		}
	default:
		_, _, pairs := n.shares(&all)
		if parted = bytes / pairs; n.Book.Slice <= 0 {
			behind = n.wire(2 * parted * n.senders())
		} else {
			behind = n.wire(max(parted, float64(n.Book.Slice.CreditBytes(n.credit()))))
		}
		push := (o.Time - o.back) / 2
		// What its messages take the cores they take from all other buckets' messages too.
		through = max(through, seconds(n.handling(n.messages(pairs, n.senders()-1))))
		p = Phases{Push: push, Pull: o.Time - push, PushPort: through, PullPort: through}
		if n.Book.apart() {
			// Every worker sends all there is, and all servers together take in as much from each.
			p.OneWay = nodes > 1
			p.ServerPort = seconds(n.wire(bytes * n.senders()))
			p.PushPort = seconds(n.wire(bytes * max(1, n.senders()/float64(len(n.Book.Servers)))))
			p.PullPort = p.PushPort
		}
		switch {
		case n.Book.Pull == PullRequest: // one
		case n.Book.Slice > 0:
			p.Parts = int(math.Ceil(pairs / n.under(parted)))
		default: // one to each server
			p.Parts = int(math.Ceil(pairs / float64(len(n.Book.Servers))))
		}
	}
	if p.Parts = max(1, p.Parts); nodes > 1 {
		p.Behind = seconds(min(behind, max(p.PushPort, p.PullPort).Seconds()))
		p.FirstCome = n.Book.Slice <= 0 && seconds(n.wire(parted)*n.senders()) > Patience // its links share a port
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
