package sim

import "container/heap"

func (w *world) push(e event) {
	e.seq = w.seq
	w.seq++
	heap.Push(&w.events, e)
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

// events is a heap, the next one first.
type events []event

func (h events) Len() int { return len(h) }
func (h events) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h events) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push is container/heap's.
func (h *events) Push(x any) { *h = append(*h, x.(event)) }

// Pop is container/heap's.
func (h *events) Pop() any {
	old := *h
	e := old[len(old)-1]
	*h = old[:len(old)-1]
	return e
}
