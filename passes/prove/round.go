package prove

import (
	"math"
	"strings"

	"ampc/ir"
)

// rounded says in which 16-bit formats a value was stored since it was computed
// in f32, by itself or by a cast: a bit each.
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

// carries reports whether n hands on what it reads without computing: a cast
// between floats, or a row that moves elements.
func carries(n *ir.Node) bool {
	d := n.Def()
	return n.Op == ir.OpCast && n.In[0].Type.DType.Float() || d.Is(ir.View) || d.Is(ir.Moves) && d.Elem == nil
}

// carried reports whether operand i of n, which carries, is part of what it hands on.
func carried(n *ir.Node, i int) bool {
	return n.In[i] != nil && n.In[i].Type.DType.Float() && n.OperandDef(i).Class != ir.Fixed
}

// roundedIn finds how each value of a numbering was rounded.
func (x *numbering) roundedIn() []rounded {
	r := make([]rounded, len(x.refs))
	for _, v := range x.g.Vars {
		r[v.ID] = roundedTo(v.Type.DType)
	}
	for _, n := range x.g.Nodes {
		var from rounded
		if carries(n) {
			for i := range n.In {
				if carried(n, i) {
					from |= r[n.In[i].ID]
				}
			}
		}
		for _, v := range n.Out {
			r[v.ID] = from | roundedTo(v.Type.DType)
		}
	}
	return r
}

// reads says who reads a value, or what was made of it without computing.
type reads uint8

const (
	readLow     reads = 1 << iota // a product, which takes 16 bits
	readKept                      // a row that computes in f32 and converts on load
	readPromote                   // a row that the widest operand decides
	readFixed                     // a contract
	readReturn                    // the caller
	behindLow                     // a product, behind rows that keep what they are given
	behindOther                   // a promoting row there
	readWide                      // a promoting row, all readers of which want f32
)

// value is what is known of a value of F that something was computed for, or of
// a variable: the readers of its 16-bit forms and of its f32 form.
type value struct {
	rounded reads
	cast    reads   // of the rounded: those that a cast made, where the value itself is f32
	extra   rounded // formats that T does not have
	wide    reads
	stored  bool // some reader of the f32 form cannot be of the same step
	low     bool // 16 bits wide for a promoting reader
}

// rounding is the state of the rule.
type rounding struct {
	*proof
	m        *matcher
	inF, inT []rounded
	val      []value // by value ID of F
	leader   []bool  // by class: a value of F has it 16 bits wide
	moved    map[*ir.Value][]movedRead
}

// movedRead is a read of a moved gradient: T's node that moves it follows a
// forward node, and may be 16 bits wide where that is.
type movedRead struct {
	by   *ir.Node
	kind reads
	cast bool
}

// roundings demands that whoever reads 16 bits where the source has f32 may.
func (p *proof) roundings() {
	m := p.matched()
	r := &rounding{proof: p, m: m, inF: m.f.roundedIn(), val: make([]value, len(m.f.refs)), leader: make([]bool, m.last), moved: map[*ir.Value][]movedRead{}}
	r.inT = m.t.roundedIn()
	for s := int(ir.NumSections) - 1; s >= 0; s-- {
		body := p.g.Body[s]
		for i := len(body) - 1; i >= 0; i-- {
			r.reader(body[i])
		}
	}
	for i, v := range p.g.Return {
		r.read(v, roundedOf(r.inT, p.t.Return[i]), readReturn, nil)
	}
	for _, v := range p.g.Vars {
		r.variable(v)
	}
	for _, n := range p.g.Nodes {
		r.node(n)
	}
}

func roundedOf(r []rounded, v *ir.Value) rounded {
	if v == nil || int(v.ID) >= len(r) {
		return 0
	}
	return r[v.ID]
}

