package layers

// The loops over float32 vectors that several layers share. All vectors of a
// call are as long as the first; the destination may be one of the sources.
// Sums are taken in float64 over four accumulators, whose order is fixed, so
// that the same input gives the same bits.

// multiply sets dst = a·b, element by element.
func multiply(dst, a, b []float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] * b[i]
	}
}

// scaled sets dst = c·a.
func scaled(dst []float32, c float32, a []float32) {
	if c == 1 {
		copy(dst, a)
		return
	}
	a = a[:len(dst)]
	for i := range dst {
		dst[i] = c * a[i]
	}
}

// affine sets dst = c·a + b.
func affine(dst []float32, c float32, a []float32, b float32) {
	a = a[:len(dst)]
	for i := range dst {
		dst[i] = c*a[i] + b
	}
}

// add sets dst = a + b, element by element.
func add(dst, a, b []float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] + b[i]
	}
}

// addScaled adds c·a to dst.
func addScaled(dst []float32, c float32, a []float32) {
	a = a[:len(dst)]
	for i := range dst {
		dst[i] += c * a[i]
	}
}

// sum returns Σ a.
func sum(a []float32) float64 {
	var s0, s1, s2, s3 float64
	for ; len(a) >= 4; a = a[4:] {
		s0 += float64(a[0])
		s1 += float64(a[1])
		s2 += float64(a[2])
		s3 += float64(a[3])
	}
	for _, v := range a {
		s0 += float64(v)
	}
	return (s0 + s1) + (s2 + s3)
}

// sumSquares returns Σ (a - mean)².
func sumSquares(a []float32, mean float64) float64 {
	var s0, s1, s2, s3 float64
	for ; len(a) >= 4; a = a[4:] {
		d0, d1 := float64(a[0])-mean, float64(a[1])-mean
		d2, d3 := float64(a[2])-mean, float64(a[3])-mean
		s0 += d0 * d0
		s1 += d1 * d1
		s2 += d2 * d2
		s3 += d3 * d3
	}
	for _, v := range a {
		d := float64(v) - mean
		s0 += d * d
	}
	return (s0 + s1) + (s2 + s3)
}

// dot returns Σ a·b.
func dot(a, b []float32) float64 {
	var s0, s1, s2, s3 float64
	b = b[:len(a)]
	for ; len(a) >= 4 && len(b) >= 4; a, b = a[4:], b[4:] {
		s0 += float64(a[0]) * float64(b[0])
		s1 += float64(a[1]) * float64(b[1])
		s2 += float64(a[2]) * float64(b[2])
		s3 += float64(a[3]) * float64(b[3])
	}
	b = b[:len(a)]
	for i, v := range a {
		s0 += float64(v) * float64(b[i])
	}
	return (s0 + s1) + (s2 + s3)
}

// addProduct adds a·b to dst, element by element.
func addProduct(dst, a, b []float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] += a[i] * b[i]
	}
}
