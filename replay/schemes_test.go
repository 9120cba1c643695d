package replay_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/replay"
	"github.com/scaffe/scaffe/replay/workload"
	"github.com/scaffe/scaffe/syncer/coordinator"
)

// schemesOf returns the audit of a built-in profile on nodes of one rank.
func schemesOf(t *testing.T, profile string, nodes int, asked coordinator.Scheme) *coordinator.Audit {
	t.Helper()
	p, err := workload.Builtin(profile)
	if err != nil {
		t.Fatal(err)
	}
	all := coordinator.Places{All: true}
	a, err := replay.Schemes(p, coordinator.Config{Nodes: spec.NodesOf(nodes, 1), Workers: all, Servers: all}, coordinator.Asked{Default: asked}, selection.Default())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Section 5.1: Poseidon reduces to a parameter server for GoogLeNet, whose inner
// products are thin and whose batches are 128, on 16 nodes.
func TestPoseidon_GoogLeNetIsAllPS(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates for long")
	}
	for _, r := range schemesOf(t, "googlenet-titanx", 16, coordinator.Poseidon).Rows {
		if r.Choice != coordinator.PS {
			t.Errorf("%s: %v: %s", r.Layer.Name, r.Choice, r.Reason)
		}
	}
}

// Section 5.3, Figure 10: the Gbit that a node sends and receives in an iteration of
// VGG19 on 8 nodes, by Table 1.
func TestPoseidon_Figure10(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates for long")
	}
	a := schemesOf(t, "vgg19-titanx", 8, coordinator.Poseidon)
	var ps, poseidon, server, worker float64 // values
	for i, r := range a.Rows {
		l := r.Layer
		all := coordinator.PSCost(l.Elements(), 8, 8).Both
		ps += all
		poseidon += r.Of(r.Choice).Bytes / 4
		if l.Rows == 0 {
			server, worker = server+all, worker+all
			continue
		}
		adam := coordinator.AdamCost(l.Rows*l.Cols, l.Rows, l.Cols, 32, 8)
		worker += adam.Worker
		if i == len(a.Rows)-3 { // fc6, at this node
			server += adam.Both
		} else {
			server += adam.Worker
		}
	}
	for what, c := range map[string][2]float64{"caffe+wfbp": {ps, 16.1}, "poseidon": {poseidon, 2.85}, "adam, most": {server, 26.2}, "adam, least": {worker, 6.2}} {
		if gbit := c[0] * 32 / 1e9; math.Abs(gbit-c[1]) > 0.03*c[1] {
			t.Errorf("%s: %.3g Gbit, the paper has %.3g", what, gbit, c[1])
		}
	}
}

// What sfb computes more is the product of the other workers' factors: half a
// backward pass each.
func TestSchemesCountProducts(t *testing.T) {
	p, err := workload.Parse("x", "batch 4\nlayer relu ReLU 1 1\nlayer conv Convolution 1 1 9\nlayer fc InnerProduct 1 1000 8x8 8")
	if err != nil {
		t.Fatal(err)
	}
	all := coordinator.Places{All: true}
	a, err := replay.Schemes(p, coordinator.Config{Nodes: spec.NodesOf(3, 1), Workers: all, Servers: all}, coordinator.Asked{}, selection.Default())
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Rows) != 2 || a.Rows[1].Choice == coordinator.SFB {
		t.Fatalf("%+v", a.Rows)
	}
	if sfb := a.Rows[1].Of(coordinator.SFB).Time; sfb < time.Second || sfb > time.Second+time.Millisecond {
		t.Errorf("sfb takes %v", sfb)
	}
	if _, err := replay.Schemes(p, coordinator.Config{Nodes: spec.NodesOf(3, 1), Workers: all, Servers: coordinator.Places{Count: 4}}, coordinator.Asked{}, selection.Default()); err == nil {
		t.Error("more servers than ranks are no error")
	}
}

// On networks from slow to fast, the iteration that is predicted with auto's schemes is no longer than that with
// Poseidon's or with one scheme for all, but for what predictions are worth.
func TestAutoHasTheLeastIteration(t *testing.T) {
	p, err := workload.Builtin("googlenet-titanx")
	if err != nil {
		t.Fatal(err)
	}
	vgg, err := workload.Builtin("vgg19-titanx")
	if err != nil {
		t.Fatal(err)
	}
	if vgg, err = vgg.Shrink(0.02); err != nil {
		t.Fatal(err)
	}
	all := coordinator.Places{All: true}
	for _, c := range []struct {
		p     *workload.Profile
		nodes int
		rate  float64 // bytes a second
	}{{vgg, 4, 10e6}, {vgg, 8, 40e6}, {vgg, 8, 1e9}, {p, 4, 100e6}} {
		if testing.Short() && c.nodes > 4 {
			continue // a quarter of a minute with the race detector
		}
		s := selection.Default()
		s.Model.Inter.Bandwidth = c.rate
		ask := func(asked coordinator.Scheme) *coordinator.Audit {
			a, err := replay.Schemes(c.p, coordinator.Config{Nodes: spec.NodesOf(c.nodes, 1), Workers: all, Servers: all}, coordinator.Asked{Default: asked}, s)
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
		a := ask(coordinator.Auto)
		if a.Iterations == nil || a.Iterations.Chosen < c.p.Forward()+c.p.Backward() {
			t.Fatalf("%s, %d nodes, %.3g: %+v", c.p.Name, c.nodes, c.rate, a.Iterations)
		}
		if len(a.Iterations.Weighed) < 3 {
			t.Errorf("%s: only %v weighed", c.p.Name, a.Iterations.Weighed)
		}
		for _, w := range a.Iterations.Weighed {
			if float64(a.Iterations.Chosen) > 1.03*float64(w.Time) {
				t.Errorf("%s, %d nodes, %.3g: %v as chosen, %v with %s", c.p.Name, c.nodes, c.rate, a.Iterations.Chosen, w.Time, w.Name)
			}
		}
		if b := ask(coordinator.Auto); !slices.Equal(a.Schemes(), b.Schemes()) {
			t.Errorf("%s, %d nodes, %.3g: %v, then %v", c.p.Name, c.nodes, c.rate, a.Chosen(), b.Chosen())
		}
	}
}

// P3, section 4.2: with servers apart, on a network that computation waits for, slices go up while others come down, and auto
// takes them; where there is bandwidth enough it does not.
func TestP3_AutoSlicesForServersApart(t *testing.T) {
	p, err := workload.Builtin("resnet50-titanx")
	if err != nil {
		t.Fatal(err)
	}
	for rate, want := range map[float64]coordinator.Slice{450e6: 50_000, 50e9: coordinator.AutoSlice} {
		s := selection.Default()
		s.Model.Inter.Bandwidth = rate
		a, err := replay.Schemes(p, coordinator.Config{
			Nodes:   spec.NodesOf(8, 1),
			Workers: coordinator.Places{Ranks: []int{0, 1, 2, 3}}, Servers: coordinator.Places{Ranks: []int{4, 5, 6, 7}}, MaySlice: 50_000,
		}, coordinator.Asked{}, s)
		if err != nil {
			t.Fatal(err)
		}
		if a.Book.Slice != want {
			t.Errorf("at %.3g bytes a second slices of %v, want %v:\n%s", rate, a.Book.Slice, want, strings.Join(a.Text(), "\n"))
		}
	}
}
