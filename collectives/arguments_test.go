package collectives

import (
	"context"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/scaffe/scaffe/collectives/selection"
	"github.com/scaffe/scaffe/collectives/spec"
	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/kernels/device"
	"github.com/scaffe/scaffe/mem"
	"github.com/scaffe/scaffe/nbc"
	"github.com/scaffe/scaffe/nbc/inproc"
)

// Wrong arguments are refused by the call itself, in all three forms, with what is
// wrong and what is right; the communicator works on.
func TestArguments(t *testing.T) {
	k, err := kernels.NewCPU()
	if err != nil {
		t.Fatal(err)
	}
	e, err := nbc.Start(inproc.NewWorld(1, inproc.Options{}).Open(0), device.CPU(k), nbc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	c := World(e, Options{})
	ctx := context.Background()
	bytes := make([]byte, 64)
	b := func(from, to int) mem.Buffer { return mem.Of(bytes[from:to]) }
	device := mem.At(unsafe.Pointer(&bytes[0]), 16, mem.CUDA)
	type args struct {
		send, recv mem.Buffer
		dt         mem.Datatype
		op         mem.Op
		root       int
		opts       []Option
	}
	good := args{send: b(0, 16), recv: b(16, 32)}
	for _, x := range []struct {
		name   string
		change func(a *args)
		want   string
	}{
		{"datatype", func(a *args) { a.dt = 99 }, "unknown datatype datatype(99): use one of [f32"},
		{"op", func(a *args) { a.op = 99 }, "unknown op op(99): use one of [sum prod min max band bor bxor land lor lxor] or avg"},
		{"average of integers", func(a *args) { a.dt, a.op = mem.Int64, mem.Avg }, "op avg needs a floating-point type (got i64"},
		{"negative root", func(a *args) { a.root = -1 }, "root must be a rank of the communicator, in [0,1) (got -1)"},
		{"root beyond", func(a *args) { a.root = 1 }, "root must be a rank of the communicator, in [0,1) (got 1)"},
		{"parts of elements", func(a *args) { a.send, a.recv = b(0, 15), b(16, 31) }, "the send buffer has 15 bytes, which are not whole elements of f32 (4 bytes each)"},
		{"unequal lengths", func(a *args) { a.recv = b(16, 28) }, "the buffers must be equally long: send has 16 bytes, receive has 12"},
		{"partial overlap", func(a *args) { a.recv = b(4, 20) }, "the send and receive buffers overlap in part"},
		{"device memory", func(a *args) { a.send = device }, "the send buffer lies in cuda memory"},
		{"device memory to receive", func(a *args) { a.recv = device }, "the receive buffer lies in cuda memory"},
		{"deadline", func(a *args) { a.opts = []Option{Within(-time.Second)} }, "option Within must not be negative (got -1s)"},
		{"buffers", func(a *args) { a.opts = []Option{Buffers(7)} }, "option Buffers: unknown buffers(7)"},
		{"cuts", func(a *args) { a.opts = []Option{Parts(3, 2)} }, "cannot be cut at [3 2]"},
		{"cuts beyond", func(a *args) { a.opts = []Option{Parts(5)} }, "cannot be cut at [5]"},
		{"unknown algorithm", func(a *args) { a.opts = []Option{With(spec.Spec{Levels: []spec.Level{{Algorithm: "tree"}}})} }, `unknown algorithm "tree"`},
		{"group without end", func(a *args) {
			a.opts = []Option{With(spec.Spec{Levels: []spec.Level{{Algorithm: "chain"}, {Algorithm: "chain"}}})}
		}, "needs a group size"},
		{"no library", func(a *args) { a.opts = []Option{With(spec.Spec{Levels: []spec.Level{{Algorithm: spec.Library}}})} }, "the MPI library's own needs a program started by mpirun"},
	} {
		t.Run(x.name, func(t *testing.T) {
			a := good
			x.change(&a)
			_, inited := c.ReduceInit(a.send, a.recv, a.dt, a.op, a.root, a.opts...)
			_, started := c.Ireduce(a.send, a.recv, a.dt, a.op, a.root, a.opts...)
			for form, err := range map[string]error{
				"Reduce": c.Reduce(ctx, a.send, a.recv, a.dt, a.op, a.root, a.opts...), "Ireduce": started, "ReduceInit": inited,
			} {
				if err == nil || !strings.Contains(err.Error(), x.want) {
					t.Errorf("%s ends with %v, without %q", form, err, x.want)
				}
			}
			if err := c.Reduce(ctx, good.send, good.recv, good.dt, good.op, 0, Option{}, Buffers(selection.Unregistered)); err != nil {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}
