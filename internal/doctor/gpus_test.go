package doctor

import (
	"bytes"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/kernels/cuda/cudatest"
)

// The GPUs of a stand-in for the driver, as the list shows them.
func TestGPUs(t *testing.T) {
	if !cuda.Built {
		t.Skip("built without the tag cuda")
	}
	library, err := cudatest.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(cuda.EnvLibrary, library)
	t.Setenv(cuda.EnvBLAS, library)
	t.Setenv(cudatest.Env, "devices=2 mode=3 version=12080")
	for _, c := range []struct{ dnn, want string }{
		{cuda.NoLibrary, `ok  GPUs             2, driver for CUDA 12.8
                      cuda:0 stand-in 0, 1.0 GiB, sm_80, GPU-10101010-1010-1010-1010-101010101010, PCI 0000:3b:00.0, compute mode Exclusive_Process
                      cuda:1 stand-in 1, 1.0 GiB, sm_80, GPU-11111111-1111-1111-1111-111111111111, PCI 0000:3c:00.0, compute mode Exclusive_Process
                      cuBLAS 12.4.5 (` + library + `) for products
                      no cuDNN (not found: SCAFFE_CUDNN_LIBRARY is none): convolutions by scaffe's own kernels
`},
		{"libm.so.6", "!!  GPUs             2, driver"},
		{"libm.so.6", "    wrong: SCAFFE_CUDNN_LIBRARY names no cuDNN: "},
	} {
		t.Setenv(cuda.EnvDNN, c.dnn)
		var b bytes.Buffer
		if Print(&b, []Finding{gpus()}) {
			t.Error("fatal")
		}
		if got := b.String(); !strings.Contains(got, c.want) {
			t.Errorf("%s\nwant\n%s", got, c.want)
		}
	}
}
