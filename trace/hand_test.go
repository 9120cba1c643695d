package trace_test

import (
	"time"

	"github.com/scaffe/scaffe/trace"
)

// line is an event as the traces below are written down: in ms.
type line struct {
	kind       trace.Kind
	name       string
	number     int32 // layer or bucket
	begin, end int
}

// hand makes the events of an iteration that begins at a time, in ms.
func hand(iter int32, at int, lines []line) []trace.Record {
	bytes := map[int32]int64{0: 1 << 20, 1: 4 << 20}
	var out []trace.Record
	for _, l := range lines {
		e := trace.Record{
			Kind: l.kind, Name: l.name, Iter: iter, Layer: -1, Bucket: -1,
			Begin: time.Duration(at+l.begin) * time.Millisecond, End: time.Duration(at+l.end) * time.Millisecond,
		}
		switch l.kind {
		case trace.Forward, trace.Backward:
			e.Layer = l.number
		case trace.Push, trace.Pull:
			e.Bytes = bytes[l.number]
			e.Bucket = l.number
		case trace.WaitPush, trace.WaitPull:
			e.Bucket = l.number
		}
		out = append(out, e)
	}
	return out
}

// An iteration of 100 ms of two ranks with two layers, each with a bucket of
// its own: conv is layer and bucket 0, fc 1. Rank 0 updates. Rank 1 is slower.
// Events stand in the order of their begins, longer ones first.
var (
	rank0 = []line{
		{trace.Iteration, "", 0, 0, 100},
		{trace.Input, "", 0, 0, 2},
		{trace.Forward, "conv", 0, 2, 12},
		{trace.Forward, "fc", 1, 12, 20},
		{trace.Backward, "fc", 1, 20, 30},
		{trace.Push, "fc", 1, 30, 60},
		{trace.Backward, "conv", 0, 30, 45},
		{trace.Push, "conv", 0, 45, 75},
		{trace.WaitPush, "fc", 1, 45, 60},   // rank 1 began at 40: all exposed
		{trace.WaitPush, "conv", 0, 60, 75}, // rank 1 began at 65: 5 skew, 10 exposed
		{trace.Update, "", 0, 75, 80},
		{trace.Pull, "fc", 1, 80, 96},
		{trace.Pull, "conv", 0, 80, 88},
		{trace.WaitPull, "conv", 0, 80, 88},
		{trace.WaitPull, "fc", 1, 88, 96},
		{trace.Sync, "loss", 0, 96, 98},
	}
	rank1 = []line{
		{trace.Iteration, "", 0, 0, 100},
		{trace.Read, "", 0, 0, 30},
		{trace.Input, "", 0, 0, 3},
		{trace.Forward, "conv", 0, 3, 15},
		{trace.Forward, "fc", 1, 15, 25},
		{trace.Backward, "fc", 1, 25, 40},
		{trace.Backward, "conv", 0, 40, 65},
		{trace.Push, "fc", 1, 40, 55},
		{trace.Push, "conv", 0, 65, 72},
		{trace.WaitPush, "conv", 0, 65, 72},
		{trace.Pull, "fc", 1, 72, 95},
		{trace.Pull, "conv", 0, 72, 90},
		{trace.WaitPull, "conv", 0, 72, 90}, // rank 0 begins at 80: 8 skew, 10 exposed
		{trace.WaitPull, "fc", 1, 90, 95},
		{trace.Sync, "loss", 0, 95, 98}, // rank 0 begins at 96: 1 skew, 2 sync
	}
)

// handTrace is two such iterations, and of a third only what rank 0 did.
func handTrace() *trace.Trace {
	t := &trace.Trace{
		Start:   time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC),
		Meta:    map[string]string{"design": "SC-OBR", "net": "hand-made"},
		Buckets: []trace.Bucket{{Bucket: 0, Name: "conv", Layers: []int{0}}, {Bucket: 1, Name: "fc", Layers: []int{1}}},
		Ranks: []trace.Rank{
			{Rank: 0, Host: "north", Outside: 7},
			{
				Rank: 1, Host: "south",
				Clock: []trace.Offset{
					{At: -time.Millisecond, Offset: 5 * time.Second, Bound: 2 * time.Microsecond},
					{At: 300 * time.Millisecond, Offset: 5*time.Second + 7, Bound: 3 * time.Microsecond},
				},
			},
		},
	}
	for i := range 3 {
		t.Ranks[0].Events = append(t.Ranks[0].Events, hand(int32(10+i), 100*i, rank0)...)
		if i < 2 {
			t.Ranks[1].Events = append(t.Ranks[1].Events, hand(int32(10+i), 100*i, rank1)...)
		}
	}
	return t
}
