package collectives_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/inproc"
)

// settings sets the environment and writes the files of a case of precedence.
func settings(t *testing.T, present func(string) bool) collectives.Options {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "config"))
	t.Setenv(collectives.EnvAlgorithm, "")
	t.Setenv(collectives.EnvTable, "")
	file := func(path, spec string) string {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(head+"collective=reduce spec="+spec+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	var o collectives.Options
	if present("--algorithm") {
		o.Spec = spec(t, "chain:2/chain")
	}
	if present("--table") {
		o.Table = file(filepath.Join(dir, "flag"), "chain:3/chain")
	}
	if present("environment's spec") {
		t.Setenv(collectives.EnvAlgorithm, "chain:4/chain")
	}
	if present("environment's table") {
		t.Setenv(collectives.EnvTable, file(filepath.Join(dir, "environment"), "chain:5/chain"))
	}
	if present("user's table") {
		file(collectives.UserTable(), "chain:6/chain")
	}
	return o
}

// Of all that may decide, in every combination, the highest does.
func TestPrecedence(t *testing.T) {
	order := []string{"call", "--algorithm", "--table", "environment's spec", "environment's table", "user's table"}
	for set := range 1 << len(order) {
		present := func(name string) bool { return set&(1<<slices.Index(order, name)) != 0 }
		s, err := collectives.NewSelector(settings(t, present))
		if err != nil {
			t.Fatal(err)
		}
		var asked collectives.Spec
		if present("call") {
			asked = spec(t, "chain:1/chain")
		}
		c, err := s.Select(collectives.LayoutOf([]int{0, 0}), collectives.Query{Bytes: 1 << 20}, asked)
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

// What cannot be satisfied is an error that says who asked.
func TestUnsatisfiable(t *testing.T) {
	none := func(string) bool { return false }
	two := collectives.LayoutOf([]int{0, 0})
	for _, c := range []struct{ name, env, table, want string }{
		{"ring for a reduce", "ring", "", "SCAFFE_ALGORITHM: spec ring is for allreduce alone"},
		{"no library", "mpi", "", "SCAFFE_ALGORITHM: spec mpi: the MPI library's own needs a program started by mpirun"},
		{"no spec", "tree", "", `SCAFFE_ALGORITHM: algorithm spec "tree"`},
		{"no file", "", "/nowhere/table", "SCAFFE_TABLE: tuning table: open /nowhere/table"},
		{"not a table", "", os.DevNull, "the file is empty"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := settings(t, none)
			t.Setenv(collectives.EnvAlgorithm, c.env)
			t.Setenv(collectives.EnvTable, c.table)
			s, err := collectives.NewSelector(o)
			if err == nil {
				_, err = s.Select(two, collectives.Query{Bytes: 8}, collectives.Spec{})
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("it ended with %v, without %q", err, c.want)
			}
		})
	}
	o := settings(t, func(name string) bool { return name == "user's table" })
	t.Setenv(collectives.EnvTable, "none")
	if s, err := collectives.NewSelector(o); err != nil || len(s.Sources) != 0 {
		t.Errorf("with %s=none there are %d sources, %v", collectives.EnvTable, len(s.Sources), err)
	}
}

// apart is a transport whose ranks are on a node each.
type apart struct{ nbc.Transport }

func (t apart) Nodes() []int {
	nodes := make([]int, t.Size())
	for r := range nodes {
		nodes[r] = r
	}
	return nodes
}

// configured runs f on n ranks, each on a node of its own and with its own
// options, after Configure.
func configured(t *testing.T, opts []collectives.Options, f func(c *collectives.Comm, warnings []string) error) []error {
	t.Helper()
	w := inproc.NewWorld(len(opts), inproc.Options{})
	errs := make([]error, len(opts))
	var wg sync.WaitGroup
	for r := range opts {
		k, err := kernels.NewCPU()
		if err != nil {
			t.Fatal(err)
		}
		open := func() (nbc.Transport, error) {
			inner, err := w.Open(r)()
			return apart{inner}, err
		}
		e, err := nbc.Start(open, nbc.CPU(k), nbc.Options{Deadline: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			c := collectives.World(e, opts[r])
			warnings, err := c.Configure(context.Background())
			if err == nil {
				err = f(c, warnings)
			}
			if err == nil {
				err = c.Barrier(context.Background())
			}
			errs[r] = err
		})
	}
	wg.Wait()
	return errs
}

// Ranks with different files and options select as rank 0 does, on
// communicators made later too.
func TestRanksSelectAlike(t *testing.T) {
	o := settings(t, func(name string) bool { return name == "--table" })
	opts := make([]collectives.Options, 5)
	opts[0] = o
	opts[3].Table = "/nowhere/else"
	var mu sync.Mutex
	choices := map[string]int{}
	for _, err := range configured(t, opts, func(c *collectives.Comm, _ []string) error {
		sub, err := c.Split(context.Background(), 0, -c.Rank())
		if err != nil {
			return err
		}
		for _, on := range []*collectives.Comm{c, sub} {
			for v := collectives.Reduce; v <= collectives.Allreduce; v++ {
				for bytes := 1; bytes < 1<<28; bytes *= 7 {
					choice, err := on.Select(collectives.Query{Verb: v, Bytes: bytes}, collectives.Spec{})
					if err != nil {
						return err
					}
					mu.Lock()
					choices[fmt.Sprint(v, bytes, choice.Spec, choice.Source)]++
					mu.Unlock()
				}
			}
		}
		v := mem.Of([]int64{int64(c.Rank())})
		return c.Reduce(context.Background(), v, v, mem.Int64, mem.Sum, 2)
	}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for c, n := range choices {
		if n != 2*len(opts) {
			t.Errorf("%d of %d ranks and communicators chose %s", n, 2*len(opts), c)
		}
	}
	if len(choices) != 3*10 {
		t.Errorf("%d choices", len(choices))
	}
}

// An error of rank 0's is everybody's.
func TestConfigureFailsTogether(t *testing.T) {
	settings(t, func(string) bool { return false })
	opts := make([]collectives.Options, 3)
	opts[0].Table = "/nowhere/table"
	for r, err := range configured(t, opts, func(*collectives.Comm, []string) error { return nil }) {
		if err == nil || !strings.Contains(err.Error(), "rank 0: --table: tuning table: open /nowhere/table") {
			t.Errorf("rank %d ended with %v", r, err)
		}
	}
}

// A table made elsewhere is used, and said to be.
func TestWarnings(t *testing.T) {
	tb := table(t, "host A\nmpi B\nlayout nodes=4 ppn=2 ranks=8\ncollective=reduce nodes=4 ppn=2 spec=chain")
	eight := collectives.LayoutOf(collectives.NodesOf(4, 2))
	for _, c := range []struct {
		m    collectives.Machine
		l    collectives.Layout
		want []string
	}{
		{collectives.Machine{Host: "A", MPI: "B"}, eight, nil},
		{collectives.Machine{}, eight, nil},
		{collectives.Machine{Host: "X", MPI: "B"}, eight, []string{"another machine (host: A; here: X)"}},
		{collectives.Machine{Host: "A", MPI: "Y"}, eight, []string{"another machine (MPI: B; here: Y)"}},
		{collectives.Machine{Host: "A", MPI: "B"}, collectives.LayoutOf([]int{0, 1}), []string{"was tuned for 4 nodes × 2 ranks, this is 2 nodes × 1 rank", "no line for 2 nodes × 1 rank"}},
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

// The network is measured where that is asked for and no table knows, with one
// result on all ranks.
func TestMeasure(t *testing.T) {
	o := settings(t, func(string) bool { return false })
	for _, c := range []struct {
		measure bool
		model   string
		want    string
	}{
		{false, "", "default parameters"},
		{true, "", "parameters measured at start"},
		{true, "model inter.latency=1e-06\n", "parameters of "},
	} {
		o.Measure, o.Table = c.measure, filepath.Join(t.TempDir(), "t")
		if err := os.WriteFile(o.Table, []byte(head+c.model), 0o644); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		models := map[string]bool{}
		for r, err := range configured(t, []collectives.Options{o, o, o}, func(c *collectives.Comm, _ []string) error {
			mu.Lock()
			defer mu.Unlock()
			models[c.Selector().From+c.Selector().Model.String()] = true
			return nil
		}) {
			if err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		}
		for m := range models {
			if len(models) != 1 || !strings.HasPrefix(m, c.want) {
				t.Errorf("%d models, one of %s, not of %q", len(models), m, c.want)
			}
		}
	}
}

// A kept choice costs nothing to look up.
func TestSelectAllocatesNothing(t *testing.T) {
	for _, err := range configured(t, make([]collectives.Options, 1), func(c *collectives.Comm, _ []string) error {
		q := collectives.Query{Verb: collectives.Allreduce, Bytes: 1 << 20}
		n := testing.AllocsPerRun(100, func() {
			if _, err := c.Select(q, collectives.Spec{}); err != nil {
				t.Error(err)
			}
		})
		if n != 0 {
			return fmt.Errorf("%v allocations", n)
		}
		return nil
	}) {
		if err != nil {
			t.Error(err)
		}
	}
}