// image is the node of T that computes what n of F does, nil where there is
// none. Of several, it is one of n's section, and one without a pin to f32.
func (r *rounding) image(n *ir.Node) *ir.Node {
	e := r.m.f.entity[n.ID]
	if e < 0 || r.m.image[e] == nil || int(r.m.image[e].ID) >= r.m.norms {
		if e < 0 {
			return nil
		}
		return r.m.image[e]
	}
	best, score := r.m.image[e], -1
	for k := best; ; k = r.m.nodes[r.m.twin[k.ID]] {
		s := 0
		if r.m.t.section[k.ID] == r.at[n.ID].sec {
			s = 2
		}
		if p := r.pin(k); p == ir.Unpinned || p == ir.PinLow {
			s++
		}
		if s > score {
			best, score = k, s
		}
		if r.m.twin[k.ID] < 0 {
			return best
		}
	}
}

// reader notes what n reads.
func (r *rounding) reader(n *ir.Node) {
	if carries(n) {
		return
	}
	t := r.image(n)
	if t == nil {
		return // reported already
	}
	for i, v := range n.In {
		if v == nil || !v.Type.DType.Float() || i >= len(t.In) {
			continue
		}
		r.judged++
		r.read(v, r.inImage(t, i), r.kind(t, i, n), n)
	}
	for _, v := range n.Captured {
		r.read(v, 0, readFixed, n)
	}
}

// inImage is how T rounded operand i of t, or of a node that computes the same.
func (r *rounding) inImage(t *ir.Node, i int) rounded {
	if int(t.ID) >= r.m.norms {
		return roundedOf(r.inT, t.In[i])
	}
	var all rounded
	for k := r.m.image[r.m.t.entity[t.ID]]; ; k = r.m.nodes[r.m.twin[k.ID]] {
		all |= roundedOf(r.inT, k.In[i])
		if r.m.twin[k.ID] < 0 {
			return all
		}
	}
}

// kind is how t, the image of n, may read operand i.
func (r *rounding) kind(t *ir.Node, i int, n *ir.Node) reads {
	switch c := r.class(t, i); {
	case c == ir.Low, t.OperandDef(i).Sign && r.rules.Low.Low():
		return readLow
	case c == ir.Keep:
		return readKept
	case c == ir.Fixed:
		return readFixed
	case c == ir.Clear:
		return r.behind(n)
	}
	for _, v := range n.Out {
		of := &r.val[v.ID]
		if all := of.rounded | of.wide; r.rules.Eager || all == 0 || all&^(readFixed|readReturn|readWide) != 0 {
			return readPromote
		}
	}
	return readWide
}

// behind is what the readers of n, which keeps what it is given, read it as.
func (r *rounding) behind(n *ir.Node) reads {
	kind := readKept
	for _, v := range n.Out {
		of := &r.val[v.ID]
		all := of.rounded | of.wide
		if all&(readLow|behindLow) != 0 {
			kind |= behindLow
		}
		if all&(readPromote|behindOther) != 0 {
			kind |= behindOther
		}
	}
	return kind
}

// read notes that n (nil: the caller) reads v, which T rounded as t says.
func (r *rounding) read(v *ir.Value, t rounded, kind reads, n *ir.Node) {
	extra := r.inF[v.ID] &^ t
	r.trace(v, extra, kind, n, false, nil)
}

// trace follows v to where it was computed.
func (r *rounding) trace(v *ir.Value, extra rounded, kind reads, n *ir.Node, cast bool, by *ir.Node) {
	if v.Def != nil && carries(v.Def) {
		if by == nil && extra != 0 && v.Type.DType.Low() {
			by = r.m.moves[r.m.f.refs[v.ID]]
		}
		for i, w := range v.Def.In {
			if carried(v.Def, i) {
				narrows := v.Type.DType.Low() && !w.Type.DType.Low()
				r.trace(w, extra, kind, n, cast || narrows, by)
			}
		}
		return
	}
	of := &r.val[v.ID]
	switch {
	case extra == 0:
		of.wide |= kind
		of.stored = of.stored || !r.together(v, n)
	case by != nil:
		r.moved[v] = append(r.moved[v], movedRead{by, kind, cast})
		of.extra |= extra
	default:
		of.note(kind, cast)
		of.extra |= extra
	}
}

func (of *value) note(kind reads, cast bool) {
	of.rounded |= kind
	if cast {
		of.cast |= kind
	}
}

