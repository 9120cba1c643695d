package trace_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/scaffe/scaffe/trace"
)

// fakeTrace is a run as SC-OBR makes it: buckets go up one after the other as
// soon as their backward ends, and come down after the update. Rank 2 is slower.
// The same arguments make the same trace.
func fakeTrace(ranks, layers, iterations int) *trace.Trace {
	rnd := rand.New(rand.NewPCG(1, 2))
	t := &trace.Trace{Start: handTrace().Start, Meta: map[string]string{"net": "fake", "design": "SC-OBR", "algorithm": "chain:4/binomial"}}
	for r := range ranks {
		t.Ranks = append(t.Ranks, trace.Rank{Rank: r, Host: fmt.Sprintf("node%d", r/2)})
	}
	for l := range layers {
		t.Buckets = append(t.Buckets, trace.Bucket{Bucket: l, Layers: []int{l}})
	}
	us := func(least, most int) time.Duration {
		return time.Duration(least+rnd.IntN(most-least+1)) * time.Microsecond
	}
	add := func(r, iter int, k trace.Kind, name string, number int, bytes int64, begin, end time.Duration) {
		e := trace.Record{Kind: k, Name: name, Iter: int32(iter), Layer: -1, Bucket: -1, Bytes: bytes, Begin: begin, End: end}
		switch k {
		case trace.Forward, trace.Backward:
			e.Layer = int32(number)
		case trace.Push, trace.Pull, trace.WaitPush, trace.WaitPull:
			e.Bucket = int32(number)
		}
		t.Ranks[r].Events = append(t.Ranks[r].Events, e)
	}
	now := make([]time.Duration, ranks)      // of each rank
	pulled := make([][]time.Duration, ranks) // when each bucket was here, of the iteration before
	for i := range iterations {
		began := append([]time.Duration{}, now...)
		ready := make([][]time.Duration, ranks)
		for r := range ranks {
			step := func(k trace.Kind, name string, number int, d time.Duration) {
				add(r, i, k, name, number, 0, now[r], now[r]+d)
				now[r] += d
			}
			slow := time.Duration(10)
			if r == 2 {
				slow = 13
			}
			add(r, i, trace.Read, "", 0, 0, now[r], now[r]+us(8000, 15000))
			step(trace.Input, "", 0, us(50, 300))
			for l := range layers {
				if i > 0 && pulled[r][l] > now[r] {
					add(r, i-1, trace.WaitPull, fmt.Sprintf("layer%d", l), l, 0, now[r], pulled[r][l])
					now[r] = pulled[r][l]
				}
				step(trace.Forward, fmt.Sprintf("layer%d", l), l, us(900, 1400)*slow/10)
			}
			ready[r] = make([]time.Duration, layers)
			for l := layers - 1; l >= 0; l-- {
				step(trace.Backward, fmt.Sprintf("layer%d", l), l, us(1800, 2600)*slow/10)
				ready[r][l] = now[r]
			}
		}
		end := make([]time.Duration, layers)
		wire := time.Duration(0)
		for l := layers - 1; l >= 0; l-- {
			for r := range ranks {
				wire = max(wire, ready[r][l])
			}
			wire += us(1500, 2500) * time.Duration(1+l) / 9
			end[l] = wire
			for r := range ranks {
				add(r, i, trace.Push, fmt.Sprintf("layer%d", l), l, int64(1+l)<<19, ready[r][l], end[l])
				if end[l] > now[r] {
					add(r, i, trace.WaitPush, fmt.Sprintf("layer%d", l), l, 0, now[r], end[l])
					now[r] = end[l]
				}
			}
		}
		add(0, i, trace.Update, "", 0, 0, now[0], now[0]+1500*time.Microsecond)
		now[0] += 1500 * time.Microsecond
		wire = now[0]
		for r := range ranks {
			pulled[r] = make([]time.Duration, layers)
		}
		for l := range layers {
			wire += us(700, 1200) * time.Duration(1+l) / 4
			for r := range ranks {
				pulled[r][l] = wire
				add(r, i, trace.Pull, fmt.Sprintf("layer%d", l), l, int64(1+l)<<19, max(now[r], began[r]), wire)
			}
		}
		for r := range ranks {
			add(r, i, trace.Iteration, "", 0, 0, began[r], now[r])
			now[r] += us(5, 20)
		}
	}
	sorted, err := trace.Decode(strings.NewReader(mustEncode(t)))
	if err != nil {
		panic(err)
	}
	return sorted
}
