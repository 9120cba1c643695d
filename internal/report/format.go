package report

import (
	"fmt"
	"slices"
)

// Format is how a table is written.
type Format string

// The formats, in the order in which usage texts list them.
const (
	Text Format = "text"
	CSV  Format = "csv"
	JSON Format = "json"
)

// Usage is what the usage text of a --format flag says after "format of …: ".
const Usage = "text, csv or json"

// ParseFormat reads the value of a --format flag.
func ParseFormat(s string) (Format, error) {
	if f := Format(s); slices.Contains([]Format{Text, CSV, JSON}, f) {
		return f, nil
	}
	return "", fmt.Errorf("invalid --format %q: want %s", s, Usage)
}
