package collectives_test

import (
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/mem"
)

const head = "scaffe-table 1\n"

func table(t *testing.T, text string) *collectives.Table {
	t.Helper()
	tb, err := collectives.ParseTable("t", head+text)
	if err != nil {
		t.Fatal(err)
	}
	return tb
}

// TestLint writes the linter's words anew with -rewrite.
func TestLint(t *testing.T) {
	datadriven.RunTest(t, "testdata/tables/lint.txt", func(_ *testing.T, d *datadriven.TestData) string {
		first := strings.TrimSpace(head)
		if d.HasArg("first") {
			d.ScanArgs(t, "first", &first)
		}
		var b strings.Builder
		for _, err := range collectives.LintTable("table", first+"\n"+d.Input) {
			b.WriteString(err.Error() + "\n")
		}
		if b.Len() == 0 {
			return "nothing to say\n"
		}
		return b.String()
	})
}

// What a rule is for, at the ends of its ranges.
func TestRuleMatches(t *testing.T) {
	tb := table(t, "collective=reduce nodes=2-4 ppn=2 bytes=4K-64K type=f32 buffer=registered spec=chain # why not")
	at := func(l collectives.Layout, q collectives.Query) bool { return tb.Find(l, q) != nil }
	layout := func(nodes, ppn int) collectives.Layout {
		return collectives.LayoutOf(collectives.NodesOf(nodes, ppn))
	}
	good := collectives.Query{Verb: collectives.Reduce, Bytes: 4 << 10}
	with := func(f func(*collectives.Query)) collectives.Query {
		q := good
		f(&q)
		return q
	}
	for _, c := range []struct {
		what string
		l    collectives.Layout
		q    collectives.Query
		want bool
	}{
		{"the first size", layout(2, 2), good, true},
		{"below it", layout(2, 2), with(func(q *collectives.Query) { q.Bytes-- }), false},
		{"the last size", layout(2, 2), with(func(q *collectives.Query) { q.Bytes = 64<<10 - 1 }), true},
		{"the end", layout(2, 2), with(func(q *collectives.Query) { q.Bytes = 64 << 10 }), false},
		{"one node", layout(1, 2), good, false},
		{"four nodes", layout(4, 2), good, true},
		{"five nodes", layout(5, 2), good, false},
		{"three ranks a node", layout(2, 3), good, false},
		{"unequal nodes, two at most", collectives.LayoutOf([]int{0, 0, 1}), good, true},
		{"another type", layout(2, 2), with(func(q *collectives.Query) { q.Type = mem.Float64 }), false},
		{"other buffers", layout(2, 2), with(func(q *collectives.Query) { q.Buffers = collectives.Heap }), false},
		{"another collective", layout(2, 2), with(func(q *collectives.Query) { q.Verb = collectives.Bcast }), false},
	} {
		if got := at(c.l, c.q); got != c.want {
			t.Errorf("%s: matched %v", c.what, got)
		}
	}
}

// The library's rule is for what the library serves; other calls go on.
func TestRuleOfTheLibrary(t *testing.T) {
	tb := table(t, "collective=reduce spec=mpi\ncollective=reduce spec=binomial")
	l := collectives.LayoutOf([]int{0, 1})
	for _, c := range []struct {
		q    collectives.Query
		want string
	}{
		{collectives.Query{Blocking: true, Library: true}, "mpi"},
		{collectives.Query{Blocking: false, Library: true}, "binomial"},
		{collectives.Query{Blocking: true, Library: false}, "binomial"},
		{collectives.Query{Blocking: true, Library: true, Type: mem.BFloat16}, "binomial"},
	} {
		if got := tb.Find(l, c.q).Spec.String(); got != c.want {
			t.Errorf("%+v is served by %s", c.q, got)
		}
	}
}

// FuzzParseTable: what is read is written and read back the same; nothing
// panics, the linter included.
func FuzzParseTable(f *testing.F) {
	f.Add(head + "host x\nlayout nodes=4 ppn=2 ranks=8\nmodel op=1e-6\ncollective=reduce nodes=2-8 ppn=1 bytes=256K-64M type=f32 buffer=heap spec=direct/chain,chunk=512K # x")
	f.Add(head + "collective=bcast bytes=-4K spec=mpi\ncollective=allreduce nodes=3- spec=ring")
	f.Add("scaffe-table 2\n")
	f.Fuzz(func(t *testing.T, text string) {
		collectives.LintTable("t", text)
		tb, err := collectives.ParseTable("t", text)
		if err != nil {
			return
		}
		again, err := collectives.ParseTable("t", tb.String())
		if err != nil {
			t.Fatalf("%q is written as %q, which is refused: %v", text, tb, err)
		}
		if again.String() != tb.String() {
			t.Fatalf("%q is written as %q and read back as %q", text, tb, again)
		}
	})
}
