package campaign

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
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
func write(path string, rows []Row) error {
	t := report.Table[Row]{Columns: columns, Rows: rows}
	return atomicfile.Stream(atomicfile.OS, path, func(w io.Writer) error { return t.Write(w, report.CSV) })
}

// read reads what write has written; a file that is not there has no rows.
func read(path string) ([]Row, error) {
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
	var rows []Row
	for i, cells := range lines {
		if i == 0 {
			if len(cells) != len(columns) || cells[0] != columns[0].Name {
				return nil, fmt.Errorf("%s: not a file of this program: want the columns job, collective, ... version; give another name", path)
			}
			continue
		}
		row, err := parse(cells)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, i+1, err)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// parse reads the cells of a row.
func parse(cells []string) (row Row, err error) {
	number := func(s string) float64 {
		if s == "" {
			return 0
		}
		x, e := strconv.ParseFloat(s, 64)
		err = errors.Join(err, e)
		return x
	}
	whole := func(s string) int { return int(number(s)) }
	row = Row{
		Job: cells[0], Collective: cells[1], Nodes: whole(cells[2]), Ranks: whole(cells[3]), Size: whole(cells[4]), Buffers: cells[5],
		Asked: cells[6], Algorithm: cells[7], Time: number(cells[8]), Low: number(cells[9]), High: number(cells[10]), Predicted: number(cells[11]),
		Iterations: whole(cells[12]), Machine: cells[13], MPI: cells[14], Version: cells[15],
	}
	return row, err
}
