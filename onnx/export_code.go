package onnx

import (
	"slices"

	"ampc/ir"
)

// codeOps are the operators of opset 13 that compute a primitive of elementwise code.
var codeOps = map[ir.Prim]string{
	ir.PAdd: "Add", ir.PSub: "Sub", ir.PMul: "Mul", ir.PDiv: "Div", ir.PSqrt: "Sqrt", ir.PMin: "Min", ir.PMax: "Max", ir.PNeg: "Neg",
	ir.PAbs: "Abs", ir.PFloor: "Floor", ir.PCeil: "Ceil", ir.PRint: "Round", ir.PSelect: "Where", ir.PLt: "Less", ir.PLe: "LessOrEqual",
	ir.PEq: "Equal", ir.PAnd: "And", ir.POr: "Or", ir.PXor: "Xor", ir.PNot: "Not", ir.PIsNaN: "IsNaN", ir.PIsInf: "IsInf", ir.PExp: "Exp", ir.PLog: "Log",
	ir.PSin: "Sin", ir.PCos: "Cos", ir.PTan: "Tan", ir.PAtan: "Atan", ir.PErf: "Erf", ir.PTanh: "Tanh", ir.PPow: "Pow",
}

// codeForms are the primitives that several operators compute: each returns the operands of the
// last one, a Where.
var codeForms = map[ir.Prim]func(x *exporter, d ir.DType, in string) []string{ir.PExpm1: (*exporter).expm1, ir.PLog1p: (*exporter).log1p}

// codeForm exports an elementwise op for which the tables have no operator: one operator for each
// primitive of the row's code.
func codeForm(op ir.Op) export {
	return export{op: op, to: "Where", since: 13, write: exportCode, when: func(_ *exporter, n *ir.Node) bool {
		code, _ := codeOf(n)
		return !slices.ContainsFunc(code, func(i ir.Instr) bool {
			return codeOps[i.Op] == "" && codeForms[i.Op] == nil && i.Op != ir.PIn && i.Op != ir.PConst || i.Type != ir.F32 && (i.Type != ir.Bool || i.Op == ir.PConst)
		})
	}}
}

// codeOf is the elementwise code of n, whose loads are the operands, and the registers of its
// results.
func codeOf(n *ir.Node) ([]ir.Instr, []ir.Reg) {
	var code *ir.Code
	code = ir.NewCode(func(i int) ir.Reg {
		return code.Emit(ir.Instr{Op: ir.PIn, Type: ir.RegType(n.In[i].Type.DType), Int: int64(i)})
	})
	regs := n.Def().Elem(code, n)
	return code.Ins, regs
}

func exportCode(x *exporter, n *ir.Node) {
	code, regs := codeOf(n)
	names := make([]string, len(code))
	for r, i := range code {
		switch i.Op {
		case ir.PIn:
			names[r] = x.in(n, int(i.Int))
			if n.In[i.Int].Type.DType.Low() && !x.wide32 {
				names[r] = x.op("", "Cast", []string{names[r]}, "to", 1)
			}
		case ir.PConst:
			names[r] = x.lit(i.Type, i.Imm)
		default:
			var in []string
			for _, a := range []ir.Reg{i.A, i.B, i.C}[:ir.Prims[i.Op].Args] {
				in = append(in, names[a])
			}
			if form := codeForms[i.Op]; form != nil {
				names[r] = x.op("", "Where", form(x, i.Type, in[0]))
			} else {
				names[r] = x.op("", codeOps[i.Op], in)
			}
		}
	}
	for k, v := range n.Out {
		if d := v.Type.DType; d.Low() {
			x.op(x.result(n, k), "Cast", []string{names[regs[k]]}, "to", int64(TypeOf(d)))
		} else {
			x.op(x.result(n, k), "Identity", []string{names[regs[k]]})
		}
	}
}
