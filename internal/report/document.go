package report

import (
	"bufio"
	"fmt"
	"io"
)

// Rows is a Table of any kind.
type Rows interface {
	Write(w io.Writer, f Format) error
	Grid() Grid
	writeRows(w *bufio.Writer) error
}

// Named is a table of a document, under the name that it has there.
type Named struct {
	Name string
	Rows Rows
}

// WriteDocument writes several tables as one JSON object: head, and then each
// table as the list of its rows. The tables' own heads do not count.
func WriteDocument(w io.Writer, head []Field, tables ...Named) error {
	b := bufio.NewWriter(w)
	if err := document(b, head, tables...); err != nil {
		return err
	}
	return b.Flush()
}

func document(w *bufio.Writer, head []Field, tables ...Named) error {
	before := "{"
	for _, f := range head {
		fmt.Fprint(w, before)
		before = ","
		if err := member(w, f.Name, f.Value); err != nil {
			return err
		}
	}
	for _, t := range tables {
		fmt.Fprintf(w, "%s%q:[", before, t.Name)
		before = ",\n"
		if err := t.Rows.writeRows(w); err != nil {
			return err
		}
		fmt.Fprint(w, "]")
	}
	fmt.Fprint(w, "}\n")
	return nil
}

func (t *Table[R]) writeRows(w *bufio.Writer) error {
	for i, r := range t.Rows {
		if i > 0 {
			fmt.Fprint(w, ",")
		}
		fmt.Fprint(w, "\n")
		if err := object(w, t.Columns, r); err != nil {
			return err
		}
	}
	return nil
}
