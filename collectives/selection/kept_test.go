package selection_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/schedule/sim"
)

var (
	node  = selection.Node{Machine: selection.Machine{Host: "a test, 2 cores", MPI: "none"}, Cache: 1 << 21, How: "devel"}
	costs = selection.Costs{
		Op: 2e-7, Latency: 1e-6, ShortOp: 3e-8, ShortLatency: 2e-7, Fresh: 5e-11,
		Core: selection.RateCosts{Cached: 1e-11, Shared: 4e-11, Bandwidth: 8e-11},
	}
)

var measured = []selection.Measured{{Date: "2026-01-02", Costs: costs}}

// What is kept is read back, by the same kind of machine with as many ranks, and by no
// other.
func TestKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "scaffe")
	k := selection.Kept{Node: node, PPN: 4, CPUs: 2, Measured: measured}
	if err := k.Save(dir); err != nil {
		t.Fatal(err)
	}
	load := func(n selection.Node, ppn, cpus int) (selection.Kept, bool) {
		t.Helper()
		k := selection.Kept{Node: n, PPN: ppn, CPUs: cpus}
		found, err := k.Load(dir)
		if err != nil {
			t.Error(err)
		}
		return k, found
	}
	if got, found := load(node, 4, 2); !found || !reflect.DeepEqual(got, k) {
		t.Errorf("it reads %v, %v", got, found)
	}
	newer := node
	newer.How = "v2"
	for _, other := range []struct {
		node      selection.Node
		ppn, cpus int
	}{{newer, 4, 2}, {node, 2, 2}, {node, 4, 1}} {
		if _, found := load(other.node, other.ppn, other.cpus); found {
			t.Errorf("%v finds what is kept of another", other)
		}
	}
	if all := selection.AllKept(dir, node); len(all) != 1 || !reflect.DeepEqual(all[0], k) {
		t.Errorf("of the machine, %v is kept", all)
	}
}

// What is kept of a GPU is that of its kind alone, on a machine of that kind, and no machine's; nor is a machine's a GPU's.
func TestKeptGPU(t *testing.T) {
	dir := t.TempDir()
	c := selection.Costs{GPU: selection.GPUCosts{Launch: 8e-6, Memory: 5e-13, Down: selection.CopyCosts{Latency: 1e-5, Byte: 2e-11}, Up: selection.CopyCosts{Latency: 1e-5, Byte: 4e-11}}}
	k := selection.Kept{Node: node, GPU: "one, 80 GiB", Measured: []selection.Measured{{Date: "2026-01-02", Costs: c}}}
	if err := k.Save(dir); err != nil {
		t.Fatal(err)
	}
	elsewhere := node
	elsewhere.Host = "another"
	for _, c := range []struct {
		node selection.Node
		gpu  string
		want bool
	}{{node, k.GPU, true}, {node, "another, 80 GiB", false}, {elsewhere, k.GPU, false}, {node, "", false}} {
		other := selection.Kept{Node: c.node, GPU: c.gpu}
		if found, err := other.Load(dir); err != nil || found != c.want {
			t.Errorf("of %q on %s it is found: %v, %v", c.gpu, c.node.Host, found, err)
		}
	}
	if all := selection.AllKept(dir, node); len(all) > 0 {
		t.Errorf("of the machine, %v is kept", all)
	}
	want := sim.Default()
	want.GPU = sim.GPU{Launch: 8.2e-6, Memory: 2e12, Down: sim.Copies{Latency: 1e-5, Bandwidth: 5.1e10}, Up: sim.Copies{Latency: 1e-5, Bandwidth: 2.4e10}}
	if m := k.Costs().On(sim.Default()); m != want {
		t.Errorf("it comes to %v", m)
	}
}

