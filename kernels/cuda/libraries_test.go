//go:build cuda && cgo && linux && (amd64 || arm64)

package cuda_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/kernels/cuda/cudatest"
	"github.com/scaffe/scaffe/mem"
)

// askedMath has a process that asks for GPUs open the libraries, too, with this math.
const askedMath = "SCAFFE_TEST_ASK_LIBRARIES"

// tellLibraries prints which there are, and what opening them comes to.
func tellLibraries(d *cuda.Device) {
	for name, find := range map[string]func() (cuda.Library, error){"cuBLAS": cuda.FindBLAS, "cuDNN": cuda.FindDNN} {
		of, err := find()
		fmt.Printf("%s: %s in %s, missing %v, error: %v\n", name, of.Version, filepath.Base(of.Name), errors.Is(err, cuda.ErrNoLibrary), err)
	}
	m, err := cuda.ParseMath(os.Getenv(askedMath))
	if err != nil {
		panic(err)
	}
	s, err := d.NewStream()
	if err != nil {
		panic(err)
	}
	l, err := s.OpenLibraries(m, d.Alloc)
	if err == nil {
		err = l.Close()
	}
	fmt.Printf("libraries: %v\n", err)
}

// Which libraries there are depends on the driver's version and on the variables that name files; one that is there and does not work is an error
// that says how to go on without it, on one line.
func TestLibraries(t *testing.T) {
	for name, c := range map[string]struct {
		files     string // that the dynamic linker finds
		blas, dnn string // the variables
		like      string
		math      cuda.Math
		env       string
		want      []string
	}{
		"none": {want: []string{"cuBLAS:  in ., missing true, error: not found: libcublas.so.13: cannot open", "cuDNN:  in ., missing true, error: not found: libcudnn.so.9: cannot open", "libraries: <nil>"}},
		"the latest that the driver takes": {
			files: "libcublas.so.13 libcublas.so.12 libcublas.so.11 libcudnn.so.8 libcudnn.so.9", like: "version=12080",
			want: []string{"cuBLAS: 12.4.5 in libcublas.so.12, missing false, error: <nil>", "cuDNN: 9.1.0 in libcudnn.so.9, missing false, error: <nil>", "libraries: <nil>"},
		},
		"older":               {files: "libcublas.so.11 libcudnn.so.8", like: "cublas=110101 cudnn=8907", want: []string{"cuBLAS: 11.1.1 in libcublas.so.11,", "cuDNN: 8.9.7 in libcudnn.so.8,", "libraries: <nil>"}},
		"named":               {blas: library, dnn: library, math: cuda.TF32, want: []string{"cuBLAS: 12.4.5 in libcuda-standin.so,", "libraries: <nil>"}},
		"left alone":          {files: "libcublas.so.12 libcudnn.so.9", blas: "none", dnn: "none", want: []string{"missing true, error: not found: SCAFFE_CUBLAS_LIBRARY is none", "not found: SCAFFE_CUDNN_LIBRARY is none", "libraries: <nil>"}},
		"no such file":        {blas: "/nowhere/b.so", want: []string{"missing false, error: SCAFFE_CUBLAS_LIBRARY names no cuBLAS: /nowhere/b.so: cannot open", "libraries: cuda:0 (stand-in 0): use NVIDIA's libraries: SCAFFE_CUBLAS_LIBRARY names no cuBLAS"}},
		"no such file, cuDNN": {dnn: "/nowhere/d.so", want: []string{"libraries: cuda:0 (stand-in 0): use NVIDIA's libraries: SCAFFE_CUDNN_LIBRARY names no cuDNN: /nowhere/d.so"}},
		"another's":           {blas: "libm.so.6", want: []string{"SCAFFE_CUBLAS_LIBRARY names no cuBLAS: ", "undefined symbol: cublasGetProperty"}},
		"another's, cuDNN":    {dnn: "libm.so.6", want: []string{"SCAFFE_CUDNN_LIBRARY names no cuDNN: ", "undefined symbol: cudnnGetVersion"}},
		"too old":             {blas: library, like: "cublas=100200", want: []string{"libcuda-standin.so is cuBLAS 10.2.0, and scaffe takes 11 to 13: SCAFFE_CUBLAS_LIBRARY names another file, or none for none"}},
		"too new":             {blas: library, like: "cublas=140000", want: []string{"is cuBLAS 14.0.0, and scaffe takes 11 to 13"}},
		"too old, cuDNN":      {dnn: library, like: "cudnn=7605", want: []string{"libcuda-standin.so is cuDNN 7.6.5, and scaffe takes 8 to 9: SCAFFE_CUDNN_LIBRARY names"}},
		"no version":          {blas: library, like: "fail=cublasGetProperty:1:1", want: []string{"does not tell its version: cublasGetProperty: CUBLAS_STATUS_NOT_INITIALIZED (1)"}},
		"does not start":      {blas: library, like: "fail=cublasCreate_v2:1:3", want: []string{"libraries: cuda:0 (stand-in 0): use NVIDIA's libraries: cuBLAS 12.4.5 (" + library + "): cublasCreate: CUBLAS_STATUS_ALLOC_FAILED (3) (SCAFFE_CUBLAS_LIBRARY=none computes without it)"}},
		"no workspace":        {blas: library, like: "fail=cublasSetWorkspace_v2:1:14", want: []string{"cublasSetWorkspace: CUBLAS_STATUS_INTERNAL_ERROR (14) (SCAFFE_CUBLAS_LIBRARY=none"}},
		"no such math":        {blas: library, like: "fail=cublasSetMathMode:1:8", want: []string{"cublasSetMathMode: CUBLAS_STATUS_ARCH_MISMATCH (8)"}},
		"cuDNN does not":      {dnn: library, like: "fail=cudnnCreate:1:1", want: []string{"cuDNN 9.1.0 (" + library + "): cudnnCreate: CUDNN_STATUS_NOT_INITIALIZED (1) (SCAFFE_CUDNN_LIBRARY=none computes without it)"}},
		"no stream for cuDNN": {dnn: library, like: "fail=cudnnSetStream:1:3", want: []string{"cudnnSetStream: CUDNN_STATUS_BAD_PARAM (3)"}},
		"TF32 without cuBLAS": {dnn: library, math: cuda.TF32, want: []string{"libraries: cuda:0 (stand-in 0): use NVIDIA's libraries: math tf32 takes cuBLAS, which is missing: not found: libcublas.so.13"}},
		"TF32 forbidden":      {blas: library, math: cuda.TF32, env: "NVIDIA_TF32_OVERRIDE=0", want: []string{"math tf32, and NVIDIA_TF32_OVERRIDE=0 forbids it"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for f := range strings.FieldsSeq(c.files) {
				if err := os.Symlink(library, filepath.Join(dir, f)); err != nil {
					t.Fatal(err)
				}
			}
			p := exec.Command(os.Args[0])
			p.Env = append(os.Environ(), asked+"=1", askedMath+"="+c.math.String(), cuda.EnvLibrary+"="+library, cudatest.Env+"="+c.like,
				cuda.EnvBLAS+"="+c.blas, cuda.EnvDNN+"="+c.dnn, "LD_LIBRARY_PATH="+dir, c.env)
			text, err := p.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			for _, w := range c.want {
				if !strings.Contains(string(text), w) {
					t.Errorf("want %q in\n%s", w, text)
				}
			}
			if _, said, _ := strings.Cut(string(text), "libraries: "); strings.Count(said, "\n") != 1 {
				t.Errorf("not one line: %s", said)
			}
		})
	}
}

