package prove

import (
	"iter"
	"slices"

	"ampc/ir"
)

// rounded is a bit for each 16-bit format in which a value was stored since it was computed in f32,
// by itself or by a cast.
type rounded uint8

func roundedTo(d ir.DType) rounded {
	switch d {
	case ir.F16:
		return 1
	case ir.BF16:
		return 2
	}
	return 0
}

func (r rounded) String() string {
	return [...]string{"f32", "f16", "bf16", "f16 and bf16"}[r]
}

// carries reports whether n computes nothing: it is a cast between floats or to the same dtype, or
// moves elements.
func carries(n *ir.Node) bool {
	d := n.Def()
	return gathersParts(n) || n.Op == ir.OpCast && kindOf(n.In[0].Type.DType) == kindOf(n.Out[0].Type.DType) || d.Is(ir.View) || d.Is(ir.Moves) && d.Elem == nil
}

// carried reports whether the result of n, which carries, contains elements of operand i.
func carried(n *ir.Node, i int) bool {
	return n.In[i] != nil && n.In[i].Type.DType.Float() && n.OperandDef(i).Class != ir.Fixed
}

// gathersParts reports whether n makes whole variables of the parts that ranks have.
func gathersParts(n *ir.Node) bool { return n.Def().Is(ir.Collective) && n.Attrs.Get("shapes") != nil }

// handedOn lists what v was made of without computing.
func handedOn(v *ir.Value) iter.Seq[*ir.Value] {
	return func(yield func(*ir.Value) bool) {
		if v.Def == nil || !carries(v.Def) {
			return
		}
		in, first := v.Def.OperandsOf(v.Idx)
		for i, w := range in {
			if carried(v.Def, first+i) && !yield(w) {
				return
			}
		}
	}
}

// roundedIn finds how each value of a numbering was rounded. A node that computes nothing although it
// does not carry, such as the removal of a loss scale that is 1, hands on what its operand was.
func (x *numbering) roundedIn() []rounded {
	r := make([]rounded, len(x.refs))
	for _, v := range x.g.Vars {
		r[v.ID] = roundedTo(v.Type.DType)
	}
	for _, n := range x.g.Nodes {
		for _, v := range n.Out {
			r[v.ID] = roundedTo(v.Type.DType)
			for w := range handedOn(v) {
				r[v.ID] |= r[w.ID]
			}
			for _, w := range n.In {
				if w != nil && x.refs[w.ID] == x.refs[v.ID] {
					r[v.ID] |= r[w.ID]
				}
			}
		}
	}
	return r
}

// rounding is the state of the rule.
type rounding struct {
	*proof
	m        *matcher
	inF, inT []rounded
	val      []value // by value ID of F
	classLow []bool  // by class: some value of F with it is 16 bits wide
	products []bool  // by class: a product reads some value of F with it in 16 bits
	moved    map[*ir.Value][]movedRead
	// free has the formats that a value of T may have for every reader.
	free map[ref]rounded
}

// roundings requires that each node that reads 16 bits where the source has f32 is allowed to.
func (p *proof) roundings() {
	m := p.matched()
	r := &rounding{proof: p, m: m, inF: m.f.roundedIn(), val: make([]value, len(m.f.refs)), classLow: make([]bool, m.last), products: make([]bool, m.last), moved: map[*ir.Value][]movedRead{}}
	r.inT = m.t.roundedIn()
	for _, n := range m.spelling { // its views of the norm's operands
		for _, v := range n.Out {
			for w := range handedOn(v) {
				r.inT[v.ID] |= r.inT[w.ID]
			}
		}
	}
	r.findFree()
	for i, v := range p.g.Return {
		r.read(v, roundedOf(r.inT, p.t.Return[i]), readReturn, nil)
	}
	for s := int(ir.NumSections) - 1; s >= 0; s-- {
		body := p.g.Body[s]
		for i := len(body) - 1; i >= 0; i-- {
			r.reader(body[i])
		}
	}
	for _, v := range p.g.Vars {
		r.variable(v)
	}
	for _, n := range p.g.Nodes {
		r.node(n)
	}
}

// findFree lists the values that F may round for every reader: those that the step from which F
// inherits stores rounded, those that rows move that are painted in 16 bits or pinned to them, as
// gradients are with their op, those that promoting rows move where these may narrow, and elements
// of variables that the policy casts for all readers.
func (r *rounding) findFree() {
	if r.rules.Inherited == nil && !r.rules.Paint && !r.rules.CastAll && !r.rules.NarrowAll && !slices.Contains(r.rules.Pins, ir.PinLow) {
		return
	}
	r.free = map[ref]rounded{}
	for _, n := range r.t.Nodes {
		pin := r.pin(n)
		if r.m.t.section[n.ID] != ir.Forward && pin != ir.PinLow {
			continue
		}
		painted := n.Op != ir.OpCast && carries(n) && (pin == ir.PinLow || r.rules.Paint && pin == ir.Unpinned)
		for _, v := range n.Out {
			var d rounded
			if r.rules.Inherited != nil {
				d = roundedTo(r.rules.Inherited(v))
			}
			if painted || r.movesCast(n) || r.rules.NarrowAll && n.Op != ir.OpCast && carries(n) && r.rowClass(n) == ir.PromoteC {
				d |= roundedTo(r.rules.Low)
			}
			if d != 0 {
				r.free[r.m.t.refs[v.ID]] |= d
			}
		}
	}
}

