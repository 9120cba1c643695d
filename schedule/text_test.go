package schedule_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/scaffe/scaffe/schedule"
)

func TestParseIsTheInverseOfString(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSchedule(t)
		got, err := schedule.Parse(s.String())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(s, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestParseSkipsCommentsAndSpace(t *testing.T) {
	s, err := schedule.Parse("// a lone rank\n\n  rank 0 of 1 count 4 scratch 0\n\t// moves its data\n 0:  copy out[0:4]  in[0:4]\n")
	if err != nil {
		t.Fatal(err)
	}
	const want = "rank 0 of 1 count 4 scratch 0\n0: copy out[0:4] in[0:4]\n"
	if diff := cmp.Diff(want, s.String()); diff != "" {
		t.Error(diff)
	}
}

func TestParseErrors(t *testing.T) {
	const header = "rank 0 of 2 count 4 scratch 0\n"
	for text, want := range map[string]string{
		"":                                                   "no header",
		"rank 0 of 2 count 4":                                `line 1: "rank 0 of 2 count 4": the line ends too early`,
		"rank x of 2 count 4 scratch 0":                      `"x" is not a number`,
		"rank -1 of 2 count 4 scratch 0":                     `"-1" is not a number of at least 0`,
		header + "1: send in[0:4] to 1 #0":                   "line 2: \"1: send in[0:4] to 1 #0\": op 1 where op 0 is expected",
		header + "0: throw in[0:4] to 1 #0":                  `unknown op "throw"`,
		header + "0: send on[0:4] to 1 #0":                   `unknown buffer "on"`,
		header + "0: send in[4:0] to 1 #0":                   "ends before it begins",
		header + "0: send in[0:4] from 1 #0":                 `"from" where "to" is expected`,
		header + "0: send in[0:4] to 1":                      "ends too early",
		header + "0: send in[0:4] to 1 #0 0":                 `"0" where "after" is expected`,
		header + "0: copy out[0:4] after":                    `unknown buffer "after"`,
		header + "0: send in[0:4] to 1 #0 after":             "ends too early",
		header + "0: recv out[0:4] from 1 #0 after x":        `"x" is not a number`,
		header + "0: send in[0:9223372036854775808] to 1 #0": "is not a number",
	} {
		if _, err := schedule.Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestNamesOfWhatDoesNotExist(t *testing.T) {
	if got := schedule.Kind(9).String(); got != "kind(9)" {
		t.Error(got)
	}
	if got := schedule.Buffer(9).String(); got != "buffer(9)" {
		t.Error(got)
	}
	if got := (&schedule.Op{Kind: 9, Deps: []int{1}}).String(); got != "kind(9) after 1" {
		t.Error(got)
	}
}

// Whatever is parsed is printed in a form that reads back the same.
func FuzzParse(f *testing.F) {
	f.Add("rank 1 of 3 count 10 scratch 8\n0: recvreduce scratch[0:4] in[0:4] from 2 #0\n1: send scratch[0:4] to 0 #0 after 0\n")
	f.Add("// nothing\nrank 0 of 1 count 0 scratch 0\n0: copy out[0:0] in[0:0]\n")
	f.Add("rank 0 of 2 count 4 scratch 0\n0: recv out[0:4] from 1 #0 after 7 7\n")
	f.Add("rank 0 of 2 count 9223372036854775807 scratch 0\n0: send in[1:")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := schedule.Parse(text)
		if err != nil {
			return
		}
		again, err := schedule.Parse(s.String())
		if err != nil {
			t.Fatalf("%v\n%s", err, s)
		}
		if diff := cmp.Diff(s, again, cmpopts.EquateEmpty()); diff != "" {
			t.Fatal(diff)
		}
	})
}
