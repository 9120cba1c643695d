package omb

import (
	"fmt"
	"io"

	"github.com/scaffe/scaffe/internal/report"
)

// writer writes rows on the one rank that speaks; on the others it writes to
// nothing.
type writer interface {
	begin(t Type, ran []servedBy) // what the first subject will run, by size
	rows(rows []Row)              // of one case, one for each subject
	failed(row Row)               // after rows: a validation failed, the program ends
}

func newWriter(r *runner, to io.Writer) writer {
	switch {
	case r.opts.Format != string(report.Text):
		return newStreamWriter(to, report.Format(r.opts.Format), r.opts.Percentiles)
	case len(r.subjects) > 1:
		return &compareWriter{to: to, run: r}
	}
	return &ombWriter{to: to, program: r.program, opts: &r.opts}
}

// where returns what all rows' numbers depend on.
func (r *runner) where() (nodes int, library, barrier string) {
	library, barrier = "none", "scaffe"
	if r.mpi != nil {
		library = r.mpi.info
	}
	if r.meetsMPI {
		barrier = "mpi"
	}
	return r.comm.Layout().Nodes, library, barrier
}

// describe is where in a line.
func (r *runner) describe() string {
	nodes, library, barrier := r.where()
	line := fmt.Sprintf("ranks: %d, nodes: %d, MPI: %s, buffers: %s, barrier: %s", r.comm.Size(), nodes, library, r.opts.Buffers, barrier)
	if r.opts.Inputs == written {
		line += ", inputs: written"
	}
	return line
}