// settle adds the reads of v behind moves, now that what they follow is known.
func (r *rounding) settle(v *ir.Value) {
	for _, x := range r.moved[v] {
		if r.led(x.by) {
			x.kind = readLow
		}
		r.val[v.ID].note(x.kind, x.cast)
	}
}

// together reports whether n may read v in a register of one step: both compute
// element by element over one shape in one section, or v is a product.
func (r *rounding) together(v *ir.Value, n *ir.Node) bool {
	if v.Def == nil || n == nil || v.Next != nil || r.rules.Eager || n.Def().Elem == nil || n.Def().Is(ir.Writer) || len(n.Out) == 0 {
		return false
	}
	t := r.image(v.Def)
	if v.Def.Def().Elem == nil && (t == nil || r.rowClass(t) != ir.Low) {
		return false
	}
	return n.Out[0].Type.Shape == v.Type.Shape && r.at[n.ID].sec == r.at[v.Def.ID].sec
}

// rowClass is how the policy treats t's row, a node of T.
func (r *rounding) rowClass(t *ir.Node) ir.Class {
	row := t.Def().Class
	if row == ir.Fixed {
		return row
	}
	if int(t.ID) >= r.m.norms { // part of a norm that is computed again
		return ir.Keep
	}
	switch r.pin(t) {
	case ir.PinLow:
		if r.rules.Low.Low() {
			return ir.Low
		}
	case ir.PinF32, ir.PinTF32:
		return ir.Keep
	default:
		if r.rules.Class != nil {
			row = r.rules.Class(t)
		}
		switch {
		case row == ir.Keep && r.rules.Eager:
			return r.gradient(t)
		case r.rules.Paint && (row == ir.PromoteC || row == ir.Clear):
			return ir.Low
		}
	}
	return row
}

// gradient is the class of a kept row under an eager policy: where it is part of
// the gradient of another op, such as the sum for a bias, it goes with that op.
// Rows of gradients have a class of their own.
func (r *rounding) gradient(t *ir.Node) ir.Class {
	of := t.Of
	if of == nil || of == t || r.m.t.section[t.ID] != ir.Backward || r.m.t.section[of.ID] != ir.Forward || strings.Contains(t.Op.String(), "_grad") {
		return ir.Keep
	}
	if c := r.rowClass(of); c == ir.Low || c == ir.PromoteC || c == ir.Clear {
		return c
	}
	return ir.Keep
}

func (r *rounding) pin(t *ir.Node) ir.Pin {
	if int(t.ID) < len(r.rules.Pins) {
		return r.rules.Pins[t.ID]
	}
	return ir.Unpinned
}

// class is how the policy treats operand i of t.
func (r *rounding) class(t *ir.Node, i int) ir.Class {
	if c := t.OperandDef(i).Class; c != ir.NoClass && c != t.Def().Class {
		return c
	}
	return r.rowClass(t)
}

// variable judges the 16-bit forms of a variable.
func (r *rounding) variable(v *ir.Value) {
	r.settle(v)
	of := &r.val[v.ID]
	var t *ir.Value
	if i, ok := r.m.f.vars[v.Name]; ok {
		t = r.t.Vars[i]
	} else if i := r.m.copied(v); i >= 0 {
		t = r.t.Vars[i]
	}
	if t == nil {
		t = v // a constant of F's own
	}
	of.low = roundedTo(t.Type.DType) != 0 || r.castAll(t)
	r.leader[r.m.f.refs[v.ID].class] = of.low
	switch {
	case of.extra == 0:
	case !r.formats(v.String(), ir.Pos{}, of.extra):
	case of.rounded&^readLow == 0:
	case (r.castAll(t) || r.rules.Narrow && r.rules.Low.Low()) && of.rounded&(readFixed|readReturn) == 0:
	case r.rules.NoMasters && t.Kind == ir.Param && !r.keptVar(t):
	case r.rules.Eager && r.seeds(t) && of.rounded&(readFixed|readReturn) == 0: // the gradient of a 16-bit loss has 16 bits
	default:
		r.blame(v.String(), "is read in %s by %s, which the policy does not admit", of.extra, of.rounded)
	}
}