// movesCast reports whether n of T is not a cast and only moves elements of variables that the
// policy casts for all readers.
func (r *rounding) movesCast(n *ir.Node) bool {
	return r.rules.CastAll && n.Op != ir.OpCast && r.carriesCast(n)
}

func (r *rounding) carriesCast(n *ir.Node) bool {
	for i, v := range n.In {
		if carried(n, i) && !r.castAll(v) && (v.Def == nil || !r.carriesCast(v.Def)) {
			return false
		}
	}
	return carries(n)
}

func roundedOf(r []rounded, v *ir.Value) rounded {
	if v == nil || int(v.ID) >= len(r) {
		return 0
	}
	return r[v.ID]
}

// variable checks the 16-bit forms of a variable.
func (r *rounding) variable(v *ir.Value) {
	r.settle(v)
	of := &r.val[v.ID]
	var t *ir.Value
	if i, ok := r.m.f.vars[v.Name]; ok {
		t = r.t.Vars[i]
	} else if i := r.m.copied(v); i >= 0 {
		t = r.t.Vars[i]
	}
	if i := r.m.partOf(v); i >= 0 {
		t = r.t.Vars[i]
	}
	if t == nil {
		t = v // a constant that only F has
	}
	of.low = roundedTo(t.Type.DType) != 0 || r.castAll(t)
	r.classLow[r.m.f.refs[v.ID].class] = of.low
	switch {
	case of.extra == 0:
	case !r.formats(v.String(), ir.Pos{}, of.extra):
	case of.rounded&^readLow == 0:
	case of.updates && !r.rules.NoMasters && !r.rules.Eager:
		r.blame(v.String(), "is read in %s in the update", of.extra)
	case (r.castAll(t) || r.rules.Low.Low() && (r.rules.NarrowAll || r.rules.Narrow && t.Kind == ir.Param)) && of.rounded&(readFixed|readReturn) == 0:
	case r.rules.NoMasters && t.Kind == ir.Param && !r.keptVar(t):
	case r.rules.Eager && r.seeds(t) && of.rounded&(readFixed|readReturn) == 0: // the gradient of a 16-bit loss has 16 bits
	default:
		r.blame(v.String(), "is read in %s by %s, which the policy does not admit", of.extra, of.rounded)
	}
}

// formats requires that values are rounded only to the policy's dtype.
func (r *rounding) formats(name string, pos ir.Pos, extra rounded) bool {
	if extra == roundedTo(r.rules.Low) {
		return true
	}
	r.found = append(r.found, Finding{Check: r.check, Node: name, Pos: pos, Text: "is rounded to " + extra.String() + ", the policy's dtype is " + r.rules.Low.String()})
	return false
}

// node checks the results of n. Nodes are checked in their order.
func (r *rounding) node(n *ir.Node) {
	if carries(n) {
		r.carrier(n)
		return
	}
	t := r.image(n)
	if t == nil {
		r.number(n)
		return
	}
	r.attributes(n, t)
	for k, v := range n.Out {
		if !v.Type.DType.Float() || k >= len(t.Out) {
			continue
		}
		of := &r.val[v.ID]
		r.settle(v)
		of.low = r.wideAs(n, t)
		if of.low || of.extra != 0 && of.rounded&^(readLow|readFixed|readReturn) != 0 || r.rules.Narrow && v.Type.DType.Low() {
			r.classLow[r.m.f.refs[v.ID].class] = true
		}
		if of.extra == 0 || !r.formats(v.String(), n.Pos, of.extra) || of.rounded&^readLow == 0 && !r.rules.NoMasters {
			continue
		}
		if why := r.refused(n, t, k, of); why != "" {
			r.report(n, "%s is read in %s by %s, and %s", v, of.extra, of.rounded, why)
		}
	}
}

// carrier notes whether the result of n, which carries, is 16 bits wide: all elements that it moves
// are. It may be stored in f32 for its readers.
func (r *rounding) carrier(n *ir.Node) {
	t := r.image(n)
	if t == nil {
		return
	}
	seen := false
	for i, v := range n.In {
		if i >= len(t.In) || !carried(n, i) {
			continue
		}
		if !r.moves16(n, v, r.inImage(t, i)) {
			return
		}
		seen = true
	}
	if seen {
		r.classLow[r.m.f.refs[n.Out[0].ID].class] = true
	}
}

