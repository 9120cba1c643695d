package trace

import (
	"sync"
	"time"
)

// Sink takes what a rank does: a Recorder keeps it, a Meter adds it up. Add is
// called when an event has ended, by any goroutine.
type Sink interface{ Add(Event) }

// Sinks are several sinks that all take every event.
type Sinks []Sink

// Add hands an event to every sink.
func (s Sinks) Add(e Event) {
	for _, sink := range s {
		sink.Add(e)
	}
}

// Totals says where a rank's time has gone so far, up to the last event that has
// ended.
type Totals struct {
	// Push and Pull are how long gradients and parameters were in flight,
	// whatever else happened meanwhile; Communication is how long either were.
	Push, Pull, Communication time.Duration
	// ExposedPush and ExposedPull are how long the computing goroutine did
	// nothing but wait for them, Sync how long it waited for other ranks else.
	ExposedPush, ExposedPull, Sync time.Duration
	// Input is how long it waited for data.
	Input time.Duration
	// TestsAndSnapshots is how long those took, without waits within them.
	TestsAndSnapshots time.Duration
}

// Exposed is how long the computing goroutine waited for gradients and
// parameters.
func (t Totals) Exposed() time.Duration { return t.ExposedPush + t.ExposedPull }

// Hidden is the part of the communication that computation covered, in [0, 1].
func (t Totals) Hidden() float64 {
	if t.Communication <= 0 {
		return 0
	}
	return max(0, 1-t.Exposed().Seconds()/t.Communication.Seconds())
}

// Sub returns what was added since an earlier o.
func (t Totals) Sub(o Totals) Totals {
	return Totals{
		Push: t.Push - o.Push, Pull: t.Pull - o.Pull, Communication: t.Communication - o.Communication,
		ExposedPush: t.ExposedPush - o.ExposedPush, ExposedPull: t.ExposedPull - o.ExposedPull, Sync: t.Sync - o.Sync,
		Input: t.Input - o.Input, TestsAndSnapshots: t.TestsAndSnapshots - o.TestsAndSnapshots,
	}
}

// Meter is a Sink that adds up the times of the events of one rank. Its zero
// value is ready.
type Meter struct {
	mu                     sync.Mutex
	sums                   [kinds]time.Duration
	push, pull, both, wait union
	aside                  time.Duration
}

// Add adds an event's time.
func (m *Meter) Add(e Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := max(0, e.End.Sub(e.Begin))
	m.sums[e.Kind] += d
	switch e.Kind {
	case Push:
		m.push.add(e.Begin, e.End)
		m.both.add(e.Begin, e.End)
	case Pull:
		m.pull.add(e.Begin, e.End)
		m.both.add(e.Begin, e.End)
	case WaitPush, WaitPull, Sync:
		m.wait.add(e.Begin, e.End)
	case Test, Snapshot:
		m.aside += d - m.wait.within(e.Begin, e.End)
	}
}

// Totals returns the sums so far.
func (m *Meter) Totals() Totals {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Totals{
		Push: m.push.sum, Pull: m.pull.sum, Communication: m.both.sum,
		ExposedPush: m.sums[WaitPush], ExposedPull: m.sums[WaitPull], Sync: m.sums[Sync],
		Input: m.sums[Input], TestsAndSnapshots: m.aside,
	}
}

// interval is a stretch of time.
type interval struct{ begin, end time.Time }

// union is how long at least one of several things was under way. They are added
// when they end, so nearly in the order of their ends: what overlaps a new one is
// among the last.
type union struct {
	recent []interval // apart, in order
	sum    time.Duration
}

// unionKeeps is how many intervals are kept to be joined with later ones. One
// that more than half as many ended after is as old as an iteration: none that
// is under way began before it.
const unionKeeps = 4096

func (u *union) add(begin, end time.Time) {
	if !end.After(begin) {
		return
	}
	to := len(u.recent) // the new one comes before this one
	for to > 0 && u.recent[to-1].begin.After(end) {
		to--
	}
	from := to // and takes those from here on up
	for from > 0 && !u.recent[from-1].end.Before(begin) {
		from--
		o := u.recent[from]
		u.sum -= o.end.Sub(o.begin)
		if o.begin.Before(begin) {
			begin = o.begin
		}
		if o.end.After(end) {
			end = o.end
		}
	}
	u.sum += end.Sub(begin)
	if from == to { // makes room
		u.recent = append(u.recent, interval{})
		copy(u.recent[to+1:], u.recent[to:])
		to++
	}
	u.recent[from] = interval{begin, end}
	u.recent = append(u.recent[:from+1], u.recent[to:]...)
	if len(u.recent) == unionKeeps {
		u.recent = append(u.recent[:0], u.recent[unionKeeps/2:]...)
	}
}

// within returns how much of it lies between two times.
func (u *union) within(begin, end time.Time) time.Duration {
	var sum time.Duration
	for i := len(u.recent) - 1; i >= 0 && u.recent[i].end.After(begin); i-- {
		o := u.recent[i]
		if o.begin.Before(begin) {
			o.begin = begin
		}
		if o.end.After(end) {
			o.end = end
		}
		sum += max(0, o.end.Sub(o.begin))
	}
	return sum
}
