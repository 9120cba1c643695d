package sim

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/scaffe/scaffe/schedule"
)

// world is a simulation under way.
type world struct {
	Setup
	now     float64
	seq     uint32
	ranks   []rank
	nodes   []node
	hosts   []host
	gpus    []gpu // of ranks whose buffers lie there, else none
	events  events
	streams bool    // the collective has at least StreamFrom bytes
	given   float64 // the part of what a rank gives to the collective that the cache of its core holds when it begins
}

// rank is one rank's schedule and its progress thread.
type rank struct {
	ops   []schedule.Op
	graph *schedule.Graph
	waits []int32  // per op: how many ops it still waits for
	peer  []int32  // per op: the index of the op at the other end, -1 for none
	state []uint16 // per op: posted, there
	first []int32  // ops to post, and then
	todo  []int32  // ops to finish: first come, first served
	busy  bool     // it has a core, or waits for one
	node  int32
	host  int32
	left  int
	ended float64
	// cached says that the schedule's scratch memory fits the cache.
	cached bool
	// writes says that the schedule writes Out, so that who reads it takes it from the
	// cache of this rank's core.
	writes bool
	alone  bool                  // its caller executes the schedule by itself
	trades bool                  // sums, with the only other rank of its node (schedule.Trades)
	places int                   // where its sums are stored at once; 0: they are sent
	relays []bool                // per op: receives a message that is stored where those want it to whom it is passed on; nil: none does
	sends  map[schedule.Ref]int  // how many ranks of the node each range is sent to; of unregistered memory alone
	filled map[schedule.Ref]bool // which of these ranges it has copied for who asked
	core   float64               // rates at which the rank's thread touches memory, and
	staged float64               // copies what is not registered
	gpu    int32
	lanes  [numLanes]lane // of its GPU's work
}

// node is the port that the ranks of a node share.
type node struct {
	tx, rx         float64 // until when it is busy
	sent, received float64 // bytes
}

// host is what the ranks of a machine share: of a node, or of several nodes on it.
type host struct {
	idle     []int32 // of every idle core the rank that it served last, -1 for none
	waiting  []int32 // ranks that have work and no core
	memory   float64 // until when memory is busy
	rate     float64 // of memory
	infinite bool
	ranks    float64
	roomy    bool // every rank has a core
}

// What an op's state says.
const (
	posted      uint16 = 1 << iota
	senderReady        // of a receive: sendReady has happened
	told               // of a send: it is known where the receiver wants the message
	put                // of a receive: the sender copies or has copied the message
	halved             // both sides copy the message, one half each,
	copied             // of which this one has done its own
	answered           // of a receive: the sender was told to let the data go
	placed             // of a send: the sum that it sends was stored where the receiver wants it
	down               // of a staged send: the message has been copied to the host
	up                 // of a staged receive: it has been copied to the GPU
	summed             // of what is added on a GPU: the kernel of one before adds it
)

// newWorld is the world in which the plans begin.
func newWorld(p *Plans, s Setup) (*world, error) {
	if s.ElemSize < 1 || s.Nodes != nil && len(s.Nodes) != len(p.all) {
		return nil, fmt.Errorf("sim: elements of %d bytes, nodes of %d ranks for %d schedules", s.ElemSize, len(s.Nodes), len(p.all))
	}
	w := &world{Setup: s, ranks: make([]rank, len(p.all))}
	nodes := 1
	for r, sch := range p.all {
		k := &w.ranks[r]
		if s.Nodes != nil {
			if s.Nodes[r] < 0 {
				return nil, fmt.Errorf("sim: rank %d is on node %d", r, s.Nodes[r])
			}
			k.node = int32(s.Nodes[r])
		}
		k.host = k.node / int32(max(1, s.Model.Hosted))
		nodes = max(nodes, int(k.node)+1)
		k.ops, k.left, k.writes = sch.Ops, len(sch.Ops), p.writes[r]
		k.cached = float64(sch.Scratch*s.ElemSize) <= s.Model.Cache
		k.graph = p.graphs[r]
		k.waits, k.peer, k.state = slices.Clone(k.graph.Waits()), p.peers[r], make([]uint16, len(sch.Ops))
		k.first, k.todo = make([]int32, 0, len(sch.Ops)), make([]int32, 0, 2*len(sch.Ops))
	}
	w.nodes = make([]node, nodes)
	w.hosts = make([]host, nodes)
	for i := range w.hosts {
		w.hosts[i].infinite = s.Model.Cores < 1
		w.hosts[i].idle = slices.Repeat([]int32{-1}, int(s.Model.Cores))
	}
	bytes := 0.0 // of the collective
	for _, sch := range p.all {
		bytes = max(bytes, float64(sch.Count*s.ElemSize)/cmp.Or(s.Part, 1))
	}
	w.streams = bytes >= StreamFrom
	w.given = min(1, s.Model.Cache/CachedPart/bytes)
	if w.GPU {
		if !w.Model.GPU.Known() {
			return nil, fmt.Errorf("sim: buffers in GPUs' memory, of which the model has no parameters: %v", w.Model)
		}
		w.setGPUs()
		w.Unregistered = false
	}
	if w.Unregistered {
		w.countSends()
	}
	near := w.perNode()
	for r := range w.ranks {
		w.ranks[r].trades = p.all[r].Trades(p.graphs[r], near[w.ranks[r].node])
	}
	w.setRoomy()
	alone := w.setAlone()
	switch short := s.Model.Short; {
	case w.short(bytes):
		w.Model.Op, w.Model.Intra.Latency = short.Op, short.Latency
	case alone && (!w.Unregistered || w.hosts[0].roomy):
		w.Model.Op, w.Model.Intra.Latency = short.Lent, short.Latency
	}
	w.setPlaces(p, near, int(bytes))
	w.setRates()
	return w, nil
}

