package svg_test

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/internal/svg"
)

func ExampleDrawing() {
	var d svg.Drawing
	d.Begin(40, 20, "two & two", "<style>.a{fill:red}</style>\n")
	d.Rect("a", 1, 2, 3.25, 4, 2)
	d.Line("b", 0, 0, 10, 10.04)
	d.Text("c", 5, 6, "%d < %d", 1, 2)
	d.End()
	fmt.Print(&d)
	// Output:
	// <svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 40 20" width="40" height="20" role="img">
	// <title>two &amp; two</title>
	// <style>.a{fill:red}</style>
	// <rect class="card" x="0.5" y="0.5" width="39" height="19" rx="12"/>
	// <rect class="a" x="1" y="2" width="3.2" height="4" rx="2"/>
	// <line class="b" x1="0" y1="0" x2="10" y2="10"/>
	// <text class="c" x="5" y="6">1 &lt; 2</text>
	// </svg>
}

func TestCount(t *testing.T) {
	if got := svg.Count(1, "rank") + ", " + svg.Count(2, "rank"); got != "1 rank, 2 ranks" {
		t.Error(got)
	}
}

// What is drawn is XML, whatever text it holds.
func TestWellFormed(t *testing.T) {
	var d svg.Drawing
	d.Begin(1, 1, `<&">'`, "")
	d.Text("a", 0, 0, "%s", "</text><script>")
	d.End()
	for dec := xml.NewDecoder(strings.NewReader(d.String())); ; {
		if _, err := dec.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