// Products by cuBLAS are those of the kernel, of matrices that lie by rows and by columns, with room between rows and between those of a batch, and
// of single rows and columns; TF32's are not. What cuBLAS cannot express the kernel computes.
func TestMultiply(t *testing.T) {
	t.Setenv(cuda.EnvBLAS, library)
	d, s := open(t)
	var rooms []mem.Buffer
	alloc := func(n int) (mem.Buffer, error) {
		b, err := d.Alloc(n)
		rooms = append(rooms, b)
		return b, err
	}
	l, err := s.OpenLibraries(cuda.F32, alloc)
	if err != nil {
		t.Fatal(err)
	}
	const n = 4096
	x, y, z, host := device(t, d, n), device(t, d, n), device(t, d, n), mem.Alloc(4*n)
	defer host.Free()
	r := rand.New(rand.NewPCG(3, 4))
	fill := func(b mem.Buffer) {
		for i := range mem.Float32s(host) {
			mem.Float32s(host)[i] = float32(r.IntN(17) - 8) // sums are exact
		}
		if err := errors.Join(s.Copy(b, host), s.Synchronize(within)); err != nil {
			t.Fatal(err)
		}
	}
	fill(x)
	fill(y)
	result := func(m cuda.Multiplication, do func(cuda.Multiplication) error) []float32 {
		t.Helper()
		r = rand.New(rand.NewPCG(5, 6))
		fill(z)
		m.C.In, m.A.In, m.B.In = z, x, y
		if err := errors.Join(do(m), s.Copy(host, z), s.Synchronize(within)); err != nil {
			t.Fatal(err)
		}
		return append([]float32(nil), mem.Float32s(host)...)
	}
	// lying returns the ways in which rows×cols may lie.
	lying := func(rows, cols int) []cuda.Matrix {
		return []cuda.Matrix{{Row: cols, Col: 1}, {Row: cols + 3, Col: 1, Step: 1 + rows*(cols+3)}, {Row: 1, Col: rows}, {Row: 1, Col: rows + 2, Step: cols * (rows + 2)}, {Row: 2 * cols, Col: 2}}
	}
	for _, size := range [][3]int{{5, 7, 6}, {1, 7, 6}, {5, 1, 6}, {5, 7, 1}, {1, 1, 6}, {1, 1, 1}, {4, 4, 4}} {
		rows, cols, terms := size[0], size[1], size[2]
		for _, a := range lying(rows, terms) {
			for _, b := range lying(terms, cols) {
				for _, c := range lying(rows, cols)[:2] {
					for batch := 1; batch <= 3; batch += 2 {
						if batch > 1 && c.Step == 0 {
							continue
						}
						m := cuda.Multiplication{C: c, A: a, B: b, Rows: rows, Cols: cols, Terms: terms, Batch: batch, Add: batch == 3}
						want, got := result(m, s.Multiply), result(m, l.Multiply)
						if !slices.Equal(want, got) {
							t.Fatalf("%+v: not what the kernel computes", m)
						}
					}
				}
			}
		}
	}
	cudatest.Change(t, library, "fail=cublasSgemm_v2:1:14", asUsual)
	m := cuda.Multiplication{C: cuda.Matrix{In: z, Row: 4, Col: 1}, A: cuda.Matrix{In: x, Row: 4, Col: 1}, B: cuda.Matrix{In: y, Row: 4, Col: 1}, Rows: 4, Cols: 4, Terms: 4, Batch: 1}
	if err := l.Multiply(m); err == nil {
		t.Error("the product has not gone through cuBLAS")
	}
	m.B = cuda.Matrix{In: y, Row: 8, Col: 2}
	if err := l.Multiply(m); err != nil {
		t.Errorf("what cuBLAS cannot express: %v", err)
	}
	cudatest.Change(t, library, "fail=none", asUsual)
	if err := errors.Join(s.Synchronize(within), l.Close()); err != nil {
		t.Error(err)
	}
	for _, b := range rooms {
		if err := d.Free(b); err != nil {
			t.Error(err)
		}
	}
}

// device returns n float32 of the GPU's memory, until the test ends.
func device(t *testing.T, d *cuda.Device, n int) mem.Buffer {
	t.Helper()
	b, err := d.Alloc(4 * n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Free(b); err != nil {
			t.Error(err)
		}
	})
	return b
}
