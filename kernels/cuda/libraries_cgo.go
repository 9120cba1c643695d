//go:build cuda && cgo && linux && (amd64 || arm64)

package cuda

import (
	"errors"
	"fmt"
	"os"

	"github.com/scaffe/scaffe/kernels/cuda/internal/driver"
	"github.com/scaffe/scaffe/mem"
)

// Libraries are cuBLAS and cuDNN on a stream, each where the machine has it. What they are asked for goes there as what
// else is put on the stream, and gives the same bits each time: cuBLAS has memory of its own, so that it chooses alike whatever other
// streams do, and cuDNN's algorithms are of those that it calls deterministic. One goroutine at a time may use them.
type Libraries struct {
	s             *Stream
	math          Math
	blas          *driver.BLAS
	dnn           *driver.DNN
	blasIs, dnnIs Library
	shapes        map[ConvShape]*driver.Convolution
}

// blasWorkspace is what NVIDIA recommends: 32 MiB from the generation of Hopper on, 4 MiB before.
func (d *Device) blasWorkspace() int {
	if d.SM >= 90 {
		return 32 << 20
	}
	return 4 << 20
}

// OpenLibraries makes the libraries ready that the machine has. alloc returns memory of the GPU, which stays until after
// Close. TF32 is an error without cuBLAS.
func (s *Stream) OpenLibraries(math Math, alloc func(int) (mem.Buffer, error)) (*Libraries, error) {
	l := &Libraries{s: s, math: math, shapes: make(map[ConvShape]*driver.Convolution)}
	err := l.open(alloc)
	if err != nil {
		return nil, s.d.wrap("use NVIDIA's libraries", errors.Join(err, l.Close()))
	}
	return l, nil
}

func (l *Libraries) open(alloc func(int) (mem.Buffer, error)) (err error) {
	d := l.s.d
	l.blasIs, err = driver.FindBLAS()
	switch {
	case errors.Is(err, ErrNoLibrary) && l.math == TF32:
		return fmt.Errorf("math tf32 takes cuBLAS, which is missing: %w", err)
	case errors.Is(err, ErrNoLibrary):
	case err != nil:
		return orElse(EnvBLAS, err)
	case l.math == TF32 && os.Getenv("NVIDIA_TF32_OVERRIDE") == "0":
		return errors.New("math tf32, and NVIDIA_TF32_OVERRIDE=0 forbids it: unset that, or use math f32")
	default:
		n := d.blasWorkspace()
		room, err := alloc(n)
		if err != nil {
			return err
		}
		if l.blas, err = d.c.OpenBLAS(l.s.s, room.Pointer(), n, l.math == TF32); err != nil {
			return orElse(EnvBLAS, fmt.Errorf("cuBLAS %s (%s): %w", l.blasIs.Version, l.blasIs.Name, err))
		}
	}
	l.dnnIs, err = driver.FindDNN()
	switch {
	case errors.Is(err, ErrNoLibrary):
	case err != nil:
		return orElse(EnvDNN, err)
	default:
		if l.dnn, err = d.c.OpenDNN(l.s.s); err != nil {
			return orElse(EnvDNN, l.ofDNN(err))
		}
	}
	return nil
}

func (l *Libraries) ofDNN(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("cuDNN %s (%s): %w", l.dnnIs.Version, l.dnnIs.Name, err)
}

// Close gives them back, when what is on the stream has been done.
func (l *Libraries) Close() error {
	var errs []error
	for _, c := range l.shapes {
		c.Forget()
	}
	if l.blas != nil {
		errs = append(errs, l.blas.Close())
	}
	if l.dnn != nil {
		errs = append(errs, l.dnn.Close())
	}
	l.blas, l.dnn, l.shapes = nil, nil, nil
	return l.s.d.wrap("give NVIDIA's libraries back", errors.Join(errs...))
}

// BLAS and DNN say which there are; a name is empty where there is none.
func (l *Libraries) BLAS() Library { return l.blasIs }

// DNN is BLAS for cuDNN.
func (l *Libraries) DNN() Library { return l.dnnIs }

// Multiply puts a product on the stream, by cuBLAS where that is there and can, else by the kernel.
func (l *Libraries) Multiply(m Multiplication) error {
	if l.blas == nil {
		return l.s.Multiply(m)
	}
	p, ok := m.forBLAS()
	if !ok {
		return l.s.Multiply(m)
	}
	if err := l.blas.Do(p); err != nil {
		return l.s.d.wrap("multiply", fmt.Errorf("cuBLAS %s: %w", l.blasIs.Version, err))
	}
	return nil
}

// plan returns what cuDNN has made of a shape, or nil.
func (l *Libraries) plan(s ConvShape) (*driver.Convolution, error) {
	if l.dnn == nil || !fits(s) {
		return nil, nil
	}
	c := l.shapes[s]
	if c == nil {
		var err error
		if c, err = l.dnn.Plan(s, l.math == TF32, convolutionRoom(l.s.d.GPU.Memory)); err != nil {
			return nil, l.s.d.wrap(fmt.Sprintf("plan convolutions of %+v", s), l.ofDNN(err))
		}
		l.shapes[s] = c
	}
	return c, nil
}

