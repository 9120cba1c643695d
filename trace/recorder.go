package trace

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// DefaultIterations is how many iterations are kept by default.
	DefaultIterations = 200
	// DefaultEvents is how many events a rank keeps at most by default;
	// about 70 MB.
	DefaultEvents = 1 << 20

	blockEvents = 4096
)

// Span is a range of iterations from First on, up to but not including End.
// The zero Span is the first DefaultIterations of the run, wherever it begins.
type Span struct{ First, End int }

// ParseSpan reads a span such as "10:60", iterations 10 to 59; "10:" has no
// end, ":60" begins at 0, and "10" is one iteration.
func ParseSpan(s string) (Span, error) {
	wrong := func(why string) (Span, error) {
		return Span{}, fmt.Errorf("invalid iterations %q: %s; want FIRST:END, such as 10:60 for iterations 10 to 59", s, why)
	}
	first, end, colon := strings.Cut(s, ":")
	sp := Span{0, math.MaxInt}
	for _, part := range []struct {
		text string
		to   *int
	}{{first, &sp.First}, {end, &sp.End}} {
		if part.text == "" {
			continue
		}
		n, err := strconv.Atoi(part.text)
		if err != nil || n < 0 || n > math.MaxInt32 {
			return wrong(strconv.Quote(part.text) + " is no iteration")
		}
		*part.to = n
	}
	switch {
	case !colon && first == "":
		return wrong("there is none")
	case !colon:
		sp.End = sp.First + 1
	case sp.End <= sp.First:
		return wrong("the end must come after the first")
	}
	return sp, nil
}

// String is the inverse of ParseSpan; the zero Span has no text.
func (s Span) String() string {
	switch {
	case s == Span{}:
		return ""
	case s.End == math.MaxInt:
		return fmt.Sprintf("%d:", s.First)
	}
	return fmt.Sprintf("%d:%d", s.First, s.End)
}

// Contains reports whether iteration i belongs to the span.
func (s Span) Contains(i int) bool { return s.First <= i && i < s.End }

// Options of a Recorder; the zero value is good.
type Options struct {
	// Iterations are kept; events of others are counted, not kept.
	Iterations Span
	// Events is how many events are kept at most, DefaultEvents where it is 0.
	// Later ones are counted, not kept.
	Events int
	// Host names the machine; os.Hostname where it is empty.
	Host string
	// Clock is what Now reads, time.Now where it is nil. Tests have clocks of
	// their own.
	Clock func() time.Time
}

// Bucket says what a bucket holds.
type Bucket struct {
	Bucket int    // as in Event
	Name   string // as in Event; may be empty
	Layers []int  // the numbers of the layers whose parameters it holds
}

// record is an Event as it is kept, in ns since the recorder's epoch.
type record struct {
	Kind                Kind
	Iter, Layer, Bucket int32
	Name                string
	Bytes               int64
	Begin, End          int64
}

// Recorder keeps the events of one rank. A nil Recorder is off. Its methods may
// be called by any goroutine at any time.
type Recorder struct {
	rank   int
	host   string
	clock  func() time.Time
	epoch  time.Time
	span   Span
	events int
	base   atomic.Int64 // the first iteration of a zero Span, + 1; 0: not known yet

	mu      sync.Mutex
	blocks  [][]record // all full but the last
	kept    int
	outside int64 // events of other iterations
	dropped int64 // events beyond the cap
	buckets []Bucket
	warmUp  int // the first iteration after it
	meta    map[string]string

	alignment // Align and Gather, which are never concurrent
}

// New returns a recorder of the events of one rank.
func New(rank int, opts Options) *Recorder {
	r := &Recorder{
		rank: rank, host: opts.Host, clock: opts.Clock, span: opts.Iterations, events: opts.Events,
		meta: map[string]string{},
	}
	if r.clock == nil {
		r.clock = time.Now
	}
	if r.events <= 0 {
		r.events = DefaultEvents
	}
	if r.host == "" {
		r.host, _ = os.Hostname()
	}
	r.epoch = r.clock()
	r.blocks = [][]record{make([]record, 0, min(blockEvents, r.events))}
	return r
}

// Now returns the time by the recorder's clock; the zero Time where r is nil.
func (r *Recorder) Now() time.Time {
	if r == nil {
		return time.Time{}
	}
	return r.clock()
}

// Keeps reports whether events of an iteration may be kept, so that who emits
// many can leave reading the clock. A nil recorder keeps nothing.
func (r *Recorder) Keeps(iter int) bool {
	if r == nil {
		return false
	}
	if r.span != (Span{}) {
		return r.span.First-1 <= iter && iter < r.span.End
	}
	base := r.base.Load()
	return base == 0 || int64(iter) < base-1+DefaultIterations
}

// keeps reports whether an event is kept. Of the iteration before the first
// one to keep these are the pulls, which the first one waits for.
func (r *Recorder) keeps(e *Event) bool {
	if r.span != (Span{}) && int(e.Iter) < r.span.First && e.Kind != Pull && e.Kind != WaitPull {
		return false
	}
	return r.Keeps(int(e.Iter))
}

// Add keeps an event, if its iteration is one to keep and there is room. It
// takes some tens of ns, and allocates once in some thousand calls.
func (r *Recorder) Add(e Event) {
	if r == nil {
		return
	}
	if r.span == (Span{}) && r.base.Load() == 0 {
		r.base.CompareAndSwap(0, int64(e.Iter)+1)
	}
	keep := r.keeps(&e)
	begin, end := int64(e.Begin.Sub(r.epoch)), int64(e.End.Sub(r.epoch))

	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !keep:
		r.outside++
		return
	case r.kept == r.events:
		r.dropped++
		return
	}
	last := len(r.blocks) - 1
	if len(r.blocks[last]) == cap(r.blocks[last]) {
		r.blocks = append(r.blocks, make([]record, 0, min(blockEvents, r.events-r.kept)))
		last++
	}
	r.blocks[last] = append(r.blocks[last], record{
		Kind: e.Kind, Iter: e.Iter, Layer: e.Layer, Bucket: e.Bucket, Name: e.Name, Bytes: e.Bytes, Begin: begin, End: end,
	})
	r.kept++
}

// SetBuckets says what the buckets hold, so that reports name the layers of
// each. The last call counts.
func (r *Recorder) SetBuckets(b []Bucket) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.buckets = b
}

// SetWarmUp says that the iterations before end are warm-up: they touch memory
// for the first time and fill caches, and reports leave them out of their means
// unless they are asked for. The last call at rank 0 counts.
func (r *Recorder) SetWarmUp(end int) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.warmUp = end
}

// Describe keeps a fact about the run, such as "design", "SC-OBR", which stands
// in the trace's metadata. Those of rank 0 do.
func (r *Recorder) Describe(key, value string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.meta[key] = value
}

// Counts returns how many events are kept, how many were not since their
// iteration is not one to keep, and how many since there was no room.
func (r *Recorder) Counts() (kept int, outside, dropped int64) {
	if r == nil {
		return 0, 0, 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.kept, r.outside, r.dropped
}