// moves16 reports whether the elements of v, which n moves and which T rounded as before says, are
// 16 bits wide: they were computed so, or n stores 16 bits and nothing reads them in f32.
func (r *rounding) moves16(n *ir.Node, v *ir.Value, before rounded) bool {
	stored := n.Out[0].Type.DType.Low()
	if stored && before != 0 && v.Type.DType.Low() {
		return true
	}
	all := true
	r.origins(v, func(w *ir.Value) {
		of := &r.val[w.ID]
		alone := stored && of.extra != 0 && of.wide == 0 && !of.stored
		all = all && (of.low || alone || r.classLow[r.m.f.refs[w.ID].class])
	})
	return all
}

// number checks the 16-bit forms of a filled value, which are exact if the format represents the
// number.
func (r *rounding) number(n *ir.Node) {
	x, ok := n.Out[0].Filled()
	if !ok {
		return
	}
	of := &r.val[n.Out[0].ID]
	if of.extra != 0 && of.rounded&^readLow != 0 && !exact(x, r.rules.Low) && !r.rules.CastAll && !r.rules.Paint {
		r.report(n, "%g is rounded to %s for %s", x, of.extra, of.rounded)
	}
}

// attributes compares how n computes with T and the policy.
func (r *rounding) attributes(n, t *ir.Node) {
	if acc := n.DT("acc"); acc != t.DT("acc") {
		r.report(n, "accumulates in %s, the source in %s", acc, t.DT("acc"))
	}
	pin := r.pin(t)
	if pin == ir.PinLow && !r.rules.Low.Low() {
		pin = ir.Unpinned // the policy has no such dtype
	}
	if n.Str("math") == "tf32" && t.Str("math") != "tf32" && pin != ir.PinTF32 && !(r.rules.TF32 && pin == ir.Unpinned) {
		r.report(n, "rounds its operands to tf32, which neither the policy nor a pin asks for")
	}
	for k, v := range n.Out {
		if k < len(t.Out) && inF64(v) != inF64(t.Out[k]) {
			r.report(n, "%s is %s, the source computes %s", v, v.Type.DType, t.Out[k].Type.DType)
		}
	}
}

// refused says why result k of n, whose image is t, may not be stored in 16 bits for its readers,
// "" if it may.
func (r *rounding) refused(n, t *ir.Node, k int, of *value) string {
	class := r.rowClass(t)
	if c := t.Def().Out[min(k, len(t.Def().Out)-1)].Class; c != ir.NoClass && c != t.Def().Class {
		class = c
	}
	pinned := r.pin(t) == ir.PinF32 || r.pin(t) == ir.PinTF32
	outside := of.rounded & (readFixed | readReturn)
	switch {
	case r.rules.NoMasters && (n.Def().Is(ir.Writer) || class != ir.Fixed && r.sec[n.ID] == ir.Backward):
		return ""
	case class == ir.Fixed && (r.starts(t) && outside == 0 || of.rounded&^readLow == 0):
		return ""
	case class == ir.Fixed:
		return "its dtype is the row's contract"
	case pinned && of.rounded&^readLow != 0:
		return "it is pinned to f32"
	case pinned:
		return ""
	case of.extra&^r.free[r.m.f.refs[n.Out[k].ID]] == 0:
		return ""
	case of.cast&^readLow != 0 && of.stored && of.wide&readReturn == 0 && !r.rules.Eager: // what the caller gets in f32 is stored so in any case
		return "its f32 form is stored as well"
	case of.cast&^readLow != 0 && of.wide == 0 && !r.rules.Narrow:
		return "by a cast of its own: it could be stored so, or read as it is"
	case r.rules.Narrow && (outside == 0 || r.rules.NarrowAll && class != ir.Keep):
		return ""
	case class == ir.Low:
		want := readFixed | readReturn
		if r.sec[n.ID] == ir.Backward { // gradients of the same value are as wide as their sum
			want |= readWide
		}
		if !r.rules.Eager && !r.rules.Paint && r.pin(t) != ir.PinLow && !of.asked && of.rounded&^want == 0 && r.rules.Caps.StoresF32(n) {
			return "all who read it want f32"
		}
		return ""
	case class == ir.Keep && r.rules.Eager:
		return "a kept row of an eager policy stores f32"
	case class == ir.Keep && outside != 0:
		return "a kept row stores f32 for them"
	case class == ir.Keep && of.rounded&(readLow|behindLow) == 0 && !r.products[r.m.f.refs[n.Out[k].ID].class] && !of.asked:
		return "a kept row stores 16 bits for a product alone"
	case class == ir.Keep && of.rounded&(readPromote|behindOther|readWide) != 0:
		return "a kept row does not narrow what a promoting one reads"
	case class == ir.Keep || of.low:
		return ""
	}
	return "an operand is f32"
}
