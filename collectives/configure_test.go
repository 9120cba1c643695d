package collectives_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/scaffe/scaffe/collectives"
	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/kernels/device"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/inproc"
	"github.com/scaffe/scaffe/schedule"
)

// fresh leaves nothing in the environment that may decide, and returns a table file
// with the given lines.
func fresh(t *testing.T, lines string) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "config"))
	t.Setenv(selection.EnvAlgorithm, "")
	t.Setenv(selection.EnvTable, "")
	file := filepath.Join(dir, "table")
	if err := os.WriteFile(file, []byte("scaffe-table 2\n"+lines), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// configured runs f on n ranks, each on a node of its own and with its own
// options, after Configure.
func configured(t *testing.T, opts []collectives.Options, f func(c *collectives.Comm, warnings []string) error) []error {
	t.Helper()
	nodes := make([]int, len(opts))
	for r := range nodes {
		nodes[r] = r
	}
	w := inproc.NewWorld(len(opts), inproc.Options{Nodes: nodes})
	errs := make([]error, len(opts))
	var wg sync.WaitGroup
	for r := range opts {
		k, err := kernels.NewCPU()
		if err != nil {
			t.Fatal(err)
		}
		e, err := nbc.Start(w.Open(r), device.CPU(k), nbc.Options{Deadline: 10 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = e.Close() }()
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
	opts := make([]collectives.Options, 5)
	opts[0].Table = fresh(t, "collective=reduce spec=chain:3/chain\n")
	opts[3].Table = "/nowhere/else"
	var mu sync.Mutex
	choices := map[string]int{}
	for _, err := range configured(t, opts, func(c *collectives.Comm, _ []string) error {
		sub, err := c.Split(context.Background(), 0, -c.Rank())
		if err != nil {
			return err
		}
		for _, on := range []*collectives.Comm{c, sub} {
			for v := schedule.Reduce; v <= schedule.Allreduce; v++ {
				for bytes := 1; bytes < 1<<28; bytes *= 7 {
					choice, err := on.Select(selection.Query{Collective: v, Bytes: bytes}, spec.Spec{})
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
	fresh(t, "")
	opts := make([]collectives.Options, 3)
	opts[0].Table = "/nowhere/table"
	for r, err := range configured(t, opts, func(*collectives.Comm, []string) error { return nil }) {
		if err == nil || !strings.Contains(err.Error(), "rank 0: --table: tuning table: open /nowhere/table") {
			t.Errorf("rank %d ended with %v", r, err)
		}
	}
}

// The network is measured where that is asked for and no table knows, with one
// result on all ranks.
func TestMeasure(t *testing.T) {
	for _, c := range []struct {
		measure bool
		model   string
		want    string
	}{
		{false, "", "default parameters"},
		{true, "", "this machine's parameters, measured on "},
		{true, "model inter.latency=1e-06\n", "parameters of "},
	} {
		o := collectives.Options{Measure: c.measure, Table: fresh(t, c.model)}
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
		q := selection.Query{Collective: schedule.Allreduce, Bytes: 1 << 20}
		n := testing.AllocsPerRun(100, func() {
			if _, err := c.Select(q, spec.Spec{}); err != nil {
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
