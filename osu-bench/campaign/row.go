package campaign

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"strconv"

	"github.com/scaffe/scaffe/internal/atomicfile"
	"github.com/scaffe/scaffe/internal/report"
)

// Row is one measurement. Times are in microseconds, of the slowest rank.
type Row struct {
	Job        string // what was started; rows of one run of one job were measured in turns
	Collective string
	Nodes      int
	Ranks      int
	Size       int // bytes
	Buffers    string
	Asked      string
	Algorithm  string
	Time       float64
	Low, High  float64 // the 95 % interval; 0: not known
	Predicted  float64 // 0: nothing
	Iterations int
	Machine    string
	MPI        string
	Version    string
}

var columns = []report.Column[Row]{
	{Name: "job", Value: func(r Row) any { return r.Job }},
	{Name: "collective", Value: func(r Row) any { return r.Collective }},
	{Name: "nodes", Value: func(r Row) any { return r.Nodes }},
	{Name: "ranks", Value: func(r Row) any { return r.Ranks }},
	{Name: "size", Value: func(r Row) any { return r.Size }},
	{Name: "buffers", Value: func(r Row) any { return r.Buffers }},
	{Name: "asked", Value: func(r Row) any { return r.Asked }},
	{Name: "algorithm", Value: func(r Row) any { return r.Algorithm }},
	{Name: "time_us", Value: func(r Row) any { return r.Time }},
	{Name: "time_low_us", Value: func(r Row) any { return report.Optional(r.Low, r.Low > 0) }},
	{Name: "time_high_us", Value: func(r Row) any { return report.Optional(r.High, r.High > 0) }},
	{Name: "predicted_us", Value: func(r Row) any { return report.Optional(r.Predicted, r.Predicted > 0) }},
	{Name: "iterations", Value: func(r Row) any { return r.Iterations }},
	{Name: "machine", Value: func(r Row) any { return r.Machine }},
	{Name: "mpi", Value: func(r Row) any { return r.MPI }},
	{Name: "version", Value: func(r Row) any { return r.Version }},
}

// write writes rows to a file, which appears whole.
func write(path string, rows []Row) error { return writeRows(path, columns, rows) }

func writeRows[R any](path string, columns []report.Column[R], rows []R) error {
	t := report.Table[R]{Columns: columns, Rows: rows}
	return atomicfile.Stream(atomicfile.OS, path, func(w io.Writer) error { return t.Write(w, report.CSV) })
}

// read reads what write has written; a file that is not there has no rows.
func read(path string) ([]Row, error) { return readRows(path, columns, parse) }

// readRows reads the rows of a file in CSV that have such columns; a file that is not there has
// none.
func readRows[R any](path string, columns []report.Column[R], parse func(*cells) R) ([]R, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	lines, err := csv.NewReader(bytes.NewReader(data)).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var rows []R
	for i, line := range lines {
		if i == 0 {
			if !slices.EqualFunc(line, columns, func(name string, c report.Column[R]) bool { return name == c.Name }) {
				return nil, fmt.Errorf("%s: not a file of this program and version: want the columns %s, %s, ... %s; give another name",
					path, columns[0].Name, columns[1].Name, columns[len(columns)-1].Name)
			}
			continue
		}
		c := cells{left: line}
		row := parse(&c)
		if c.err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, i+1, c.err)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// cells are those of a row that have not been read.
type cells struct {
	left []string
	err  error
}

// text reads the next cell.
func (c *cells) text() string {
	s := c.left[0]
	c.left = c.left[1:]
	return s
}

// number reads the next cell as a number, 0 if it is empty.
func (c *cells) number() float64 {
	s := c.text()
	if s == "" {
		return 0
	}
	x, err := strconv.ParseFloat(s, 64)
	c.err = errors.Join(c.err, err)
	return x
}

// orNaN reads the next cell as a number, NaN if it is empty.
func (c *cells) orNaN() float64 {
	if c.left[0] == "" {
		c.text()
		return math.NaN()
	}
	return c.number()
}

func (c *cells) whole() int { return int(c.number()) }

// parse reads a row.
func parse(c *cells) (r Row) {
	r.Job, r.Collective, r.Nodes, r.Ranks, r.Size, r.Buffers = c.text(), c.text(), c.whole(), c.whole(), c.whole(), c.text()
	r.Asked, r.Algorithm, r.Time, r.Low, r.High, r.Predicted = c.text(), c.text(), c.number(), c.number(), c.number(), c.number()
	r.Iterations, r.Machine, r.MPI, r.Version = c.whole(), c.text(), c.text(), c.text()
	return r
}
