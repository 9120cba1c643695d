package pixels

import "slices"

// Row says what becomes of a row of values: (value - mean) * Scale, from the
// last to the first where Mirror says so. The zero Scale makes zeros.
type Row struct {
	Means  []float32 // the mean of each value, in the order of the source; or, where it is nil,
	Mean   float32   // the mean of all
	Scale  float32
	Mirror bool
}

// Bytes writes to dst what becomes of src. dst, and Means where there are any,
// are at least as long as src; what they have beyond is left alone.
func (r Row) Bytes(dst []float32, src []byte) {
	dst, r = dst[:len(src)], r.of(len(src))
	if avx2 && len(src) >= lanes {
		r.vectors(dst, src)
		return
	}
	portable(r, dst, src)
}

// Floats is Bytes for values that are float32 already; dst may be src.
func (r Row) Floats(dst, src []float32) {
	portable(r.of(len(src)), dst[:len(src)], src)
}

// of is r for n values.
func (r Row) of(n int) Row {
	if r.Means != nil {
		r.Means = r.Means[:n]
	}
	return r
}

func portable[T byte | float32](r Row, dst []float32, src []T) {
	if r.Means == nil {
		for i, v := range src {
			dst[i] = (float32(v) - r.Mean) * r.Scale
		}
	} else {
		for i, v := range src {
			dst[i] = (float32(v) - r.Means[i]) * r.Scale
		}
	}
	if r.Mirror {
		slices.Reverse(dst)
	}
}
