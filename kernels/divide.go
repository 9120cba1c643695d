package kernels

import (
	"fmt"

	"github.com/scaffe/scaffe/mem"
)

// Divide stores buf[i] = buf[i] / n, for the mean of n contributions. Integers
// are divided towards zero; f16 and bf16 compute in f32 and round once.
func (c *CPU) Divide(dt mem.Datatype, buf mem.Buffer, n int) error {
	switch {
	case !dt.Valid():
		return fmt.Errorf("kernels: divide: unknown datatype: use one of %v", mem.Datatypes)
	case n < 1:
		return fmt.Errorf("kernels: divide by %d", n)
	case buf.Space() != mem.Host:
		return fmt.Errorf("kernels: divide: the CPU cannot address %s memory", buf.Space())
	case buf.Len()%dt.Size() != 0:
		return fmt.Errorf("kernels: divide: %d bytes are not whole elements of %s", buf.Len(), dt)
	}
	switch dt {
	case mem.Float32:
		divide(mem.Float32s(buf), float32(n))
	case mem.Float64:
		divide(mem.View[float64](buf), float64(n))
	case mem.Int32:
		divide(mem.View[int32](buf), int32(n))
	case mem.Int64:
		divide(mem.View[int64](buf), int64(n))
	case mem.Uint8:
		for i, x := range mem.Bytes(buf) {
			mem.Bytes(buf)[i] = uint8(int(x) / n)
		}
	case mem.Float16:
		for i, x := range mem.View[uint16](buf) {
			mem.View[uint16](buf)[i] = f16From(f16To(x) / float32(n))
		}
	case mem.BFloat16:
		for i, x := range mem.View[uint16](buf) {
			mem.View[uint16](buf)[i] = bf16From(bf16To(x) / float32(n))
		}
	}
	return nil
}

func divide[T float32 | float64 | int32 | int64](v []T, by T) {
	for i := range v {
		v[i] /= by
	}
}
