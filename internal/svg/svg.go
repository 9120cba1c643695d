// Package svg writes pictures piece by piece: what the drawings of schedules,
// timelines and tuning results share. Lengths are in SVG's user units; colors
// and fonts come from classes of a style sheet.
package svg

import (
	"fmt"
	"html"
	"strconv"
	"strings"
)

// Drawing is a picture under way. The zero value is an empty one.
type Drawing struct{ out strings.Builder }

// String returns what was drawn so far.
func (d *Drawing) String() string { return d.out.String() }

// Add adds anything.
func (d *Drawing) Add(format string, args ...any) { fmt.Fprintf(&d.out, format, args...) }

// Begin begins a stand-alone picture with a title, a style sheet, and a card of
// class card behind everything. End ends it.
func (d *Drawing) Begin(width, height float64, title, style string) {
	w, h := Num(width), Num(height)
	d.Add("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %s %s\" width=\"%s\" height=\"%s\" role=\"img\">\n", w, h, w, h)
	d.Add("<title>%s</title>\n%s", Escape(title), style)
	d.Add("<rect class=\"card\" x=\"0.5\" y=\"0.5\" width=\"%s\" height=\"%s\" rx=\"12\"/>\n", Num(width-1), Num(height-1))
}

// End ends a picture.
func (d *Drawing) End() { d.Add("</svg>\n") }

// Text adds a line of text of a class.
func (d *Drawing) Text(class string, x, y float64, format string, args ...any) {
	d.Add("<text class=\"%s\" x=\"%s\" y=\"%s\">%s</text>\n", class, Num(x), Num(y), Escape(fmt.Sprintf(format, args...)))
}

// Rect adds a rectangle of a class, with corners rounded by radius.
func (d *Drawing) Rect(class string, x, y, width, height, radius float64) {
	rounded := ""
	if radius > 0 {
		rounded = fmt.Sprintf(" rx=\"%s\"", Num(radius))
	}
	d.Add("<rect class=\"%s\" x=\"%s\" y=\"%s\" width=\"%s\" height=\"%s\"%s/>\n", class, Num(x), Num(y), Num(width), Num(height), rounded)
}

// Line adds a line of a class.
func (d *Drawing) Line(class string, x1, y1, x2, y2 float64) {
	d.Add("<line class=\"%s\" x1=\"%s\" y1=\"%s\" x2=\"%s\" y2=\"%s\"/>\n", class, Num(x1), Num(y1), Num(x2), Num(y2))
}

// Num returns a length with at most one digit after the point.
func Num(v float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0")
}

// Escape returns text as the content of an element.
func Escape(s string) string { return html.EscapeString(s) }

// Count returns a number with its noun.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
