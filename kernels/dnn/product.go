package dnn

import "github.com/scaffe/scaffe/kernels/blas"

// ProductsBy names what computes Product, and says with how many threads at most.
func ProductsBy() (name string, threads int) {
	if Products {
		return Name(), Threads()
	}
	return blas.Name(), blas.Threads()
}

// Product is blas.Gemm with alpha 1, by oneDNN where that is fast.
func Product(transA, transB bool, m, n, k int, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) error {
	if Products && min(m, n, k) > 0 {
		return Gemm(transA, transB, m, n, k, 1, a, lda, b, ldb, beta, c, ldc)
	}
	blas.Gemm(transA, transB, m, n, k, 1, a, lda, b, ldb, beta, c, ldc)
	return nil
}
