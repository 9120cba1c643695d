package pixels

import "github.com/scaffe/scaffe/kernels"

//go:generate go run -tags generate internal/gen/asm.go -out avx2_loops_amd64.s -stubs avx2_loops_amd64.go -pkg pixels

// avx2 says whether the AVX2 loops run.
var avx2 = kernels.HasAVX2()

const (
	lanes     = 8       // what the loops work in multiples of
	pieceMost = 1 << 16 // how much one call does at most: the runtime cannot stop a goroutine in it
)

// vectors is Bytes for at least lanes values, by the AVX2 loops. dst, src and
// r.Means, where there are any, have one length.
func (r Row) vectors(dst []float32, src []byte) {
	for at := 0; at < len(src); {
		n := min(len(src)-at, pieceMost) &^ (lanes - 1)
		if n == 0 { // the last values, some of them for the second time
			n, at = lanes, len(src)-lanes
		}
		to := at
		if r.Mirror {
			to = len(dst) - at - n
		}
		d, s := &dst[to : to+n][0], &src[at : at+n][0]
		switch {
		case r.Means != nil && r.Mirror:
			subtractImageMirrored(d, s, &r.Means[at : at+n][0], r.Scale, n)
		case r.Means != nil:
			subtractImage(d, s, &r.Means[at : at+n][0], r.Scale, n)
		case r.Mirror:
			subtractValueMirrored(d, s, r.Mean, r.Scale, n)
		default:
			subtractValue(d, s, r.Mean, r.Scale, n)
		}
		at += n
	}
}
