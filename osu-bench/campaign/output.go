package campaign

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/scaffe/scaffe/internal/version"
)

// result is a row as osu-bench's programs and floor write it.
type result struct {
	Size       int      `json:"size"`
	Asked      string   `json:"asked"`
	Algorithm  string   `json:"algorithm"`
	Iterations int      `json:"iterations"`
	Machine    string   `json:"machine"`
	MPI        string   `json:"mpi"`
	Time       float64  `json:"time_us"`
	Low        *float64 `json:"time_low_us"`
	High       *float64 `json:"time_high_us"`
	Predicted  *float64 `json:"predicted_us"`
	Bandwidth  *float64 `json:"bandwidth_mbs"`
}

// readJSON reads the rows of a program. What came before an error counts.
func readJSON(j *job, out string) ([]Row, error) {
	var rows []Row
	value := func(x *float64) float64 {
		if x == nil {
			return 0
		}
		return *x
	}
	for d := json.NewDecoder(strings.NewReader(out)); ; {
		var r result
		switch err := d.Decode(&r); {
		case errors.Is(err, io.EOF):
			return rows, nil
		case err != nil:
			return rows, fmt.Errorf("row %d: %w", len(rows)+1, err)
		}
		if r.Bandwidth != nil { // of a window of messages: the time of one
			r.Time, r.Low, r.High = float64(r.Size) / *r.Bandwidth, nil, nil
		}
		rows = append(rows, j.row(Row{
			Size: r.Size, Asked: r.Asked, Algorithm: r.Algorithm, Iterations: r.Iterations, Machine: r.Machine, MPI: r.MPI, Version: version.String(),
			Time: r.Time, Low: value(r.Low), High: value(r.High), Predicted: value(r.Predicted),
		}))
	}
}

// readUCC reads the table of ucc_perftest, whose lines are count, size, and the mean,
// least and largest time of the ranks.
func readUCC(j *job, out string) ([]Row, error) {
	var rows []Row
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) < 5 {
			continue
		}
		size, err := strconv.Atoi(f[1])
		if f[1] == "N/A" && j.collective == "barrier" {
			size, err = 0, nil
		}
		time, err2 := strconv.ParseFloat(f[4], 64)
		if err != nil || err2 != nil {
			continue // a line of the head
		}
		rows = append(rows, j.row(Row{Size: size, Asked: "ucc", Algorithm: "ucc", Time: time, Version: version.String()}))
	}
	if len(rows) == 0 {
		return nil, errors.New("no rows of ucc_perftest")
	}
	return rows, nil
}

// row fills in what the job knows.
func (j *job) row(r Row) Row {
	r.Job, r.Collective, r.Nodes, r.Ranks, r.Buffers = j.name, j.collective, j.layout.Nodes, j.layout.Ranks(), j.buffers
	return r
}
