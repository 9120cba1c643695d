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
	// Equal is Config.FirstCome: pushes go before pulls, and of these what comes first goes first.
	Equal bool
	// Shares is which part of the bucket each server has; nil where the servers are not apart.
	Shares []float64
}

const (
	// iterationsToPredict are simulated at most; the last is in step with those before it.
	iterationsToPredict = 4
	// predictedParts are those of all buckets together, but for one of each: enough that a part takes little of the whole.
	predictedParts = 256
)

// PredictIteration returns how long an iteration takes, from the end of one backward phase to the next, where
// communication takes what is expected: the design's own policy in simulated time. updateAtOnce is as in Config.
//
// The processor computes, and rebuilds gradients before it computes on. Of the buckets on the network the one
// that is needed soonest goes first, or pushes before pulls (Equal), when what is under way has passed the port (Behind); one that does not fill a node's
// port, or waits for that of its server, leaves the rest of it to the next. What a bucket is cut into goes through all stages part by part.
func PredictIteration(d Design, updateAtOnce bool, layers []Passes, buckets []Expected) time.Duration {
	s := &simulation{}
	var port time.Duration
	for _, b := range buckets {
		port += b.PushPort + b.PullPort
	}
	first := len(layers)
	for i, b := range slices.Backward(buckets) {
		parts := 1
		if port > 0 {
			parts = min(max(1, b.Parts), max(1, int(predictedParts*(b.PushPort+b.PullPort)/port)))
		}
		passes := sum(layers[b.Layers[0]:first])
		first = b.Layers[0]
		if len(b.Shares) > len(s.ports.servers) {
			s.ports.servers = make([]serverPort, len(b.Shares))
		}
		b.cut(parts)
		b.Equal = b.Equal || designs[d].policy(b.Scheme).together()
		b.FirstCome = b.FirstCome || b.Equal
		for range parts { // the passes are the last part's, behind which the others' are due at once
			e := &expected{Expected: b, policy: designs[d].policy(b.Scheme).within(updateAtOnce, false), state: current, bucket: i, passes: passes}
			passes = Passes{}
			s.buckets = append(s.buckets, e)
		}
	}
	slices.Reverse(s.buckets)
	for i, b := range s.buckets {
		b.index = i
	}
	s.front = sum(layers[:first])
	var last, took, end float64
	for range iterationsToPredict {
		s.iteration()
		last, took, end = took, s.now-end, s.now
		if math.Abs(took-last) < leastTime { // and so will those after it
			break
		}
	}
	return time.Duration(took * float64(time.Second))
}

// cut makes b one of so many parts: what is not its share of the port is latency, which parts have side by side.
func (b *Expected) cut(parts int) {
	n := time.Duration(parts)
	b.Push, b.PushPort = b.Push-b.PushPort+b.PushPort/n, b.PushPort/n
	b.Pull, b.PullPort = b.Pull-b.PullPort+b.PullPort/n, b.PullPort/n
	b.ServerPort /= n
	b.Update, b.Rebuild = b.Update/n, b.Rebuild/n
}

func sum(layers []Passes) (p Passes) {
	for _, l := range layers {
		p.Forward, p.Backward = p.Forward+l.Forward, p.Backward+l.Backward
	}
	return p
}

// leastTime is what seconds are equal within.
const leastTime = 1e-9

// expected is a bucket in simulated time.
type expected struct {
	stage  stage
	begins bool // on the network, in the next step
	state  state
	need   float64 // seconds of the stage that are left, alone
	port   float64 // which part of a node's port it takes where it has the network to itself
	server float64 // and which part of a server's with all of it, where servers are apart
	speed  float64 // in the step under way
	held   float64 // seconds for which less urgent messages are in the way
	index  int     // of the part
	bucket int
	policy policy
	passes Passes // of its layers, and of those without parameters behind them: nothing begins between these
	Expected
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
	front   Passes      // of the layers before them
	active  []*expected // those that do not rest, in the order of buckets
	ports   ports
}

// iteration does what the passes and the policy say.
func (s *simulation) iteration() {
	s.reach(atStart, s.buckets)
	s.ahead(0)
	s.compute(s.front.Forward)
	for i, b := range s.buckets {
		s.current(b)
		s.ahead(i + 1)
		s.compute(b.passes.Forward)
	}
	for i, b := range slices.Backward(s.buckets) {
		s.compute(b.passes.Backward)
		b.state = stale
		s.reach(afterLayers, s.buckets[i:i+1])
	}
	s.reach(afterBackward, s.buckets)
	s.compute(s.front.Backward)
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
			s.push(b)
		}
	}
	for _, b := range slices.Backward(bs) {
		if p == b.policy.pushAwaitedAt {
			s.await(b)
		}
	}
	for _, b := range bs {
		if p == b.policy.pullAt && b.state == summed {
			s.pull(b)
		}
	}
	for _, b := range bs {
		if p == b.policy.pullAwaitedAt {
			s.current(b)
		}
	}
}