// castAll reports whether every reader sees variable t of T in 16 bits.
func (r *rounding) castAll(t *ir.Value) bool {
	return r.rules.CastAll && (t.Kind == ir.Param || t.Kind == ir.Input) && t.Type.DType == ir.F32 && !r.keptVar(t)
}

// formats demands that values are rounded to the policy's dtype alone.
func (r *rounding) formats(name string, pos ir.Pos, extra rounded) bool {
	if extra == roundedTo(r.rules.Low) {
		return true
	}
	r.found = append(r.found, Finding{Check: r.check, Node: name, Pos: pos, Text: "is rounded to " + extra.String() + ", the policy's dtype is " + r.rules.Low.String()})
	return false
}

// node judges what n stores, in the order in which it is computed.
func (r *rounding) node(n *ir.Node) {
	if carries(n) {
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
		if of.low || of.extra != 0 && of.rounded&^(readLow|readFixed|readReturn) != 0 {
			r.leader[r.m.f.refs[v.ID].class] = true
		}
		if of.extra == 0 || !r.formats(v.String(), n.Pos, of.extra) || of.rounded&^readLow == 0 && !r.rules.NoMasters {
			continue
		}
		if why := r.refused(n, t, k, of); why != "" {
			r.report(n, "%s is read in %s by %s, and %s", v, of.extra, of.rounded, why)
		}
	}
}

// number judges the 16-bit forms of one number everywhere, which are exact where
// the format has the number.
func (r *rounding) number(n *ir.Node) {
	if n.Op != ir.OpFull {
		return
	}
	of := &r.val[n.Out[0].ID]
	if of.extra != 0 && of.rounded&^readLow != 0 && !exact(n.Float("value"), r.rules.Low) && !r.rules.CastAll && !r.rules.Paint {
		r.report(n, "%g is rounded to %s for %s", n.Float("value"), of.extra, of.rounded)
	}
}

// exact reports whether 16-bit format d has the number x, or x becomes a clamp.
func exact(x float64, d ir.DType) bool {
	bits := 11 // of a significand
	if d == ir.BF16 {
		bits = 8
	}
	frac, exp := math.Frexp(x)
	scaled := math.Ldexp(frac, bits)
	return x == 0 || math.IsInf(x, 0) || math.Abs(x) <= d.Max() && math.Ldexp(0.5, exp) >= d.Tiny() && scaled == math.Trunc(scaled)
}

// attributes compares how n computes inside with T and the policy.
func (r *rounding) attributes(n, t *ir.Node) {
	if acc := n.DT("acc"); acc != t.DT("acc") {
		r.report(n, "accumulates in %s, the source in %s", acc, t.DT("acc"))
	}
	pin := r.pin(t)
	if n.Str("math") == "tf32" && t.Str("math") != "tf32" && pin != ir.PinTF32 && !(r.rules.TF32 && pin == ir.Unpinned) {
		r.report(n, "rounds its operands to tf32, which neither the policy nor a pin asks for")
	}
	for k, v := range n.Out {
		if k < len(t.Out) && (v.Type.DType == ir.F64) != (t.Out[k].Type.DType == ir.F64) {
			r.report(n, "%s is %s, the source computes %s", v, v.Type.DType, t.Out[k].Type.DType)
		}
	}
}

