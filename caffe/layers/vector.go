package layers

import "github.com/scaffe/scaffe/kernels/vec"

// pieceLength is how many elements of each of several vectors lie in the
// caches together.
const pieceLength = 8 << 10

// inPieces calls f for consecutive pieces [i, j) of n elements, so that a
// chain of loops over long vectors passes through memory once.
func inPieces(n int, f func(i, j int)) {
	for i := 0; i < n; i += pieceLength {
		f(i, min(i+pieceLength, n))
	}
}

// blockOf returns for how many channels, with rows of n elements, sums are
// taken together: memory is then read in runs longer than short rows.
func blockOf(n int) int { return min(max(pieceLength/max(n, 1), 1), 64) }

// add sets dst = a + b.
func add(dst, a, b []float32) { vec.Add(dst, a, b) }
