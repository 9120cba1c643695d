package kernels

import (
	"math"
	"testing"

	"github.com/scaffe/scaffe/mem"
)

func TestDivide(t *testing.T) {
	c, err := NewCPU()
	if err != nil {
		t.Fatal(err)
	}
	f32, f64, i32, i64, u8 := []float32{1, -6, 10}, []float64{1, -6, 10}, []int32{1, -7, 10}, []int64{1, -7, 10}, []uint8{1, 7, 200}
	f16, bf16 := []uint16{f16From(1), f16From(-6), f16From(10)}, []uint16{bf16From(1), bf16From(-6), bf16From(10)}
	for dt, buf := range map[mem.Datatype]mem.Buffer{
		mem.Float32: mem.Of(f32), mem.Float64: mem.Of(f64), mem.Int32: mem.Of(i32), mem.Int64: mem.Of(i64),
		mem.Uint8: mem.Of(u8), mem.Float16: mem.Of(f16), mem.BFloat16: mem.Of(bf16),
	} {
		if err := c.Divide(dt, buf, buf, 4); err != nil {
			t.Error(err)
		}
	}
	for i, want := range []float64{0.25, -1.5, 2.5} {
		if float64(f32[i]) != want || f64[i] != want || float64(f16To(f16[i])) != want || float64(bf16To(bf16[i])) != want {
			t.Errorf("element %d: %v %v %v %v, not %v", i, f32[i], f64[i], f16To(f16[i]), bf16To(bf16[i]), want)
		}
	}
	for i, want := range []int{0, -1, 2} {
		if int(i32[i]) != want || int(i64[i]) != want {
			t.Errorf("element %d: %v %v, not %v", i, i32[i], i64[i], want)
		}
	}
	if u8[2] != 50 || u8[1] != 1 {
		t.Errorf("%v", u8)
	}
	// Into another buffer, by a number that is not whole.
	from, into := []uint16{f16From(3), f16From(65504), f16From(0x1p-24)}, make([]uint16, 3)
	if err := c.Divide(mem.Float16, mem.Of(into), mem.Of(from), 1.5); err != nil {
		t.Fatal(err)
	}
	for i, want := range []uint16{f16From(2), f16From(43680), f16From(0x1p-24)} {
		if into[i] != want {
			t.Errorf("element %d: %v, not %v", i, f16To(into[i]), f16To(want))
		}
	}
	for name, err := range map[string]error{
		"an odd length":         c.Divide(mem.Int64, mem.Of(u8), mem.Of(u8), 2),
		"0":                     c.Divide(mem.Uint8, mem.Of(u8), mem.Of(u8), 0),
		"NaN":                   c.Divide(mem.Float32, mem.Of(f32), mem.Of(f32), math.NaN()),
		"infinity":              c.Divide(mem.Float32, mem.Of(f32), mem.Of(f32), math.Inf(1)),
		"a fraction of integer": c.Divide(mem.Int32, mem.Of(i32), mem.Of(i32), 1.5),
		"more than a byte":      c.Divide(mem.Uint8, mem.Of(u8), mem.Of(u8), 256),
		"another length":        c.Divide(mem.Uint8, mem.Of(u8[:2]), mem.Of(u8), 2),
		"a partial overlap":     c.Divide(mem.Uint8, mem.Of(u8[:2]), mem.Of(u8[1:]), 2),
	} {
		if err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}
