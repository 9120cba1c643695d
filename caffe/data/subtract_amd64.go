package data

import "github.com/klauspost/cpuid/v2"

//go:generate go run internal/gen/asm.go -out subtract_loops_amd64.s -stubs subtract_loops_amd64.go -pkg data

// hasAVX2 says whether the loops of subtract_loops_amd64.s run here.
var hasAVX2 = cpuid.CPU.Supports(cpuid.AVX2)

const (
	vectorLanes = 8       // what the loops work in multiples of
	pieceLanes  = 1 << 16 // how much one call does at most: the runtime cannot stop a goroutine in it
)

// subtract makes dst (src - mean) * scale, mirrored or not, with the mean of
// each value, or where there is none with the one value. All have one length.
func subtract(dst []float32, src []byte, means []float32, mean, scale float32, mirrored bool) {
	if !hasAVX2 || len(src) < vectorLanes {
		subtractPortable(dst, src, means, mean, scale, mirrored)
		return
	}
	for at := 0; at < len(src); {
		n := min(len(src)-at, pieceLanes) &^ (vectorLanes - 1)
		if n == 0 { // the last values, some of them for the second time
			n, at = vectorLanes, len(src)-vectorLanes
		}
		to := at
		if mirrored {
			to = len(dst) - at - n
		}
		d, s := &dst[to : to+n][0], &src[at : at+n][0]
		switch {
		case means != nil && mirrored:
			subtractImageMirrored(d, s, &means[at : at+n][0], scale, n)
		case means != nil:
			subtractImage(d, s, &means[at : at+n][0], scale, n)
		case mirrored:
			subtractValueMirrored(d, s, mean, scale, n)
		default:
			subtractValue(d, s, mean, scale, n)
		}
		at += n
	}
}
