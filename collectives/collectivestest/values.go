package collectivestest

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/x448/float16"

	"github.com/scaffe/scaffe/kernels/kernelstest"
	"github.com/scaffe/scaffe/mem"
)

// Contributions are small whole numbers, so that every result is exact in every
// type whatever the order of additions, for up to Ranks ranks. They differ from rank
// to rank and from index to index as far as the type has room.

// bound is the bound of a contribution to a sum, so that Ranks of them are exact.
var bound = map[mem.Datatype]int64{
	mem.Float32: 1 << 20, mem.Float64: 1 << 40, mem.Float16: 128, mem.BFloat16: 16,
	mem.Int32: 1 << 27, mem.Int64: 1 << 50, mem.Uint32: 1 << 28, mem.Uint64: 1 << 50,
	mem.Uint8: 256, mem.Int8: 128, mem.Int16: 1 << 14, mem.Uint16: 1 << 15, // whose sums wrap around
}

// Ranks is how many ranks the contributions are exact for.
const Ranks = 10

// contribution returns rank's element i for a reduction.
func contribution(dt mem.Datatype, op mem.Op, rank, i int) int64 {
	x := uint64(rank)*0x9e3779b97f4a7c15 + uint64(i)*0xbf58476d1ce4e5b9
	x ^= x >> 29
	x *= 0x94d049bb133111eb
	x ^= x >> 32
	if op == mem.Prod { // of ones and twos, 2^8 at bound
		return 1 + int64(x&1)*int64((rank+i)%2)
	}
	room := bound[dt]
	if op == mem.Avg { // sums that the number of ranks divides
		return int64(i)*7%16*max(1, room>>12) + 2*int64(rank)
	}
	if room > 1<<10 { // room enough to be unique
		return (int64(i)*Ranks+int64(rank))%room + 1
	}
	return int64(x % uint64(room))
}

// result returns element i of the reduction over ranks 0 to size-1: the serial
// reference.
func result(dt mem.Datatype, op mem.Op, size, i int) (int64, error) {
	acc := contribution(dt, op, 0, i)
	for r := 1; r < size; r++ {
		x := contribution(dt, op, r, i)
		if op == mem.Avg {
			acc += x
		} else {
			acc = kernelstest.Whole(op, acc, x)
		}
	}
	if op == mem.Avg {
		acc /= int64(size)
	}
	return acc, nil
}

// Put stores x as element i of b.
func Put(dt mem.Datatype, b []byte, i int, x int64) {
	b = b[i*dt.Size():]
	le := binary.NativeEndian
	switch dt {
	case mem.Float32:
		le.PutUint32(b, math.Float32bits(float32(x)))
	case mem.Float64:
		le.PutUint64(b, math.Float64bits(float64(x)))
	case mem.Float16:
		le.PutUint16(b, float16.Fromfloat32(float32(x)).Bits())
	case mem.BFloat16:
		le.PutUint16(b, uint16(math.Float32bits(float32(x))>>16))
	case mem.Int32:
		le.PutUint32(b, uint32(x))
	case mem.Int64:
		le.PutUint64(b, uint64(x))
	case mem.Uint32:
		le.PutUint32(b, uint32(x))
	case mem.Uint64:
		le.PutUint64(b, uint64(x))
	case mem.Int16, mem.Uint16:
		le.PutUint16(b, uint16(x))
	case mem.Int8, mem.Uint8:
		b[0] = byte(x)
	default:
		panic(fmt.Sprintf("collectivestest: no way to store %v", dt))
	}
}
