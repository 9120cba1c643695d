package omb

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/kernels"
	"github.com/scaffe/scaffe/mem"
)

// A case of three ranks in one process, seen by one of them.
func caseOf(p Program, o *Options, dt mem.Datatype, count, rank int) *testCase {
	n := dt.Bytes(count)
	return &testCase{
		program: p, opts: o, typ: Type{dt.String(), dt}, bytes: n, count: count, rank: rank, size: 3,
		send: mem.Of(make([]int64, n/8+1)).Slice(0, n), recv: mem.Of(make([]int64, n/8+1)).Slice(0, n),
	}
}

// The data of all ranks, added by the kernels in whatever order, are what the
// check expects, in every type; and the check sees every single element that
// is not.
func TestValidation(t *testing.T) {
	cpu, err := kernels.NewCPU()
	if err != nil {
		t.Fatal(err)
	}
	p := program(t, "osu_allreduce")
	const count, iteration = 3*period + 17, 5
	for _, dt := range mem.Datatypes {
		var cases []*testCase
		var checks []*checker
		for r := range 3 {
			c := caseOf(p, &Options{}, dt, count, r)
			k := newChecker(c)
			defer k.free()
			k.before(c, iteration)
			cases, checks = append(cases, c), append(checks, k)
		}
		c, k := cases[0], checks[0]
		if n := k.after(c, iteration); n < count*9/10 {
			t.Errorf("%s: %d of %d elements are wrong before anything is written", dt, n, count)
		}
		copy(mem.Bytes(c.recv), mem.Bytes(cases[2].send))
		for _, r := range []int{0, 1} {
			if err := cpu.Reduce(dt, mem.Sum, c.recv, cases[r].send, c.recv); err != nil {
				t.Fatal(err)
			}
		}
		if n := k.after(c, iteration); n != 0 {
			t.Fatalf("%s: %d wrong elements in the right sum", dt, n)
		}
		for _, i := range []int{0, period - 1, period, count - 1} {
			at := mem.Bytes(c.recv)[dt.Bytes(i):]
			at[0] ^= 1
			if n := k.after(c, iteration); n != 1 {
				t.Errorf("%s: element %d spoiled, %d found", dt, i, n)
			}
			at[0] ^= 1
		}
		if n := k.after(c, iteration+1); n < count/2 {
			t.Errorf("%s: of an earlier iteration's result %d elements are found wrong", dt, n)
		}
	}
}

// A wrong kernel, one that forgets a rank, or counts one twice, is seen.
func TestValidationSeesWrongKernels(t *testing.T) {
	cpu, err := kernels.NewCPU()
	if err != nil {
		t.Fatal(err)
	}
	p := program(t, "osu_reduce")
	for name, ranks := range map[string][]int{"forgets one": {0, 1}, "counts one twice": {0, 1, 2, 2}, "takes one for another": {0, 1, 1}} {
		const count = 1000
		c := caseOf(p, &Options{}, mem.Float32, count, 0)
		k := newChecker(c)
		k.before(c, 0)
		clear(mem.Bytes(c.recv))
		for _, r := range ranks {
			k.fill(c.send, k.of(r, 0))
			if err := cpu.Reduce(mem.Float32, mem.Sum, c.recv, c.send, c.recv); err != nil {
				t.Fatal(err)
			}
		}
		if n := k.after(c, 0); n < count*9/10 {
			t.Errorf("a kernel that %s leaves %d of %d elements wrong", name, n, count)
		}
		k.free()
	}
}

// A program says Fail, ends with an error, and does not go on to larger
// messages where a single result is wrong on a single rank, once.
func TestValidationFails(t *testing.T) {
	for _, p := range Programs {
		if p.is(bandwidth | barrier) {
			continue // rank 1's result alone counts, below; there is no result
		}
		o, err := Parse(p, strings.Fields("--local 2 -c -i 3 -x 1 -m 64:256 -T mpi_float"))
		if err != nil {
			t.Fatal(err)
		}
		result := 128
		if p.gathers() || p.exchanges() { // one rank's of a scatter
			result *= 2
		}
		if p.scatters() {
			result /= 2
		}
		o.corrupt = func(rank, iteration int, out mem.Buffer) {
			if rank == 0 && iteration == 2 && out.Len() == result {
				mem.Bytes(out)[result/2+13]++
			}
		}
		expectFail(t, p, o)
	}
	p := program(t, "osu_bw")
	o, err := Parse(p, strings.Fields("--local 2 -c -i 3 -x 1 -m 64:256 -W 4"))
	if err != nil {
		t.Fatal(err)
	}
	o.corrupt = func(rank, iteration int, out mem.Buffer) {
		if rank == 1 && iteration == 2 && out.Len() == 128 {
			mem.Bytes(out)[77]++
		}
	}
	expectFail(t, p, o)
}

func expectFail(t *testing.T, p Program, o *Options) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	err := run(context.Background(), p, o, &stdout, &stderr)
	if err == nil || !strings.Contains(err.Error(), p.Name+": validation failed") || !strings.Contains(err.Error(), "128 bytes") {
		t.Errorf("%s: the error is %v", p.Name, err)
	}
	rows := awk(stdout.String())
	if len(rows) != 3 || rows[0][len(rows[0])-1] != "Pass" || rows[1][len(rows[1])-1] != "Fail" ||
		strings.Join(rows[2], " ") != fmt.Sprintf("DATA VALIDATION ERROR: %s exited with status 1 on message size 128.", p.Name) {
		t.Errorf("%s:\n%s", p.Name, &stdout)
	}
}
