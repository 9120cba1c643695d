package coordinator

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// A choice is read as it was written, whatever layers are called; a text of which a byte
// is missing or another is no choice.
func TestChoiceIsRead(t *testing.T) {
	asked, err := ParseAsked("auto,a layer=ps,conv*=allreduce")
	if err != nil {
		t.Fatal(err)
	}
	c := &Choice{Asked: asked, Workers: 12, Layers: []Chosen{{"a layer", 100, PS}, {"say \"a\"\n", 7, SFB}, {"conv1/3x3", 1 << 40, Allreduce}}}
	text := c.Text()
	got, err := ParseChoice(text)
	if err != nil || !reflect.DeepEqual(got, c) {
		t.Fatalf("%+v, %v, from\n%s", got, err, text)
	}
	if want := "asked \"auto,a layer=ps,conv*=allreduce\"\nworkers 12\nlayer \"a layer\" 100 ps\n"; !strings.Contains(string(text), want) {
		t.Errorf("no %q in\n%s", want, text)
	}
	for i := range text {
		if _, err := ParseChoice(text[:i]); err == nil {
			t.Errorf("its first %d bytes are read", i)
		}
		changed := bytes.Clone(text)
		changed[i] ^= 1
		if _, err := ParseChoice(changed); err == nil {
			t.Errorf("it is read with another byte %d", i)
		}
	}
	c.Slice = 50_000
	if got, err := ParseChoice(c.Text()); err != nil || !reflect.DeepEqual(got, c) {
		t.Errorf("with slices: %+v, %v, from\n%s", got, err, c.Text())
	}
	signed := func(text string) []byte { return fmt.Appendf(nil, "%sdigest %016x\n", text, digest([]byte(text))) }
	for text, want := range map[string]string{
		"":                     "digest",
		"\n":                   "does not begin",
		"# other\n":            "does not begin",
		choiceHead + "\nx y\n": "does not begin",
		choiceHead + "\nasked \"tree\"\nworkers 2\n":                          `unknown scheme "tree"`,
		choiceHead + "\nasked \"auto\"\nworkers 2\nlayer fc6 sfb\n":           `"layer fc6 sfb" is not a line`,
		choiceHead + "\nasked \"auto\"\nworkers 2\nlayer \"fc6\" 10 tree\n":   `layer "fc6": unknown scheme "tree"`,
		choiceHead + "\nasked \"auto\"\nworkers two\nlayer \"fc6\" 10 tree\n": "does not begin",
		choiceHead + "\nasked \"auto\"\nranks 2\n":                            "does not begin",
		choiceHead + "\nasked \"auto\"\nworkers 2\nslice 7\n":                 "slices of 7 elements",
	} {
		if _, err := ParseChoice(signed(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	old, err := ParseChoice(signed(ranksHead + "\nasked \"auto\"\nranks 5\nlayer \"fc6\" 10 sfb\n"))
	if want := (&Choice{Asked: Asked{Default: Auto}, Ranks: 5, Layers: []Chosen{{"fc6", 10, SFB}}}); err != nil || !reflect.DeepEqual(old, want) {
		t.Errorf("a file of before: %+v, %v", old, err)
	}
}

// A choice is kept though another would be taken now, with the pairs that it needs; with other
// workers, for another --scheme, and where factors are missing, it is not, and a line says so.
func TestChoiceIsKept(t *testing.T) {
	auto := Asked{Default: Auto}
	choose := func(ranks int, asked Asked, ms map[Scheme]int, layers ...Layer) *Audit {
		t.Helper()
		a, err := book(t, ranks, 8, layers...).Choose(asked, predicted(ms))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	schemes := func(a *Audit) string {
		var all []string
		for _, r := range a.Rows {
			all = append(all, r.Choice.String())
		}
		return strings.Join(all, " ")
	}
	before := choose(4, auto, map[Scheme]int{Reduce: 3, Allreduce: 4, PS: 2, SFB: 1}, vgg()...).Choice()
	other := map[Scheme]int{Reduce: 3, Allreduce: 1, PS: 2, SFB: 4}

	a := choose(4, auto, other, vgg()...)
	if err := a.Keep(before, "s_iter_5.schemes"); err != nil {
		t.Fatal(err)
	}
	if got := schemes(a); got != "ps sfb ps ps" {
		t.Errorf("kept as %s", got)
	}
	if r := a.Rows[1]; r.RunnerUp != Allreduce || r.Reason != "kept; allreduce would be taken now: the least predicted time, 0.50 of ps's" {
		t.Errorf("%v: %s", r.RunnerUp, r.Reason)
	}
	if len(a.Book.Pairs) != 3 || a.Book.Pairs[1].Layer != 2 {
		t.Errorf("pairs: %v", a.Book.Pairs)
	}
	if !strings.Contains(strings.Join(a.Text(), "\n"), "# schemes kept from s_iter_5.schemes\n") {
		t.Errorf("%s", a.Text())
	}

	refused := vgg()
	refused[1].Refuses = "the ranks compute products of 512×1024 with other bits"
	for want, a := range map[string]*Audit{
		"s.schemes is of 4 workers, here are 3":                                                    choose(3, auto, other, vgg()...),
		"s.schemes is of --scheme auto, here is poseidon":                                          choose(4, Asked{Default: Poseidon}, other, vgg()...),
		`s.schemes has sfb for layer "fc6", which cannot be here: the ranks compute products of 5`: choose(4, auto, other, refused...),
	} {
		had := schemes(a)
		if err := a.Keep(before, "s.schemes"); err != nil || schemes(a) != had {
			t.Errorf("%s: %v, %s", want, err, schemes(a))
		}
		if got := strings.Join(a.Notes, "\n"); !strings.HasPrefix(got, "# schemes chosen anew: "+want) || len(a.Notes) != 1 {
			t.Errorf("%q, want %q", got, want)
		}
	}

	// Servers may be others; a file of before was of ranks, whatever these did.
	apart := func() *Audit {
		c := Config{Nodes: make([]int, 6), Workers: Places{Ranks: []int{0, 2, 3, 5}}, Servers: Places{Ranks: []int{1, 4}}, Batch: slices.Repeat([]int{8}, 6), Layers: vgg()}
		b, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		a, err := b.Choose(auto, predicted(other))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	of := func(ranks int) *Choice {
		old := *before
		old.Workers, old.Ranks = 0, ranks
		return &old
	}
	for i, k := range []struct {
		c    *Choice
		kept bool
	}{{before, true}, {of(6), true}, {of(4), false}} {
		a := apart()
		if err := a.Keep(k.c, "s.schemes"); err != nil || (schemes(a) == "ps sfb ps ps") != k.kept || len(a.Notes) != 1 {
			t.Errorf("%d: %v, kept as %s: %q", i, err, schemes(a), a.Notes)
		}
	}

	for want, layers := range map[string][]Layer{
		"it is of another net: it has 4 layers with parameters, and this one 3":                    vgg()[:3],
		`it is of another net: layer "old" with 100 parameters, where this one has "new" with 100`: append(vgg()[:3], Layer{Name: "new", Params: vgg()[3].Params}),
		`it is of another net: layer "old" with 100 parameters, where this one has "old" with 99`:  append(vgg()[:3], Layer{Name: "old", Params: []Range{{Off: vgg()[3].Params[0].Off, Len: 99}}}),
	} {
		if err := choose(4, auto, other, layers...).Keep(before, "s.schemes"); err == nil || err.Error() != want {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Only Auto and Poseidon leave anything to be chosen.
func TestAskedChooses(t *testing.T) {
	for text, want := range map[string]bool{"auto": true, "poseidon": true, "ps,fc6=auto": true, "fc6=ps": true, "ps": false, "reduce,fc6=sfb": false} {
		a, err := ParseAsked(text)
		if err != nil || a.Chooses() != want {
			t.Errorf("%s: %v, %v", text, a.Chooses(), err)
		}
	}
}
