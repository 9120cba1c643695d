package collectives

import (
	"context"
	"strings"
	"testing"
	"unsafe"

	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/kernels/device"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/inproc"
	"github.com/scaffe/scaffe/schedule"
)

// Wrong arguments of an allgather are refused by the call itself.
func TestAllgatherArguments(t *testing.T) {
	k, err := kernels.NewCPU()
	if err != nil {
		t.Fatal(err)
	}
	world := inproc.NewWorld(2, inproc.Options{})
	comms := make([]*Comm, 2)
	for r := range comms {
		e, err := nbc.Start(world.Open(r), device.CPU(k), nbc.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = e.Close() }()
		comms[r] = World(e, Options{})
	}
	c := comms[1]
	bytes := make([]byte, 64)
	b := func(from, to int) mem.Buffer { return mem.Of(bytes[from:to]) }
	for name, x := range map[string]struct {
		send, recv mem.Buffer
		counts     []int
		opts       []Option
		want       string
	}{
		"too few counts":     {b(0, 8), b(16, 32), []int{4}, nil, "needs the counts of all 2 ranks, in their order (got 1)"},
		"a negative count":   {b(0, 8), b(16, 32), []int{-1, 5}, nil, "the count of rank 0 must not be negative (got -1)"},
		"too much":           {b(0, 8), b(16, 32), []int{3, 2}, nil, "it has 4 elements, their counts are 3, 2"},
		"an overflow":        {b(0, 8), b(16, 32), []int{1 << 62, 1 << 62}, nil, "must hold all parts"},
		"another part":       {b(0, 8), b(16, 32), []int{3, 1}, nil, "the send buffer has 2 elements, but this rank's part has 1"},
		"no equal parts":     {b(0, 8), b(16, 28), nil, nil, "has 3 elements, which are not equal parts of 2 ranks"},
		"bytes":              {b(0, 7), b(16, 32), nil, nil, "the send buffer has 7 bytes, which are not whole elements of f32"},
		"other rank's place": {b(16, 24), b(16, 32), nil, nil, "is not this rank's part of it"},
		"partly":             {b(28, 36), b(16, 32), nil, nil, "is not this rank's part of it"},
		"cuts":               {b(0, 8), b(16, 32), nil, []Option{Parts(1)}, "option Parts does not go with an allgather"},
		"device memory":      {mem.At(unsafe.Pointer(&bytes[0]), 8, mem.CUDA), b(16, 32), nil, nil, "the send buffer lies in cuda memory"},
	} {
		t.Run(name, func(t *testing.T) {
			_, inited := c.AllgatherInit(x.send, x.recv, x.counts, mem.Float32, x.opts...)
			_, started := c.Iallgather(x.send, x.recv, x.counts, mem.Float32, x.opts...)
			for form, err := range map[string]error{
				"Allgather": c.Allgather(context.Background(), x.send, x.recv, x.counts, mem.Float32, x.opts...), "Iallgather": started, "AllgatherInit": inited,
			} {
				if err == nil || !strings.Contains(err.Error(), x.want) {
					t.Errorf("%s ends with %v, without %q", form, err, x.want)
				}
			}
		})
	}
	if err := c.Do(context.Background(), Call{Collective: 99}); err == nil || !strings.Contains(err.Error(), "unknown collective(99)") {
		t.Errorf("an unknown collective ends with %v", err)
	}
	_, err = c.Init(Call{Collective: schedule.Allgather, Send: b(0, 8), Recv: b(16, 32)})
	if err != nil {
		t.Error(err)
	}
}

