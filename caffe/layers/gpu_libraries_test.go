//go:build cuda && cgo && linux && (amd64 || arm64)

package layers

import (
	"math"
	"strings"
	"testing"

	"github.com/scaffe/scaffe/caffe/gpu"
	"github.com/scaffe/scaffe/kernels/cuda"
	"github.com/scaffe/scaffe/kernels/cuda/cudatest"
)

// both has all of NVIDIA's libraries.
var both = with{blas: true, dnn: true}

// The products of layers go through cuBLAS and the convolutions through cuDNN where they are there: a call that fails is the
// one message of the pass, and names the library, its version, the call and the GPU.
func TestLibraryCallsThatFail(t *testing.T) {
	library, err := standIn()
	if err != nil {
		t.Fatal(err)
	}
	blas := with{blas: true}
	for _, x := range []struct {
		w          with
		typ        string
		call, says string
		code       string
	}{
		{both, "InnerProduct", "cublasSgemm_v2", "multiply: cuBLAS 12.4.5: cublasSgemm: CUBLAS_STATUS_EXECUTION_FAILED (13)", "13"},
		{blas, "Convolution", "cublasSgemmStridedBatched", "multiply: cuBLAS 12.4.5: cublasSgemmStridedBatched: CUBLAS_STATUS_NOT_SUPPORTED (15)", "15"},
		{both, "Convolution", "cudnnConvolutionForward", "cuDNN 9.1.0 (" + library + "): cudnnConvolutionForward: CUDNN_STATUS_EXECUTION_FAILED (8)", "8"},
		{both, "Convolution", "cudnnConvolutionBackwardData", "cudnnConvolutionBackwardData: CUDNN_STATUS_EXECUTION_FAILED (8)", "8"},
		{both, "Convolution", "cudnnConvolutionBackwardFilter", "cudnnConvolutionBackwardFilter: CUDNN_STATUS_BAD_PARAM (3)", "3"},
		{both, "Convolution", "cudnnConvolutionBackwardBias", "sum the gradient of a bias: cuDNN 9.1.0 (" + library + "): cudnnConvolutionBackwardBias: CUDNN_STATUS_EXECUTION_FAILED (8)", "8"},
		{both, "Convolution", "cudnnAddTensor", "cudnnAddTensor: CUDNN_STATUS_EXECUTION_FAILED (8)", "8"},
		{both, "Convolution", "cudnnCreateTensorDescriptor", "cudnnCreateTensorDescriptor: CUDNN_STATUS_NOT_INITIALIZED (1)", "1"},
		{both, "Convolution", "cudnnSetConvolutionGroupCount", "cudnnSetConvolutionGroupCount: CUDNN_STATUS_BAD_PARAM (3)", "3"},
		{both, "Convolution", "cudnnGetConvolutionBackwardDataAlgorithm_v7", "cudnnGetConvolutionBackwardDataAlgorithm_v7: CUDNN_STATUS_NOT_SUPPORTED (9)", "9"},
	} {
		t.Run(x.call, func(t *testing.T) {
			_, err := computed(t, x.typ, gradientCases[x.typ][0], func() *gpu.Device {
				d := openGPU(t, x.w)
				cudatest.Change(t, library, "fail="+x.call+":1:"+x.code, "fail=none")
				return d
			})
			if err == nil || !strings.Contains(err.Error(), x.says) || !strings.HasPrefix(err.Error(), "cuda:0 (stand-in 0): ") || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v\nwant one line with %q", err, x.says)
			}
		})
	}
}

// Without an algorithm of cuDNN's that gives the same bits each time, a pass is computed by products; the others stay cuDNN's.
func TestConvolutionWithoutAnAlgorithm(t *testing.T) {
	library, err := standIn()
	if err != nil {
		t.Fatal(err)
	}
	c := gradientCases["Convolution"][0]
	want, _ := computed(t, "Convolution", c, nil)
	got, err := computed(t, "Convolution", c, func() *gpu.Device {
		d := openGPU(t, with{dnn: true})
		cudatest.Change(t, library, "fail=cudnnGetConvolutionForwardWorkspaceSize:1:9", "fail=none")
		return d
	})
	if err != nil {
		t.Fatal(err)
	}
	for k := range want {
		for i, w := range want[k] {
			if g := got[k][i]; !(math.Abs(float64(g-w)) <= 1e-5*(1+math.Abs(float64(w)))) {
				t.Fatalf("vector %d, element %d: %v, on the CPU %v", k, i, g, w)
			}
		}
	}
}

// Products are of float32 unless somebody asks for TF32, which then are less exact, by cuBLAS and by cuDNN.
func TestMathOfLibraries(t *testing.T) {
	for _, typ := range []string{"InnerProduct", "Convolution"} {
		c := gradientCases[typ][0]
		want, _ := computed(t, typ, c, nil)
		for _, m := range []cuda.Math{cuda.F32, cuda.TF32} {
			got, err := computed(t, typ, c, func() *gpu.Device { return openGPU(t, with{blas: true, dnn: true, math: m}) })
			if err != nil {
				t.Fatal(err)
			}
			most := 0.0
			for k := range want {
				for i, w := range want[k] {
					most = max(most, math.Abs(float64(got[k][i]-w))/(1+math.Abs(float64(w))))
				}
			}
			if exact := most < 1e-5; exact != (m == cuda.F32) || most > 1e-2 {
				t.Errorf("%s, math %v: off by up to %g", typ, m, most)
			}
		}
	}
}

// The memory that cuBLAS has to itself is counted.
func TestLibraryWorkspaceIsCounted(t *testing.T) {
	alone, _ := openGPU(t, with{}).Bytes()
	if blas, _ := openGPU(t, with{blas: true}).Bytes(); blas != alone+4<<20 {
		t.Errorf("with cuBLAS %d bytes more, not its workspace of 4 MiB", blas-alone)
	}
}
