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
	Dash   bool   // a dash instead of zero
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
		if err := document(b, t.Head, Named{"rows", t}); err != nil {
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
	g := t.Grid()
	align(w, append([][]string{g.Headings}, g.Cells...), g.Left)
	for _, l := range t.Below {
		fmt.Fprintln(w, l)
	}
}

// Grid is a table as people see it.
type Grid struct {
	Headings []string
	Left     []bool     // which columns are aligned to the left
	Cells    [][]string // by row and column
}

// Grid returns the headings and the cells of the table's text.
func (t *Table[R]) Grid() Grid {
	var g Grid
	var shown []Column[R]
	for _, c := range t.Columns {
		if c.Hidden {
			continue
		}
		if c.Title == "" {
			c.Title = strings.ReplaceAll(c.Name, "_", " ")
		}
		shown = append(shown, c)
		g.Headings, g.Left = append(g.Headings, c.Title), append(g.Left, c.Left)
	}
	for _, r := range t.Rows {
		var cells []string
		for _, c := range shown {
			cells = append(cells, text(c.Value(r), c.Digits, c.Dash))
		}
		g.Cells = append(g.Cells, cells)
	}
	return g
}

// align writes lines of cells below each other.
func align(w io.Writer, lines [][]string, left []bool) {
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
			if left[i] {
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
