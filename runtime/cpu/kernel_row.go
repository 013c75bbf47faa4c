package cpu

import (
	"fmt"

	"ampc/ir"
	"ampc/runtime/cpu/kern"
)

// rowKernels work along one axis.
var rowKernels = map[ir.Op]binder{
	ir.OpSoftmax:        alongAxis(func(m *kern.Machine, y, x, _ kern.Buf, rows, cols int) { m.Softmax(y, x, rows, cols) }),
	ir.OpLogSoftmax:     alongAxis(func(m *kern.Machine, y, x, _ kern.Buf, rows, cols int) { m.LogSoftmax(y, x, rows, cols) }),
	ir.OpRope:           bindRope,
	ir.OpSoftmaxGrad:    alongAxis(func(m *kern.Machine, dx, y, dy kern.Buf, rows, cols int) { m.SoftmaxGrad(dx, y, dy, rows, cols) }),
	ir.OpLogSoftmaxGrad: alongAxis(func(m *kern.Machine, dx, y, dy kern.Buf, rows, cols int) { m.LogSoftmaxGrad(dx, y, dy, rows, cols) }),
}

// axis normalizes the axis attribute and splits v's shape at it.
func (c *call) axis(v view) (outer, n, inner int) {
	d := v.dims()
	a := int(c.Int("axis"))
	if a < 0 {
		a += len(d)
	}
	return around(d, a)
}

// around multiplies the sizes before, at and after axis a.
func around(d []int, a int) (outer, n, inner int) {
	outer, n, inner = 1, d[a], 1
	for _, x := range d[:a] {
		outer *= x
	}
	for _, x := range d[a+1:] {
		inner *= x
	}
	return outer, n, inner
}

// lineAt is where a line along an axis of n elements begins, before inner others.
func lineAt(line, n, inner int) int { return line/inner*n*inner + line%inner }

// alongAxis runs a row kernel along the axis attribute. If that is not the last axis, operands are
// transposed to rows of f32 and the result is transposed back.
func alongAxis(f func(m *kern.Machine, out, a, b kern.Buf, rows, cols int)) binder {
	return func(c *call) (func(), error) {
		if err := c.onlyFloats(); err != nil {
			return nil, err
		}
		outer, n, inner := c.axis(c.out[0])
		m, y, a, b := c.m, c.out[0], c.in[0], c.arg(1)
		if inner == 1 {
			return c.following(func() { f(m, y.buf(), a.buf(), b.buf(), outer, n) }), nil
		}
		rows := outer * inner
		tmp := func() kern.Buf { return kern.Floats(c.mem.whole(rows * n)) }
		ta, ty, tb := tmp(), tmp(), kern.Buf{}
		load := []func(){c.transposeIn(ta, a, outer, n, inner)}
		if !b.absent() {
			tb = tmp()
			load = append(load, c.transposeIn(tb, b, outer, n, inner))
		}
		back := c.transposeOut(y, ty, outer, n, inner)
		return func() {
			for _, g := range load {
				g()
			}
			f(m, ty, ta, tb, rows, n)
			back()
		}, nil
	}
}

// transposeIn widens v [outer,n,inner] into rows [outer,inner,n] of f32.
func (c *call) transposeIn(dst kern.Buf, v view, outer, n, inner int) func() {
	to := slice[float32](dst.Data)
	return c.parallel(outer*n, inner, func(_, i int) {
		o, k := i/n, i%n
		for j := range inner {
			to[(o*inner+j)*n+k] = v.float(i*inner + j)
		}
	})
}

// transposeOut is the inverse of transposeIn: it rounds rows to elements of v.
func (c *call) transposeOut(v view, src kern.Buf, outer, n, inner int) func() {
	from := slice[float32](src.Data)
	return c.parallel(outer*n, inner, func(_, i int) {
		o, k := i/n, i%n
		for j := range inner {
			v.set(i*inner+j, from[(o*inner+j)*n+k])
		}
	})
}

// onlyFloats fails if a float operand or result has a dtype that the vector kernels cannot store.
func (c *call) onlyFloats() error {
	for _, list := range [2][]view{c.in, c.out} {
		for _, v := range list {
			if _, ok := kernTypes[v.t.DType]; !ok && !v.absent() && v.t.DType.Float() {
				return fmt.Errorf("the CPU has no %s kernel for %s", c.Def().Name, v.t.DType)
			}
		}
	}
	return nil
}