// setRoomy counts the ranks of each host, and finds out whether every one has a core.
func (w *world) setRoomy() {
	for r := range w.ranks {
		w.hosts[w.ranks[r].host].ranks++
	}
	for i := range w.hosts {
		h := &w.hosts[i]
		h.roomy = w.Model.Cores < 1 || h.ranks <= w.Model.Cores
	}
}

// setAlone finds out which ranks' callers execute their schedules by themselves (package nbc), message by message, and
// reports whether all do.
func (w *world) setAlone() bool {
	all := true
	for r := range w.ranks {
		w.ranks[r].alone = w.executedAlone(int32(r))
		all = all && w.ranks[r].alone
	}
	return all
}

func (w *world) executedAlone(r int32) bool {
	k := &w.ranks[r]
	sends := map[int]int{}
	for i := range k.ops {
		op := &k.ops[i]
		if op.Local() {
			continue
		}
		most := AloneAdded
		switch {
		case k.trades && !w.Unregistered:
			most = AloneTrade
		case op.Kind == schedule.Recv || !w.hosts[k.host].roomy:
			most = HalvedFrom - 1
		}
		if !op.Receives() {
			sends[op.Peer]++
		}
		if !w.near(r, int32(i)) || op.Len()*w.ElemSize > most || sends[op.Peer] > AloneLent {
			return false
		}
	}
	return w.gpus == nil
}

// setPlaces finds out which ranks store their sums, and messages that they pass on, where others want them: those whose schedules the loop executes.
func (w *world) setPlaces(p *Plans, near []int, bytes int) {
	for r := range w.ranks {
		k := &w.ranks[r]
		if w.Unregistered || w.gpus != nil || near[k.node] == 1 || k.alone {
			continue
		}
		if n := p.all[r].Places(k.graph, near[k.node]); Spreads(bytes, n) {
			k.places = n
		}
		relays, longest := p.all[r].Relays(k.graph, near[k.node], func(rank int) bool { return w.ranks[rank].node == k.node })
		if longest*w.ElemSize > RelayLeast && Spreads(bytes, near[k.node]-1) {
			k.relays = relays
		}
	}
}

// perNode counts the ranks of each node.
func (w *world) perNode() []int {
	ranks := make([]int, len(w.nodes))
	for r := range w.ranks {
		ranks[w.ranks[r].node]++
	}
	return ranks
}

// countSends counts how many ranks of its node each rank sends each range to.
func (w *world) countSends() {
	for r := range w.ranks {
		k := &w.ranks[r]
		k.sends, k.filled = map[schedule.Ref]int{}, map[schedule.Ref]bool{}
		for i := range k.ops {
			if op := &k.ops[i]; op.Kind == schedule.Send && w.ranks[op.Peer].node == k.node {
				k.sends[op.Src]++
			}
		}
	}
}

// short reports whether a collective of so many bytes, of the ranks of one node, is one of few: however it is done, its
// messages are short. One of more bytes that comes to short messages, as direct's parts are, is not: for the same bytes
// other algorithms have larger ones, and what a message costs beyond that is not known as well. But the parts that ranks have of
// themselves (ByRank) are the same for all.
func (w *world) short(bytes float64) bool {
	if w.gpus != nil || slices.ContainsFunc(w.ranks, func(k rank) bool { return k.node != w.ranks[0].node }) {
		return false
	}
	if !w.ByRank {
		return bytes <= ShortBytes
	}
	long := func(op schedule.Op) bool { return !op.Local() && op.Len()*w.ElemSize > ShortBytes }
	return !slices.ContainsFunc(w.ranks, func(k rank) bool { return slices.ContainsFunc(k.ops, long) })
}
