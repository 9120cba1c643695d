package workload

import (
	"math"
	"strings"
	"testing"
	"time"
)

// Every built-in profile sums to what was published, says where, and is a
// file that reads as it was written.
func TestBuiltins(t *testing.T) {
	if len(Builtins()) != len(published) {
		t.Fatalf("%d names of %d", len(Builtins()), len(published))
	}
	for _, b := range published {
		name := b.net + "-" + b.gpu
		p, err := Builtin(name)
		if err != nil {
			t.Error(err)
			continue
		}
		want := float64(b.batch) / b.rate * 1e3
		got := p.Compute()
		if b.rate == 0 {
			want, got = b.forward+b.backward, p.Forward()+p.Backward()
			if math.Abs(p.Forward().Seconds()*1e3-b.forward) > 0.001 {
				t.Errorf("%s: forward %v, published %v ms", name, p.Forward(), b.forward)
			}
		}
		if math.Abs(got.Seconds()*1e3-want) > 0.001 {
			t.Errorf("%s: %v, published %v ms", name, got, want)
		}
		if !strings.Contains(p.Source, b.source) || !strings.Contains(p.Source, "per-layer times: published total, spread by FLOPs") {
			t.Errorf("%s: source %q", name, p.Source)
		}
		again, err := Parse(name, p.String())
		if err != nil || again.String() != p.String() {
			t.Errorf("%s: text form: %v", name, err)
		}
		for _, l := range p.Layers {
			if l.Elements() > 0 && l.Backward < time.Microsecond {
				t.Errorf("%s: layer %s learns in %v", name, l.Name, l.Backward)
			}
		}
	}
	if _, err := Builtin("alexnet-abacus"); err == nil || !strings.Contains(err.Error(), "alexnet-k80") {
		t.Error(err)
	}
}

// Time falls to layers by their work: with memory that costs nothing by
// multiply-adds alone, a backward pass being two products, or one in the first
// layer.
func TestSpread(t *testing.T) {
	w := &Work{Layers: []LayerWork{
		{Name: "first", Type: "Convolution", Params: []int{8}, MACs: 100, Values: 10, Weights: true},
		{Name: "relu", Type: "ReLU", Values: 100, Data: true},
		{Name: "last", Type: "InnerProduct", Params: []int{80}, MACs: 300, Values: 10, Data: true, Weights: true},
	}}
	p, err := w.Spread(Machine{FLOPS: 1, Bandwidth: 1e30}, Published{Batch: 4, Total: 1100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][2]time.Duration{{100, 100}, {0, 0}, {300, 600}} {
		if l := p.Layers[i]; l.Forward != want[0]*time.Millisecond || l.Backward != want[1]*time.Millisecond {
			t.Errorf("%s: %v and %v, want %d and %d ms", l.Name, l.Forward, l.Backward, want[0], want[1])
		}
	}
	// By bytes alone: values of the batch, and parameters once; the update takes
	// five accesses to 88 parameters, 1760 bytes of 1 GB/s.
	p, err = w.Spread(Machine{FLOPS: 1e30, Bandwidth: 1e9}, Published{Batch: 1, Forward: 216 * time.Millisecond, Backward: 406 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if p.Update != 1760*time.Nanosecond {
		t.Errorf("update %v", p.Update)
	}
	for i, want := range []time.Duration{18, 200, 180} {
		if l := p.Layers[i]; math.Abs((l.Backward - want*time.Millisecond*406/398).Seconds()) > 1e-6 {
			t.Errorf("%s: backward %v", l.Name, l.Backward)
		}
	}
	if _, err := w.Spread(Machine{FLOPS: 1, Bandwidth: 1e9}, Published{Batch: 1, Total: time.Microsecond}); err == nil {
		t.Error("an update longer than the iteration is no error")
	}
	if _, err := w.Spread(Machine{}, Published{Batch: 1, Total: time.Second}); err == nil {
		t.Error("a machine without speed is no error")
	}
}
