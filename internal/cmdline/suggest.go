package cmdline

import (
	"fmt"
	"slices"
	"strings"
)

// didYouMean returns `; did you mean "train"?` for the closest of some names,
// and "" where none is close enough to be meant.
func didYouMean(word, prefix string, names []string) string {
	best, least := "", 3 // up to two slips, as git and cobra suggest
	for _, n := range names {
		d := distance(word, n)
		if strings.HasPrefix(n, word) && word != "" {
			d = min(d, 1)
		}
		if d < least && d < len(n) {
			best, least = n, d
		}
	}
	switch {
	case best == "":
		return ""
	case prefix == "":
		return fmt.Sprintf("; did you mean %q?", best)
	}
	return fmt.Sprintf("; did you mean %s%s?", prefix, best)
}

// distance is how many slips turn a into b: letters left out, added, replaced,
// or swapped with their neighbor (optimal string alignment).
func distance(a, b string) int {
	rows := [3][]int{} // before the last, the last, the current
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
	}
	for j := range rows[1] {
		rows[1][j] = j
	}
	for i := range len(a) {
		older, last, row := rows[0], rows[1], rows[2]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], older[j-1]+1)
			}
		}
		rows = [3][]int{last, row, slices.Clone(row)}
	}
	return rows[1][len(b)]
}
