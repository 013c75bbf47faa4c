//go:build !windows

package bridge

import (
	"fmt"
	"os"

	"github.com/ebitengine/purego"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
	"gorgonia.org/tensor"
)

// openBLAS is gonum's BLAS with the products of matrices of OpenBLAS, which is
// what a careful user of Gorgonia sets by tensor.Use.
type openBLAS struct {
	gonum.Implementation
	sgemm func(order, ta, tb, m, n, k int32, alpha float32, a *float32, lda int32, b *float32, ldb int32, beta float32, c *float32, ldc int32)
	sgemv func(order, ta, m, n int32, alpha float32, a *float32, lda int32, x *float32, incX int32, beta float32, y *float32, incY int32)
}

var _ tensor.BLAS = (*openBLAS)(nil)

// openOpenBLAS loads the system's OpenBLAS, or the file that AMPC_OPENBLAS names.
func openOpenBLAS() (*openBLAS, error) {
	name := os.Getenv("AMPC_OPENBLAS")
	if name == "" {
		name = "libopenblas.so.0"
	}
	lib, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, err
	}
	o := &openBLAS{}
	for symbol, f := range map[string]any{"cblas_sgemm": &o.sgemm, "cblas_sgemv": &o.sgemv} {
		at, err := purego.Dlsym(lib, symbol)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		purego.RegisterFunc(f, at)
	}
	return o, nil
}

const rowMajorOrder = 101 // cblas.h

func cblasTranspose(t blas.Transpose) int32 {
	if t == blas.NoTrans {
		return 111
	}
	return 112
}

func (o *openBLAS) Sgemm(ta, tb blas.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	o.sgemm(rowMajorOrder, cblasTranspose(ta), cblasTranspose(tb), int32(m), int32(n), int32(k), alpha, &a[0], int32(lda), &b[0], int32(ldb), beta, &c[0], int32(ldc))
}

func (o *openBLAS) Sgemv(ta blas.Transpose, m, n int, alpha float32, a []float32, lda int, x []float32, incX int, beta float32, y []float32, incY int) {
	o.sgemv(rowMajorOrder, cblasTranspose(ta), int32(m), int32(n), alpha, &a[0], int32(lda), &x[0], int32(incX), beta, &y[0], int32(incY))
}