// refused says why result k of n, the image of which is t, may not be stored in
// 16 bits for those who read it so, "" where it may.
func (r *rounding) refused(n, t *ir.Node, k int, of *value) string {
	class := r.rowClass(t)
	if c := t.Def().Out[min(k, len(t.Def().Out)-1)].Class; c != ir.NoClass && c != t.Def().Class {
		class = c
	}
	pinned := r.pin(t) == ir.PinF32 || r.pin(t) == ir.PinTF32
	outside := of.rounded & (readFixed | readReturn)
	switch {
	case r.rules.NoMasters && (n.Def().Is(ir.Writer) || class != ir.Fixed && r.at[n.ID].sec == ir.Backward):
		return ""
	case class == ir.Fixed:
		return "its dtype is the row's contract"
	case pinned:
		return "it is pinned to f32"
	case r.rules.Inherited:
		return ""
	case of.cast&^readLow != 0 && of.stored && !r.rules.Eager:
		return "its f32 form is stored as well"
	case of.cast&^readLow != 0 && of.wide == 0 && !r.rules.Narrow:
		return "by a cast of its own: it could be stored so, or read as it is"
	case r.rules.Narrow && (outside == 0 || class != ir.Keep):
		return ""
	case class == ir.Low:
		if !r.rules.Eager && !r.rules.Paint && r.pin(t) != ir.PinLow && of.rounded&^(readFixed|readReturn|readWide) == 0 && r.rules.Caps.StoresF32(n) {
			return "all who read it want f32"
		}
		return ""
	case class == ir.Keep && r.rules.Eager:
		return "a kept row of an eager policy stores f32"
	case class == ir.Keep && outside != 0:
		return "a kept row stores f32 for them"
	case class == ir.Keep && of.rounded&(readLow|behindLow) == 0:
		return "a kept row stores 16 bits for a product alone"
	case class == ir.Keep && of.rounded&(readPromote|behindOther|readWide) != 0:
		return "a kept row does not narrow what a promoting one reads"
	case class == ir.Keep || of.low:
		return ""
	}
	return "an operand is f32"
}

// wideAs reports whether a promoting reader takes n's result for 16 bits wide,
// in whatever form it reads it.
func (r *rounding) wideAs(n, t *ir.Node) bool {
	switch class := r.rowClass(t); {
	case class == ir.Fixed || r.pin(t) == ir.PinF32 || r.pin(t) == ir.PinTF32 || !r.rules.Low.Low():
		return false
	case class == ir.Low:
		return true
	case class == ir.Keep && n.Def().Elem == nil:
		return false
	case class != ir.Keep && r.at[n.ID].sec == ir.Backward && r.led(t):
		return true
	}
	seen := false
	for i, v := range n.In {
		if v == nil || !v.Type.DType.Float() || weak(v) || i < len(t.In) && t.OperandDef(i).Class == ir.Fixed {
			continue
		}
		seen = true
		if !r.operandLow(n, t, i) {
			return false
		}
	}
	return seen
}

// led reports whether t, a backward node that follows its forward node, has that
// one stored in 16 bits.
func (r *rounding) led(t *ir.Node) bool {
	f := t.Of
	if f == nil || int(f.ID) >= len(r.m.t.entity) || r.m.t.section[f.ID] != ir.Forward {
		return false
	}
	c := r.rowClass(f)
	if c != ir.PromoteC && c != ir.Clear {
		return false
	}
	return r.leader[r.m.t.refs[f.Out[0].ID].class]
}

// operandLow reports whether operand i of n takes part in a promotion as 16 bits.
func (r *rounding) operandLow(n, t *ir.Node, i int) bool {
	v := n.In[i]
	if r.inF[v.ID]&^r.inImage(t, i) != 0 || r.inImage(t, i) != 0 && v.Type.DType.Low() {
		return true
	}
	low := true
	r.origins(v, func(w *ir.Value) {
		of := &r.val[w.ID]
		low = low && of.low && (w.Def == nil || r.together(w, n) && !of.stored)
	})
	return low
}

// seeds reports whether a backward sweep starts from t: a loss scale, or a
// constant that is exact in 16 bits.
func (r *rounding) seeds(t *ir.Value) bool {
	if t.Kind == ir.Const && t.Type.Shape.Elements() == 1 && t.Init != nil && len(t.Init.Args) == 1 {
		return exact(t.Init.Args[0], r.rules.Low)
	}
	return t.Kind == ir.State && t.Attr.Get("role") == ir.RoleScale
}

// origins calls f for the values that v was made of without computing.
func (r *rounding) origins(v *ir.Value, f func(*ir.Value)) {
	if v.Def == nil || !carries(v.Def) {
		f(v)
		return
	}
	for i, w := range v.Def.In {
		if carried(v.Def, i) {
			r.origins(w, f)
		}
	}
}

// weak reports whether v is one constant: it takes the dtype of what it meets.
func weak(v *ir.Value) bool {
	return v.Type.Shape.Elements() == 1 && (v.Kind == ir.Const || v.Def != nil && v.Def.Op == ir.OpFull)
}
