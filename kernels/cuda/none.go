//go:build !(cuda && cgo && linux && (amd64 || arm64))

package cuda

import (
	"time"

	"github.com/scaffe/scaffe/kernels/vec"
	"github.com/scaffe/scaffe/mem"
)

// GPUs returns ErrNotBuilt.
func GPUs() ([]GPU, error) { return nil, ErrNotBuilt }

// DriverVersion returns ErrNotBuilt.
func DriverVersion() (string, error) { return "", ErrNotBuilt }

// CanReach returns ErrNotBuilt.
func CanReach(_, _ int) (bool, error) { return false, ErrNotBuilt }

// MPS returns that nobody knows.
func MPS(int) (on, known bool) { return false, false }

// Handle names memory of a GPU to other processes.
type Handle struct {
	Memory [64]byte
	Bytes  int64
}

// Device is a GPU, of which there is none: Open returns ErrNotBuilt, and so does all else.
type Device struct{ GPU }

// Stream is a queue of work for one.
type Stream struct{}

// Event is a point on a stream.
type Event struct{}

// ErrDeadline is the error of a wait that took too long.
var ErrDeadline = ErrNotBuilt

func Open(int) (*Device, error)                    { return nil, ErrNotBuilt }
func (*Device) Close() error                       { return ErrNotBuilt }
func (*Device) Alloc(int) (mem.Buffer, error)      { return mem.Buffer{}, ErrNotBuilt }
func (*Device) Free(mem.Buffer) error              { return ErrNotBuilt }
func (*Device) AllocHost(int) (mem.Buffer, error)  { return mem.Buffer{}, ErrNotBuilt }
func (*Device) FreeHost(mem.Buffer) error          { return ErrNotBuilt }
func (*Device) Export(mem.Buffer) (Handle, error)  { return Handle{}, ErrNotBuilt }
func (*Device) Import(Handle) (mem.Buffer, error)  { return mem.Buffer{}, ErrNotBuilt }
func (*Device) CloseImport(mem.Buffer) error       { return ErrNotBuilt }
func (*Device) Reach(int) error                    { return ErrNotBuilt }
func (*Device) NewStream() (*Stream, error)        { return nil, ErrNotBuilt }
func (*Device) NewEvent() (*Event, error)          { return nil, ErrNotBuilt }
func (*Device) NewTimer() (*Event, error)          { return nil, ErrNotBuilt }
func (*Event) Since(*Event) (time.Duration, error) { return 0, ErrNotBuilt }
func (*Event) Close() error                        { return ErrNotBuilt }
func (*Event) Passed() (bool, error)               { return false, ErrNotBuilt }
func (*Stream) Close() error                       { return ErrNotBuilt }
func (*Stream) Synchronize(time.Duration) error    { return ErrNotBuilt }
func (*Stream) Record(*Event) error                { return ErrNotBuilt }
func (*Stream) Wait(*Event) error                  { return ErrNotBuilt }
func (*Stream) Copy(_, _ mem.Buffer) error         { return ErrNotBuilt }
func (*Stream) CopyByDriver(_, _ mem.Buffer) error { return ErrNotBuilt }
func (*Stream) Reduce(mem.Datatype, mem.Op, mem.Buffer, mem.Buffer, mem.Buffer) error {
	return ErrNotBuilt
}

func (*Stream) ReduceAll(mem.Datatype, mem.Op, mem.Buffer, []mem.Buffer) error {
	return ErrNotBuilt
}

func (*Stream) Multiply(Multiplication) error { return ErrNotBuilt }

func (*Stream) Launch(Kernel, int, []mem.Buffer, ...int64) error { return ErrNotBuilt }

func (*Stream) SGD(vec.Update, float32, mem.Buffer, mem.Buffer, mem.Buffer) error { return ErrNotBuilt }

func (*Stream) Nesterov(vec.Update, float32, mem.Buffer, mem.Buffer, mem.Buffer) error {
	return ErrNotBuilt
}

func (*Stream) AdaGrad(vec.Update, float32, mem.Buffer, mem.Buffer, mem.Buffer) error {
	return ErrNotBuilt
}

func (*Stream) RMSProp(vec.Update, float32, float32, mem.Buffer, mem.Buffer, mem.Buffer) error {
	return ErrNotBuilt
}

func (*Stream) AdaDelta(vec.Update, float32, float32, mem.Buffer, mem.Buffer, mem.Buffer, mem.Buffer) error {
	return ErrNotBuilt
}

func (*Stream) Adam(vec.Update, float32, float32, float32, mem.Buffer, mem.Buffer, mem.Buffer, mem.Buffer) error {
	return ErrNotBuilt
}

func (*Stream) OpenLibraries(Math, func(int) (mem.Buffer, error)) (*Libraries, error) {
	return nil, ErrNotBuilt
}

// Libraries are NVIDIA's.
type Libraries struct{}

func (*Libraries) Close() error                                 { return ErrNotBuilt }
func (*Libraries) BLAS() Library                                { return Library{} }
func (*Libraries) DNN() Library                                 { return Library{} }
func (*Libraries) Multiply(Multiplication) error                { return ErrNotBuilt }
func (*Libraries) Convolves(Pass, ConvShape) (int, bool, error) { return 0, false, ErrNotBuilt }
func (*Libraries) Convolve(Pass, ConvShape, mem.Buffer, mem.Buffer, mem.Buffer, mem.Buffer) error {
	return ErrNotBuilt
}
func (*Libraries) AddBias(ConvShape, mem.Buffer, mem.Buffer) error { return ErrNotBuilt }
func (*Libraries) SumBias(ConvShape, mem.Buffer, mem.Buffer) error { return ErrNotBuilt }
