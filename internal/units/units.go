// Package units reads and writes sizes as people type them: 65536, 512K, 1M. Times it rounds as people read
// them.
//
//	n, err := units.ParseBytes("512K") // 524288
//	units.FormatBytes(n)               // "512K"
package units

import (
	"fmt"
	"strconv"
	"time"
)

// ParseBytes reads a size in bytes with an optional binary suffix K, M or G.
func ParseBytes(s string) (int, error) {
	whole, shift := s, 0
	if n := len(s); n > 0 {
		shift = map[byte]int{'K': 10, 'k': 10, 'M': 20, 'm': 20, 'G': 30, 'g': 30}[s[n-1]]
		if shift > 0 {
			s = s[:n-1]
		}
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > 1<<(62-shift) {
		return 0, fmt.Errorf("invalid size %q: want bytes such as 65536, 512K or 1M", whole)
	}
	return n << shift, nil
}

// FormatBytes is the inverse of ParseBytes, with the largest suffix that is exact.
func FormatBytes(n int) string {
	for _, u := range []struct {
		shift  int
		suffix string
	}{{30, "G"}, {20, "M"}, {10, "K"}} {
		if n > 0 && n%(1<<u.shift) == 0 {
			return strconv.Itoa(n>>u.shift) + u.suffix
		}
	}
	return strconv.Itoa(n)
}

// Rough returns d with its first three digits, which is more than a prediction is worth.
func Rough(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}
