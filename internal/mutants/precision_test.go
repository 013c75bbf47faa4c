package mutants

import (
	"fmt"

	"ampc/ir"
)

// The table of roundings, written from docs/policies.md and docs/amp.md. It knows which places of a step must be
// exact to f32 and says nothing where a policy leaves a choice.
//
//	place that reads or holds           mixed-*                    mixed-*-trunk           o2-f16
//	a variable                          f32 (masters, moments)     f32                     f32
//	accumulation (acc=)                 f32                        f32                     f32
//	a returned value                    as in the source           as in the source        as in the source
//	fixed operands: statistics, scales  f32                        f32                     f32
//	gradient of a parameter, in         f32                        f32                     open
//	  accumulator, norm, check, update
//	operands of low rows                open: low or f32           open                    open
//	kept, promoting, clear operands     what a product, or a row   and what a row that     open
//	                                    over such values alone,    promotes or may store
//	                                    may round; all else f32    low computes; a move
//	                                                               of such values or of
//	                                                               parameters alone
//	any place                           no 16-bit dtype but the policy's, no tf32
const (
	inF16 uint8 = 1 << iota
	inBF16
)

func lossy(d ir.DType) uint8 {
	switch d {
	case ir.F16:
		return inF16
	case ir.BF16:
		return inBF16
	}
	return 0
}

// transparent rows hand on what they read, except for its rounding.
func transparent(n *ir.Node) bool {
	return n.Op == ir.OpCast || n.Op == ir.OpRound || len(n.In) == 1 && n.Def().Is(ir.Moves) && len(n.Out) == 1
}

// rounded collects the dtypes that a value passed since it was computed, and the value that was computed.
func rounded(v *ir.Value) (uint8, *ir.Value) {
	bits := lossy(v.Type.DType)
	for v.Def != nil && transparent(v.Def) {
		bits |= lossy(v.Def.DT("to"))
		v = v.Def.In[0]
		bits |= lossy(v.Type.DType)
	}
	return bits, v
}

// rounding judges a mutant that computes what its subject does.
func (j *judge) rounding(m *mutant) (effect, string) {
	result, why := equivalent, ""
	note := func(e effect, text string) {
		if e == byRounding && result != byRounding || e == freedom && result == equivalent {
			result, why = e, text
		}
	}
	for _, v := range j.s.final.Vars {
		if w := m.value[v]; lossy(w.Type.DType)&^lossy(v.Type.DType) != 0 {
			note(byRounding, fmt.Sprintf("variable %s in %s", v, w.Type.DType))
		}
		if w := m.value[v]; w.Kind != v.Kind || w.Attr.Get("role") != v.Attr.Get("role") {
			return byValue, fmt.Sprintf("variable %s has another place in the run", v)
		}
	}
	for i, v := range j.s.final.Return {
		a, was := rounded(v)
		if b, root := rounded(m.g.Return[i]); b&^a != 0 && m.fromValue[root] == was {
			note(byRounding, fmt.Sprintf("return %d rounded", i))
		}
	}
	for _, n := range m.g.Nodes {
		o := m.fromNode[n]
		if o == nil {
			o = m.twin[n]
		}
		if o == nil || transparent(n) {
			continue
		}
		if b := lossy(n.DT("acc")) &^ lossy(o.DT("acc")); b != 0 {
			note(byRounding, fmt.Sprintf("%s accumulates in %s", n.Name(), n.DT("acc")))
		}
		if n.Str("math") != o.Str("math") && n.Str("math") != "" && n.In[0].Type.DType == ir.F32 && !j.s.policy.TF32 {
			note(byRounding, fmt.Sprintf("%s computes in %s", n.Name(), n.Str("math")))
		}
		for i := range min(len(n.In), len(o.In)) {
			if n.In[i] == nil || o.In[i] == nil {
				continue
			}
			now, root := rounded(n.In[i])
			old, was := rounded(o.In[i])
			if now == old || m.fromValue[root] != was {
				continue // the same, or another value
			}
			note(freedom, fmt.Sprintf("operand %d of %s", i, n.Name()))
			if more := now &^ old; more != 0 && j.forbids(n, i, root, more) {
				note(byRounding, fmt.Sprintf("operand %d of %s is rounded", i, n.Name()))
			}
		}
	}
	return result, why
}

// forbids is the table for operand i of n, which was computed as root.
func (j *judge) forbids(n *ir.Node, i int, root *ir.Value, bits uint8) bool {
	p := j.s.policy
	class := n.OperandClass(i)
	if c, ok := p.Class[n.Op]; ok && class == n.Def().Class {
		class = c
	}
	switch {
	case root.Kind == ir.Const || root.Def != nil && root.Def.Op == ir.OpFull:
		return false // 0, 1 and powers of two, which every dtype holds
	case bits&^lossy(p.Low) != 0:
		return true
	case n.Pin == ir.PinF32:
		return true
	case class == ir.Low:
		return false
	case class == ir.Fixed:
		return !p.Cast || !n.OperandDef(i).ReadsLow
	case p.Cast:
		return false
	}
	return !j.open(root, class)
}

// open reports whether the policy may round a value where it is stored.
func (j *judge) open(v *ir.Value, reader ir.Class) bool {
	bits, v := rounded(v)
	switch {
	case bits != 0:
		return true
	case v.Def == nil:
		return v.Kind == ir.Const || !v.Type.DType.Float() || j.s.policy.Narrow && v.Kind == ir.Param
	}
	narrow := j.s.policy.Narrow
	switch n := v.Def; n.ResultClass(v.Idx) {
	case ir.Low:
		return true
	case ir.Keep:
		return (reader != ir.PromoteC || narrow) && n.Def().Out[v.Idx].StoresLow
	case ir.PromoteC, ir.Clear:
		if narrow && n.ResultClass(v.Idx) == ir.PromoteC && !n.Def().Is(ir.Moves) {
			return true
		}
		for i, x := range n.In {
			if x != nil && x.Type.DType.Float() && n.OperandClass(i) != ir.Fixed && !j.open(x, ir.PromoteC) {
				return false
			}
		}
		return true
	}
	return false
}
