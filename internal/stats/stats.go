// Package stats says what a series of measured times comes to: medians with
// confidence intervals that suppose no distribution.
//
// It must not know what was measured.
package stats

import (
	"math"
	"slices"
	"sort"
	"strconv"

	"gonum.org/v1/gonum/stat/distuv"
)

// Interval is a median with its confidence interval.
type Interval struct {
	Median, Low, High float64
	// Certain says that there are enough values for an interval of 95 %; six
	// are needed. Without, nothing is called different from anything.
	Certain bool
}

// String returns low-high, or a question mark for too few values.
func (i Interval) String() string {
	if !i.Certain {
		return "?"
	}
	return strconv.FormatFloat(i.Low, 'f', 2, 64) + "-" + strconv.FormatFloat(i.High, 'f', 2, 64)
}

// Overlaps reports whether two intervals cannot be told apart: they have values
// in common, or one of them is not certain.
func (i Interval) Overlaps(o Interval) bool {
	return !i.Certain || !o.Certain || i.Low <= o.High && o.Low <= i.High
}

// confidence of the intervals.
const confidence = 0.95

// Median returns the median of xs and its distribution-free confidence
// interval: the two order statistics, as many from either end, between which
// the median of the population lies with a probability of at least 95 %, that
// is, that a fair coin thrown len(xs) times shows neither side too rarely. It
// supposes no shape of the distribution, which for times is never normal.
func Median(xs []float64) Interval {
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
	coin := distuv.Binomial{N: float64(n), P: 0.5}
	tooOften := sort.Search((n-1)/2, func(k int) bool { return 2*coin.CDF(float64(k)) > 1-confidence })
	return max(tooOften-1, 0), tooOften > 0
}
