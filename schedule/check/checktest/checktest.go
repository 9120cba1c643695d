// Package checktest is what every builder family is tested with: one
// conformance suite, and golden files of its schedules.
//
//	var family = schedule.Algorithm{Reduce: chain.Reduce, Bcast: chain.Bcast}
//
//	func TestConformance(t *testing.T) { checktest.Run(t, family) }
//	func TestGolden(t *testing.T) { checktest.Golden(t, "testdata", family) }
package checktest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/check"
)

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

// Counts returns the parts of a collective of parts that a suite should try, for a number of
// ranks: equal ones, ones that grow, all but one rank's empty, and random ones, some of
// them empty.
func Counts(size int) [][]int {
	grow, one, random := make([]int, size), make([]int, size), make([]int, size)
	rng := rand.New(rand.NewPCG(uint64(size), 5))
	for r := range size {
		grow[r], random[r] = r, max(0, rng.IntN(9)-2)
	}
	one[size/2] = 7
	return [][]int{nil, grow, one, random}
}

// Ranges returns where parts lie whose counts are given, as schedule.Params has them.
func Ranges(counts []int) (parts [][]schedule.Range) {
	for _, r := range schedule.Split(counts) {
		parts = append(parts, []schedule.Range{r})
	}
	return parts
}

// Run proves an algorithm: 1 to 33 ranks, Roots, Cuts, all collectives, of those of parts
// all Counts.
func Run(t *testing.T, a schedule.Algorithm) {
	t.Helper()
	for _, c := range a.Collectives() {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			for size := 1; size <= 33; size++ {
				for _, root := range Roots(size) {
					for _, p := range Cuts {
						p.Size, p.Root = size, root
						if err := check.Prove(c, a.Build(c, p), root); err != nil {
							t.Fatalf("%d ranks, root %d, count %d, chunk %d: %v", size, root, p.Count, p.Chunk, err)
						}
					}
				}
				if c.Parts() {
					unequal(t, a, c, size)
				}
			}
		})
	}
}

// unequal proves an algorithm's collective of parts that are not equal.
func unequal(t *testing.T, a schedule.Algorithm, c schedule.Collective, size int) {
	t.Helper()
	for _, counts := range Counts(size)[1:] {
		for _, chunk := range []int{0, 1, 3} {
			p := schedule.Params{Size: size, Root: size / 2, Chunk: chunk, Parts: Ranges(counts)}
			if !c.Rooted() {
				p.Root = 0
			}
			for _, n := range counts {
				p.Count += n
			}
			if err := check.Prove(c, a.Build(c, p), p.Root, counts...); err != nil {
				t.Fatalf("%d ranks, counts %v, chunk %d: %v", size, counts, chunk, err)
			}
		}
	}
}

// Golden compares an algorithm's schedules with those of the golden files in
// dir; -rewrite writes them anew. A file consists of
//
//	reduce size=4 root=0 count=8 chunk=2
//	----
//	…the text form of all ranks, and how many steps they take
func Golden(t *testing.T, dir string, a schedule.Algorithm) {
	t.Helper()
	datadriven.Walk(t, dir, func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			c, err := schedule.ParseCollective(d.Cmd)
			if err != nil || !slices.Contains(a.Collectives(), c) {
				d.Fatalf(t, "no collective %q of this family", d.Cmd)
			}
			p, counts := Scan(t, d)
			return Text(c, a.Build(c, p), p.Root, counts...)
		})
	})
}

// Scan reads size, and root, count and chunk where present, from a command of
// a golden file; or, of an allgather, counts=(3,0,2).
func Scan(t *testing.T, d *datadriven.TestData) (p schedule.Params, counts []int) {
	t.Helper()
	d.MaybeScanArgs(t, "size", &p.Size)
	for _, arg := range d.CmdArgs {
		for i := range arg.Vals {
			if arg.Key == "counts" {
				var n int
				arg.Scan(t, i, &n)
				counts = append(counts, n)
				p.Count += n
			}
		}
	}
	if counts != nil {
		p.Size, p.Parts = len(counts), Ranges(counts)
	}
	d.MaybeScanArgs(t, "root", &p.Root)
	d.MaybeScanArgs(t, "count", &p.Count)
	d.MaybeScanArgs(t, "chunk", &p.Chunk)
	if err := p.Validate(); err != nil {
		d.Fatalf(t, "%v", err)
	}
	return p, counts
}

// Text returns the text form of all ranks' schedules, the number of
// steps, and what the proof says if it fails.
func Text(c schedule.Collective, all []*schedule.Schedule, root int, counts ...int) string {
	var text strings.Builder
	for _, s := range all {
		text.WriteString(s.String())
	}
	steps, err := check.Steps(all)
	if err == nil {
		err = check.Prove(c, all, root, counts...)
	}
	if err != nil {
		fmt.Fprintln(&text, err)
		return text.String()
	}
	fmt.Fprintf(&text, "%d steps\n", steps)
	return text.String()
}
