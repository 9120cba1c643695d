package collectives_test

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/check"
	"github.com/scaffe/scaffe/schedule/check/checktest"
)

// plan builds the schedules of all ranks, with elements of one byte.
func plan(t testing.TB, v checktest.Verb, s collectives.Spec, size, root, count int) []*schedule.Schedule {
	t.Helper()
	verb, err := collectives.ParseVerb(string(v))
	if err != nil {
		t.Fatal(err)
	}
	all := make([]*schedule.Schedule, size)
	for rank := range size {
		c := collectives.Call{Verb: verb, Rank: rank, Size: size, Root: root, Count: count, ElemSize: 1}
		if all[rank], err = collectives.Build(c, s); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// provenSpecs are one, two and three levels: every chain size from 1 to 16
// under every other algorithm, and chunks that differ between levels.
func provenSpecs() []string {
	specs := []string{"linear,chunk=3", "chain,chunk=3", "binomial,chunk=3"}
	for k := 1; k <= 16; k++ {
		specs = append(specs,
			fmt.Sprintf("chain:%d,chunk=3/binomial,chunk=3", k),
			fmt.Sprintf("chain:%d,chunk=3/chain,chunk=3", k))
	}
	specs = append(specs,
		"chain:8/binomial", "chain:3,chunk=3/linear,chunk=3",
		"binomial:4,chunk=3/chain,chunk=3", "linear:5,chunk=3/binomial,chunk=3", "binomial:6,chunk=3/linear",
		"chain:4,chunk=2/binomial,chunk=5", "chain:5,chunk=6/chain,chunk=2", "linear:3/chain,chunk=4")
	for _, k := range []int{1, 2, 3, 4, 7, 16} {
		specs = append(specs,
			fmt.Sprintf("chain:%d,chunk=3/chain:4,chunk=3/binomial,chunk=3", k),
			fmt.Sprintf("chain:2,chunk=4/chain:%d,chunk=3/chain,chunk=2", k))
	}
	return append(specs,
		"binomial:3,chunk=3/chain:3,chunk=3/binomial,chunk=3",
		"linear:2,chunk=3/binomial:2,chunk=3/chain,chunk=3",
		"chain:2,chunk=3/chain:2,chunk=3/chain:2,chunk=3/binomial,chunk=3")
}

// provenCounts are none, one, prime numbers, and what neither a chunk nor the
// ranks divide: up to six chunks of three.
var provenCounts = []int{0, 1, 7, 12, 17}

// Every spec is proved right for all ranks together: 1 to 33 ranks, every root
// up to 9 ranks and several beyond, every count, all verbs. Roots other than 0
// take turns with the counts.
func TestEverySpecIsProved(t *testing.T) {
	for _, text := range provenSpecs() {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			s, err := collectives.ParseSpec(text)
			if err != nil {
				t.Fatal(err)
			}
			for size := 1; size <= 33; size++ {
				for turn, root := range checktest.Roots(size) {
					counts := provenCounts
					if root > 0 {
						counts = []int{provenCounts[(turn+size)%len(provenCounts)], 17}
					}
					for _, count := range counts {
						for _, v := range checktest.Verbs {
							if err := checktest.Prove(v, plan(t, v, s, size, root, count), root); err != nil {
								t.Fatalf("%s over %d ranks, root %d, count %d: %v", v, size, root, count, err)
							}
						}
					}
				}
			}
		})
	}
}

// Golden transcripts of composed specs; -rewrite writes them anew.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/transcripts", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var text string
			d.ScanArgs(t, "spec", &text)
			s, err := collectives.ParseSpec(text)
			if err != nil {
				return err.Error() + "\n"
			}
			v, p := checktest.Verb(d.Cmd), checktest.Scan(t, d)
			return checktest.Transcript(v, plan(t, v, s, p.Size, p.Root, p.Count), p.Root)
		})
	})
}

// stepsOf returns how many steps a reduction of n chunks takes.
func stepsOf(t *testing.T, spec string, size, n int) int {
	t.Helper()
	s, err := collectives.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	steps, err := check.Steps(plan(t, checktest.Reduce, s, size, 0, n))
	if err != nil {
		t.Fatal(err)
	}
	return steps
}
