package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Optional returns v where it is there, else nil, a missing value.
func Optional[T any](v T, there bool) any {
	if !there {
		return nil
	}
	return v
}

// Shown is a value that people see as Text.
type Shown struct {
	Value any
	Text  string
}

// Milliseconds returns a duration in milliseconds.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// precision is what numbers for programs are rounded to: of milliseconds, the
// nanosecond.
const precision = 1e6

// machine returns what programs get for a value: nil for a missing one,
// milliseconds for a duration, rounded numbers.
func machine(v any) any {
	switch x := v.(type) {
	case Shown:
		return machine(x.Value)
	case time.Duration:
		return machine(Milliseconds(x))
	case float32:
		return machine(float64(x))
	case float64:
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return nil
		}
		if r := math.Round(x*precision) / precision; !math.IsInf(r, 0) {
			return r
		}
		return x // too large to have such digits
	case fmt.Stringer:
		return x.String()
	}
	return v
}

// cell returns a value as CSV has it.
func cell(v any) string {
	switch x := machine(v).(type) {
	case nil:
		return ""
	case float64:
		return strconv.FormatFloat(x, 'f', -1, 64)
	case []string:
		return strings.Join(x, " ")
	default:
		return fmt.Sprint(x)
	}
}

// text returns a value as people see it.
func text(v any, digits int, dash bool) string {
	switch x := v.(type) {
	case nil:
		return "-"
	case Shown:
		return x.Text
	case time.Duration:
		return text(Milliseconds(x), digits, dash)
	case float32:
		return text(float64(x), digits, dash)
	case float64:
		if math.IsNaN(x) || math.IsInf(x, 0) || dash && x == 0 {
			return "-"
		}
		return strconv.FormatFloat(x, 'f', digits, 64)
	case []string:
		return strings.Join(x, " ")
	}
	return fmt.Sprint(v)
}
