package sim

func (w *world) push(e event) {
	e.seq = w.seq
	w.seq++
	w.events.push(e)
}

// event is something that happens to an op at a time.
type event struct {
	at     float64
	seq    uint32 // of two at the same time the one that was made first
	rank   int32
	op     int32
	kind   kind
	finish bool
}

type kind uint8

const (
	taskDone    kind = iota // a thread has posted or finished an op
	sendReady               // a message is there to be received, read or asked for, its receive perhaps not yet posted
	granted                 // the sender of a message that waits for its receive has its answer
	dataArrived             // the data of such a message are there
	sendDone                // a message has left, or has been read
	wanted                  // a sender learns where its message is wanted
	gpuDone                 // a GPU has done what it was given of an op
)

// before reports whether e happens before o.
func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

// events is a binary heap, the next one first: container/heap's algorithm without
// its allocation for every event.
type events []event

// push adds an event.
func (h *events) push(e event) {
	*h = append(*h, e)
	h.rise(len(*h)-1, e)
}

// pop removes the next event of some and returns it. The last one takes its place: as that mostly belongs far below, the
// way down is that of the earlier ones, and then up as far as need be.
func (h *events) pop() event {
	all := *h
	n := len(all) - 1
	first, last := all[0], all[n]
	all = all[:n]
	*h = all
	if n == 0 {
		return first
	}
	i := 0
	for below := 1; below < n; below = 2*i + 1 {
		if below+1 < n && all[below+1].before(&all[below]) {
			below++
		}
		all[i], i = all[below], below
	}
	all.rise(i, last)
	return first
}

// rise puts an event to place i, which is free, or to where it belongs above.
func (h events) rise(i int, e event) {
	for i > 0 {
		above := (i - 1) / 2
		if !e.before(&h[above]) {
			break
		}
		h[i], i = h[above], above
	}
	h[i] = e
}
