// Package checktest is what every builder family is tested with: one
// conformance suite, and golden transcripts of its schedules.
//
//	var family = checktest.Algorithm{Reduce: chain.Reduce, Bcast: chain.Bcast}
//
//	func TestConformance(t *testing.T) { checktest.Run(t, family) }
//	func TestTranscripts(t *testing.T) { checktest.Transcripts(t, "testdata", family) }
package checktest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/check"
)

// Verb is one of the collectives.
type Verb string

// The collectives, by the names they have in transcripts.
const (
	Reduce    Verb = "reduce"
	Bcast     Verb = "bcast"
	Allreduce Verb = "allreduce"
)

// Verbs are all of them.
var Verbs = []Verb{Reduce, Bcast, Allreduce}

// Algorithm is a builder family: what adds each verb to a builder. A family
// may lack Reduce and Bcast, or an Allreduce of its own.
type Algorithm struct {
	Reduce, Bcast, Allreduce func(*schedule.Builder, schedule.Params)
}

// Verbs are those that the family has.
func (a Algorithm) Verbs() []Verb {
	if a.Reduce == nil {
		return []Verb{Allreduce}
	}
	return Verbs
}

// Build returns the schedules of all ranks; p.Rank does not matter. Without an
// Allreduce of its own, that is a reduction to p.Root joined to a broadcast.
func (a Algorithm) Build(v Verb, p schedule.Params) []*schedule.Schedule {
	all := make([]*schedule.Schedule, p.Size)
	for p.Rank = range p.Size {
		b := schedule.NewBuilder(p.Rank, p.Size, p.Count)
		switch {
		case v == Allreduce && a.Allreduce != nil:
			a.Allreduce(b, p)
		default:
			if v != Bcast {
				a.Reduce(b, p)
			}
			if v != Reduce {
				a.Bcast(b, p)
			}
		}
		all[p.Rank] = b.Schedule()
	}
	return all
}

// Prove applies the proof that belongs to v.
func Prove(v Verb, all []*schedule.Schedule, root int) error {
	switch v {
	case Reduce:
		return check.Reduce(all, root)
	case Bcast:
		return check.Bcast(all, root)
	case Allreduce:
		return check.Allreduce(all)
	}
	return fmt.Errorf("checktest: unknown verb %q", v)
}

// Roots returns which roots a suite should try: all of them up to 9 ranks,
// several beyond.
func Roots(size int) []int {
	if size > 9 {
		return []int{0, 1, size / 2, size - 1}
	}
	roots := make([]int, size)
	for i := range roots {
		roots[i] = i
	}
	return roots
}

// Cuts are the counts and chunks a suite should try: none, one, prime, not
// divisible by chunk or ranks, one chunk to more chunks than any ring has slots.
var Cuts = []schedule.Params{
	{Count: 0},
	{Count: 0, Chunk: 3},
	{Count: 1},
	{Count: 1, Chunk: 1},
	{Count: 7},
	{Count: 7, Chunk: 4},
	{Count: 7, Chunk: 3},
	{Count: 12, Chunk: 3},
	{Count: 17, Chunk: 3},
}

// Run proves an algorithm: 1 to 33 ranks, Roots, Cuts, all verbs.
func Run(t *testing.T, a Algorithm) {
	t.Helper()
	for _, v := range a.Verbs() {
		t.Run(string(v), func(t *testing.T) {
			t.Parallel()
			for size := 1; size <= 33; size++ {
				for _, root := range Roots(size) {
					for _, p := range Cuts {
						p.Size, p.Root = size, root
						if err := Prove(v, a.Build(v, p), root); err != nil {
							t.Fatalf("%d ranks, root %d, count %d, chunk %d: %v", size, root, p.Count, p.Chunk, err)
						}
					}
				}
			}
		})
	}
}

// Transcripts compares an algorithm's schedules with the golden ones in the
// files of dir; -rewrite writes them anew. A file consists of
//
//	reduce size=4 root=0 count=8 chunk=2
//	----
//	…the text form of all ranks, and how many steps they take
func Transcripts(t *testing.T, dir string, a Algorithm) {
	t.Helper()
	datadriven.Walk(t, dir, func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			v := Verb(d.Cmd)
			if !slices.Contains(a.Verbs(), v) {
				d.Fatalf(t, "unknown verb %q", d.Cmd)
			}
			p := Scan(t, d)
			return Transcript(v, a.Build(v, p), p.Root)
		})
	})
}

// Scan reads size, and root, count and chunk where present, from a command of
// a transcript file.
func Scan(t *testing.T, d *datadriven.TestData) schedule.Params {
	t.Helper()
	var p schedule.Params
	d.ScanArgs(t, "size", &p.Size)
	d.MaybeScanArgs(t, "root", &p.Root)
	d.MaybeScanArgs(t, "count", &p.Count)
	d.MaybeScanArgs(t, "chunk", &p.Chunk)
	if err := p.Validate(); err != nil {
		d.Fatalf(t, "%v", err)
	}
	return p
}

// Transcript returns the text form of all ranks' schedules, the number of
// steps, and what the proof says if it fails.
func Transcript(v Verb, all []*schedule.Schedule, root int) string {
	var text strings.Builder
	for _, s := range all {
		text.WriteString(s.String())
	}
	steps, err := check.Steps(all)
	if err == nil {
		err = Prove(v, all, root)
	}
	if err != nil {
		fmt.Fprintln(&text, err)
		return text.String()
	}
	fmt.Fprintf(&text, "%d steps\n", steps)
	return text.String()
}
