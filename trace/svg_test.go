package trace_test

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/scaffe/scaffe/trace"
)

func TestSVG(t *testing.T) {
	b, err := handTrace().SVG(trace.Span{First: 10, End: 12}, trace.SVGOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(strings.NewReader(string(b)))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, words := range []string{"SC-OBR", "iterations 10 to 11, 200 ms", "rank 1", "south", "critical path", "exposed"} {
		if !strings.Contains(string(b), words) {
			t.Errorf("the picture does not say %q", words)
		}
	}
	golden(t, "hand.svg", string(b))
}

func TestSVGOfNothing(t *testing.T) {
	if _, err := handTrace().SVG(trace.Span{First: 90, End: 91}, trace.SVGOptions{}); err == nil || !strings.Contains(err.Error(), "it has 10 to 12") {
		t.Errorf("got %v", err)
	}
	if _, err := (&trace.Trace{}).SVG(trace.Span{First: 0, End: 1}, trace.SVGOptions{}); err == nil {
		t.Error("a picture of nothing")
	}
}

// Pictures of some ranks, and of equal lengths of time.
func TestSVGOptions(t *testing.T) {
	one := trace.Span{First: 10, End: 11}
	draw := func(o trace.SVGOptions) string {
		b, err := handTrace().SVG(one, o)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	all := draw(trace.SVGOptions{})
	some := draw(trace.SVGOptions{Ranks: []int{1}})
	if !strings.Contains(all, "rank 0") || strings.Contains(some, "rank 0") || !strings.Contains(some, "rank 1") {
		t.Error("not the ranks that were asked for")
	}
	if len(some) >= len(all) {
		t.Errorf("%d bytes of one rank, %d of both", len(some), len(all))
	}
	for _, o := range []trace.SVGOptions{{Length: 150 * time.Millisecond}, {Length: 150 * time.Millisecond, Ranks: []int{0}}} {
		picture := draw(o)
		if !strings.Contains(picture, "from iteration 10 on, 150 ms") {
			t.Errorf("%v: the picture does not say how long it is", o)
		}
		if n := strings.Count(picture, `class="bound"`); n < strings.Count(all, `class="bound"`)+len(o.Ranks) {
			t.Errorf("%v: %d iterations begin", o, n)
		}
	}
	if half := draw(trace.SVGOptions{Length: 50 * time.Millisecond}); strings.Count(half, `class="k3"`) >= strings.Count(all, `class="k3"`) {
		t.Error("what comes after the picture's end is drawn")
	}
	if _, err := handTrace().SVG(one, trace.SVGOptions{Ranks: []int{0, 7}}); err == nil || err.Error() != "the trace has no rank 7: it has 2 ranks" {
		t.Errorf("got %v", err)
	}
}
