package exchange

import (
	"math"
	"slices"
	"time"

	"github.com/scaffe/scaffe/syncer/coordinator"
)

// Divide returns what moves as one of a net whose packed parameters have count elements, as New does for a
// design: layers go by schemes, and a bucket has at least as many bytes as least says of its scheme.
func Divide(d Design, layers []Layer, schemes []Scheme, count int, least map[Scheme]int) ([]Bucket, error) {
	c := Config{Design: d, Layers: layers, Schemes: schemes}
	buckets, err := divide(layers, c.schemeOf, count, least)
	if err != nil {
		return nil, err
	}
	var all []Bucket
	for _, m := range (&Exchange{c: c, buckets: buckets}).moving() {
		all = append(all, m.Bucket)
	}
	return all, nil
}

// Passes is how long a layer computes.
type Passes struct{ Forward, Backward time.Duration }

// Expected is what one of Divide's buckets is expected to take.
type Expected struct {
	Bucket
	coordinator.Phases
	Rebuild time.Duration // of the processor, once the factors are there
	Update  time.Duration // beside the computation
}

// iterationsToPredict are simulated; the last is in step with those before it.
const iterationsToPredict = 4

// PredictIteration returns how long an iteration takes, from the end of one backward phase to the next, where
// communication takes what is expected: the design's own policy in simulated time.
//
// The processor computes, and rebuilds gradients before it computes on. Of the buckets on the network the one
// that is needed soonest goes first; one that does not fill a node's port leaves
// the rest of it to the next.
func PredictIteration(d Design, layers []Passes, buckets []Expected) time.Duration {
	s := &simulation{owner: make([]*expected, len(layers))}
	for _, b := range buckets {
		e := &expected{Expected: b, policy: designs[d].policy(b.Scheme), state: current}
		s.buckets = append(s.buckets, e)
		for _, l := range b.Layers {
			s.owner[l] = e
		}
	}
	var begin, end float64
	for range iterationsToPredict {
		s.iteration(layers)
		begin, end = end, s.now
	}
	return time.Duration((end - begin) * float64(time.Second))
}

// expected is a bucket in simulated time.
type expected struct {
	Expected
	policy policy
	state  state
	left   int // layers whose backward has not ended
	stage  stage
	need   float64 // seconds of the stage that are left, alone
}

// stage is what a bucket is doing.
type stage uint8

const (
	resting stage = iota
	pushed        // gradients travel
	rebuilt
	updated
	pulled // parameters travel
)

// simulation is an exchange in simulated time.
type simulation struct {
	now     float64
	work    float64 // seconds of the pass under way
	buckets []*expected
	owner   []*expected // by layer
}

// iteration does what the passes and the policy say.
func (s *simulation) iteration(layers []Passes) {
	for _, b := range s.buckets {
		b.left = len(b.Layers)
	}
	left := 0
	s.reach(atStart, s.buckets)
	s.ahead(0)
	for i, l := range layers {
		if b := s.owner[i]; b != nil {
			left++
			s.current(b)
			s.ahead(slices.Index(s.buckets, b) + 1)
		}
		s.compute(l.Forward)
	}
	for i, l := range slices.Backward(layers) {
		s.compute(l.Backward)
		b := s.owner[i]
		if b == nil {
			continue
		}
		left--
		if b.left--; b.left == 0 {
			b.state = stale
			s.reach(afterLayers, []*expected{b})
		}
		if left == 0 {
			s.reach(afterBackward, s.buckets)
		}
	}
	s.reach(atFinish, s.buckets)
}

// ahead says that bucket i is the next that the forward pass comes to.
func (s *simulation) ahead(i int) {
	if i < len(s.buckets) {
		s.reach(oneAhead, s.buckets[i:i+1])
	}
}

// reach is Exchange.reach.
func (s *simulation) reach(p point, bs []*expected) {
	for _, b := range slices.Backward(bs) {
		if p == b.policy.pushAt && b.state == stale {
			b.push()
		}
	}
	for _, b := range slices.Backward(bs) {
		if p == b.policy.pushAwaitedAt {
			s.await(b)
		}
	}
	for _, b := range bs {
		if p == b.policy.pullAt && b.state == summed {
			b.pull()
		}
	}
	for _, b := range bs {
		if p == b.policy.pullAwaitedAt {
			s.current(b)
		}
	}
}

func (b *expected) push() {
	b.state = pushing
	b.enter(pushed)
}

func (b *expected) pull() {
	b.state = pulling
	b.enter(pulled)
}

// current waits until a bucket's parameters are.
func (s *simulation) current(b *expected) {
	for b.state != current {
		switch b.state {
		case stale:
			b.push()
		case summed:
			b.pull()
		}
		s.await(b)
	}
}

// await waits until what a bucket does has ended.
func (s *simulation) await(b *expected) {
	for b.stage != resting {
		s.step()
	}
}

// compute takes the processor for so long.
func (s *simulation) compute(d time.Duration) {
	for s.work = d.Seconds(); s.work > 0; {
		s.step()
	}
}

// enter begins a stage, or the first after it that takes time.
func (b *expected) enter(g stage) {
	for ; ; g++ {
		switch b.stage = g; g {
		case pushed:
			b.need = b.Push.Seconds()
		case rebuilt:
			b.need = b.Rebuild.Seconds()
		case updated:
			b.need = b.Update.Seconds()
		case pulled:
			if b.state == pushing { // it has been used
				if b.policy.pullAt == never {
					b.state, b.stage = current, resting
					return
				}
				if b.policy.pullAt != onSum {
					b.state, b.stage = summed, resting
					return
				}
				b.state = pulling
			}
			b.need = b.Pull.Seconds()
		default:
			b.state, b.stage = current, resting
			return
		}
		if b.need > 0 {
			return
		}
	}
}

// port is which part of a node's port a bucket takes that has the network to itself.
func (b *expected) port() float64 {
	if b.stage == pushed {
		return b.PushPort.Seconds() / b.Push.Seconds()
	}
	return b.PullPort.Seconds() / b.Pull.Seconds()
}

// step goes on to when next something ends.
func (s *simulation) step() {
	const least = 1e-9
	free, processor, updater := 1.0, true, true
	speed := make([]float64, len(s.buckets))
	dt := math.Inf(1)
	for i, b := range s.buckets { // the front of the net first
		switch b.stage {
		case pushed, pulled:
			if speed[i] = 1; b.port() > 0 {
				speed[i] = min(1, free/b.port())
			}
			free -= speed[i] * b.port()
		case rebuilt:
			if processor {
				speed[i], processor = 1, false
			}
		case updated:
			if updater {
				speed[i], updater = 1, false
			}
		}
		if speed[i] > least {
			dt = min(dt, b.need/speed[i])
		}
	}
	if processor && s.work > 0 {
		dt = min(dt, s.work)
	}
	s.now += dt
	if processor && s.work > 0 {
		if s.work -= dt; s.work < least {
			s.work = 0
		}
	}
	for i, b := range s.buckets {
		if speed[i] <= least {
			continue
		}
		if b.need -= dt * speed[i]; b.need < least {
			b.enter(b.stage + 1)
		}
	}
}
