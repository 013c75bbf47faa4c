package eval

import (
	"fmt"

	"ampc/internal/fp"
	"ampc/ir"
)

var linearFns = map[ir.Op]fn{
	ir.OpMatmul:        matmul,
	ir.OpLinear:        linear,
	ir.OpEmbedding:     embedding,
	ir.OpEmbeddingGrad: embeddingGrad,
}

// operand returns operand i, nil where it is absent.
func (c *call) operand(i int) *Tensor {
	if i >= len(c.in) {
		return nil
	}
	return c.in[i]
}

// factor returns the elements of a product's operand: rounded to 10 bits of
// mantissa where the node says tf32.
func (c *call) factor(i int) []float64 {
	f := c.in[i].F
	if c.opt.Float64 || c.Str("math") != "tf32" || c.in[i].Type.DType != ir.F32 {
		return f
	}
	r := make([]float64, len(f))
	for k, x := range f {
		r[k] = float64(fp.TF32(float32(x)))
	}
	return r
}

// mat is a matrix inside a slice: element (r,c) stands at at + r·row + c·col.
type mat struct {
	f            []float64
	at, row, col int
}

// product adds a[m,k]·b[k,n] to y.
func product(y, a, b mat, m, n, k int) {
	for i := range m {
		for j := range k {
			x := a.f[a.at+i*a.row+j*a.col]
			for l := range n {
				y.f[y.at+i*y.row+l*y.col] += x * b.f[b.at+j*b.row+l*b.col]
			}
		}
	}
}

// matrixOf is a rows×cols matrix at offset at, stored transposed or not.
func matrixOf(f []float64, at, rows, cols int, transposed bool) mat {
	if transposed {
		return mat{f, at, 1, rows}
	}
	return mat{f, at, cols, 1}
}

func matmul(c *call) error {
	a, b := c.factor(0), c.factor(1)
	da, db, dy := c.in[0].dims(), c.in[1].dims(), c.out[0].dims()
	ta, tb := c.Flag("ta"), c.Flag("tb")
	batch := len(dy) - 2
	m, n, k := dy[batch], dy[batch+1], da[len(da)-1]
	if ta {
		k = da[len(da)-2]
	}
	wa := walk{strides: broadcastStrides(da[:len(da)-2], dy[:batch]), shape: dy[:batch]}
	wb := walk{strides: broadcastStrides(db[:len(db)-2], dy[:batch]), shape: dy[:batch]}
	for i := range volume(dy[:batch]) {
		product(matrixOf(c.out[0].F, i*m*n, m, n, false),
			matrixOf(a, wa.offset(i)*m*k, m, k, ta), matrixOf(b, wb.offset(i)*k*n, k, n, tb), m, n, k)
	}
	return nil
}

func linear(c *call) error {
	x, w, y := c.factor(0), c.factor(1), c.out[0]
	n := y.dims()[len(y.dims())-1]
	k := c.in[0].dims()[len(c.in[0].dims())-1]
	m := volume(y.dims()) / max(n, 1)
	if b := c.operand(2); b != nil {
		for i := range y.F {
			y.F[i] = b.F[i%n]
		}
	}
	product(matrixOf(y.F, 0, m, n, false), matrixOf(x, 0, m, k, false), matrixOf(w, 0, k, n, c.Flag("tb")), m, n, k)
	return nil
}

// volume is the number of elements of a shape.
func volume(d []int) int {
	n := 1
	for _, x := range d {
		n *= x
	}
	return n
}

// eachRow calls f with the index of every id and the offset of its table row.
func eachRow(ids *Tensor, rows, width int, f func(i, at int)) error {
	for i, id := range ids.I {
		if id < 0 || int(id) >= rows {
			return fmt.Errorf("id %d is outside 0..%d", id, rows-1)
		}
		f(i, int(id)*width)
	}
	return nil
}

func embedding(c *call) error {
	table, y := c.in[0], c.out[0]
	d := table.dims()
	return eachRow(c.in[1], d[0], d[1], func(i, at int) { copy(y.F[i*d[1]:], table.F[at:at+d[1]]) })
}

func embeddingGrad(c *call) error {
	dy, table := c.in[0], c.out[0]
	d := table.dims()
	return eachRow(c.in[1], d[0], d[1], func(i, at int) {
		for k := range d[1] {
			table.F[at+k] += dy.F[i*d[1]+k]
		}
	})
}
