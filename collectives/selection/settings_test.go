package selection_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/collectives/spec"
)

// settings sets the environment and writes the files of a case of precedence.
func settings(t *testing.T, present func(string) bool) (f selection.Flags) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "config"))
	t.Setenv(selection.EnvAlgorithm, "")
	t.Setenv(selection.EnvTable, "")
	file := func(path, how string) string {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(head+"collective=reduce spec="+how+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if present("--algorithm") {
		f.Spec = parse(t, "chain:2/chain")
	}
	if present("--table") {
		f.Table = file(filepath.Join(dir, "flag"), "chain:3/chain")
	}
	if present("environment's spec") {
		t.Setenv(selection.EnvAlgorithm, "chain:4/chain")
	}
	if present("environment's table") {
		t.Setenv(selection.EnvTable, file(filepath.Join(dir, "environment"), "chain:5/chain"))
	}
	if present("user's table") {
		file(selection.UserTable(), "chain:6/chain")
	}
	return f
}

// Of all that may decide, in every combination, the highest does.
func TestPrecedence(t *testing.T) {
	order := []string{"call", "--algorithm", "--table", "environment's spec", "environment's table", "user's table"}
	for set := range 1 << len(order) {
		present := func(name string) bool { return set&(1<<slices.Index(order, name)) != 0 }
		s, err := selection.NewSelector(settings(t, present))
		if err != nil {
			t.Fatal(err)
		}
		var asked spec.Spec
		if present("call") {
			asked = parse(t, "chain:1/chain")
		}
		c, err := s.Select(spec.LayoutOf([]int{0, 0}), selection.Query{Bytes: 1 << 20}, asked)
		if err != nil {
			t.Fatal(err)
		}
		want := "model"
		for i, name := range order {
			if present(name) {
				want = fmt.Sprintf("chain:%d/chain", i+1)
				break
			}
		}
		if got := c.Spec.String(); got != want && !(want == "model" && c.Source == "model") {
			t.Errorf("with %06b it is %s (%s), not %s", set, got, c.Why, want)
		}
	}
}

// The word tuned asks for no spec: as the flag it outranks the environment's, but no
// table; in the environment it stands for nothing.
func TestTuned(t *testing.T) {
	const model = "model"
	for _, c := range []struct {
		present     []string
		flag        bool
		environment string
		want        string
	}{
		{nil, true, "chain:4/chain", model},
		{nil, true, "no spec", model},
		{nil, false, "tuned", model},
		{[]string{"--table"}, true, "chain:4/chain", "chain:3/chain"},
		{[]string{"environment's table"}, true, "chain:4/chain", "chain:5/chain"},
		{[]string{"user's table"}, true, "chain:4/chain", "chain:6/chain"},
		{[]string{"user's table"}, false, "tuned", "chain:6/chain"},
		{[]string{"user's table"}, false, "chain:4/chain", "chain:4/chain"},
	} {
		flags := settings(t, func(name string) bool { return slices.Contains(c.present, name) })
		flags.Tuned = c.flag
		t.Setenv(selection.EnvAlgorithm, c.environment)
		s, err := selection.NewSelector(flags)
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		choice, err := s.Select(spec.LayoutOf([]int{0, 0}), selection.Query{Bytes: 1 << 20}, spec.Spec{})
		if got := choice.Spec.String(); err != nil || got != c.want && choice.Source != c.want {
			t.Errorf("%+v: %s (%s), %v", c, got, choice.Source, err)
		}
	}
}

// What cannot be satisfied is an error that says who asked.
func TestUnsatisfiable(t *testing.T) {
	none := func(string) bool { return false }
	two := spec.LayoutOf([]int{0, 0})
	for _, c := range []struct{ name, env, table, want string }{
		{"ring for a reduce", "ring", "", "SCAFFE_ALGORITHM: spec ring is for allreduce, allgather and reduce_scatter"},
		{"no library", "mpi", "", "SCAFFE_ALGORITHM: spec mpi: the MPI library's own needs a program started by mpirun"},
		{"no spec", "tree", "", `SCAFFE_ALGORITHM: algorithm spec "tree"`},
		{"no file", "", "/nowhere/table", "SCAFFE_TABLE: tuning table: open /nowhere/table"},
		{"not a table", "", os.DevNull, "the file is empty"},
	} {
		t.Run(c.name, func(t *testing.T) {
			flags := settings(t, none)
			t.Setenv(selection.EnvAlgorithm, c.env)
			t.Setenv(selection.EnvTable, c.table)
			s, err := selection.NewSelector(flags)
			if err == nil {
				_, err = s.Select(two, selection.Query{Bytes: 8}, spec.Spec{})
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("it ended with %v, without %q", err, c.want)
			}
		})
	}
	flags := settings(t, func(name string) bool { return name == "user's table" })
	t.Setenv(selection.EnvTable, "none")
	if s, err := selection.NewSelector(flags); err != nil || len(s.Sources) != 0 {
		t.Errorf("with %s=none there are %d sources, %v", selection.EnvTable, len(s.Sources), err)
	}
}

// A table made elsewhere is used, and said to be.
func TestWarnings(t *testing.T) {
	tb := table(t, "host A\nmpi B\ngpu C\nlayout nodes=4 ppn=2 ranks=8\ncollective=reduce nodes=4 ppn=2 spec=chain")
	eight := spec.LayoutOf(spec.NodesOf(4, 2))
	for _, c := range []struct {
		m    selection.Machine
		l    spec.Layout
		want []string
	}{
		{selection.Machine{Host: "A", MPI: "B"}, eight, nil},
		{selection.Machine{}, eight, nil},
		{selection.Machine{Host: "X", MPI: "B"}, eight, []string{"another machine (host: A; here: X)"}},
		{selection.Machine{Host: "A", MPI: "Y"}, eight, []string{"another machine (MPI: B; here: Y)"}},
		{selection.Machine{Host: "A", MPI: "B", GPU: "C"}, eight, nil},
		{selection.Machine{Host: "A", MPI: "B", GPU: "Z"}, eight, []string{"another machine (GPU: C; here: Z)"}},
		{selection.Machine{Host: "A", MPI: "B"}, spec.LayoutOf([]int{0, 1}), []string{"was tuned for 4 nodes × 2 ranks, this is 2 nodes × 1 rank", "no line for 2 nodes × 1 rank"}},
	} {
		got := tb.Warnings(c.m, c.l)
		if len(got) != len(c.want) {
			t.Errorf("%v, %v: %q", c.m, c.l, got)
			continue
		}
		for i := range got {
			if !strings.Contains(got[i], c.want[i]) {
				t.Errorf("%q is not in %q", c.want[i], got[i])
			}
		}
	}
}
