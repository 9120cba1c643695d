package sim

import (
	"slices"

	"github.com/scaffe/scaffe/schedule"
)

// GPU is what buffers in GPUs' memory cost. Times are in seconds, rates in bytes a second.
type GPU struct {
	// Launch is for how long a kernel takes, from its launch until its end is seen, besides its bytes. Memory is at what rate
	// kernels read and write the memory of a GPU, one of them or several at once: an addition three times its length, and once more for each
	// message besides that it adds, a copy twice.
	Launch, Memory float64
	// Down is a copy to pinned memory of the host, Up one from there.
	Down, Up Copies
	// Devices is how many GPUs the ranks of a node take in turn; 0: each has its own.
	Devices float64
	// Lends says which messages within a node are read where they lie: LendsNone, LendsOwn or LendsAll. All others
	// are staged in the host's memory.
	Lends float64
	// Turns is 1 where ranks that share a GPU take turns: no kernel of theirs runs beside another rank's, as of processes without
	// NVIDIA's MPS.
	Turns float64
}

// Copies are what a copy between a GPU's memory and the host's takes, Latency besides its bytes. Those of one GPU in one direction share
// its Bandwidth.
type Copies struct{ Latency, Bandwidth float64 }

// Values of GPU.Lends.
const (
	LendsNone = iota // no message
	LendsOwn         // those between ranks of one GPU
	LendsAll         // all
)

// Known reports whether g says what device buffers cost.
func (g GPU) Known() bool {
	return g.Launch > 0 && g.Memory > 0 && g.Down.Bandwidth > 0 && g.Up.Bandwidth > 0
}

func (g *GPU) fields() []field {
	return []field{
		{"gpu.launch", &g.Launch, true},
		{"gpu.memory", &g.Memory, true},
		{"gpu.down.latency", &g.Down.Latency, true},
		{"gpu.down.bandwidth", &g.Down.Bandwidth, true},
		{"gpu.up.latency", &g.Up.Latency, true},
		{"gpu.up.bandwidth", &g.Up.Bandwidth, true},
		{"gpu.devices", &g.Devices, true},
		{"gpu.lends", &g.Lends, true},
		{"gpu.turns", &g.Turns, true},
	}
}

// How often kernels go over the bytes of an op, reading or writing.
const (
	copyPasses = 2
	addPasses  = 3
)

// gpu is one that ranks of a node share.
type gpu struct {
	memory   float64 // until when its memory is busy
	turn     float64 // until when a kernel has it, where ranks take turns
	down, up float64 // until when its copies are busy
}

// A rank's streams on its GPU: each does one thing after the other.
const (
	sums  = iota // kernels of its own ops
	reads        // kernels that copy messages from where they lie
	downs        // copies
	ups
	numLanes
)

// lane is a stream.
type lane struct {
	busy    bool
	waiting []given
}

// given is an op that was put on a stream, and when: launches do not wait for what is there before.
type given struct {
	op int32
	at float64
}

// setGPUs gives every rank its GPU: those of a node take its GPUs in turn.
func (w *world) setGPUs() {
	each, places := len(w.ranks), make([]int, len(w.nodes))
	if n := int(w.Model.GPU.Devices); n > 0 {
		each = n
	}
	w.gpus = make([]gpu, each*len(w.nodes))
	for r := range w.ranks {
		k := &w.ranks[r]
		k.gpu = k.node*int32(each) + int32(places[k.node]%each)
		places[k.node]++
	}
}

// lends reports whether op i of rank r is a message that is read where it lies, in a GPU's memory.
func (w *world) lends(r, i int32) bool {
	if w.gpus == nil || !w.near(r, i) {
		return false
	}
	k := &w.ranks[r]
	return w.Model.GPU.Lends >= LendsAll || w.Model.GPU.Lends >= LendsOwn && w.ranks[k.ops[i].Peer].gpu == k.gpu
}

// copiesDown reports whether op i of rank r is a message that must be copied to the host before it is posted.
func (w *world) copiesDown(r, i int32) bool {
	k := &w.ranks[r]
	return k.ops[i].Kind == schedule.Send && k.state[i]&down == 0 && !w.lends(r, i)
}

