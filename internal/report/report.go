package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// Column is a column of a table whose rows are R.
type Column[R any] struct {
	// Name is for programs, in snake case with the unit at its end. A column
	// without a name is in text alone.
	Name string
	// Value returns the column's value: a string, a number, a bool, a
	// time.Duration, or nil where there is none.
	Value func(R) any

	// The rest is for text alone.
	Title  string // the heading; by default the name in words
	Left   bool   // aligned to the left, as words are
	Digits int    // after the point, of floating-point numbers and durations
	Hidden bool   // not in text
}

// Field is a value that all rows have in common.
type Field struct {
	Name  string
	Value any
}

// Table is a table with its rows.
type Table[R any] struct {
	Head    []Field  // for programs, what all rows have in common
	Above   []string // lines above the table, in text
	Columns []Column[R]
	Rows    []R
	Below   []string // lines below it, in text
}

// Write writes the table.
func (t *Table[R]) Write(w io.Writer, f Format) error {
	b := bufio.NewWriter(w)
	switch f {
	case Text:
		t.text(b)
	case CSV:
		if err := t.csv(b); err != nil {
			return err
		}
	case JSON:
		if err := t.json(b); err != nil {
			return err
		}
	default:
		_, err := ParseFormat(string(f))
		return err
	}
	return b.Flush()
}

// gap is what stands between two columns of text.
const gap = "  "

func (t *Table[R]) text(w *bufio.Writer) {
	for _, l := range t.Above {
		fmt.Fprintln(w, l)
	}
	var shown []Column[R]
	var lines [][]string
	var headings []string
	for _, c := range t.Columns {
		if c.Hidden {
			continue
		}
		if c.Title == "" {
			c.Title = heading(c.Name)
		}
		shown, headings = append(shown, c), append(headings, c.Title)
	}
	lines = append(lines, headings)
	for _, r := range t.Rows {
		var cells []string
		for _, c := range shown {
			cells = append(cells, text(c.Value(r), c.Digits))
		}
		lines = append(lines, cells)
	}
	align(w, lines, func(i int) bool { return shown[i].Left })
	for _, l := range t.Below {
		fmt.Fprintln(w, l)
	}
}

// align writes lines of cells below each other.
func align(w io.Writer, lines [][]string, left func(column int) bool) {
	widths := make([]int, len(lines[0]))
	for _, cells := range lines {
		for i, cell := range cells {
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	for _, cells := range lines {
		var line strings.Builder
		for i, cell := range cells {
			if i > 0 {
				line.WriteString(gap)
			}
			pad := strings.Repeat(" ", widths[i]-len([]rune(cell)))
			if left(i) {
				line.WriteString(cell + pad)
			} else {
				line.WriteString(pad + cell)
			}
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
}

func (t *Table[R]) csv(w io.Writer) error {
	s := NewStream(w, CSV, t.columns())
	if err := s.header(); err != nil {
		return err
	}
	for _, r := range t.Rows {
		if err := s.Write(r); err != nil {
			return err
		}
	}
	return nil
}

// columns returns those of the head and of the rows.
func (t *Table[R]) columns() []Column[R] {
	var all []Column[R]
	for _, f := range t.Head {
		all = append(all, Column[R]{Name: f.Name, Value: func(R) any { return f.Value }})
	}
	return append(all, t.Columns...)
}

func (t *Table[R]) json(w *bufio.Writer) error {
	fmt.Fprint(w, "{")
	for _, f := range t.Head {
		if err := member(w, f.Name, f.Value); err != nil {
			return err
		}
		fmt.Fprint(w, ",")
	}
	fmt.Fprint(w, "\"rows\":[")
	for i, r := range t.Rows {
		if i > 0 {
			fmt.Fprint(w, ",")
		}
		fmt.Fprint(w, "\n")
		if err := object(w, t.Columns, r); err != nil {
			return err
		}
	}
	fmt.Fprint(w, "]}\n")
	return nil
}
