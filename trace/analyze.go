package trace

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Times says how much time went into each Part.
type Times [Parts]time.Duration

// Total returns the sum.
func (t Times) Total() time.Duration {
	var sum time.Duration
	for _, d := range t {
		sum += d
	}
	return sum
}

// Compute returns what the layers took, forward and backward.
func (t Times) Compute() time.Duration { return t[InForward] + t[InBackward] }

// Report says where the time of a trace's iterations went. All times are means
// over the iterations, those of layers and buckets over the ranks too. The
// warm-up is left out unless it was asked for.
type Report struct {
	Meta       map[string]string
	Ranks      []RankReport
	Iterations []IterationReport
	// ClockBound is Trace.ClockBound.
	ClockBound time.Duration
	// Path is what the critical path of an iteration was made of: what the
	// ranks did that the iteration's end waited for. Its total is the
	// iteration's time.
	//
	// The path follows the rank that ends last back in time. Where that rank
	// waited for a collective that not all had begun, the path continues at the
	// rank that began last. What a rank on the path computes while others
	// already wait for it is skew, by the share of the others that do.
	Path Times
	// PathSkew is how much of Path's skew was on each rank.
	PathSkew []time.Duration
	Layers   []LayerReport
	Buckets  []BucketReport
	// Slowest is the rank that computes longest.
	Slowest int
	// HeldBack is what was held back longest of all that was Overtaken or LetGo, on rank HeldBackRank; its Kind is
	// another where there is none.
	HeldBack     Record
	HeldBackRank int
	// Notes say what a reader should know: what was not recorded.
	Notes []string
}

// RankReport says where a rank's time went.
type RankReport struct {
	Rank  int
	Host  string
	Times Times
	// HeldUp is how long all other ranks together waited for this one to begin
	// a collective: their skew on its account.
	HeldUp time.Duration
	// Overtaken and LetGo count those events of the iterations.
	Overtaken, LetGo int
}

// IterationReport is one iteration's critical path.
type IterationReport struct {
	Iter int
	Path Times
}

// LayerReport says what a layer computes.
type LayerReport struct {
	Layer    int
	Name     string
	Forward  time.Duration
	Backward time.Duration
	// Slowest is the rank that computes the layer longest, SlowestTime its
	// time forward and backward.
	Slowest     int
	SlowestTime time.Duration
	// Bucket is that of the layer's parameters, an index of Report.Buckets;
	// -1 where there is none, or it is not known.
	Bucket int
}

// BucketReport says what a bucket's communication costs.
type BucketReport struct {
	Bucket int
	Name   string
	Layers []string
	Bytes  int64
	Push   Communication
	Pull   Communication
}

// Communication is one direction of a bucket's communication.
type Communication struct {
	// Flight is how long it was in flight on a rank, from its start until its
	// end there.
	Flight time.Duration
	// Hidden is how much of Flight the computing goroutine did not wait for
	// another rank at all; Behind, how much it waited, but for something else.
	// The rest of Flight it waited for this bucket.
	Hidden time.Duration
	Behind time.Duration
	// Exposed and Skew are the wait for this bucket, after and before the last
	// rank began the collective.
	Exposed time.Duration
	Skew    time.Duration
}

// Rate returns MB/s in flight.
func (c Communication) Rate(bytes int64) float64 {
	if c.Flight <= 0 {
		return 0
	}
	return float64(bytes) / 1e6 / c.Flight.Seconds()
}

func (c *Communication) add(o Communication) {
	c.Flight += o.Flight
	c.Hidden += o.Hidden
	c.Behind += o.Behind
	c.Exposed += o.Exposed
	c.Skew += o.Skew
}

func (c Communication) over(n int64) Communication {
	d := time.Duration(n)
	return Communication{c.Flight / d, c.Hidden / d, c.Behind / d, c.Exposed / d, c.Skew / d}
}

// Communication returns the sum over all buckets and both directions.
func (r *Report) Communication() Communication {
	var sum Communication
	for i := range r.Buckets {
		sum.add(r.Buckets[i].Push)
		sum.add(r.Buckets[i].Pull)
	}
	return sum
}

// Analyze says where the time went, over the iterations that all ranks have
// recorded whole, without the warm-up where there is more.
func Analyze(t *Trace) *Report { return AnalyzeIterations(t, Span{}) }

// AnalyzeIterations says where the time of some iterations went, the warm-up's
// where they are asked for; the zero Span is Analyze's.
func AnalyzeIterations(t *Trace, s Span) *Report {
	return newTimeline(t).analyze(s)
}

