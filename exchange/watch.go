package exchange

import (
	"sync"
	"time"
)

// Stats says where an exchange's time went so far, on this rank.
type Stats struct {
	// Push and Pull are how long gradients and parameters were in flight,
	// whatever else went on; Communication is how long either was.
	Push, Pull, Communication time.Duration
	// ExposedPush and ExposedPull are how long the computing goroutine did
	// nothing but wait for them.
	ExposedPush, ExposedPull time.Duration
}

// Exposed is how long the computing goroutine waited in all.
func (s Stats) Exposed() time.Duration { return s.ExposedPush + s.ExposedPull }

// Hidden is the part of the communication that computation covered, in [0, 1].
func (s Stats) Hidden() float64 {
	if s.Communication <= 0 {
		return 0
	}
	return max(0, 1-s.Exposed().Seconds()/s.Communication.Seconds())
}

// Sub returns what was added since an earlier o.
func (s Stats) Sub(o Stats) Stats {
	return Stats{
		Push: s.Push - o.Push, Pull: s.Pull - o.Pull, Communication: s.Communication - o.Communication,
		ExposedPush: s.ExposedPush - o.ExposedPush, ExposedPull: s.ExposedPull - o.ExposedPull,
	}
}

// watch measures. The exposed times are the computing goroutine's, the others
// everybody's.
type watch struct {
	both, push, pull         *span
	exposedPush, exposedPull time.Duration
}

func newWatch() watch {
	both := &span{}
	return watch{both: both, push: &span{within: both}, pull: &span{within: both}}
}

// Stats returns the times so far.
func (x *Exchange) Stats() Stats {
	w := &x.watch
	return Stats{
		Push: w.push.so(), Pull: w.pull.so(), Communication: w.both.so(),
		ExposedPush: w.exposedPush, ExposedPull: w.exposedPull,
	}
}

// span adds up the time during which at least one of several things goes on.
type span struct {
	within *span // that it is a part of
	mu     sync.Mutex
	open   int
	since  time.Time
	sum    time.Duration
}

func (s *span) begin(t time.Time) {
	if s.within != nil {
		s.within.begin(t)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open++; s.open == 1 {
		s.since = t
	}
}

func (s *span) end(t time.Time) {
	if s.within != nil {
		s.within.end(t)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open--; s.open == 0 && t.After(s.since) {
		s.sum += t.Sub(s.since)
	}
}

// so returns the sum, with what goes on now.
func (s *span) so() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open > 0 {
		return s.sum + max(0, time.Since(s.since))
	}
	return s.sum
}
