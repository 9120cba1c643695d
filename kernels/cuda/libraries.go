package cuda

import (
	"fmt"

	"github.com/scaffe/scaffe/kernels/cuda/internal/driver"
	"github.com/scaffe/scaffe/mem"
)

// The environment variables that name NVIDIA's libraries, where they are not those that the dynamic linker finds; NoLibrary
// is the name of none.
const (
	EnvBLAS   = driver.EnvBLAS
	EnvDNN    = driver.EnvDNN
	NoLibrary = driver.NoLibrary
)

// ErrNoLibrary says that this machine has no such library, or that it is to be left alone.
var ErrNoLibrary = driver.ErrNoLibrary

// Library is one of NVIDIA's: the name of its file, and its version.
type Library = driver.Library

// FindBLAS says which cuBLAS Libraries would use, and FindDNN which cuDNN. The error is an ErrNoLibrary where there is none.
// They are for machines of which GPUs has found a driver.
func FindBLAS() (Library, error) { return driver.FindBLAS() }

// FindDNN is FindBLAS for cuDNN.
func FindDNN() (Library, error) { return driver.FindDNN() }

// Math is how cuBLAS and cuDNN compute products of float32.
type Math int

// The ways.
const (
	F32  Math = iota // as float32
	TF32             // by tensor cores, which take 10 bits of the 23 of each factor
)

// ParseMath reads "f32" or "tf32".
func ParseMath(s string) (Math, error) {
	for m, name := range mathNames {
		if s == name {
			return Math(m), nil
		}
	}
	return F32, fmt.Errorf("invalid math %q: want f32 or tf32", s)
}

var mathNames = [...]string{"f32", "tf32"}

// String is what ParseMath reads.
func (m Math) String() string { return mathNames[m] }

// Matrix is one in a GPU's memory, or a batch of them: how many elements apart rows, columns, and matrices lie.
type Matrix struct {
	In             mem.Buffer
	Row, Col, Step int
}

// Multiplication is C = A·B, or C += A·B, for A of Rows×Terms and B of Terms×Cols, and a batch of these. C's columns lie
// next to each other.
type Multiplication struct {
	C, A, B                  Matrix
	Rows, Cols, Terms, Batch int
	Add                      bool
}

// Pass is one of a convolution's.
type Pass int

// The passes: y of x and w, x's gradient of w and y's, and w's gradient plus that of x and y's.
const (
	Forward Pass = iota
	BackwardData
	BackwardFilter
)

// ConvShape is what a convolution is of: N images of In channels, and so on. All are at least 1, pads aside.
type ConvShape = driver.Shape
