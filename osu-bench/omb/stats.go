package omb

import (
	"math"

	"github.com/scaffe/scaffe/internal/stats"
)

// Interval is a median with its confidence interval.
type Interval = stats.Interval

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
	case a.Overlaps(b):
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
