package trace

import (
	"sort"
	"strconv"
	"time"
)

// buckets sums what the buckets' communication costs.
func (a *analysis) buckets() {
	rows := map[int32]*BucketReport{}
	row := func(bucket int32) *BucketReport {
		b := rows[bucket]
		if b == nil {
			b = &BucketReport{Bucket: int(bucket)}
			rows[bucket] = b
		}
		return b
	}
	for r := range a.pieces {
		waits := a.waits(r)
		for _, w := range waits {
			if !a.in[w.iter] || w.kind == Sync {
				continue
			}
			c := row(w.bucket).direction(w.kind)
			if w.skew {
				c.Skew += w.end - w.begin
			} else {
				c.Exposed += w.end - w.begin
			}
		}
		for id, flights := range a.flights(r) {
			b := row(id.bucket)
			if b.Name == "" {
				b.Name = flights[0].name
			}
			c := b.direction(id.kind)
			for _, f := range flights {
				b.Bytes = max(b.Bytes, f.bytes)
				c.add(f.against(waits, id))
			}
		}
	}
	all := int64(len(a.iters)) * int64(len(a.pieces))
	a.describe(row)
	for _, b := range rows {
		b.Push, b.Pull = b.Push.over(all), b.Pull.over(all)
	}
	a.out.Buckets = sortBuckets(rows)
}

// direction returns the communication that a kind of event belongs to.
func (b *BucketReport) direction(k Kind) *Communication {
	if k == Push || k == WaitPush {
		return &b.Push
	}
	return &b.Pull
}

// describe says which layers the buckets hold: as the trace says, or else the
// layer that has the bucket's name.
func (a *analysis) describe(row func(int32) *BucketReport) {
	names := a.t.layerNames()
	for _, d := range a.t.Buckets {
		b := row(int32(d.Bucket))
		if d.Name != "" {
			b.Name = d.Name
		}
		for _, l := range d.Layers {
			name, known := names[int32(l)]
			if !known {
				name = "layer " + strconv.Itoa(l)
			}
			b.Layers = append(b.Layers, name)
		}
	}
	if len(a.t.Buckets) > 0 {
		return
	}
	layer := map[string]bool{}
	for _, name := range names {
		layer[name] = true
	}
	for r := range a.t.Ranks {
		for i := range a.t.Ranks[r].Events {
			if e := &a.t.Ranks[r].Events[i]; e.Kind.hasBucket() && layer[e.Name] {
				if b := row(e.Bucket); len(b.Layers) == 0 {
					b.Layers = []string{e.Name}
				}
			}
		}
	}
}

// wait is a piece in which the computing goroutine waits for other ranks.
type wait struct {
	begin, end time.Duration
	kind       Kind
	bucket     int32
	iter       int32 // of the event
	skew       bool
}

// waits returns the waits of a rank, in order.
func (a *analysis) waits(r int) []wait {
	var out []wait
	for i := range a.pieces[r] {
		p := &a.pieces[r][i]
		if p.part != InExposed && p.part != InSkew && p.part != InSync {
			continue
		}
		e := &a.t.Ranks[r].Events[p.event]
		out = append(out, wait{p.begin, p.end, e.Kind, e.Bucket, p.iter, p.part == InSkew})
	}
	return out
}

// flight is a stretch during which a collective was in flight on a rank.
type flight struct {
	begin, end time.Duration
	bytes      int64
	name       string
}

// flights returns those of a rank by kind and bucket. Flights of one bucket that
// overlap, as slices may, are one.
func (a *analysis) flights(r int) map[identity][]flight {
	out := map[identity][]flight{}
	for i := range a.t.Ranks[r].Events {
		e := &a.t.Ranks[r].Events[i]
		if e.Kind != Push && e.Kind != Pull || !a.in[e.Iter] {
			continue
		}
		id := identity{kind: e.Kind, bucket: e.Bucket}
		fs := out[id]
		if n := len(fs); n > 0 && e.Begin < fs[n-1].end {
			fs[n-1].end = max(fs[n-1].end, e.End)
			fs[n-1].bytes += e.Bytes
			continue
		}
		out[id] = append(fs, flight{e.Begin, e.End, e.Bytes, e.Name})
	}
	return out
}

// against returns how a flight of id relates to the waits of its rank.
func (f flight) against(waits []wait, id identity) Communication {
	c := Communication{Flight: f.end - f.begin}
	c.Hidden = c.Flight
	first := sort.Search(len(waits), func(i int) bool { return waits[i].end > f.begin })
	for _, w := range waits[first:] {
		if w.begin >= f.end {
			break
		}
		common := min(w.end, f.end) - max(w.begin, f.begin)
		c.Hidden -= common
		own := w.bucket == id.bucket && (w.kind == WaitPush) == (id.kind == Push) && w.kind != Sync
		if !own {
			c.Behind += common
		}
	}
	return c
}
