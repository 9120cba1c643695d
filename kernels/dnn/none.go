//go:build !onednn || !cgo

package dnn

// Available reports whether oneDNN does the work.
const Available = false

// Name returns "not available".
func Name() string { return "not available" }

// SetThreads does nothing.
func SetThreads(int) {}

// Threads returns 1.
func Threads() int { return 1 }

// Conv is a convolution made ready for one shape; without oneDNN there is
// none.
type Conv struct{}

// NewConv returns ErrUnsupported.
func NewConv(Shape) (*Conv, error) { return nil, ErrUnsupported }

// Implementations names no code.
func (c *Conv) Implementations() [3]string { return [3]string{} }

// Forward returns ErrUnsupported.
func (c *Conv) Forward(x, w, b, y []float32) error { return ErrUnsupported }

// BackwardData returns ErrUnsupported.
func (c *Conv) BackwardData(dy, w, dx []float32) error { return ErrUnsupported }

// BackwardWeights returns ErrUnsupported.
func (c *Conv) BackwardWeights(x, dy, dw, db []float32) error { return ErrUnsupported }

// Gemm returns ErrUnsupported.
func Gemm(transA, transB bool, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) error {
	return ErrUnsupported
}
