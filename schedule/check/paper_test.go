package check_test

import (
	"math/bits"
	"testing"

	"github.com/scaffe/scaffe/binomial"
	"github.com/scaffe/scaffe/chain"
	"github.com/scaffe/scaffe/linear"
	"github.com/scaffe/scaffe/schedule"
	"github.com/scaffe/scaffe/schedule/check"
)

var (
	chains    = schedule.Algorithm{Reduce: chain.Reduce, Bcast: chain.Bcast}
	binomials = schedule.Algorithm{Reduce: binomial.Reduce, Bcast: binomial.Bcast, Gather: binomial.Gather, Scatter: binomial.Scatter}
	linears   = schedule.Algorithm{Reduce: linear.Reduce, Bcast: linear.Bcast, Alltoall: linear.Alltoall, Gather: linear.Gather, Scatter: linear.Scatter}
)

// steps returns how many steps size ranks take for n chunks.
func steps(t *testing.T, a schedule.Algorithm, v schedule.Collective, size, n int) int {
	t.Helper()
	p := schedule.Params{Size: size, Root: size / 3, Count: n, Chunk: 1}
	k, err := check.Steps(a.Build(v, p))
	if err != nil {
		t.Fatalf("%s of %d chunks over %d ranks: %v", v, n, size, err)
	}
	return k
}

var directions = []schedule.Collective{schedule.Reduce, schedule.Bcast}

func log2(p int) int { return bits.Len(uint(p - 1)) } // rounded up

// S-Caffe section 5, equation 2: T = (n + P - 2) · t(c) for n chunks c.
func TestSCaffe_ChunkedChainTakesNPlusPMinus2Steps(t *testing.T) {
	for _, v := range directions {
		for size := 2; size <= 33; size++ {
			for _, n := range []int{1, 2, 3, 7, 16, 61} {
				if got, want := steps(t, chains, v, size, n), n+size-2; got != want {
					t.Errorf("%s of %d chunks over %d ranks: %d steps, want %d", v, n, size, got, want)
				}
			}
		}
	}
}

// S-Caffe section 5, equation 1: T = log2(P) · t(b), the buffer b in one piece.
func TestSCaffe_BinomialTakesLog2PSteps(t *testing.T) {
	for _, v := range directions {
		for size := 1; size <= 160; size++ {
			if got, want := steps(t, binomials, v, size, 1), log2(size); got != want {
				t.Errorf("%s over %d ranks: %d steps, want %d", v, size, got, want)
			}
		}
	}
}

// The root exchanges the buffer with everyone in turn.
func TestLinearTakesPMinus1Steps(t *testing.T) {
	for _, v := range directions {
		for size := 1; size <= 33; size++ {
			if got, want := steps(t, linears, v, size, 1), size-1; got != want {
				t.Errorf("%s over %d ranks: %d steps, want %d", v, size, got, want)
			}
		}
	}
}

// cost is what steps of n-th parts of a buffer cost: t(b/n) = latency + b/n/bandwidth
// each, in units in which the whole buffer takes 1.
func cost(steps, n int, latency float64) float64 {
	return float64(steps) * (latency + 1/float64(n))
}

// S-Caffe section 5: for few processes and large buffers, the chunked chain
// beats the binomial tree. The larger the buffer, the smaller the share of the
// latency.
func TestSCaffe_ChainBeatsBinomialForLargeBuffersOnFewRanks(t *testing.T) {
	const n, latency = 64, 0.001
	for _, size := range []int{4, 8, 16} {
		cc := cost(steps(t, chains, schedule.Reduce, size, n), n, latency)
		bin := cost(steps(t, binomials, schedule.Reduce, size, 1), 1, latency)
		if cc >= bin {
			t.Errorf("%d ranks: chunked chain %.3f, binomial %.3f", size, cc, bin)
		}
	}
}

// S-Caffe section 5: for many processes and small buffers, the chain's P
// latencies cost far more than the tree's log2 P.
func TestSCaffe_BinomialBeatsChainForSmallBuffersOnManyRanks(t *testing.T) {
	const n, latency = 4, 1.0
	for _, size := range []int{64, 128, 160} {
		cc := cost(steps(t, chains, schedule.Reduce, size, n), n, latency)
		bin := cost(steps(t, binomials, schedule.Reduce, size, 1), 1, latency)
		if cc < 5*bin {
			t.Errorf("%d ranks: chunked chain %.3f, binomial %.3f", size, cc, bin)
		}
	}
}

// A message a step and a port a direction: what no reduction gets below.
func TestStepsAreNotBelowTheRootsMessages(t *testing.T) {
	for size := 2; size <= 17; size++ {
		for _, n := range []int{1, 4, 9} {
			for _, a := range []schedule.Algorithm{chains, binomials, linears} {
				root := a.Build(schedule.Reduce, schedule.Params{Size: size, Count: n, Chunk: 1})[0]
				p := schedule.Params{Size: size, Count: n, Chunk: 1}
				got, err := check.Steps(a.Build(schedule.Reduce, p))
				if err != nil {
					t.Fatal(err)
				}
				if got < len(root.Ops) || got < log2(size) {
					t.Errorf("%d chunks over %d ranks: %d steps for %d messages to the root", n, size, got, len(root.Ops))
				}
			}
		}
	}
}
