package sim

func (w *world) push(e event) {
	e.seq = w.seq
	w.seq++
	w.events.push(e)
}

// event is something that happens to an op at a time.
type event struct {
	at     float64
	seq    uint64 // of two at the same time the one that was made first
	kind   kind
	finish bool
	rank   int32
	op     int32
}

type kind uint8

const (
	taskDone    kind = iota // a thread has posted or finished an op
	sendReady               // a message is there to be received, read or asked for, its receive perhaps not yet posted
	granted                 // the sender of a message that waits for its receive has its answer
	dataArrived             // the data of such a message are there
	sendDone                // a message has left, or has been read
	wanted                  // a sender learns where its message is wanted
)

// before reports whether e happens before o.
func (e event) before(o event) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

// events is a binary heap, the next one first: container/heap's algorithm without
// its allocation for every event.
type events []event

// push adds an event.
func (h *events) push(e event) {
	all := append(*h, e)
	i := len(all) - 1
	for i > 0 {
		above := (i - 1) / 2
		if !e.before(all[above]) {
			break
		}
		all[i], i = all[above], above
	}
	all[i] = e
	*h = all
}

// pop removes the next event of some and returns it.
func (h *events) pop() event {
	all := *h
	first, last := all[0], all[len(all)-1]
	all = all[:len(all)-1]
	*h = all
	if len(all) == 0 {
		return first
	}
	i := 0
	for {
		below := 2*i + 1
		if below >= len(all) {
			break
		}
		if below+1 < len(all) && all[below+1].before(all[below]) {
			below++
		}
		if !all[below].before(last) {
			break
		}
		all[i], i = all[below], below
	}
	all[i] = last
	return first
}
