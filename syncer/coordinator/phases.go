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
	o, err := n.Bucket(layers, s, nil)
	if err != nil {
		return Phases{Parts: 1}, err
	}
	u := uncut{n: n, all: merged(layers), expected: o, nodes: float64(n.Book.NodeCount())}
	u.bytes = 4 * float64(u.all.Elements())
	u.through = seconds(n.wire(u.bytes * (u.nodes - 1) / u.nodes))
	u.behind, u.message = math.Inf(1), min(u.bytes, part)
	var p Phases
	switch s {
	case SFB, Adam:
		p = u.factors(layers, s)
	case OneBit, DGC:
		p = Phases{Push: o.Time, PushPort: o.Time}
	case Allreduce:
		p = u.allreduce()
	case Reduce:
		p = u.reduce()
	default:
		p = u.served()
	}
	if p.Parts = max(1, p.Parts); u.nodes > 1 {
		p.Behind = seconds(min(u.behind, max(p.PushPort, p.PullPort).Seconds()))
		p.FirstCome = n.Book.Slice <= 0 && seconds(n.wire(u.message)*n.senders()) > Patience // its links share a port
	} else { // ranks share the memory, which one of these keeps busy
		p.PushPort, p.PullPort = p.Push, p.Pull
	}
	p.PushPort, p.PullPort = min(p.PushPort, p.Push), min(p.PullPort, p.Pull)
	return p, nil
}

// uncut is a bucket whose Phases are predicted, a function for each kind of scheme.
type uncut struct {
	n        *Network
	all      Layer // of the bucket's parameters
	expected Outlook
	nodes    float64
	bytes    float64       // of the parameters
	through  time.Duration // that take a port for what other nodes have of them
	// What the functions for the schemes find: how large a message is, and for how many seconds what is more urgent waits behind those
	// that are under way.
	message, behind float64
}

// factors is of schemes by which factors travel.
func (u *uncut) factors(layers []*Layer, s Scheme) Phases {
	n, took, bytes := u.n, u.expected.Time, 0.0
	for _, l := range layers {
		took -= n.product(l)
		bytes += 4 * float64(n.Book.factorRows(l)) * float64(l.Rows+l.Cols)
	}
	bytes *= float64(len(n.Book.Workers)) * (u.nodes - 1) / u.nodes // to ranks of other nodes
	if s == SFB {
		return Phases{Push: took, PushPort: seconds(n.wire(bytes))}
	}
	// The node of Adam's server takes in all factors, and sends a matrix to each of the others.
	push := seconds(n.hop() + n.wire(bytes))
	return Phases{Push: push, Pull: took - push, PushPort: seconds(n.wire(bytes / u.nodes)), PullPort: u.through}
}

func (u *uncut) allreduce() Phases {
	u.behind = u.n.wire(2 * u.message)
	return Phases{Push: u.expected.Time, PushPort: u.passing(u.expected.Prediction, 2*u.through)}
}

// reduce is of a reduction to one root, and a broadcast from it.
func (u *uncut) reduce() Phases {
	u.behind = u.n.wire(2 * u.message)
	pull, push := u.n.collective(schedule.Bcast, &u.all), u.n.collective(schedule.Reduce, &u.all)
	return Phases{
		Push: u.expected.Time - pull.Time, PushPort: u.passing(push, u.through),
		Pull: pull.Time, PullPort: u.passing(pull, u.through),
	}
}

// passing returns for how long a port is busy with a collective: as often as all bytes pass it, or otherwise, where that is not known.
func (u *uncut) passing(p Prediction, otherwise time.Duration) time.Duration {
	if p.passes > 0 {
		return seconds(u.n.wire(float64(p.passes) * u.bytes))
	}
	return otherwise
}

// served is of schemes by which servers have KV pairs.
func (u *uncut) served() Phases {
	n := u.n
	_, _, pairs := n.shares(&u.all)
	if u.message = u.bytes / pairs; n.Book.Slice <= 0 {
		u.behind = n.wire(2 * u.message * n.senders())
	} else {
		u.behind = n.wire(max(u.message, float64(n.Book.Slice.CreditBytes(n.credit()))))
	}
	push := (u.expected.Time - u.expected.back) / 2
	// What its messages take the cores they take from all other buckets' messages too.
	port := max(u.through, seconds(n.handling(n.messages(pairs, n.senders()-1))))
	p := Phases{Push: push, Pull: u.expected.Time - push, PushPort: port, PullPort: port}
	if n.Book.apart() {
		// Every worker sends all there is, and all servers together take in as much from each.
		p.OneWay = u.nodes > 1
		p.ServerPort = seconds(n.wire(u.bytes * n.senders()))
		p.PushPort = seconds(n.wire(u.bytes * max(1, n.senders()/float64(len(n.Book.Servers)))))
		p.PullPort = p.PushPort
	}
	switch {
	case n.Book.Pull == PullRequest: // one
	case n.Book.Slice > 0:
		p.Parts = int(math.Ceil(pairs / n.under(u.message)))
	default: // one to each server
		p.Parts = int(math.Ceil(pairs / float64(len(n.Book.Servers))))
	}
	return p
}

// merged is a layer with the parameters of neighboring ones.
func merged(layers []*Layer) (all Layer) {
	for _, l := range layers {
		all.Params = append(all.Params, l.Params...)
	}
	return all
}
