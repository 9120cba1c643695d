package trace_test

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/trace"
)

func TestSVG(t *testing.T) {
	b, err := handTrace().SVG(trace.Span{First: 10, End: 12})
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
	if _, err := handTrace().SVG(trace.Span{First: 90, End: 91}); err == nil || !strings.Contains(err.Error(), "it has 10 to 12") {
		t.Errorf("got %v", err)
	}
	if _, err := (&trace.Trace{}).SVG(trace.Span{First: 0, End: 1}); err == nil {
		t.Error("a picture of nothing")
	}
}