// Wrong arguments of a reduce-scatter are refused by the call itself.
func TestReduceScatterArguments(t *testing.T) {
	k, err := kernels.NewCPU()
	if err != nil {
		t.Fatal(err)
	}
	world := inproc.NewWorld(2, inproc.Options{})
	comms := make([]*Comm, 2)
	for r := range comms {
		e, err := nbc.Start(world.Open(r), device.CPU(k), nbc.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = e.Close() }()
		comms[r] = World(e, Options{})
	}
	c := comms[1]
	bytes := make([]byte, 64)
	b := func(from, to int) mem.Buffer { return mem.Of(bytes[from:to]) }
	for name, x := range map[string]struct {
		send, recv mem.Buffer
		counts     []int
		opts       []Option
		want       string
	}{
		"too few counts":     {b(16, 32), b(0, 8), []int{4}, nil, "needs the counts of all 2 ranks, in their order (got 1)"},
		"too much":           {b(16, 32), b(0, 8), []int{3, 2}, nil, "the send buffer must hold all parts: it has 4 elements, their counts are 3, 2"},
		"another part":       {b(16, 32), b(0, 8), []int{3, 1}, nil, "the receive buffer has 2 elements, but this rank's part has 1"},
		"no equal parts":     {b(16, 28), b(0, 8), nil, nil, "the send buffer has 3 elements, which are not equal parts of 2 ranks"},
		"other rank's place": {b(16, 32), b(16, 24), nil, nil, "the receive buffer overlaps the send buffer, but is not this rank's part of it"},
		"cuts":               {b(16, 32), b(0, 8), nil, []Option{Parts(1)}, "option Parts does not go with a reduce_scatter"},
		"a spec without":     {b(16, 32), b(0, 8), nil, []Option{With(spec.Spec{Levels: []spec.Level{{Algorithm: "doubling"}}})}, "spec doubling is for allreduce and allgather"},
	} {
		t.Run(name, func(t *testing.T) {
			_, inited := c.ReduceScatterInit(x.send, x.recv, x.counts, mem.Float32, mem.Sum, x.opts...)
			_, started := c.IreduceScatter(x.send, x.recv, x.counts, mem.Float32, mem.Sum, x.opts...)
			for form, err := range map[string]error{
				"ReduceScatter":  c.ReduceScatter(context.Background(), x.send, x.recv, x.counts, mem.Float32, mem.Sum, x.opts...),
				"IreduceScatter": started, "ReduceScatterInit": inited,
			} {
				if err == nil || !strings.Contains(err.Error(), x.want) {
					t.Errorf("%s ends with %v, without %q", form, err, x.want)
				}
			}
		})
	}
}

// Wrong arguments of an alltoall are refused by the call itself.
func TestAlltoallArguments(t *testing.T) {
	k, err := kernels.NewCPU()
	if err != nil {
		t.Fatal(err)
	}
	world := inproc.NewWorld(2, inproc.Options{})
	comms := make([]*Comm, 2)
	for r := range comms {
		e, err := nbc.Start(world.Open(r), device.CPU(k), nbc.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = e.Close() }()
		comms[r] = World(e, Options{})
	}
	c := comms[1]
	bytes := make([]byte, 64)
	b := func(from, to int) mem.Buffer { return mem.Of(bytes[from:to]) }
	for name, x := range map[string]struct {
		send, recv mem.Buffer
		opts       []Option
		want       string
	}{
		"unequal blocks": {b(0, 12), b(16, 28), nil, "the buffers have 3 elements, which are not equal blocks for 2 ranks"},
		"other lengths":  {b(0, 16), b(16, 24), nil, "the buffers must be equally long: send has 16 bytes, receive has 8"},
		"in place":       {b(0, 16), b(0, 16), nil, "an alltoall needs two that lie apart"},
		"overlapping":    {b(0, 16), b(8, 24), nil, "an alltoall needs two that lie apart"},
		"cuts":           {b(0, 16), b(16, 32), []Option{Parts(1)}, "option Parts does not go with an alltoall"},
		"levels":         {b(0, 16), b(16, 32), []Option{With(spec.Spec{Levels: []spec.Level{{Algorithm: "chain", Size: 2}, {Algorithm: "linear"}}})}, "an alltoall is done at one level"},
		"a spec without": {b(0, 16), b(16, 32), []Option{With(spec.Spec{Levels: []spec.Level{{Algorithm: "ring"}}})}, "use another one for alltoall"},
	} {
		t.Run(name, func(t *testing.T) {
			_, inited := c.AlltoallInit(x.send, x.recv, mem.Float32, x.opts...)
			_, started := c.Ialltoall(x.send, x.recv, mem.Float32, x.opts...)
			for form, err := range map[string]error{
				"Alltoall":  c.Alltoall(context.Background(), x.send, x.recv, mem.Float32, x.opts...),
				"Ialltoall": started, "AlltoallInit": inited,
			} {
				if err == nil || !strings.Contains(err.Error(), x.want) {
					t.Errorf("%s ends with %v, without %q", form, err, x.want)
				}
			}
		})
	}
}

