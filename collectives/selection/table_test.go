package selection_test

import (
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/schedule"
)

const head = "scaffe-table 2\n"

func table(t *testing.T, text string) *selection.Table {
	t.Helper()
	tb, err := selection.ParseTable("t", head+text)
	if err != nil {
		t.Fatal(err)
	}
	return tb
}

func parse(t *testing.T, text string) spec.Spec {
	t.Helper()
	s, err := spec.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestLint writes the linter's words anew with -rewrite.
func TestLint(t *testing.T) {
	datadriven.RunTest(t, "testdata/tables/lint.txt", func(_ *testing.T, d *datadriven.TestData) string {
		first := strings.TrimSpace(head)
		if d.HasArg("first") {
			d.ScanArgs(t, "first", &first)
		}
		var b strings.Builder
		for _, err := range selection.Lint("table", first+"\n"+d.Input) {
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
	tb := table(t, "collective=reduce nodes=2-4 ppn=2 bytes=4K..64K type=f32 buffer=registered spec=chain # why not")
	at := func(l spec.Layout, q selection.Query) bool { return tb.Find(l, q) != nil }
	layout := func(nodes, ppn int) spec.Layout {
		return spec.LayoutOf(spec.NodesOf(nodes, ppn))
	}
	good := selection.Query{Collective: schedule.Reduce, Bytes: 4 << 10}
	with := func(f func(*selection.Query)) selection.Query {
		q := good
		f(&q)
		return q
	}
	for _, c := range []struct {
		what string
		l    spec.Layout
		q    selection.Query
		want bool
	}{
		{"the first size", layout(2, 2), good, true},
		{"below it", layout(2, 2), with(func(q *selection.Query) { q.Bytes-- }), false},
		{"the last size", layout(2, 2), with(func(q *selection.Query) { q.Bytes = 64<<10 - 1 }), true},
		{"the end", layout(2, 2), with(func(q *selection.Query) { q.Bytes = 64 << 10 }), false},
		{"one node", layout(1, 2), good, false},
		{"four nodes", layout(4, 2), good, true},
		{"five nodes", layout(5, 2), good, false},
		{"three ranks a node", layout(2, 3), good, false},
		{"unequal nodes, two at most", spec.LayoutOf([]int{0, 0, 1}), good, true},
		{"another type", layout(2, 2), with(func(q *selection.Query) { q.Type = mem.Float64 }), false},
		{"other buffers", layout(2, 2), with(func(q *selection.Query) { q.Buffers = selection.Unregistered }), false},
		{"another collective", layout(2, 2), with(func(q *selection.Query) { q.Collective = schedule.Bcast }), false},
	} {
		if got := at(c.l, c.q); got != c.want {
			t.Errorf("%s: matched %v", c.what, got)
		}
	}
}

// Tables of version 1 excluded the end of a range of bytes, and said heap.
func TestVersion1(t *testing.T) {
	old, err := selection.ParseTable("t", `scaffe-table 1
collective=reduce nodes=2-4 bytes=0-4K buffer=heap spec=binomial
collective=reduce nodes=2-4 bytes=4K-64K spec=chain
collective=reduce bytes=64K spec=linear
collective=reduce bytes=64K- spec=direct
`)
	if err != nil {
		t.Fatal(err)
	}
	want := `scaffe-table 2
collective=reduce nodes=2-4 bytes=0..4K buffer=unregistered spec=binomial
collective=reduce nodes=2-4 bytes=4K..64K spec=chain
collective=reduce bytes=64K spec=linear
collective=reduce bytes=64K.. spec=direct
`
	if got := old.String(); got != want {
		t.Errorf("it is now\n%s, not\n%s", got, want)
	}
	if _, err := selection.ParseTable("t", "scaffe-table 1\ncollective=reduce bytes=4K-4K spec=chain\n"); err == nil || !strings.Contains(err.Error(), "t:2: bytes: empty range 4K-4K: the end is excluded") {
		t.Errorf("an empty range: %v", err)
	}
}

// What sizes mean in version 2: FROM..TO without its end, FROM-TO with it.
func TestSizes(t *testing.T) {
	for text, want := range map[string]selection.Range{
		"4K": {From: 4096, To: 4096}, "4K..64K": {From: 4096, To: 65535}, "4K-64K": {From: 4096, To: 65536},
		"..4K": {From: 0, To: 4095}, "-4K": {From: 0, To: 4096}, "4K..": {From: 4096, To: selection.NoLimit}, "4K-": {From: 4096, To: selection.NoLimit},
		"4K-4K": {From: 4096, To: 4096}, "..": {From: 0, To: selection.NoLimit},
	} {
		if got := table(t, "collective=reduce bytes="+text+" spec=chain").Rules[0].Bytes; got != want {
			t.Errorf("%s is %v, not %v", text, got, want)
		}
	}
	for _, text := range []string{"4K..4K", "8K..4K", "8K-4K", "..0", "x..4K", "4K..x"} {
		if tb, err := selection.ParseTable("t", head+"collective=reduce bytes="+text+" spec=chain"); err == nil {
			t.Errorf("%s is accepted as %v", text, tb.Rules[0].Bytes)
		}
	}
}

// The library's rule is for what the library serves; other calls go on.
func TestRuleOfTheLibrary(t *testing.T) {
	tb := table(t, "collective=reduce spec=mpi\ncollective=reduce spec=binomial")
	l := spec.LayoutOf([]int{0, 1})
	for _, c := range []struct {
		q    selection.Query
		want string
	}{
		{selection.Query{Blocking: true, Library: true}, "mpi"},
		{selection.Query{Blocking: false, Library: true}, "binomial"},
		{selection.Query{Blocking: true, Library: false}, "binomial"},
		{selection.Query{Blocking: true, Library: true, Type: mem.BFloat16}, "binomial"},
	} {
		if got := tb.Find(l, c.q).Spec.String(); got != c.want {
			t.Errorf("%+v is served by %s", c.q, got)
		}
	}
}

// FuzzParseTable: what is read is written and read back the same; nothing
// panics, the linter included.
func FuzzParseTable(f *testing.F) {
	f.Add(head + "host x\ngpu y\nlayout nodes=4 ppn=2 ranks=8\nmodel op=1e-6\ncollective=reduce nodes=2-8 ppn=1 bytes=256K..64M type=f32 buffer=heap spec=direct/chain,chunk=512K # x")
	f.Add(head + "collective=bcast bytes=..4K spec=mpi\ncollective=allreduce nodes=3- spec=ring")
	f.Add("scaffe-table 1\ncollective=reduce bytes=4K-64K spec=chain\ncollective=reduce bytes=64K- spec=ring")
	f.Add(head)
	f.Fuzz(func(t *testing.T, text string) {
		selection.Lint("t", text)
		tb, err := selection.ParseTable("t", text)
		if err != nil {
			return
		}
		again, err := selection.ParseTable("t", tb.String())
		if err != nil {
			t.Fatalf("%q is written as %q, which is refused: %v", text, tb, err)
		}
		if again.String() != tb.String() {
			t.Fatalf("%q is written as %q and read back as %q", text, tb, again)
		}
	})
}