func (tl *timeline) analyze(s Span) *Report {
	a := &analysis{timeline: tl, span: s, out: &Report{Meta: tl.t.Meta, ClockBound: tl.t.ClockBound()}}
	a.iterations()
	a.notes()
	if len(a.iters) > 0 {
		a.ranks()
		a.critical()
		a.buckets()
		a.layers()
	}
	return a.out
}

type analysis struct {
	*timeline
	span  Span
	out   *Report
	iters []int32
	warm  []int32 // of the warm-up, left out
	in    map[int32]bool
}

// iterations finds those that all ranks have whole.
func (a *analysis) iterations() {
	seen := map[int32]int{}
	for r := range a.t.Ranks {
		periods := a.periods(r)
		if a.t.Ranks[r].Dropped > 0 && len(periods) > 0 {
			periods = periods[:len(periods)-1]
		}
		for _, p := range periods {
			seen[p.iter]++
		}
	}
	a.in = map[int32]bool{}
	for _, iter := range slices.Sorted(maps.Keys(seen)) {
		if seen[iter] == len(a.t.Ranks) && (a.span == Span{} || a.span.Contains(int(iter))) {
			a.iters = append(a.iters, iter)
		}
	}
	after, _ := slices.BinarySearch(a.iters, int32(a.t.WarmUp))
	if (a.span == Span{}) && after < len(a.iters) {
		a.warm, a.iters = a.iters[:after], a.iters[after:]
	}
	for _, iter := range a.iters {
		a.in[iter] = true
	}
}

func (a *analysis) notes() {
	note := func(format string, args ...any) { a.out.Notes = append(a.out.Notes, fmt.Sprintf(format, args...)) }
	if len(a.iters) == 0 {
		note("there is no such iteration that all ranks have recorded whole: the trace has %s", a.has())
	}
	switch n := len(a.warm); n {
	case 0:
	case 1:
		note("iteration %d is warm-up and not part of the means; --iterations %d shows it", a.warm[0], a.warm[0])
	default:
		note("iterations %d to %d are warm-up and not part of the means; --iterations %d:%d shows them", a.warm[0], a.warm[n-1], a.warm[0], a.warm[n-1]+1)
	}
	var outside int64
	for i := range a.t.Ranks {
		r := &a.t.Ranks[i]
		outside += r.Outside
		if r.Dropped > 0 {
			note("rank %d had no room for %d events: its last recorded iteration is left out; record fewer iterations", r.Rank, r.Dropped)
		}
	}
	if outside > 0 {
		note("%d events of other iterations were not recorded", outside)
	}
}

// ranks sums each rank's pieces.
func (a *analysis) ranks() {
	n := time.Duration(len(a.iters))
	heldUp := make([]time.Duration, len(a.t.Ranks))
	for r := range a.t.Ranks {
		row := RankReport{Rank: a.t.Ranks[r].Rank, Host: a.t.Ranks[r].Host}
		for i := range a.pieces[r] {
			p := &a.pieces[r][i]
			if !a.in[p.iter] {
				continue
			}
			row.Times[p.part] += p.length()
			if p.part == InSkew {
				heldUp[p.culprit] += p.length()
			}
		}
		for part := range row.Times {
			row.Times[part] /= n
		}
		a.disorder(r, &row)
		a.out.Ranks = append(a.out.Ranks, row)
		if row.Times.Compute() > a.out.Ranks[a.out.Slowest].Times.Compute() {
			a.out.Slowest = r
		}
	}
	for r := range a.out.Ranks {
		a.out.Ranks[r].HeldUp = heldUp[r] / n
	}
}

// disorder counts what did not go in the order of urgency on rank r.
func (a *analysis) disorder(r int, row *RankReport) {
	for i := range a.t.Ranks[r].Events {
		e := &a.t.Ranks[r].Events[i]
		if e.Kind.track() != disorder || !a.in[e.Iter] {
			continue
		}
		if e.Kind == LetGo {
			row.LetGo++
		} else {
			row.Overtaken++
		}
		if most := &a.out.HeldBack; most.Kind.track() != disorder || e.End-e.Begin > most.End-most.Begin {
			*most, a.out.HeldBackRank = *e, row.Rank
		}
	}
}