// begins gives the GPU of rank r what a task of op i comes to there, if anything. A message that is read where it
// lies goes as one within a node, but that a kernel does what the receiver's thread would:
//
//	sender    post ─ latency ─▶                            ┌─ latency ─▶ sendDone
//	                          sendReady ┐                  │
//	receiver  post ─────────────────────┴▶ finish ▶ kernel ┘
//
// Any other one is staged: it goes as one of the host's memory that is not registered, between two copies.
//
//	sender    post ▶ copy down ▶ post … ▶ sendDone
//	receiver  post …                    ▶ finish ▶ copy up ▶ kernel, where it is added
//
// A rank's copies each way, its sums and its reads each have a stream, so that those of several chunks overlap.
func (w *world) begins(r, i int32, finish bool) bool {
	k := &w.ranks[r]
	op := &k.ops[i]
	switch {
	case !finish:
		if !w.copiesDown(r, i) {
			return false
		}
	case op.Local() || w.lends(r, i):
	case !op.Receives() || w.far(r, i) && !w.eager(op) && k.state[i]&answered == 0:
		return false
	case w.near(r, i) && op.Len()*w.ElemSize > ShortBytes:
		w.tell(r, i, sendDone) // its slot has been read
	}
	w.give(r, i)
	return true
}

// laneOf is on which stream the next that the GPU has to do for op i of rank r is done.
func (w *world) laneOf(r, i int32) int {
	k := &w.ranks[r]
	switch op := &k.ops[i]; {
	case op.Kind == schedule.Send:
		return downs
	case op.Local():
		return sums
	case !w.lends(r, i) && k.state[i]&up == 0:
		return ups
	case op.Kind == schedule.Recv:
		return reads
	}
	return sums
}

// give begins the next that the GPU has to do for op i of rank r, or has it wait for what is on its stream. Nothing, where the kernel of
// another op has done it.
func (w *world) give(r, i int32) {
	k := &w.ranks[r]
	if k.state[i]&summed != 0 {
		w.kernelDone(r, i)
		return
	}
	l := &k.lanes[w.laneOf(r, i)]
	if l.busy {
		l.waiting = append(l.waiting, given{i, w.now})
		return
	}
	l.busy = true
	w.run(r, given{i, w.now})
}

// run has the GPU do that now.
func (w *world) run(r int32, next given) {
	k, i := &w.ranks[r], next.op
	op := &k.ops[i]
	g, m := &w.gpus[k.gpu], &w.Model.GPU
	bytes := float64(op.Len() * w.ElemSize)
	end := 0.0
	switch w.laneOf(r, i) {
	case downs:
		g.down = max(g.down, w.now, next.at+m.Down.Latency) + bytes/m.Down.Bandwidth
		end = g.down
	case ups:
		g.up = max(g.up, w.now, next.at+m.Up.Latency) + bytes/m.Up.Bandwidth
		end = g.up
	default:
		passes := float64(copyPasses)
		if op.Adds() {
			passes = addPasses + w.fused(r, i)
		}
		start := next.at
		if m.Turns > 0 {
			start = max(w.now, g.turn)
		}
		g.memory = max(g.memory, w.now, start+m.Launch) + float64(passes*bytes)/m.Memory
		end, g.turn = g.memory, g.memory
	}
	w.push(event{at: end, kind: gpuDone, rank: r, op: i})
}

// fused has the kernel of op i of rank r add the messages as well that have come to be added after it, and wait for nothing else, and returns how
// many.
func (w *world) fused(r, i int32) (more float64) {
	k := &w.ranks[r]
	for range GPUOperands - 2 {
		at := slices.IndexFunc(k.graph.Waiting(i), func(j int32) bool {
			return k.ops[j].Kind == schedule.RecvReduce && k.ops[j].Src == k.ops[i].Dst
		})
		if at < 0 {
			break
		}
		if i = k.graph.Waiting(i)[at]; k.waits[i] > 1 || k.state[i]&senderReady == 0 || !w.lends(r, i) {
			break
		}
		k.state[i] |= summed
		more++
	}
	return more
}

// gpuDone goes on with op i of rank r, and with what waits for its stream.
func (w *world) gpuDone(r, i int32) {
	k := &w.ranks[r]
	op := &k.ops[i]
	at := w.laneOf(r, i)
	l := &k.lanes[at]
	if l.busy = len(l.waiting) > 0; l.busy {
		next := l.waiting[0]
		l.waiting = l.waiting[1:]
		w.run(r, next)
	}
	switch {
	case at == downs:
		k.state[i] |= down
		k.first = append(k.first, i)
		w.wake(r)
	case at == ups && op.Kind == schedule.RecvReduce:
		k.state[i] |= up
		w.give(r, i)
	default:
		w.kernelDone(r, i)
	}
}

// kernelDone ends op i of rank r, and lets go of what a kernel has read for it.
func (w *world) kernelDone(r, i int32) {
	if w.lends(r, i) {
		w.tell(r, i, sendDone)
	}
	w.complete(r, i)
}
