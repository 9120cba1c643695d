package kernels

import (
	"strings"
	"testing"
	"unsafe"

	"github.com/scaffe/scaffe/mem"
)

func TestNewCPUChoosesPath(t *testing.T) {
	native, lacks := nativePath()
	best := native.name
	if lacks != "" {
		best = "portable"
	}
	for name, want := range map[string]string{"": best, "portable": "portable"} {
		t.Setenv(EnvPath, name)
		if cpu, err := NewCPU(); err != nil || cpu.Name() != want || cpu.Close() != nil {
			t.Errorf("%s=%q: %v, %v, want %s", EnvPath, name, cpu, err, want)
		}
	}
	t.Setenv(EnvPath, "avx2")
	cpu, err := NewCPU()
	if lacks == "" && (err != nil || cpu.Name() != "avx2") {
		t.Errorf("avx2: %v, %v", cpu, err)
	}
	if lacks != "" && (err == nil || !strings.Contains(err.Error(), lacks)) {
		t.Errorf("avx2 without AVX2: error %v, want one with %q", err, lacks)
	}
	t.Setenv(EnvPath, "AVX2")
	if _, err := NewCPU(); err == nil || !strings.Contains(err.Error(), `SCAFFE_KERNELS="AVX2" is not a path`) {
		t.Errorf("an unknown path: error %v", err)
	}
}

func TestReduceRefuses(t *testing.T) {
	buf := func(n int) mem.Buffer { return mem.Of(make([]byte, n)) }
	shared := buf(32)
	device := mem.At(unsafe.Pointer(new([16]byte)), 16, mem.CUDA)
	for _, c := range []struct {
		dt        mem.Datatype
		op        mem.Op
		dst, a, b mem.Buffer
		want      string
	}{
		{mem.Datatype(mem.NumDatatypes), mem.Sum, buf(16), buf(16), buf(16), "unknown datatype"},
		{mem.Float32, mem.Avg, buf(16), buf(16), buf(16), "unknown operator"},
		{mem.BFloat16, mem.BitAnd, buf(16), buf(16), buf(16), "kernels: reduce band of bf16: the operator is one of integers: use one of [sum prod min max]"},
		{mem.Float32, mem.Sum, buf(16), buf(16), buf(12), "16, 16 and 12 bytes"},
		{mem.Float32, mem.Sum, buf(12), buf(16), buf(16), "12, 16 and 16 bytes"},
		{mem.Int64, mem.Max, buf(12), buf(12), buf(12), "kernels: reduce max of i64: 12 bytes are not whole elements of 8 bytes"},
		{mem.Float32, mem.Sum, device, buf(16), buf(16), "lie in cuda, host and host memory"},
		{mem.Float32, mem.Sum, buf(16), device, buf(16), "lie in host, cuda and host memory"},
		{mem.Float32, mem.Sum, buf(16), buf(16), device, "lie in host, host and cuda memory"},
		{mem.Float32, mem.Sum, shared.Slice(0, 16), shared.Slice(4, 16), buf(16), "partly overlaps an operand"},
		{mem.Float32, mem.Sum, shared.Slice(8, 16), buf(16), shared.Slice(4, 16), "partly overlaps an operand"},
	} {
		everyPath(t, func(t *testing.T, cpu *CPU) {
			if err := cpu.Reduce(c.dt, c.op, c.dst, c.a, c.b); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestCopyRefuses(t *testing.T) {
	host := mem.Of(make([]byte, 16))
	device := mem.At(unsafe.Pointer(new([16]byte)), 16, mem.CUDA)
	for _, c := range []struct {
		dst, src mem.Buffer
		want     string
	}{
		{host, host.Slice(0, 8), "16 and 8 bytes"},
		{device, host, "lie in cuda and host memory"},
		{host, device, "lie in host and cuda memory"},
	} {
		everyPath(t, func(t *testing.T, cpu *CPU) {
			if err := cpu.Copy(c.dst, c.src); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestNoAllocations(t *testing.T) {
	const n = 1<<20 + 40
	dst, a, b := mem.Alloc(n), mem.Alloc(n), mem.Alloc(n)
	defer dst.Free()
	defer a.Free()
	defer b.Free()
	everyPath(t, func(t *testing.T, cpu *CPU) {
		for _, dt := range mem.Datatypes {
			for _, op := range mem.OpsOf(dt) {
				var err error
				if got := testing.AllocsPerRun(2, func() { err = cpu.Reduce(dt, op, dst, a, b) }); got != 0 || err != nil {
					t.Errorf("%v %v: %v allocations, error %v", dt, op, got, err)
				}
			}
		}
		var err error
		if got := testing.AllocsPerRun(5, func() { err = cpu.Copy(dst, a) }); got != 0 || err != nil {
			t.Errorf("copy: %v allocations, error %v", got, err)
		}
	})
}
