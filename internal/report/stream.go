package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
)

// Stream writes the rows of a table for programs, one at a time: as CSV, or as
// JSON with an object per line.
type Stream[R any] struct {
	to      io.Writer
	csv     *csv.Writer // nil: JSON
	columns []Column[R]
	begun   bool
}

// NewStream returns a Stream. Text is not a format of streams: its columns are
// as wide as their widest row.
func NewStream[R any](w io.Writer, f Format, columns []Column[R]) *Stream[R] {
	s := &Stream[R]{to: w}
	if f == CSV {
		s.csv = csv.NewWriter(w)
	}
	for _, c := range columns {
		if c.Name != "" {
			s.columns = append(s.columns, c)
		}
	}
	return s
}

// Write writes a row.
func (s *Stream[R]) Write(row R) error {
	if s.csv == nil {
		var b bytes.Buffer
		if err := object(&b, s.columns, row); err != nil {
			return err
		}
		b.WriteByte('\n')
		_, err := s.to.Write(b.Bytes())
		return err
	}
	if err := s.header(); err != nil {
		return err
	}
	var cells []string
	for _, c := range s.columns {
		cells = append(cells, cell(c.Value(row)))
	}
	return s.line(cells)
}

// header writes the names, once.
func (s *Stream[R]) header() error {
	if s.begun {
		return nil
	}
	s.begun = true
	var names []string
	for _, c := range s.columns {
		names = append(names, c.Name)
	}
	return s.line(names)
}

func (s *Stream[R]) line(cells []string) error {
	_ = s.csv.Write(cells) // Error tells
	s.csv.Flush()
	return s.csv.Error()
}

// object writes a row as a JSON object, its members in the columns' order.
func object[R any](w io.Writer, columns []Column[R], row R) error {
	before := "{"
	for _, c := range columns {
		if c.Name == "" {
			continue
		}
		fmt.Fprint(w, before)
		before = ","
		if err := member(w, c.Name, c.Value(row)); err != nil {
			return err
		}
	}
	_, err := fmt.Fprint(w, "}")
	return err
}

// member writes a member of an object.
func member(w io.Writer, name string, v any) error {
	b, err := json.Marshal(machine(v))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	_, err = fmt.Fprintf(w, "%q:%s", name, b)
	return err
}
