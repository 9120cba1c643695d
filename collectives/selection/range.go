package selection

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/scaffe/scaffe/internal/units"
)

// Range is a range of whole numbers, both ends included.
type Range struct{ From, To int }

// NoLimit, as the To of a Range, is no end.
const NoLimit = math.MaxInt

// Has reports whether n lies in the range.
func (r Range) Has(n int) bool { return r.From <= n && n <= r.To }

// covers reports whether all of o lies in the range.
func (r Range) covers(o Range) bool { return r.From <= o.From && o.To <= r.To }

// meets reports whether the two have a number in common.
func (r Range) meets(o Range) bool { return max(r.From, o.From) <= min(r.To, o.To) }

// parseRange reads N, FROM-TO, FROM- or -TO, both ends included.
func parseRange(s string, lowest int, number func(string) (int, error)) (Range, error) {
	from, to, isRange := strings.Cut(s, "-")
	r := Range{lowest, NoLimit}
	var err error
	if from != "" || !isRange {
		if r.From, err = number(from); err != nil {
			return r, err
		}
	}
	switch {
	case !isRange:
		r.To = r.From
	case to != "":
		if r.To, err = number(to); err != nil {
			return r, err
		}
	}
	if r.To < r.From {
		return r, fmt.Errorf("%s ends before it begins", s)
	}
	return r, nil
}

// parseSizes reads sizes in bytes: N, or FROM..TO, whose end is excluded, so that
// neighbors share their bound: 4K..64K and 64K..1M. An end that is missing is no
// limit.
func parseSizes(s string) (Range, error) {
	from, to, isRange := strings.Cut(s, "..")
	if !isRange {
		return parseRange(s, 0, units.ParseBytes)
	}
	r := Range{0, NoLimit}
	var err error
	if from != "" {
		if r.From, err = units.ParseBytes(from); err != nil {
			return r, err
		}
	}
	if to != "" {
		end, err := units.ParseBytes(to)
		if err != nil {
			return r, err
		}
		r.To = end - 1
	}
	return r, notEmpty(r, s)
}

// parseSizes1 reads the sizes of a table of version 1, where FROM-TO excluded its
// end too.
func parseSizes1(s string) (Range, error) {
	r, err := parseRange(s, 0, units.ParseBytes)
	if err != nil {
		return r, err
	}
	if _, to, isRange := strings.Cut(s, "-"); isRange && to != "" {
		r.To--
	}
	return r, notEmpty(r, s)
}

func notEmpty(r Range, text string) error {
	if r.To < r.From {
		return fmt.Errorf("empty range %s: the end is excluded", text)
	}
	return nil
}

// numbers returns the text that parseRange reads.
func (r Range) numbers() string {
	switch {
	case r.From == r.To:
		return strconv.Itoa(r.From)
	case r.To == NoLimit:
		return strconv.Itoa(r.From) + "-"
	}
	return strconv.Itoa(r.From) + "-" + strconv.Itoa(r.To)
}

// sizes returns the text that parseSizes reads.
func (r Range) sizes() string {
	switch {
	case r.From == r.To:
		return units.FormatBytes(r.From)
	case r.To == NoLimit:
		return units.FormatBytes(r.From) + ".."
	}
	return units.FormatBytes(r.From) + ".." + units.FormatBytes(r.To+1)
}
