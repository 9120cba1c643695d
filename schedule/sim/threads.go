package sim

import "slices"

// ready gives an op that waits for nothing to its rank's thread.
func (w *world) ready(r, i int32) {
	k := &w.ranks[r]
	if k.ops[i].Local() {
		k.todo = append(k.todo, i)
	} else {
		k.first = append(k.first, i)
	}
	w.wake(r)
}

// wake sets rank r's thread to work, if it rests.
func (w *world) wake(r int32) {
	if k := &w.ranks[r]; !k.busy {
		k.busy = true
		w.ask(r)
	}
}

// ask gets a core for rank r, now or later: the one that served it last, if that is
// idle.
func (w *world) ask(r int32) {
	h := &w.hosts[w.ranks[r].host]
	if h.infinite {
		w.work(r, 0)
		return
	}
	last := len(h.idle) - 1
	if last < 0 {
		h.waiting = append(h.waiting, r)
		return
	}
	at := max(0, slices.Index(h.idle, r))
	from := h.idle[at]
	h.idle[at] = h.idle[last]
	h.idle = h.idle[:last]
	w.work(r, w.change(from, r))
}

// change is what it takes a core to turn from one rank to another.
func (w *world) change(from, to int32) float64 {
	if from < 0 || from == to {
		return 0
	}
	return w.Model.Switch
}

// work does the first task of rank r, which has a core that begins after some time.
func (w *world) work(r int32, after float64) {
	k := &w.ranks[r]
	queue := &k.first
	finish := len(k.first) == 0
	if finish {
		queue = &k.todo
	}
	op := (*queue)[0]
	*queue = (*queue)[1:]
	h, m := &w.hosts[k.host], &w.Model
	if w.gpus != nil && !finish && w.copiesDown(r, op) { // begins that, and has to do with the message when it is done
		w.push(event{at: w.now + after + m.Op, kind: taskDone, rank: r, op: op})
		return
	}
	end := w.now + after + m.Op + float64(w.packets(r, op, finish)*m.Packet) + w.carries(r, op, finish)
	t := traffic{staged: w.copying(r, op)}
	if finish {
		t = w.moved(r, op)
	}
	end += t.memory/k.core + t.fresh/min(m.Fresh, k.core) + t.cached/m.Core.Cached + t.staged/k.staged
	if all := t.all(); all > 0 {
		h.memory = max(h.memory, w.now) + all/h.rate
		end = max(end, h.memory)
	}
	w.push(event{at: end, kind: taskDone, rank: r, op: op, finish: finish})
}

// release takes rank r's core from it.
func (w *world) release(r int32) {
	h := &w.hosts[w.ranks[r].host]
	switch {
	case h.infinite:
	case len(h.waiting) > 0:
		other := h.waiting[0]
		h.waiting = h.waiting[1:]
		w.work(other, w.change(r, other))
	default:
		h.idle = append(h.idle, r)
	}
}
