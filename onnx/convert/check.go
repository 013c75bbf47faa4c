package convert

import (
	"fmt"

	"ampc/ir"
	"ampc/onnx"
)

// own are operands that may be of another type than the first floating-point one, from
// an operand on and from an opset on: Operators.md of github.com/onnx/onnx.
type own struct {
	from  int
	opset int64
	wide  bool // it stays f32 in a node that computes in 16 bits
}

var owns = map[string][]own{
	"Resize": {{1, 10, true}}, "Upsample": {{1, 9, true}}, "BatchNormalization": {{3, 14, true}, {1, 15, true}}, "Dropout": {{1, 12, true}},
	"Pow": {{1, 12, false}}, "CastLike": {{0, 15, false}}, "OneHot": {{0, 9, false}}, "If": {{0, 1, false}}, "Loop": {{0, 1, false}}, "Scan": {{0, 1, false}},
}

// free reports whether operand k of an operator may have a type of its own.
func free(op string, k int, opset int64) (own own, is bool) {
	for _, o := range owns[op] {
		if k >= o.from && opset >= o.opset {
			return o, true
		}
	}
	return own, false
}

// Check is the error of a model whose nodes have operands of types that do not fit
// together, or which says other types than its values have. Operators of other domains
// and functions are not looked at.
func Check(m *onnx.Model, x *onnx.Imported) error {
	for _, u := range findUnits(m, x).all {
		if err := u.check(); err != nil {
			return err
		}
	}
	return nil
}

func (u *unit) check() error {
	opset := u.m.Opsets[""]
	for i, n := range u.m.Graph.Nodes {
		if n.Domain != "" || u.calls[i] != nil {
			continue
		}
		first, where := ir.Invalid, ""
		for k, name := range n.In {
			d := u.x.Types[name].DType
			if _, some := free(n.Op, k, opset); some || !d.Float() {
				continue
			}
			if first == ir.Invalid {
				first, where = d, name
			}
			if d != first {
				return fmt.Errorf("%snode %d (%s): operand %q is %s, operand %q is %s", u.path, i, ir.Printable(n.Op), where, first, name, d)
			}
		}
	}
	g := u.m.Graph
	for _, list := range [][]*onnx.Info{g.Infos, g.Outputs} {
		for _, v := range list {
			said, err := v.DType.DType()
			if d := u.x.Types[v.Name].DType; err == nil && v.Kind == "" && v.DType != 0 && d != ir.Invalid && d != said && (d.Low() || said.Low()) {
				return fmt.Errorf("%s%q is %s, but the model declares %s", u.path, v.Name, d, said)
			}
		}
	}
	return nil
}
