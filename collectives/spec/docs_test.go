package spec_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/check"
)

// Every row of the table in docs/algorithms.md is true of the schedules.
func TestDocsAlgorithmsTable(t *testing.T) {
	text, err := os.ReadFile("../../docs/algorithms.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "`")
		}
		collective, err := schedule.ParseCollective(cells[0])
		if err != nil || len(cells) != 8 {
			continue
		}
		rows++
		want, err := row(collective, cells[1], cells[2], cells[3])
		if err != nil {
			t.Errorf("%q: %v", line, err)
		} else if !slices.Equal(cells, want) {
			t.Errorf("the table says\n%q, true is\n%q", cells, want)
		}
	}
	if rows < 15 {
		t.Errorf("%d rows found: has the table another form than this test reads?", rows)
	}
}

// row computes a row: what all ranks together do, in buffers and in steps of
// one chunk.
func row(v schedule.Collective, how, ranks, chunks string) ([]string, error) {
	p, err := strconv.Atoi(ranks)
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(chunks)
	if err != nil {
		return nil, err
	}
	s, err := spec.Parse(how)
	if err != nil {
		return nil, err
	}
	for i := range s.Levels {
		s.Levels[i].Chunk = 1
	}
	var all []*schedule.Schedule
	var sent, received []int
	for r := range p {
		one, err := spec.Build(spec.Call{Collective: v, Rank: r, Size: p, Count: n, ElemSize: 1}, s)
		if err != nil {
			return nil, err
		}
		out, in := 0, 0
		for i := range one.Ops {
			switch op := &one.Ops[i]; {
			case op.Kind == schedule.Send:
				out += op.Len()
			case op.Receives():
				in += op.Len()
			}
		}
		all, sent, received = append(all, one), append(sent, out), append(received, in)
	}
	steps, err := check.Steps(all)
	buffers := func(elements int) string { return strconv.FormatFloat(float64(elements)/float64(n), 'g', 4, 64) }
	return []string{
		v.String(), how, ranks, chunks, fmt.Sprint(steps),
		buffers(slices.Max(sent)), buffers(slices.Max(received)), buffers(received[0]),
	}, err
}
