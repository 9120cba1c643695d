package mem_test

import (
	"fmt"

	"github.com/scaffe/scaffe/mem"
)

// A buffer names memory, here a slice's; a part of it is a buffer too.
func Example() {
	v := []float32{1, 2, 3, 4}
	b := mem.Of(v)
	half := b.Slice(mem.Float32.Bytes(2), mem.Float32.Bytes(2))
	mem.Float32s(half)[0] = 30
	fmt.Println(b.Len(), "bytes,", b.Space(), v)
	// Output:
	// 16 bytes, host [1 2 30 4]
}
