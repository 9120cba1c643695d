package cmdline

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
)

// mustBe begins the error of a value that lies outside its bounds; it follows
// the flag's name, where other errors follow the value.
const mustBe = "must be "

// value is the value of a flag, checked when it is set. It implements
// cli.Generic; cli's Context.String, Int, Float64 and Duration read it.
type value struct {
	text  string
	check func(string) error
	words []string // what completion offers
}

func (v *value) String() string {
	if v == nil {
		return ""
	}
	return v.text
}

func (v *value) Set(s string) error {
	if err := v.check(s); err != nil {
		return err
	}
	v.text = s
	return nil
}

// Checked returns a flag whose value is text that check accepts. Its error
// says what is wanted: "want a size such as 256K or 4M". Completion offers
// the words.
func Checked(name, text, usage string, check func(string) error, words ...string) *cli.GenericFlag {
	return &cli.GenericFlag{Name: name, Usage: usage, Value: &value{text: text, check: check, words: words}}
}

// Parsed returns a check for Checked: parse accepts the text. What its error
// says after repeating the text follows the flag's name; want, unless empty, is
// said instead.
func Parsed[T any](parse func(string) (T, error), want string) func(string) error {
	return func(s string) error {
		_, err := parse(s)
		if err == nil {
			return nil
		}
		if want != "" {
			return errors.New(want)
		}
		if _, why, found := strings.Cut(err.Error(), strconv.Quote(s)+": "); found {
			return errors.New(why)
		}
		return err
	}
}

// Choice returns a flag whose value is one of some words.
func Choice(name, text, usage string, words ...string) *cli.GenericFlag {
	return Checked(name, text, usage, func(s string) error {
		if slices.Contains(words, s) {
			return nil
		}
		return fmt.Errorf("want %s", Or(words))
	}, words...)
}

// Int returns a flag whose value is a number of at least least.
func Int(name string, n, least int, usage string) *cli.GenericFlag {
	f := Checked(name, strconv.Itoa(n), usage, func(s string) error {
		n, err := strconv.Atoi(s)
		switch {
		case errors.Is(err, strconv.ErrRange):
			return errors.New("the number is too large")
		case err != nil:
			return errors.New("want a whole number")
		case n < least:
			return fmt.Errorf(mustBe+"at least %d (got %d)", least, n)
		}
		return nil
	})
	if n < least { // stands for "not given"
		f.Value.(*value).text = ""
	}
	return f
}

// Duration returns a flag whose value is a positive time; 0 as the default
// stands for none.
func Duration(name string, d time.Duration, usage string) *cli.GenericFlag {
	text := ""
	if d > 0 {
		text = short(d)
	}
	return Checked(name, text, usage, func(s string) error {
		d, err := time.ParseDuration(s)
		if err != nil {
			return errors.New("want a time such as 30s or 2m")
		}
		if d <= 0 {
			return fmt.Errorf(mustBe+"positive (got %v)", d)
		}
		return nil
	})
}

// short is d without parts that are zero: 2m rather than 2m0s.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// Float returns a flag whose value is a finite number that is greater than 0,
// or, with zero, at least 0.
func Float(name string, x float64, zero bool, usage string) *cli.GenericFlag {
	text := ""
	if x != 0 {
		text = strconv.FormatFloat(x, 'g', -1, 64)
	}
	return Checked(name, text, usage, func(s string) error {
		x, err := strconv.ParseFloat(s, 64)
		switch {
		case err != nil || math.IsNaN(x) || math.IsInf(x, 0):
			return errors.New("want a number")
		case x == 0 && zero || x > 0:
			return nil
		case zero:
			return fmt.Errorf(mustBe+"at least 0 (got %v)", s)
		}
		return fmt.Errorf(mustBe+"greater than 0 (got %v)", s)
	})
}

// Or joins words: "a", "a or b", "a, b or c".
func Or(words []string) string {
	n := len(words)
	if n < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:n-1], ", ") + " or " + words[n-1]
}

// Together refuses a pair of flags of which the command line has both.
func Together(c *cli.Context, a, b string) error {
	if c.IsSet(a) && c.IsSet(b) {
		return Usagef("%s and %s cannot be used together", dashed(a), dashed(b))
	}
	return nil
}
