package kernels

import (
	"errors"
	"fmt"
	"math"

	"github.com/scaffe/scaffe/mem"
)

// Divide stores dst[i] = src[i] / by, for the mean of several contributions; dst
// may be src. by is positive and finite. Integers are divided towards zero, by a
// whole number that they have room for; f16 and bf16 compute in f32 and round once.
func (c *CPU) Divide(dt mem.Datatype, dst, src mem.Buffer, by float64) error {
	if err := CheckDivide(mem.Host, dt, dst, src, by); err != nil {
		return fmt.Errorf("kernels: divide: %w", err)
	}
	switch dt {
	case mem.Float32:
		divide(mem.Float32s(dst), mem.Float32s(src), float32(by))
	case mem.Float64:
		divide(mem.View[float64](dst), mem.View[float64](src), by)
	case mem.Int32:
		divide(mem.View[int32](dst), mem.View[int32](src), int32(by))
	case mem.Int64:
		divide(mem.View[int64](dst), mem.View[int64](src), int64(by))
	case mem.Uint8:
		divide(mem.Bytes(dst), mem.Bytes(src), uint8(by))
	case mem.Int8:
		divide(mem.View[int8](dst), mem.View[int8](src), int8(by))
	case mem.Int16:
		divide(mem.View[int16](dst), mem.View[int16](src), int16(by))
	case mem.Uint16:
		divide(mem.View[uint16](dst), mem.View[uint16](src), uint16(by))
	case mem.Uint32:
		divide(mem.View[uint32](dst), mem.View[uint32](src), uint32(by))
	case mem.Uint64:
		divide(mem.View[uint64](dst), mem.View[uint64](src), uint64(by))
	case mem.Float16:
		to := mem.View[uint16](dst)
		for i, x := range mem.View[uint16](src) {
			to[i] = f16From(f16To(x) / float32(by))
		}
	case mem.BFloat16:
		to := mem.View[uint16](dst)
		for i, x := range mem.View[uint16](src) {
			to[i] = bf16From(bf16To(x) / float32(by))
		}
	}
	return nil
}

// CheckDivide returns what stands against a division, as CheckReduce does.
func CheckDivide(in mem.Space, dt mem.Datatype, dst, src mem.Buffer, by float64) error {
	if err := checkCopy(in, dst, src); err != nil {
		return err
	}
	room := map[mem.Datatype]float64{
		mem.Int8: math.MaxInt8, mem.Int16: math.MaxInt16, mem.Int32: math.MaxInt32, mem.Int64: 1 << 53,
		mem.Uint8: math.MaxUint8, mem.Uint16: math.MaxUint16, mem.Uint32: math.MaxUint32, mem.Uint64: 1 << 53,
	}[dt]
	switch {
	case !dt.Valid():
		return fmt.Errorf("unknown datatype: use one of %v", mem.Datatypes)
	case !(by > 0) || math.IsInf(by, 0):
		return fmt.Errorf("a divisor of %v: it must be positive and finite", by)
	case room > 0 && (by != math.Trunc(by) || by > room):
		return fmt.Errorf("a divisor of %v: for %v it must be a whole number up to %v", by, dt, room)
	case dst.Len()%dt.Size() != 0:
		return fmt.Errorf("%d bytes are not whole elements of %s", dst.Len(), dt)
	case overlapsInPart(dst, src):
		return errors.New("dst partly overlaps src: want the same buffer or a separate one")
	}
	return nil
}

func divide[T float | integer](dst, src []T, by T) {
	for i, x := range src {
		dst[i] = x / by
	}
}
