package nbc

import "github.com/scaffe/scaffe/schedule"

// Window is how many receives of one pair of ranks and collective are in flight at
// most, SendWindow how many sends.
const (
	Window     = schedule.RecvWindow
	SendWindow = schedule.SendWindow
)

// Plan is a schedule made ready for execution: who waits for whom. It is immutable,
// and one Plan serves any number of requests.
type Plan struct {
	schedule *schedule.Schedule
	graph    *schedule.Graph
	uses     [3]schedule.Range // of each schedule.Buffer, from the first element to the last
	readsOut bool              // what is stored in Out is read again, as by a broadcast of it
	adds     bool              // some ops add
	// Elements that this rank's messages to others have, and those of others to it.
	sent, received int
	places         int     // of sums: see place.go
	relays         []bool  // by op, where any does: see schedule.Relays
	relayed        int     // elements of the longest of these messages
	near           []bool  // by rank, where there are relays: of this one's node,
	others         int     // which has so many besides this one
	trades         bool    // see schedule.Trades
	free           []int32 // ops that wait for none, in the order in which they begin
	// By op: the one that adds to its sum next, and the one before; -1 for none.
	next, prev []int32
	// Orders of the ops for being executed alone, the second where messages are lent: see
	// there. nil where there are too many ops.
	sequence, lending []int32
}

// nodeWindow is SendWindow where the peer is on the same node: there is no link to
// share. With less a rank waits for the other's word between two messages, in which
// time it could add or copy. nodeSends is how many a rank has under way to all ranks
// of its node together: with eight to each of three others, on two cores of an Intel Xeon, a
// reduction of 64 MiB took 5 to 16 % longer than with two, with four to each less.
const (
	nodeWindow = 8
	nodeSends  = 12
)

// Compile makes s ready for execution, with the windows of the engine for ranks of
// several nodes.
func Compile(s *schedule.Schedule) (*Plan, error) { return CompileOn(s, nil) }

// CompileOn is Compile for ranks whose nodes are known: by the schedule's rank; nil means
// that they are not.
func CompileOn(s *schedule.Schedule, nodes []int) (*Plan, error) {
	sameNode := func(rank int) bool {
		return s.Rank < len(nodes) && rank < len(nodes) && nodes[rank] == nodes[s.Rank]
	}
	near := 0 // other ranks of the node
	for rank := range nodes {
		if rank != s.Rank && sameNode(rank) {
			near++
		}
	}
	window := min(nodeWindow, max(SendWindow, nodeSends/max(1, near)))
	g, err := schedule.CompileFor(s, func(peer int) schedule.Windows {
		if sameNode(peer) {
			return schedule.Windows{Send: window, Recv: Window}
		}
		return schedule.Windows{Send: SendWindow, Recv: Window}
	})
	if err != nil {
		return nil, err
	}
	p := &Plan{schedule: s, graph: g}
	p.next, p.prev = chains(s, g)
	if near > 0 {
		p.places, p.trades = s.Places(g, near+1), s.Trades(g, near+1)
		p.relays, p.relayed = s.Relays(g, near+1, sameNode)
	}
	if p.relays != nil {
		p.others = near
		for rank := range nodes {
			p.near = append(p.near, sameNode(rank))
		}
	}
	p.free = s.Begin(g, p.trades)
	if len(s.Ops) <= loneOps {
		p.sequence, p.lending = sequence(s, g, false), sequence(s, g, true)
	}
	for i := range s.Ops {
		op := &s.Ops[i]
		for _, src := range op.Sources(nil) {
			p.use(src)
			goesOn := p.prev[i] >= 0 && src == op.Src // a sum, in a pass that need not have written it
			p.readsOut = p.readsOut || src.Buf == schedule.Out && !goesOn
		}
		if op.Writes() {
			p.use(op.Dst)
		}
		p.adds = p.adds || op.Adds()
		switch {
		case op.Receives():
			p.received += op.Dst.Len
		case !op.Local():
			p.sent += op.Src.Len
		}
	}
	return p, nil
}

// use notes that a range is read or written.
func (p *Plan) use(r schedule.Ref) {
	u := &p.uses[r.Buf]
	switch {
	case r.Len == 0:
	case u.Len == 0:
		*u = r.Range
	default:
		end := max(u.End(), r.End())
		u.Off = min(u.Off, r.Off)
		u.Len = end - u.Off
	}
}

// Schedule returns the schedule that the plan was compiled from.
func (p *Plan) Schedule() *schedule.Schedule { return p.schedule }