// critical sums the critical path. What a rank on it computes while others
// already wait for that rank to begin a collective is skew by their share: all
// of it where all others wait, a third where one of three does. With the work
// evenly divided it would not be there.
func (a *analysis) critical() {
	index := map[int32]int{}
	for i, iter := range a.iters {
		index[iter] = i
		a.out.Iterations = append(a.out.Iterations, IterationReport{Iter: int(iter)})
	}
	n := time.Duration(len(a.iters))
	a.out.PathSkew = make([]time.Duration, len(a.t.Ranks))
	waiters := a.waiters()
	for _, s := range a.path(a.in) {
		it := &a.out.Iterations[index[s.iter]]
		d, skew := s.end-s.begin, time.Duration(0)
		switch s.part {
		case InForward, InBackward:
			if others := len(a.pieces) - 1; others > 0 {
				skew = waiters[s.rank].within(s.begin, s.end) / time.Duration(others)
			}
		case InSkew:
			skew = d
		}
		it.Path[s.part] += d - skew
		it.Path[InSkew] += skew
		a.out.PathSkew[s.rank] += skew
	}
	for _, it := range a.out.Iterations {
		for part, d := range it.Path {
			a.out.Path[part] += d
		}
	}
	for part := range a.out.Path {
		a.out.Path[part] /= n
	}
	for r := range a.out.PathSkew {
		a.out.PathSkew[r] /= n
	}
}

// layers sums what the layers compute.
func (a *analysis) layers() {
	type sum struct {
		name              string
		forward, backward []time.Duration // by rank
	}
	sums := map[int32]*sum{}
	for r := range a.pieces {
		for i := range a.pieces[r] {
			p := &a.pieces[r][i]
			if !a.in[p.iter] || p.part != InForward && p.part != InBackward {
				continue
			}
			e := &a.t.Ranks[r].Events[p.event]
			s := sums[e.Layer]
			if s == nil {
				s = &sum{e.Name, make([]time.Duration, len(a.pieces)), make([]time.Duration, len(a.pieces))}
				sums[e.Layer] = s
			}
			if p.part == InForward {
				s.forward[r] += p.length()
			} else {
				s.backward[r] += p.length()
			}
		}
	}
	bucketOf := a.bucketOf()
	n := time.Duration(len(a.iters))
	all := n * time.Duration(len(a.pieces))
	for _, layer := range slices.Sorted(maps.Keys(sums)) {
		s := sums[layer]
		row := LayerReport{Layer: int(layer), Name: s.name, Bucket: bucketOf(layer, s.name)}
		for r := range s.forward {
			row.Forward += s.forward[r]
			row.Backward += s.backward[r]
			if both := (s.forward[r] + s.backward[r]) / n; both > row.SlowestTime {
				row.Slowest, row.SlowestTime = r, both
			}
		}
		row.Forward /= all
		row.Backward /= all
		a.out.Layers = append(a.out.Layers, row)
	}
}

// bucketOf returns a function from a layer to the index of its bucket, -1
// without one: by the layer's number where the trace describes its buckets,
// otherwise by its name, which several layers may have.
func (a *analysis) bucketOf() func(layer int32, name string) int {
	index, byNumber, byName := map[int]int{}, map[int]int{}, map[string]int{}
	for i := range a.out.Buckets {
		index[a.out.Buckets[i].Bucket] = i
		for _, name := range a.out.Buckets[i].Layers {
			byName[name] = i
		}
	}
	for _, d := range a.t.Buckets {
		for _, l := range d.Layers {
			byNumber[l] = index[d.Bucket]
		}
	}
	return func(layer int32, name string) int {
		bucket, known := byNumber[int(layer)]
		if len(a.t.Buckets) == 0 {
			bucket, known = byName[name]
		}
		if !known {
			return -1
		}
		return bucket
	}
}

// layerNames returns the names of the layers that have events.
func (t *Trace) layerNames() map[int32]string {
	names := map[int32]string{}
	for r := range t.Ranks {
		for i := range t.Ranks[r].Events {
			if e := &t.Ranks[r].Events[i]; e.Kind.hasLayer() {
				if _, known := names[e.Layer]; !known {
					names[e.Layer] = e.Name
				}
			}
		}
	}
	return names
}

// sortBuckets puts buckets into the order of their numbers.
func sortBuckets(m map[int32]*BucketReport) []BucketReport {
	out := make([]BucketReport, 0, len(m))
	for _, b := range m {
		out = append(out, *b)
	}
	slices.SortFunc(out, func(a, b BucketReport) int { return cmp.Compare(a.Bucket, b.Bucket) })
	return out
}
