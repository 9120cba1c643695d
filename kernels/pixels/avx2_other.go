//go:build !amd64

package pixels

// avx2 says whether the AVX2 loops run; elsewhere there are none, and what
// follows is only named.
const (
	avx2  = false
	lanes = 8
)

func (Row) vectors([]float32, []byte) {}
