package onnx

import (
	"ampc/ir"
)

var softmaxRows = []row{
	softmaxRow("Softmax", (*ir.Builder).Softmax, "softmax"),
	softmaxRow("LogSoftmax", (*ir.Builder).LogSoftmax, "log_softmax"),
	softmaxRow("Hardmax", hardmax, "argmax, one_hot"),
}

// softmaxRow normalizes along an axis; before opset 13 along all axes from it on.
func softmaxRow(op string, f func(b *ir.Builder, x *ir.Value, axis int64) *ir.Value, ours string) row {
	return row{op: op, since: 1, ours: ours, imp: func(c *call) []*ir.Value {
		d := c.dims(0)
		if c.opset >= 13 {
			return one(f(c.b, c.x(0), c.axis(c.int("axis", -1), len(d))))
		}
		a := c.axis(c.int("axis", 1), len(d))
		if a == int64(len(d))-1 {
			return one(f(c.b, c.x(0), a))
		}
		y := c.reshape(c.x(0), product(d[:a]), product(d[a:]))
		return one(c.reshape(f(c.b, y, 1), d...))
	}}
}

func hardmax(b *ir.Builder, x *ir.Value, axis int64) *ir.Value {
	i := b.Argmax(x, axis, false)
	if i == nil {
		return nil
	}
	return b.OneHot(i, int64(x.Type.Shape.Dims()[axis]), axis, x.Type.DType)
}
