package pixels

import (
	"fmt"
	"slices"
	"testing"
)

// Every form of Row is (value - mean) * scale, at its place, on every path.
func TestRow(t *testing.T) {
	for _, n := range []int{0, 1, 7, 8, 21, 100} {
		bytes, floats, means := make([]byte, n), make([]float32, n), make([]float32, n+3)
		for i := range n {
			bytes[i], floats[i], means[i] = byte(i*37), float32(byte(i*37)), float32(i*3)
		}
		for _, row := range []Row{
			{Mean: 12, Scale: 0.5},
			{Mean: 12, Scale: 0.5, Mirror: true},
			{Means: means, Mean: 99, Scale: 0.25},
			{Means: means, Mean: 99, Scale: 0.25, Mirror: true},
		} {
			want := make([]float32, n)
			for i, v := range floats {
				to, mean := i, row.Mean
				if row.Mirror {
					to = n - 1 - i
				}
				if row.Means != nil {
					mean = row.Means[i]
				}
				want[to] = (v - mean) * row.Scale
			}
			want = append(want, -1, -1)
			dst := func() []float32 { return append(make([]float32, n), -1, -1) }
			got := dst()
			if row.Bytes(got, bytes); !slices.Equal(got, want) {
				t.Errorf("%d bytes, %+v: %v, want %v", n, row, got, want)
			}
			got = dst()
			if row.Floats(got, floats); !slices.Equal(got, want) {
				t.Errorf("%d floats, %+v: %v, want %v", n, row, got, want)
			}
			got = slices.Concat(floats, []float32{-1, -1})
			if row.Floats(got, got[:n]); !slices.Equal(got, want) {
				t.Errorf("%d floats in place, %+v: %v, want %v", n, row, got, want)
			}
		}
	}
}

func TestRowDoesNotAllocate(t *testing.T) {
	dst, src, means := make([]float32, 100), make([]byte, 100), make([]float32, 100)
	row := Row{Means: means, Scale: 1, Mirror: true}
	if got := testing.AllocsPerRun(5, func() { row.Bytes(dst, src); row.Floats(dst, means) }); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

func ExampleRow() {
	row := Row{Mean: 100, Scale: 0.5, Mirror: true}
	dst := make([]float32, 3)
	row.Bytes(dst, []byte{100, 110, 90})
	fmt.Println(dst)
	// Output: [-5 5 0]
}
