package spec_test

import (
	"slices"
	"testing"

	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/schedule"
)

// S-Caffe's three candidates, with the buffer in chunks of one element.
const (
	paperCC  = "chain,chunk=1"
	paperBin = "binomial,chunk=1" // n · log2 P steps of a chunk: as long as log2 P of the buffer
	paperCB8 = "chain:8,chunk=1/binomial,chunk=1"
	paperCC8 = "chain:8,chunk=1/chain,chunk=1"
)

// S-Caffe section 6.5: CB-8 combines the two. Its steps are those of a chain
// of 8 and of a tree of P/8, one after the other in the port of the leaders:
// few enough for small buffers on many ranks, where the flat chain is far
// behind, and for large ones, where the tree is.
func TestSCaffe_CB8LiesBetweenChainAndBinomial(t *testing.T) {
	const ranks = 160
	for _, c := range []struct {
		chunks  int
		fastest []string
	}{
		{1, []string{paperBin, paperCB8, paperCC}},  // small: every rank of the chain costs a step
		{2, []string{paperBin, paperCB8, paperCC}},  //
		{8, []string{paperCB8, paperBin, paperCC}},  // in the middle, better than either
		{16, []string{paperCB8, paperBin, paperCC}}, //
		{64, []string{paperCC, paperCB8, paperBin}}, // large: the tree moves the buffer log2 P times
	} {
		order := slices.Clone(c.fastest)
		slices.SortFunc(order, func(a, b string) int { return stepsOf(t, a, ranks, c.chunks) - stepsOf(t, b, ranks, c.chunks) })
		if !slices.Equal(order, c.fastest) {
			t.Errorf("%d chunks, fastest first: %q, want %q", c.chunks, order, c.fastest)
		}
	}
}

// S-Caffe section 5, equations 1 and 2, for the two levels of CB-8:
// (n + 8 - 2) + n · log2(P/8), and of CC-8: (n + 8 - 2) + (n + P/8 - 2).
func TestSCaffe_TwoLevelsTakeTheStepsOfBoth(t *testing.T) {
	for _, c := range []struct{ ranks, log int }{{16, 1}, {32, 2}, {64, 3}, {128, 4}} {
		for _, n := range []int{1, 2, 8, 32} {
			lower := n + 8 - 2
			if got, want := stepsOf(t, paperCB8, c.ranks, n), lower+n*c.log; got > want {
				t.Errorf("CB-8, %d chunks over %d ranks: %d steps, want at most %d", n, c.ranks, got, want)
			}
			if got, want := stepsOf(t, paperCC8, c.ranks, n), lower+n+c.ranks/8-2; got > want {
				t.Errorf("CC-8, %d chunks over %d ranks: %d steps, want at most %d", n, c.ranks, got, want)
			}
		}
	}
}

// S-Caffe section 5: with no more ranks than the chain is long, CB-8 and CC-8
// are the chunked chain.
func TestSCaffe_OneChainIsTheChain(t *testing.T) {
	for ranks := 1; ranks <= 8; ranks++ {
		for _, spec := range []string{paperCB8, paperCC8} {
			if got, want := stepsOf(t, spec, ranks, 16), stepsOf(t, paperCC, ranks, 16); got != want {
				t.Errorf("%s over %d ranks: %d steps, the chain takes %d", spec, ranks, got, want)
			}
		}
	}
}

// Chunk 0 climbs to the next level while chunk 7 is still below: what a leader
// sends upward waits for messages of the same chunk only.
func TestLevelsArePipelined(t *testing.T) {
	const ranks, chunks, leader = 32, 8, 24
	s, err := spec.Parse(paperCB8)
	if err != nil {
		t.Fatal(err)
	}
	ops := plan(t, schedule.Reduce, s, ranks, 0, chunks)[leader].Ops
	sends := 0
	for i := range ops {
		if ops[i].Kind != schedule.Send {
			continue
		}
		sends++
		for todo := []int{i}; len(todo) > 0; todo = todo[1:] {
			o := &ops[todo[0]]
			if o.Msg != ops[i].Msg {
				t.Fatalf("%v waits for %v", &ops[i], o)
			}
			todo = append(todo, o.Deps...)
		}
	}
	if sends != chunks {
		t.Errorf("%d sends of %d chunks", sends, chunks)
	}
}