// Wrong arguments of a gather are refused by the call itself, at the root and elsewhere;
// right ones, in any form, bring the parts to the root alone.
func TestGatherArguments(t *testing.T) {
	k, err := kernels.NewCPU()
	if err != nil {
		t.Fatal(err)
	}
	world := inproc.NewWorld(2, inproc.Options{})
	comms := make([]*Comm, 2)
	for r := range comms {
		e, err := nbc.Start(world.Open(r), device.CPU(k), nbc.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = e.Close() }()
		comms[r] = World(e, Options{})
	}
	bytes := make([]byte, 64)
	b := func(from, to int) mem.Buffer { return mem.Of(bytes[from:to]) }
	for name, x := range map[string]struct {
		send, recv mem.Buffer
		counts     []int
		root       int
		opts       []Option
		want       string
	}{
		"too few counts":                {b(0, 8), b(16, 32), []int{4}, 1, nil, "gather needs the counts of all 2 ranks, in their order (got 1)"},
		"too few counts, no root":       {b(0, 8), b(16, 32), []int{4}, 0, nil, "gather needs the counts of all 2 ranks, in their order (got 1)"},
		"an overflow, no root":          {b(0, 8), mem.Buffer{}, []int{1 << 62, 1 << 62}, 0, nil, "must hold all parts"},
		"another part":                  {b(0, 8), b(16, 32), []int{3, 1}, 1, nil, "the send buffer has 2 elements, but this rank's part has 1"},
		"another part, no root":         {b(0, 8), mem.Buffer{}, []int{3, 1}, 0, nil, "the send buffer has 2 elements, but this rank's part has 1"},
		"other rank's place":            {b(16, 24), b(16, 32), nil, 1, nil, "is not this rank's part of it"},
		"too little room":               {b(0, 8), b(16, 28), []int{2, 2}, 1, nil, "it has 3 elements, their counts are 2, 2"},
		"no such root":                  {b(0, 8), b(16, 32), nil, 2, nil, "root must be a rank of the communicator"},
		"cuts":                          {b(0, 8), b(16, 32), nil, 1, []Option{Parts(1)}, "option Parts does not go with a gather"},
		"an algorithm that has none":    {b(0, 8), b(16, 32), nil, 1, []Option{With(spec.Spec{Levels: []spec.Level{{Algorithm: "ring"}}})}, "use another one for gather"},
		"levels":                        {b(0, 8), b(16, 32), nil, 1, []Option{With(spec.Spec{Levels: []spec.Level{{Algorithm: "chain", Size: 2}, {Algorithm: "linear"}}})}, "a gather is done at one level"},
		"device memory at a non-root":   {mem.At(unsafe.Pointer(&bytes[0]), 8, mem.CUDA), mem.Buffer{}, nil, 0, nil, "the send buffer lies in cuda memory"},
		"device memory to receive into": {b(0, 8), mem.At(unsafe.Pointer(&bytes[0]), 16, mem.CUDA), nil, 1, nil, "the receive buffer lies in cuda memory"},
	} {
		t.Run(name, func(t *testing.T) {
			c := comms[1]
			_, inited := c.GatherInit(x.send, x.recv, x.counts, mem.Float32, x.root, x.opts...)
			_, started := c.Igather(x.send, x.recv, x.counts, mem.Float32, x.root, x.opts...)
			for form, err := range map[string]error{
				"Gather": c.Gather(context.Background(), x.send, x.recv, x.counts, mem.Float32, x.root, x.opts...), "Igather": started, "GatherInit": inited,
			} {
				if err == nil || !strings.Contains(err.Error(), x.want) {
					t.Errorf("%s ends with %v, without %q", form, err, x.want)
				}
			}
		})
	}
	for _, e := range []int{0, 1} { // instances are counted alike
		comms[e].counts = [2]uint64{}
	}
	recv := make([]float32, 3)
	started, err := comms[0].Igather(mem.Of([]float32{5}), mem.Buffer{}, []int{1, 2}, mem.Float32, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer started.Close()
	if err := comms[1].Gather(context.Background(), mem.Of([]float32{6, 7}), mem.Of(recv), []int{1, 2}, mem.Float32, 1); err != nil {
		t.Fatal(err)
	}
	if err := started.Wait(context.Background()); err != nil || recv[0] != 5 || recv[1] != 6 || recv[2] != 7 {
		t.Errorf("gathered %v, %v", recv, err)
	}
}

// Wrong arguments of a scatter are refused by the call itself, at the root and elsewhere;
// right ones, in any form, bring each rank its part.
func TestScatterArguments(t *testing.T) {
	k, err := kernels.NewCPU()
	if err != nil {
		t.Fatal(err)
	}
	world := inproc.NewWorld(2, inproc.Options{})
	comms := make([]*Comm, 2)
	for r := range comms {
		e, err := nbc.Start(world.Open(r), device.CPU(k), nbc.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = e.Close() }()
		comms[r] = World(e, Options{})
	}
	bytes := make([]byte, 64)
	b := func(from, to int) mem.Buffer { return mem.Of(bytes[from:to]) }
	for name, x := range map[string]struct {
		send, recv mem.Buffer
		counts     []int
		root       int
		opts       []Option
		want       string
	}{
		"too few counts":             {b(16, 32), b(0, 8), []int{4}, 1, nil, "scatter needs the counts of all 2 ranks, in their order (got 1)"},
		"another part":               {b(16, 32), b(0, 8), []int{3, 1}, 1, nil, "the receive buffer has 2 elements, but this rank's part has 1"},
		"another part, no root":      {mem.Buffer{}, b(0, 8), []int{3, 1}, 0, nil, "the receive buffer has 2 elements, but this rank's part has 1"},
		"other rank's place":         {b(16, 32), b(16, 24), nil, 1, nil, "is not this rank's part of it"},
		"no such root":               {b(16, 32), b(0, 8), nil, 2, nil, "root must be a rank of the communicator"},
		"cuts":                       {b(16, 32), b(0, 8), nil, 1, []Option{Parts(1)}, "option Parts does not go with a scatter"},
		"levels":                     {b(16, 32), b(0, 8), nil, 1, []Option{With(spec.Spec{Levels: []spec.Level{{Algorithm: "chain", Size: 2}, {Algorithm: "linear"}}})}, "a scatter is done at one level"},
		"an algorithm that has none": {b(16, 32), b(0, 8), nil, 1, []Option{With(spec.Spec{Levels: []spec.Level{{Algorithm: "chain"}}})}, "use another one for scatter"},
		"device memory at the root":  {mem.At(unsafe.Pointer(&bytes[0]), 16, mem.CUDA), b(16, 24), nil, 1, nil, "the send buffer lies in cuda memory"},
	} {
		t.Run(name, func(t *testing.T) {
			c := comms[1]
			_, inited := c.ScatterInit(x.send, x.recv, x.counts, mem.Float32, x.root, x.opts...)
			_, started := c.Iscatter(x.send, x.recv, x.counts, mem.Float32, x.root, x.opts...)
			for form, err := range map[string]error{
				"Scatter": c.Scatter(context.Background(), x.send, x.recv, x.counts, mem.Float32, x.root, x.opts...), "Iscatter": started, "ScatterInit": inited,
			} {
				if err == nil || !strings.Contains(err.Error(), x.want) {
					t.Errorf("%s ends with %v, without %q", form, err, x.want)
				}
			}
		})
	}
	for _, e := range []int{0, 1} { // instances are counted alike
		comms[e].counts = [2]uint64{}
	}
	recv := make([]float32, 2)
	started, err := comms[1].Iscatter(mem.Buffer{}, mem.Of(recv), []int{1, 2}, mem.Float32, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer started.Close()
	all := []float32{5, 6, 7} // rank 0 has its own in place
	if err := comms[0].Scatter(context.Background(), mem.Of(all), mem.Of(all[:1]), []int{1, 2}, mem.Float32, 0); err != nil {
		t.Fatal(err)
	}
	if err := started.Wait(context.Background()); err != nil || recv[0] != 6 || recv[1] != 7 || all[0] != 5 {
		t.Errorf("scattered %v and %v, %v", all, recv, err)
	}
}

// Ranks that disagree about the counts are told so, in words that differ.
func TestCountsAreInWords(t *testing.T) {
	many, other := make([]int, 100), make([]int, 100)
	many[98], other[99] = 1, 1
	for _, x := range []struct {
		a, b []int
		want string
	}{
		{[]int{1, 2, 0}, []int{0, 2, 1}, " in parts of 1, 2, 0"},
		{many, other, " in parts of 0, 0, 0, 0, 0, 0, 0, 0, … ("},
		{[]int{1, 2}, nil, " in parts of 1, 2"},
	} {
		one, two := call{counts: x.a}, call{counts: x.b}
		if got := one.describeParts(); !strings.HasPrefix(got, x.want) || got == two.describeParts() {
			t.Errorf("counts %v are %q, counts %v are %q; want %q and another", x.a, got, x.b, two.describeParts(), x.want)
		}
	}
}
