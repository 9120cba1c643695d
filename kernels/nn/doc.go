// Package nn holds the loops of layers that are worth vector instructions and
// are neither reductions (package kernels) nor products (kernels/blas,
// kernels/dnn): rectified linear units, local response normalisation, and
// max pooling.
//
// Each has a portable form in Go and an AVX2 form, which NewMaxPool and the
// functions choose by the processor. SCAFFE_KERNELS=portable asks for the
// portable one, as in package kernels. Both give the same bits (apart from the
// payload of NaNs). Nothing here allocates, apart from NewMaxPool.
//
// The AVX2 loops are written by internal/gen (go generate ./kernels/nn).
package nn
