package nbc

import (
	"fmt"
	"slices"
	"testing"

	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
)

// TestP3_TheMostUrgentOfWhatHasArrivedGoesFirst: at a server, of the slices that have arrived the
// one that is needed soonest is added and sent on before anything of the next begins (section
// 4.2), whatever the order in which they came or were started in; and what is ready of all
// requests begins in that order too. Contributions to one slice keep rank order.
func TestP3_TheMostUrgentOfWhatHasArrivedGoesFirst(t *testing.T) {
	s, err := schedule.Parse(`rank 0 of 3 count 2 scratch 0
0: recvreduce out[0:2] in[0:2] from 1 #0
1: recvreduce out[0:2] out[0:2] from 2 #1 after 0
2: send out[0:2] to 1 #2 after 1
`)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := Compile(s)
	if err != nil {
		t.Fatal(err)
	}
	x := executor{folds: true}
	var q linkQueue
	name := map[*Request]int{}
	var requests []*Request
	for i, priority := range []int{2, 1, 0, 1} {
		r := &Request{plan: plan, bind: &Binding{Priority: priority}}
		name[r] = i
		requests = append(requests, r)
		q.admit(r)
		x.admit(r, nil, nil)
	}
	var did []string
	turn := func(most int) {
		for sums := 0; ; {
			a, ok := x.next(sums < most)
			if !ok {
				return
			}
			did = append(did, fmt.Sprint(a.step, " ", name[a.r], ".", a.op))
			if a.step == stepCombine {
				sums++
				x.combined(a.r, a.last)
			}
		}
	}
	want := func(when string, want ...string) {
		t.Helper()
		if !slices.Equal(did, want) {
			t.Fatalf("%s: %q, want %q", when, did, want)
		}
		did = nil
	}
	begin, combine, release := fmt.Sprint(stepBegin, " "), fmt.Sprint(stepCombine, " "), fmt.Sprint(stepRelease, " ")
	turn(1)
	want("at the start", begin+"2.0", begin+"2.1", begin+"1.0", begin+"1.1", begin+"3.0", begin+"3.1", begin+"0.0", begin+"0.1")
	for _, r := range requests { // of each slice rank 2's contribution comes first, and is added after rank 1's
		x.received(r, 1, mem.Buffer{})
	}
	turn(1)
	want("with one contribution of each", []string(nil)...)
	x.received(requests[0], 0, mem.Buffer{})
	x.received(requests[3], 0, mem.Buffer{})
	turn(1)
	want("the more urgent of two", combine+"3.0", release+"3.0", release+"3.1", begin+"3.2")
	x.received(requests[1], 0, mem.Buffer{})
	x.received(requests[2], 0, mem.Buffer{})
	turn(4)
	want("what has come meanwhile",
		combine+"2.0", release+"2.0", release+"2.1", begin+"2.2",
		combine+"1.0", release+"1.0", release+"1.1", begin+"1.2",
		combine+"0.0", release+"0.0", release+"0.1", begin+"0.2")
}

// TestTheLibrarysOwnBeginInTheOrderOfTheirStarts, whatever their priorities, which may differ between
// ranks: an MPI library takes the n-th on each rank for the same collective.
func TestTheLibrarysOwnBeginInTheOrderOfTheirStarts(t *testing.T) {
	var x executor
	var q linkQueue
	plan := sends(t, 1)[0].plan
	var begun, want []int
	name := map[*Request]int{}
	for i := range 9 {
		r := &Request{plan: libraryPlan, bind: &Binding{Priority: 9 - i}, library: &LibraryCall{}}
		if i%3 == 0 {
			r = &Request{plan: plan, bind: &Binding{}}
		} else {
			want = append(want, i)
		}
		name[r] = i
		q.admit(r)
		x.admit(r, nil, nil)
	}
	for {
		a, ok := x.next(true)
		if !ok {
			break
		}
		if a.step == stepBegin && a.r.library != nil {
			begun = append(begun, name[a.r])
			x.complete(a.r, a.op)
		}
	}
	if !slices.Equal(begun, want) {
		t.Errorf("%v begin, want %v", begun, want)
	}
}