// Of what several starts measured the one counts that is nearest to the others, as a whole.
func TestKeptNearest(t *testing.T) {
	k := selection.Kept{Node: node, PPN: 4, CPUs: 2}
	if k.Costs() != (selection.Costs{}) || k.Date() != "" {
		t.Errorf("before anything was measured, %v on %q", k.Costs(), k.Date())
	}
	var all []selection.Costs
	for i, scale := range []float64{1, 40, 1.2} { // the second one was disturbed
		v := costs.Values()
		for j := range v {
			v[j] *= scale
		}
		all = append(all, selection.CostsOf(v))
		all[i].Op = costs.Op * []float64{3, 1, 2}[i]
		k.Measured = append(k.Measured, selection.Measured{Date: fmt.Sprintf("2026-01-0%d", i+1), Costs: all[i]})
	}
	if got := k.Costs(); got != all[2] {
		t.Errorf("of %v it is %v, not the third", k.Measured, got)
	}
	if want := "this machine's parameters, measured 3 times, last on 2026-01-03 with 4 ranks"; k.From() != want {
		t.Errorf("they come from %s, not %s", k.From(), want)
	}
}

// A file that was changed or cut off is an error, and nothing is taken from it.
func TestKeptDamaged(t *testing.T) {
	dir := t.TempDir()
	k := selection.Kept{Node: node, PPN: 4, CPUs: 2, Measured: measured}
	if err := k.Save(dir); err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(paths) != 1 {
		t.Fatal(paths, err)
	}
	for _, text := range []string{"", "{", `{}`, `{"Measured":[{"Costs":{"Op":-1}}]}`, `{"Measured":[{"Costs":{"Op":3600}}]}`} {
		if err := os.WriteFile(paths[0], []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		read := selection.Kept{Node: node, PPN: 4, CPUs: 2}
		if found, err := read.Load(dir); found || err == nil || read.Costs() != (selection.Costs{}) {
			t.Errorf("%q reads as %v, %v, %v", text, read, found, err)
		}
		if all := selection.AllKept(dir, node); len(all) != 0 {
			t.Errorf("of %q, %v is kept", text, all)
		}
	}
}

// Costs become rounded parameters, what was not measured stays as it was, and no
// memory is faster than a cache.
func TestCostsOn(t *testing.T) {
	m := costs.On(sim.Default())
	if m.Op != 2e-7 || m.Short.Latency != 2e-7 || m.Core != (sim.Rates{Cached: 1e11, Shared: 2.4e10, Bandwidth: 1.3e10}) || m.Staging != sim.Default().Staging {
		t.Errorf("%v", m)
	}
	disturbed := costs // as a start with eight ranks on two cores measured it
	disturbed.Core = selection.RateCosts{Cached: 9e-12, Shared: 5.5e-11, Bandwidth: 2.7e-11}
	disturbed.Memory = selection.RateCosts{Cached: 2.3e-12, Shared: 8.8e-11, Bandwidth: 4.8e-11}
	if m := disturbed.On(sim.Default()); m.Core != (sim.Rates{Cached: 1.1e11, Shared: 3.6e10, Bandwidth: 3.6e10}) || m.Memory.Bandwidth != 1.1e10 {
		t.Errorf("with the shared cache slower than memory, copies go at %v, and memory at %v", m.Core, m.Memory)
	}
	rapid.Check(t, func(t *rapid.T) {
		v := costs.Values()
		for i := range v {
			v[i] = rapid.Float64Range(0, 1e-3).Draw(t, "cost")
		}
		c := selection.CostsOf(v)
		m := c.On(sim.Default())
		if again, err := sim.ParseModel(m.String()); err != nil || again != m {
			t.Fatalf("%v is read back as %v (%v)", m, again, err)
		}
		for _, r := range []sim.Rates{m.Core, m.Memory, m.Staging} {
			if r.Shared > r.Cached || r.Bandwidth > r.Shared {
				t.Fatalf("%v has the rates %v", c, r)
			}
		}
		if c.Op > 1e-9 && math.Abs(m.Op/c.Op-1) > 0.1 {
			t.Fatalf("%g s is rounded to %g", c.Op, m.Op)
		}
	})
}
