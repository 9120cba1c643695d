//go:build !amd64

package data

// subtract makes dst (src - mean) * scale, mirrored or not, with the mean of
// each value, or where there is none with the one value. All have one length.
func subtract(dst []float32, src []byte, means []float32, mean, scale float32, mirrored bool) {
	subtractPortable(dst, src, means, mean, scale, mirrored)
}
