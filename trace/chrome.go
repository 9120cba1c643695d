package trace

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sort"
	"strconv"
	"time"

	"github.com/scaffe/scaffe/internal/atomicfile"
)

// format marks our own files.
const format = "scaffe-trace/1"

// track is a line of a rank's timeline. Where its events overlap it has lanes.
type track int

const (
	compute  track = iota // the computing goroutine
	helper                // updates while the computing goroutine computes
	up                    // gradients in flight
	down                  // parameters in flight
	reader                // the goroutines that read ahead
	disorder              // what did not go in the order of urgency
	device                // what a GPU computes
	copyUp                // copies into its memory
	copyDown              // and out of it
	tracks

	// laneStride is the distance of two tracks in the file's thread numbers.
	laneStride = 1000
	// firstID is the file's number of rank 0, and of the first thread: viewers
	// take process and thread 0 for the idle ones of a machine.
	firstID = 1
)

var trackNames = [tracks]string{"compute", "updates beside", "collectives up (push)", "collectives down (pull)", "reader", "out of order", "GPU", "copies to the GPU", "copies from the GPU"}

// track returns that of most events of a kind; tracksOf knows those of all.
func (k Kind) track() track {
	switch k {
	case Push:
		return up
	case Pull:
		return down
	case Read:
		return reader
	case Overtaken, LetGo:
		return disorder
	case OnForward, OnBackward:
		return device
	case CopyUp:
		return copyUp
	case CopyDown:
		return copyDown
	}
	return compute
}

// tracksOf returns the track of every event of a rank. An Update that continues
// while a layer computes is another goroutine's.
func tracksOf(es []Record) []track {
	out := make([]track, len(es))
	var layers []int         // Forward and Backward, in order
	var ends []time.Duration // of these the last end up to each
	for i := range es {
		out[i] = es[i].Kind.track()
		if es[i].Kind.hasLayer() {
			last := es[i].End
			if n := len(ends); n > 0 {
				last = max(last, ends[n-1])
			}
			layers, ends = append(layers, i), append(ends, last)
		}
	}
	for i := range es {
		if es[i].Kind != Update {
			continue
		}
		n := sort.Search(len(ends), func(n int) bool { return ends[n] > es[i].Begin })
		if n < len(layers) && es[layers[n]].Begin < es[i].End {
			out[i] = helper
		}
	}
	return out
}

// lanes returns for every event of a rank the lane of its track, so that within
// a lane an event holds another whole or has no time in common with it; those
// of collectives and readers do not even hold each other. used counts the lanes
// of each track.
func lanes(es []Record, of []track) (lane []int, used [tracks]int) {
	lane = make([]int, len(es))
	var open [tracks][][]time.Duration // of each lane the ends of what it is inside of
	for i := range es {
		e := &es[i]
		tr := of[i]
		for l := 0; ; l++ {
			if l == len(open[tr]) {
				open[tr] = append(open[tr], nil)
			}
			s := open[tr][l]
			for len(s) > 0 && s[len(s)-1] <= e.Begin {
				s = s[:len(s)-1]
			}
			open[tr][l] = s
			if len(s) == 0 || tr == compute && e.End <= s[len(s)-1] {
				open[tr][l] = append(s, e.End)
				lane[i] = l
				break
			}
		}
	}
	for tr := range open {
		used[tr] = len(open[tr])
	}
	return lane, used
}

// header is the metadata of a file, before its events.
type header struct {
	Format       string            `json:"format"`
	Start        time.Time         `json:"start"`
	ClockBoundNs time.Duration     `json:"clock_bound_ns"`
	Meta         map[string]string `json:"meta,omitempty"`
	Buckets      []headerBucket    `json:"buckets,omitempty"`
	WarmUp       int               `json:"warm_up_until,omitempty"`
	Ranks        []headerRank      `json:"ranks"`
}

type headerBucket struct {
	Bucket int    `json:"bucket"`
	Name   string `json:"name,omitempty"`
	Layers []int  `json:"layers"`
}

type headerRank struct {
	Rank    int           `json:"rank"`
	Host    string        `json:"host"`
	Outside int64         `json:"events_of_other_iterations"`
	Dropped int64         `json:"events_dropped"`
	Clock   []headerClock `json:"clock,omitempty"`
}

type headerClock struct {
	AtNs     time.Duration `json:"at_ns"`
	OffsetNs time.Duration `json:"offset_ns"`
	BoundNs  time.Duration `json:"bound_ns"`
}

func (t *Trace) header() header {
	h := header{Format: format, Start: t.Start, ClockBoundNs: t.ClockBound(), Meta: t.Meta, WarmUp: t.WarmUp, Ranks: []headerRank{}}
	for _, b := range t.Buckets {
		h.Buckets = append(h.Buckets, headerBucket(b))
	}
	for i := range t.Ranks {
		r := &t.Ranks[i]
		hr := headerRank{Rank: r.Rank, Host: r.Host, Outside: r.Outside, Dropped: r.Dropped}
		for _, o := range r.Clock {
			hr.Clock = append(hr.Clock, headerClock{o.At, o.Offset, o.Bound})
		}
		h.Ranks = append(h.Ranks, hr)
	}
	return h
}

