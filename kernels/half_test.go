package kernels

import (
	"math"
	"testing"

	"github.com/x448/float16"

	"github.com/scaffe/scaffe/kernels/kernelstest"
)

func TestF16WidensEveryValue(t *testing.T) {
	for i := range 1 << 16 {
		got, want := f16To(uint16(i)), float16.Frombits(uint16(i)).Float32()
		if math.Float32bits(got) != math.Float32bits(want) && (got == got || want == want) {
			t.Fatalf("%#04x widens to %v (%#x), want %v (%#x)", i, got, math.Float32bits(got), want, math.Float32bits(want))
		}
	}
}

// around calls f with every 16-bit value widened, the middle between it and
// its upper neighbor, and the f32 numbers right next to these.
func around(widen func(uint16) float32, f func(float32)) {
	for i := range 1 << 16 {
		x, y := float64(widen(uint16(i))), float64(widen(uint16(i+1)))
		for _, v := range []float64{x, (x + y) / 2} {
			bits := math.Float32bits(float32(v))
			for _, d := range []uint32{0, 1, 0xffffffff} {
				f(math.Float32frombits(bits + d))
			}
		}
	}
}

func TestF16RoundsToNearestEven(t *testing.T) {
	around(f16To, func(v float32) {
		if got, want := f16From(v), kernelstest.NearestF16(v); got != want {
			t.Fatalf("%v (%#x) rounds to %#04x, want %#04x", v, math.Float32bits(v), got, want)
		}
	})
}

func TestBF16RoundsToNearestEven(t *testing.T) {
	around(bf16To, func(v float32) {
		if got, want := bf16From(v), kernelstest.NearestBF16(v); got != want {
			t.Fatalf("%v (%#x) rounds to %#04x, want %#04x", v, math.Float32bits(v), got, want)
		}
	})
}

// Every value comes back from its widening, NaN as the canonical one.
func TestHalfRoundTrips(t *testing.T) {
	for i := range 1 << 16 {
		h := uint16(i)
		want := h
		if h&0x7fff > 0x7c00 {
			want = nan16
		}
		if got := f16From(f16To(h)); got != want {
			t.Errorf("f16 %#04x comes back as %#04x", h, got)
		}
		if want = h; h&0x7fff > 0x7f80 {
			want = nanB16
		}
		if got := bf16From(bf16To(h)); got != want {
			t.Errorf("bf16 %#04x comes back as %#04x", h, got)
		}
	}
}
