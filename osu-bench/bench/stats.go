package bench

import (
	"math"
	"slices"
)

// Interval is a median with its confidence interval.
type Interval struct {
	Median, Low, High float64
	// Certain says that there are enough values for an interval of 95 %; six
	// are needed. Without, nothing is called different from anything.
	Certain bool
}

// confidence of the intervals.
const confidence = 0.95

// median returns the median of xs and its distribution-free confidence
// interval: the two order statistics, as many from either end, between which
// the median of the population lies with a probability of at least 95 %, that
// is, that a fair coin thrown len(xs) times shows neither side too rarely. It
// supposes no shape of the distribution, which for times is never normal.
func median(xs []float64) Interval {
	n := len(xs)
	if n == 0 {
		return Interval{Median: math.NaN(), Low: math.NaN(), High: math.NaN()}
	}
	s := slices.Sorted(slices.Values(xs))
	m := s[n/2]
	if n%2 == 0 {
		m = (s[n/2-1] + s[n/2]) / 2
	}
	k, ok := rank(n)
	return Interval{Median: m, Low: s[k], High: s[n-1-k], Certain: ok}
}

// rank returns the largest k with P(k < heads < n-k) ≥ confidence, so that
// the k-th smallest and the k-th largest, counted from 0, bound the median. ok
// is false where even the extremes do not.
func rank(n int) (k int, ok bool) {
	tail := 0.0 // P(heads ≤ k-1) while k is tried
	for j := 0; 2*j < n-1; j++ {
		lg, _ := math.Lgamma(float64(n + 1))
		la, _ := math.Lgamma(float64(j + 1))
		lb, _ := math.Lgamma(float64(n - j + 1))
		tail += math.Exp(lg - la - lb - float64(n)*math.Ln2)
		if 2*tail > 1-confidence {
			break
		}
		k, ok = j, true
	}
	return k, ok
}

// Verdict says how a result compares with the first.
type Verdict string

// The verdicts.
const (
	First  Verdict = "first"  // it is the first
	Same   Verdict = "same"   // the intervals overlap, or one is uncertain
	Faster Verdict = "faster" // than the first, beyond the intervals
	Slower Verdict = "slower"
)

// compare judges the time a against b, the first.
func compare(a, b Interval) Verdict {
	switch {
	case !a.Certain || !b.Certain || a.Low <= b.High && b.Low <= a.High:
		return Same
	case a.High < b.Low:
		return Faster
	}
	return Slower
}

// percentile returns the p-th percentile of sorted values by OMB's rule: the
// value at the rounded rank.
func percentile(sorted []float64, p int) float64 {
	n := len(sorted)
	i := int(math.Round(float64(n)*float64(p)/100)) - 1
	return sorted[min(max(i, 0), n-1)]
}

func mean(xs []float64) float64 {
	sum := 0.0
	for _, x := range xs {
		sum += x
	}
	return sum / float64(len(xs))
}