// Write writes the trace to a file in Chrome's trace format, which Perfetto
// (ui.perfetto.dev) and chrome://tracing show. A rank is a process; its threads
// are what it computes, the collectives up and down, and the reader. The file
// appears whole or not at all.
func (t *Trace) Write(path string) error {
	return atomicfile.Stream(nil, path, t.Encode)
}

// Encode writes what Write writes.
func (t *Trace) Encode(w io.Writer) error {
	b := bufio.NewWriterSize(w, 1<<16)
	head, err := json.Marshal(t.header())
	if err != nil {
		return err
	}
	fmt.Fprintf(b, "{\"displayTimeUnit\":\"ms\",\"otherData\":%s,\n\"traceEvents\":[", head)
	between := "\n"
	for i := range t.Ranks {
		r := &t.Ranks[i]
		of := tracksOf(r.Events)
		lane, used := lanes(r.Events, of)
		between = encodeNames(b, r, used, between)
		var line []byte
		for j := range r.Events {
			e := &r.Events[j]
			line = appendEvent(append(line[:0], between...), e, firstID+r.Rank, firstID+int(of[j])*laneStride+lane[j])
			if _, err := b.Write(line); err != nil {
				return err
			}
			between = ",\n"
		}
	}
	fmt.Fprintf(b, "\n]}\n")
	return b.Flush()
}

// encodeNames writes the names of a rank and its threads.
func encodeNames(b *bufio.Writer, r *Rank, used [tracks]int, between string) string {
	line := func(what string, tid int, args string) {
		fmt.Fprintf(b, "%s{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"%s\",\"args\":{%s}}", between, firstID+r.Rank, tid, what, args)
		between = ",\n"
	}
	line("process_name", firstID, `"name":`+quoted(fmt.Sprintf("rank %d (%s)", r.Rank, r.Host)))
	line("process_sort_index", firstID, fmt.Sprintf(`"sort_index":%d`, r.Rank))
	for tr, n := range used {
		for l := range n {
			name := trackNames[tr]
			if l > 0 {
				name += fmt.Sprintf(" %d", l+1)
			}
			tid := firstID + tr*laneStride + l
			line("thread_name", tid, `"name":`+quoted(name))
			line("thread_sort_index", tid, fmt.Sprintf(`"sort_index":%d`, tid))
		}
	}
	return between
}

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil { // a string has a form in JSON
		return `""`
	}
	return string(b)
}

// appendEvent appends a complete event.
func appendEvent(b []byte, e *Record, pid, tid int) []byte {
	name := e.Kind.String()
	if e.Name != "" {
		name += " " + e.Name
	}
	b = append(b, `{"ph":"X","pid":`...)
	b = strconv.AppendInt(b, int64(pid), 10)
	b = append(b, `,"tid":`...)
	b = strconv.AppendInt(b, int64(tid), 10)
	b = append(b, `,"ts":`...)
	b = appendMicros(b, e.Begin)
	b = append(b, `,"dur":`...)
	b = appendMicros(b, e.Duration())
	b = append(b, `,"cat":"`...)
	b = append(b, e.Kind.String()...)
	b = append(b, `","name":`...)
	b = append(b, quoted(name)...)
	if e.Kind == WaitPush || e.Kind == WaitPull {
		b = append(b, `,"cname":"terrible"`...) // chrome://tracing's name for red
	}
	b = append(b, `,"args":{"iter":`...)
	b = strconv.AppendInt(b, int64(e.Iter), 10)
	for _, f := range [...]struct {
		on    bool
		name  string
		value int64
	}{{e.Kind.hasLayer(), "layer", int64(e.Layer)}, {e.Kind.hasBucket(), "bucket", int64(e.Bucket)}, {e.Bytes != 0, "bytes", e.Bytes}} {
		if f.on {
			b = append(append(append(b, `,"`...), f.name...), `":`...)
			b = strconv.AppendInt(b, f.value, 10)
		}
	}
	if s := e.Duration().Seconds(); e.Bytes != 0 && s > 0 {
		b = append(b, `,"MB/s":`...)
		b = strconv.AppendFloat(b, float64(e.Bytes)/1e6/s, 'f', 1, 64)
	}
	return append(b, "}}"...)
}

// appendMicros appends a time in µs, as the format wants it, to the last ns.
func appendMicros(b []byte, d time.Duration) []byte {
	if d < 0 {
		b, d = append(b, '-'), -d
	}
	b = strconv.AppendInt(b, int64(d/1000), 10)
	ns := int64(d % 1000)
	return append(b, '.', byte('0'+ns/100), byte('0'+ns/10%10), byte('0'+ns%10))
}