func (s *simulation) push(b *expected) {
	b.state = pushing
	b.enter(pushed)
	s.activate(b)
}

func (s *simulation) pull(b *expected) {
	b.state = pulling
	b.enter(pulled)
	s.activate(b)
}

// activate adds a bucket to those that do something, if it does.
func (s *simulation) activate(b *expected) {
	if b.stage == resting {
		return
	}
	at := 0
	for at < len(s.active) && s.active[at].index < b.index {
		at++
	}
	s.active = slices.Insert(s.active, at, b)
}

// current waits until a bucket's parameters are.
func (s *simulation) current(b *expected) {
	for b.state != current {
		switch b.state {
		case stale:
			s.push(b)
		case summed:
			s.pull(b)
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
		b.begins = g == pushed || g == pulled
		switch b.stage = g; g {
		case pushed:
			b.travel(b.Push, b.PushPort)
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
			b.travel(b.Pull, b.PullPort)
		default:
			b.state, b.stage = current, resting
			return
		}
		if b.need > 0 {
			return
		}
	}
}

// travel begins a stage on the network that takes so long, and of a port so much.
func (b *expected) travel(took, port time.Duration) {
	if b.need = took.Seconds(); b.need > 0 {
		b.port = port.Seconds() / b.need
		b.server = b.ServerPort.Seconds() / b.need
	}
}

// hold has what begins on the network wait behind what is under way there and less urgent.
func (s *simulation) hold() {
	for _, b := range s.active {
		if !b.begins {
			continue
		}
		first := 0.0 // what has come before, and goes before
		for _, o := range s.active {
			switch {
			case !o.before(b):
			case o.FirstCome && (b.afterPushes() || !o.afterPushes()):
				first += o.need * o.port
			case o.speed > leastTime:
				b.held = max(b.held, min(o.Behind.Seconds(), o.need/o.speed))
			}
		}
		b.held = max(b.held, first)
	}
	for _, b := range s.active {
		b.begins = false
	}
}

// before reports whether o is under way through the ports that b, which is more urgent, now wants to pass.
func (o *expected) before(b *expected) bool {
	less := o.bucket > b.bucket && (o.stage == pushed || o.stage == pulled) && !o.begins
	opposite := o.stage != b.stage && o.OneWay && b.OneWay // pushes go to servers, and pulls come from them
	return less && !opposite
}

// afterPushes reports whether the bucket's pull waits until all is pushed that there is to push.
func (b *expected) afterPushes() bool { return b.Equal && b.stage == pulled }

// inTurn are those that do something, in the order in which they take what they share: the front of the net first; or, of what is all
// equally urgent, the back of the net, which came first, and pulls after all else.
func (s *simulation) inTurn(yield func(*expected) bool) {
	for _, b := range slices.Backward(s.active) {
		if b.Equal && !b.afterPushes() && !yield(b) {
			return
		}
	}
	for _, b := range s.active {
		if !b.Equal && !yield(b) {
			return
		}
	}
	for _, b := range slices.Backward(s.active) {
		if b.afterPushes() && !yield(b) {
			return
		}
	}
}

// step goes on to when next something ends.
func (s *simulation) step() {
	processor, updater := true, true
	s.ports.free()
	dt := math.Inf(1)
	s.hold()
	for b := range s.inTurn {
		b.speed = 0
		if b.held > leastTime {
			dt = min(dt, b.held)
			continue
		}
		switch b.stage {
		case pushed, pulled:
			b.speed = s.ports.take(b)
		case rebuilt:
			if processor {
				b.speed, processor = 1, false
			}
		case updated:
			if updater {
				b.speed, updater = 1, false
			}
		}
		if b.speed > leastTime {
			dt = min(dt, b.need/b.speed)
		}
	}
	if processor && s.work > 0 {
		dt = min(dt, s.work)
	}
	s.now += dt
	if processor && s.work > 0 {
		if s.work -= dt; s.work < leastTime {
			s.work = 0
		}
	}
	rest := s.active[:0]
	for _, b := range s.active {
		if b.held > 0 {
			b.held = max(0, b.held-dt)
		}
		if b.speed > leastTime {
			if b.need -= dt * b.speed; b.need < leastTime {
				b.enter(b.stage + 1)
			}
		}
		if b.stage != resting {
			rest = append(rest, b)
		}
	}
	s.active = rest
}
