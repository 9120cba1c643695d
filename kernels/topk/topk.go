// Package topk finds the values of a vector whose magnitudes are the largest, in time that is
// linear in the vector's length whatever the values are, and with no allocation:
//
//	var s topk.Selector
//	s.Largest(index, x) // the positions of the len(index) largest, ascending
//
// Magnitudes are compared exactly, as the bits of a float32 without its sign, which ascend with
// the magnitude. Of equal ones those that come first are taken, so the same vector always gives
// the same positions. Zeros of both signs are equal. Infinities are larger than all numbers, and
// NaN is larger than those: what is not finite is found first.
//
// It knows no ranks and no layers.
package topk

import "math"

// The bits of a magnitude are counted digit by digit, the highest first: 11, 11 and 9 of them.
const (
	sign       = 1 << 31
	digitBits  = 11
	highShift  = 31 - digitBits
	middleBits = highShift - digitBits
	digitMask  = 1<<digitBits - 1
)

// Selector has the memory that a selection needs. The zero Selector is ready to use, by one
// goroutine at a time.
type Selector struct{ counts [1 << digitBits]int }

// Largest writes to index, ascending, the positions of the len(index) values of x with the
// largest magnitudes. It panics where x has fewer values, or more than an int32 can number.
func (s *Selector) Largest(index []int32, x []float32) {
	if len(index) > len(x) || len(x) > math.MaxInt32 {
		panic("topk: positions of more values than there are, or than an int32 can number")
	}
	if len(index) == 0 {
		return
	}
	least, equal := s.bound(x, len(index))
	at := 0
	for i, v := range x {
		m := math.Float32bits(v) &^ sign
		if m < least {
			continue
		}
		if m == least {
			if equal == 0 {
				continue
			}
			equal--
		}
		index[at] = int32(i)
		if at++; at == len(index) {
			return
		}
	}
}

// bound returns the least magnitude among the k largest, 0 < k ≤ len(x), and how many of these are
// equal to it.
func (s *Selector) bound(x []float32, k int) (least uint32, equal int) {
	clear(s.counts[:])
	for _, v := range x {
		s.counts[math.Float32bits(v)&^sign>>highShift]++
	}
	least, k = s.digit(k)
	clear(s.counts[:])
	for _, v := range x {
		if m := math.Float32bits(v) &^ sign; m>>highShift == least {
			s.counts[m>>middleBits&digitMask]++
		}
	}
	d, k := s.digit(k)
	least = least<<digitBits | d
	clear(s.counts[:])
	for _, v := range x {
		if m := math.Float32bits(v) &^ sign; m>>middleBits == least {
			s.counts[m&(1<<middleBits-1)]++
		}
	}
	d, k = s.digit(k)
	return least<<middleBits | d, k
}

// digit returns the digit of the kth largest of what has been counted, and its place among those
// of the same digit, counted from 1.
func (s *Selector) digit(k int) (uint32, int) {
	d := len(s.counts) - 1
	for ; s.counts[d] < k; d-- {
		k -= s.counts[d]
	}
	return uint32(d), k
}
