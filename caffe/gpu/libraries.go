package gpu

import (
	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/mem"
)

// UseLibraries has products and convolutions go through NVIDIA's cuBLAS and cuDNN, each where this machine has it. Without it,
// and where they are missing, kernels of this project compute them.
func (d *Device) UseLibraries(math cuda.Math) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	l, err := d.stream.OpenLibraries(math, func(n int) (mem.Buffer, error) { return d.alloc(n), d.err })
	if err != nil {
		return err
	}
	d.libraries, d.math = l, math
	return nil
}

// Libraries says which of NVIDIA's libraries compute, such as "cuBLAS 12.4.5, cuDNN 9.1.0, tf32".
func (d *Device) Libraries() string {
	if d.libraries == nil {
		return ""
	}
	text := ""
	if v := d.libraries.BLAS().Version; v != "" {
		text = "cuBLAS " + v
	}
	if v := d.libraries.DNN().Version; v != "" {
		if text != "" {
			text += ", "
		}
		text += "cuDNN " + v
	}
	if text != "" && d.math != cuda.F32 {
		text += ", " + d.math.String()
	}
	return text
}

// Multiply begins a product.
func (d *Device) Multiply(m cuda.Multiplication) {
	d.Do(func(s *cuda.Stream) error {
		if d.libraries != nil {
			return d.libraries.Multiply(m)
		}
		return s.Multiply(m)
	})
}

// Convolve begins a pass of a convolution and reports true, where cuDNN does it: to of a and b. Its workspace is Scratch.
func (d *Device) Convolve(pass cuda.Pass, s cuda.ConvShape, a, b, to mem.Buffer) bool {
	does, room := false, 0
	d.libraryDo(func(l *cuda.Libraries) (err error) {
		room, does, err = l.Convolves(pass, s)
		return err
	})
	if !does {
		return false
	}
	workspace := d.Scratch(room)
	d.libraryDo(func(l *cuda.Libraries) error { return l.Convolve(pass, s, a, b, to, workspace) })
	return true
}

// AddBias begins y += bias, and reports true, where cuDNN does the forward pass.
func (d *Device) AddBias(s cuda.ConvShape, y, bias mem.Buffer) bool {
	return d.biased(cuda.Forward, s, func(l *cuda.Libraries) error { return l.AddBias(s, y, bias) })
}

// SumBias begins to add y's gradient to that of the bias, and reports true, where cuDNN does the weights'.
func (d *Device) SumBias(s cuda.ConvShape, gradient, dy mem.Buffer) bool {
	return d.biased(cuda.BackwardFilter, s, func(l *cuda.Libraries) error { return l.SumBias(s, gradient, dy) })
}

func (d *Device) biased(pass cuda.Pass, s cuda.ConvShape, do func(*cuda.Libraries) error) bool {
	does := false
	d.libraryDo(func(l *cuda.Libraries) (err error) {
		if _, does, err = l.Convolves(pass, s); does {
			err = do(l)
		}
		return err
	})
	return does
}

// libraryDo is Do with the libraries, where there are any.
func (d *Device) libraryDo(do func(*cuda.Libraries) error) {
	if d.libraries != nil {
		d.Do(func(*cuda.Stream) error { return do(d.libraries) })
	}
}