// Convolves reports whether cuDNN does a pass of such convolutions, and how much workspace that takes.
func (l *Libraries) Convolves(pass Pass, s ConvShape) (workspace int, ok bool, err error) {
	c, err := l.plan(s)
	if c == nil {
		return 0, false, err
	}
	algorithm, workspace := c.Algorithm(int(pass))
	return workspace, algorithm >= 0, nil
}

// Convolve puts a pass on the stream that cuDNN does: to of a and b, with the workspace that it takes.
func (l *Libraries) Convolve(pass Pass, s ConvShape, a, b, to, workspace mem.Buffer) error {
	return l.convolve("convolve", s, func(c *driver.Convolution) error {
		return c.Do(int(pass), a.Pointer(), b.Pointer(), to.Pointer(), workspace.Pointer())
	})
}

// AddBias puts y += bias on the stream, for convolutions that cuDNN does.
func (l *Libraries) AddBias(s ConvShape, y, bias mem.Buffer) error {
	return l.convolve("add a bias", s, func(c *driver.Convolution) error { return c.AddBias(y.Pointer(), bias.Pointer()) })
}

// SumBias puts the gradient of a bias += y's on the stream, likewise.
func (l *Libraries) SumBias(s ConvShape, gradient, dy mem.Buffer) error {
	return l.convolve("sum the gradient of a bias", s, func(c *driver.Convolution) error { return c.SumBias(gradient.Pointer(), dy.Pointer()) })
}

func (l *Libraries) convolve(what string, s ConvShape, do func(*driver.Convolution) error) error {
	c, err := l.plan(s)
	switch {
	case err != nil:
		return err
	case c == nil:
		return l.s.d.wrap(what, errors.New("cuDNN does no such convolutions"))
	}
	return l.s.d.wrap(what, l.ofDNN(do(c)))
}

// Multiply puts a product by the kernel product on the stream.
func (s *Stream) Multiply(m Multiplication) error {
	const tile = 4
	plus := int64(0)
	if m.Add {
		plus = 1
	}
	items := m.Batch * ((m.Rows + tile - 1) / tile) * ((m.Cols + tile - 1) / tile)
	return s.Launch(Product, items, []mem.Buffer{m.C.In, m.A.In, m.B.In}, int64(m.Rows), int64(m.Cols), int64(m.Terms), int64(m.A.Row), int64(m.A.Col),
		int64(m.B.Row), int64(m.B.Col), int64(m.C.Row), int64(m.Batch), int64(m.A.Step), int64(m.B.Step), int64(m.C.Step), plus)
}

// stored says how rows×cols of m lie for cuBLAS, whose matrices lie by columns: what it takes m, by rows, for
// is m's transpose, and with transposed m itself. The leading dimension has to hold a whole row.
func (m Matrix) stored(rows, cols int) (transposed bool, leading int, ok bool) {
	switch {
	case m.Col == 1 && (m.Row >= cols || rows <= 1):
		return false, max(m.Row, cols, 1), true
	case m.Row == 1 && (m.Col >= rows || cols <= 1):
		return true, max(m.Col, rows, 1), true
	case cols <= 1 && m.Row > 0:
		return false, m.Row, true
	case rows <= 1 && m.Col > 0:
		return true, m.Col, true
	}
	return false, 0, false
}

// forBLAS returns the product as cuBLAS computes it, transposed: Cᵀ = Bᵀ·Aᵀ, of which each lies by columns. Where it
// cannot, or there is nothing to do, ok is false.
func (m Multiplication) forBLAS() (p driver.Product, ok bool) {
	const most = 1<<31 - 1
	b, ldb, fits := m.B.stored(m.Terms, m.Cols)
	a, lda, also := m.A.stored(m.Rows, m.Terms)
	c, ldc, goes := m.C.stored(m.Rows, m.Cols)
	if !fits || !also || !goes || c || min(m.Rows, m.Cols, m.Terms, m.Batch) < 1 || max(m.Rows, m.Cols, m.Terms, m.Batch, lda, ldb, ldc) > most {
		return p, false
	}
	return driver.Product{
		TransA: b, TransB: a, M: m.Cols, N: m.Rows, K: m.Terms, LDA: ldb, LDB: lda, LDC: ldc,
		Batch: m.Batch, StepA: m.B.Step, StepB: m.A.Step, StepC: m.C.Step, A: m.B.In.Pointer(), B: m.A.In.Pointer(), C: m.C.In.Pointer(), Add: m.Add,
	}, true
}

// convolutionRoom bounds the workspace that cuDNN is given on a GPU with so much memory: the fastest ways of large batches take up to
// a gigabyte, and there is one workspace for all.
func convolutionRoom(memory int64) int { return int(max(256<<20, memory/64)) }

// fits reports whether cuDNN's numbers hold the shape.
func fits(s ConvShape) bool {
	const most = 1<<31 - 1
	return s.N > 0 && max(s.N*s.In*s.H*s.W, s.N*s.Out*s.OutH*s.OutW, s.Out*s.In/s.Groups*s.KernelH*s.KernelW) <= most
}

// orElse says how to go on without a library that does not work.
func orElse(env string, err error) error {
	if err == nil || errors.Is(err, ErrNoLibrary) {
		return err
	}
	return fmt.Errorf("%w (%s=%s computes without it)", err, env, NoLibrary)
}
