package vec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// allSums returns everything that sums.go makes of a and b.
func allSums(a, b []float32) []float64 {
	var m, m2, s, d Lanes
	shift := float32(0)
	if len(a) > 0 {
		shift = a[0]
	}
	AddMoments(&m, &m2, a, shift)
	AddMoments(&m, &m2, b, shift)
	AddSumDot(&s, &d, a, b)
	AddSumDot(&s, &d, b, a)
	return []float64{
		Sum(a), SumSquares(a), Dot(a, b), m.Total(), m2.Total(), s.Total(), d.Total(),
		float64(Max(a)), float64(FirstNotFinite(a)),
	}
}

func TestSumPathsAgree(t *testing.T) {
	for _, n := range vectorLengths {
		for _, specials := range []bool{false, true} {
			r := rand.New(rand.NewPCG(uint64(n), 9))
			a, b := vectorOf(r, n, specials), vectorOf(r, n, specials)
			slow, fast := bothPaths(t, func() []float64 { return allSums(a, b) })
			for i := range slow {
				if math.Float64bits(slow[i]) != math.Float64bits(fast[i]) && (slow[i] == slow[i] || fast[i] == fast[i]) {
					t.Errorf("%d elements, sum %d: %v, but %v with AVX2", n, i, slow[i], fast[i])
				}
			}
		}
	}
}

// The order is the documented one, and whatever the order, the sum of whole
// numbers is exact.
func TestSumValues(t *testing.T) {
	onPaths(t, func(t *testing.T) {
		for _, n := range vectorLengths {
			a, b := make([]float32, n), make([]float32, n)
			var lanes [16]float64
			var whole, squares, dots, moment, moment2 float64
			for i := range a {
				a[i], b[i] = float32(i%1000-300), float32(7-i%13)
				lanes[i%16] += float64(float32(0.1) * a[i])
				x, y := float64(a[i]), float64(b[i])
				whole, squares, dots = whole+x, squares+x*x, dots+x*y
				moment, moment2 = moment+x-5, moment2+(x-5)*(x-5)
			}
			tenths := make([]float32, n)
			for i := range tenths {
				tenths[i] = float32(0.1) * a[i]
			}
			var ordered float64
			l := Lanes(lanes)
			for i := range 4 { // the tree of Total, written out
				at := func(k int) float64 { return (l[k] + l[k+8]) + (l[k+4] + l[k+12]) }
				if i == 0 {
					ordered = (at(0) + at(2)) + (at(1) + at(3))
				}
			}
			if got := Sum(tenths); got != ordered {
				t.Errorf("%d elements: the sum is %v, %v in the order of lanes", n, got, ordered)
			}
			var m, m2, s, d Lanes
			AddMoments(&m, &m2, a, 5)
			AddSumDot(&s, &d, a, b)
			got := fmt.Sprint(Sum(a), SumSquares(a), Dot(a, b), m.Total(), m2.Total(), s.Total(), d.Total())
			if want := fmt.Sprint(whole, squares, dots, moment, moment2, whole, dots); got != want {
				t.Errorf("%d elements: sums %s, want %s", n, got, want)
			}
		}
	})
}

// Rows of a channel are added one after another: each begins at lane 0.
func TestLanesTakeRows(t *testing.T) {
	onPaths(t, func(t *testing.T) {
		x := vectorOf(rand.New(rand.NewPCG(1, 2)), 147, false)
		var rows, want Lanes
		for r := range 3 {
			rows.Add(x[49*r : 49*r+49])
			for i, v := range x[49*r : 49*r+49] {
				want[i%16] += float64(v)
			}
		}
		if rows != want {
			t.Errorf("lanes %v, want %v", rows, want)
		}
	})
}

func TestFirstNotFinite(t *testing.T) {
	onPaths(t, func(t *testing.T) {
		for _, n := range []int{0, 1, 31, 32, 33, 64, 95, 200, vectorPiece + 70} {
			x := make([]float32, n)
			for i := range x {
				x[i] = special[i%8] // the largest and the smallest finite numbers
			}
			if got := FirstNotFinite(x); got != -1 {
				t.Errorf("%d finite elements: %d", n, got)
			}
			for _, at := range []int{0, 1, 7, 8, 31, 32, 40, 63, 64, 94, 199, vectorPiece - 1, vectorPiece, vectorPiece + 69} {
				if at >= n {
					continue
				}
				for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
					x[at] = float32(bad)
					last := x[n-1]
					x[n-1] = float32(math.NaN()) // a later one must not win
					if got := FirstNotFinite(x); got != at {
						t.Errorf("%v at %d of %d: found at %d", bad, at, n, got)
					}
					x[n-1], x[at] = last, 1
				}
			}
		}
	})
}

func TestMax(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	negZero := float32(math.Copysign(0, -1))
	onPaths(t, func(t *testing.T) {
		for _, n := range []int{1, 5, 31, 32, 33, 64, 100, 1000} {
			for _, at := range []int{0, n / 2, n - 1} {
				x := make([]float32, n)
				for _, c := range []struct{ rest, big, want float32 }{
					{-3, 4, 4}, {-3, -2, -2}, {-3, inf, inf}, {nan, -7, -7}, {-inf, -inf, -inf}, {nan, nan, -inf}, {negZero, 0, 0}, {negZero, negZero, 0},
				} {
					for i := range x {
						x[i] = c.rest
					}
					x[at] = c.big
					if got := Max(x); math.Float32bits(got) != math.Float32bits(c.want) {
						t.Errorf("%v at %d of %d times %v: %v", c.big, at, n, c.rest, got)
					}
				}
			}
		}
		if got := Max(nil); got != -inf {
			t.Errorf("the largest of nothing is %v", got)
		}
	})
}
