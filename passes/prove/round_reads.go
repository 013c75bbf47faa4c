package prove

import (
	"slices"
	"strings"

	"ampc/ir"
)

// reads is which kinds of nodes read a value, directly or through nodes that compute nothing.
type reads uint8

const (
	readLow     reads = 1 << iota // a product, which reads 16 bits
	readKept                      // a row that computes in f32 and converts on load
	readPromote                   // a row whose widest operand decides
	readFixed                     // a row whose contract fixes the dtype
	readReturn                    // the caller
	behindLow                     // a product, behind rows that take any dtype
	behindOther                   // a promoting row, behind such rows
	readWide                      // a promoting row all of whose readers require f32
)

// value is what is known about a variable, or about a value of F that is computed: the readers of
// its 16-bit forms and of its f32 form.
type value struct {
	rounded reads
	cast    reads   // of the rounded reads, those of casts, where the value itself is f32
	extra   rounded // formats that T does not have
	wide    reads
	stored  bool // a node that cannot be in the same step reads the f32 form; the caller's rounds nothing for others
	low     bool // a promoting reader counts it as 16 bits wide
	updates bool // a row of the update reads a 16-bit form
	asked   bool // a reader reads it in the policy's 16 bits in T as well
}

// movedRead is a read of a moved gradient. T's node that moves it follows a forward node, and may
// be 16 bits wide if that is.
type movedRead struct {
	by   *ir.Node
	kind reads
	cast bool
}

// image is the node of T that computes what n of F computes, or nil. Of several, it is one that
// computes in f64 if n does, is in n's section, has the pin that allows most, is of class low if and
// only if n stores 16 bits, and has n's math.
func (r *rounding) image(n *ir.Node) *ir.Node {
	e := r.m.f.entity[n.ID]
	if e < 0 || r.m.image[e] == nil || int(r.m.image[e].ID) >= r.m.norms {
		if e < 0 {
			return nil
		}
		return r.m.image[e]
	}
	best, score := r.m.image[e], -1
	for k := best; ; k = r.m.nodes[r.m.sameEntity[k.ID]] {
		s := 0
		if len(k.Out) == len(n.Out) && !slices.ContainsFunc(n.Out, func(v *ir.Value) bool { return inF64(v) != inF64(k.Out[v.Idx]) }) {
			s = 32
		}
		if r.m.t.section[k.ID] == r.sec[n.ID] {
			s += 16
		}
		switch r.pin(k) {
		case ir.PinLow:
			s += 8
		case ir.Unpinned:
			s += 4
		}
		if len(n.Out) > 0 && (r.rowClass(k) == ir.Low) == n.Out[0].Type.DType.Low() {
			s += 2
		}
		if k.Str("math") == n.Str("math") {
			s++
		}
		if s > score {
			best, score = k, s
		}
		if r.m.sameEntity[k.ID] < 0 {
			return best
		}
	}
}

func inF64(v *ir.Value) bool { return v.Type.DType == ir.F64 }

// reader records the reads of n.
func (r *rounding) reader(n *ir.Node) {
	if carries(n) {
		return
	}
	t := r.image(n)
	if t == nil {
		return // reported before
	}
	for i, v := range n.In {
		if v == nil || !v.Type.DType.Float() || i >= len(t.In) {
			continue
		}
		r.judged++
		all, whole := r.inImage(t, i), rounded(0)
		if all != 0 {
			whole = r.wholeInImage(t, i)
		}
		r.trace(v, reading{kind: r.kind(t, i, n), by: n, t: all, whole: whole})
	}
	for _, v := range n.Captured {
		r.read(v, 0, readFixed, n)
	}
}

// inImage is how T rounded operand i of t, or of a node that computes the same.
func (r *rounding) inImage(t *ir.Node, i int) (all rounded) {
	r.images(t, func(k *ir.Node) { all |= roundedOf(r.inT, k.In[i]) })
	return all
}

// wholeInImage is the part of inImage that holds for all elements, also where they are joined: what
// was rounded before that is left out.
func (r *rounding) wholeInImage(t *ir.Node, i int) (all rounded) {
	r.images(t, func(k *ir.Node) { all |= roundedWhole(k.In[i]) })
	return all
}

// roundedWhole are the formats in which T has v as a whole.
func roundedWhole(v *ir.Value) rounded {
	all := rounded(0)
	for v != nil {
		all |= roundedTo(v.Type.DType)
		if v.Def == nil || !carries(v.Def) || joins(v.Def) {
			break
		}
		var from *ir.Value
		for w := range handedOn(v) {
			from = w
		}
		v = from
	}
	return all
}

// joins reports whether n, which carries, has the elements of several operands.
func joins(n *ir.Node) bool {
	k := 0
	for i := range n.In {
		if carried(n, i) {
			k++
		}
	}
	return k > 1
}

// images calls f for t and all nodes of T that compute the same.
func (r *rounding) images(t *ir.Node, f func(k *ir.Node)) {
	if int(t.ID) >= r.m.norms {
		f(t)
		return
	}
	for k := r.m.image[r.m.t.entity[t.ID]]; ; k = r.m.nodes[r.m.sameEntity[k.ID]] {
		f(k)
		if r.m.sameEntity[k.ID] < 0 {
			return
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
	case c == ir.Clear && r.rules.Narrow && !slices.ContainsFunc(n.Out, func(v *ir.Value) bool { return v.Type.DType.Float() && !v.Type.DType.Low() }):
		return readLow // it may store 16 bits of f32 operands, and takes them in the dtype that it stores
	case c == ir.Clear:
		return r.behind(n)
	}
	for _, v := range n.Out {
		if all := r.all(v); r.rules.Eager || all == 0 || all&^(readFixed|readReturn|readWide) != 0 {
			return readPromote
		}
	}
	return readWide
}

// behind is how the readers of n, which takes any dtype, read its result.
func (r *rounding) behind(n *ir.Node) reads {
	kind := readKept
	for _, v := range n.Out {
		all := r.all(v)
		if all&(readLow|behindLow) != 0 {
			kind |= behindLow
		}
		if all&(readPromote|behindOther) != 0 {
			kind |= behindOther
		}
	}
	return kind
}

// all is how v is read, in any dtype and through moves of gradients.
func (r *rounding) all(v *ir.Value) reads {
	all := r.val[v.ID].rounded | r.val[v.ID].wide
	for _, x := range r.moved[v] {
		all |= x.kind
	}
	return all
}

// reading is a read that is traced back to the node that computed the value.
type reading struct {
	kind  reads
	by    *ir.Node // reader; nil: the caller
	t     rounded  // how T rounded the value
	whole rounded  // of these, the formats that T has behind all joins that are passed yet
	since rounded  // formats of the values traced so far
	cast  bool     // one of them is a cast that T lacks
	hand  bool     // one of them is a cast of T, which reads f32
	moves *ir.Node // T's node that moves a gradient, the last one that may follow its forward node
}

// read records that n (nil: the caller) reads v, which T rounded as t says.
func (r *rounding) read(v *ir.Value, t rounded, kind reads, n *ir.Node) {
	r.trace(v, reading{kind: kind, by: n, t: t, whole: t})
}

// trace follows v to the node that computed it. Each operand of a concatenation has only the
// formats on its own path.
func (r *rounding) trace(v *ir.Value, x reading) {
	extra := (x.since | r.inF[v.ID]) &^ x.t
	if v.Def != nil && carries(v.Def) {
		more := (x.since | r.inF[v.ID]) &^ x.whole // some elements were not rounded so in T
		if x.moves == nil && more != 0 && v.Type.DType.Low() {
			if by := r.m.moves[r.m.f.refs[v.ID]]; by != nil && r.leader(by) != nil {
				x.moves = by
			}
		}
		if free := r.free[r.m.f.refs[v.ID]]; extra&^free == 0 && more&free != 0 {
			x.kind = readLow
		}
		x.since |= roundedTo(v.Type.DType)
		before := x
		part := r.parts(v.Def, x)
		for w := range handedOn(v) {
			x.t, x.whole = part(w)
			if narrows := v.Type.DType.Low() && !w.Type.DType.Low(); narrows {
				x.cast = before.cast || roundedTo(v.Type.DType)&^x.t != 0
				x.hand = before.hand || roundedTo(v.Type.DType)&^x.t == 0
			}
			r.trace(w, x)
			x = before
		}
		return
	}
	of := &r.val[v.ID]
	of.extra |= extra
	wide := x.kind
	if x.t&roundedTo(r.rules.Low) != 0 {
		wide = readLow // the source rounds v for it
	}
	if x.hand {
		of.wide |= wide
	}
	if x.kind&(readLow|behindLow) != 0 && (x.since|r.inF[v.ID])&roundedTo(r.rules.Low) != 0 {
		r.products[r.m.f.refs[v.ID].class] = true
	}
	of.updates = of.updates || extra != 0 && x.kind != readLow && x.by != nil && r.sec[x.by.ID] == ir.Update
	of.asked = of.asked || x.t&roundedTo(r.rules.Low) != 0
	switch {
	case extra == 0:
		of.wide |= wide
		of.stored = of.stored || x.since == 0 && x.by != nil && !r.together(v, x.by) // otherwise a 16-bit form is stored, as in the source
	case x.moves != nil:
		r.moved[v] = append(r.moved[v], movedRead{x.moves, x.kind, x.cast})
	default:
		of.note(x.kind, x.cast)
	}
}

// parts returns how T rounded each operand of n, which carries, on the way of x: where n joins
// several, each has the formats of its own way in T.
func (r *rounding) parts(n *ir.Node, x reading) func(w *ir.Value) (t, whole rounded) {
	same := func(*ir.Value) (t, whole rounded) { return x.t, x.whole }
	if x.t == x.whole || !joins(n) {
		return same
	}
	t := r.image(n)
	if t == nil || t.Op != n.Op || len(t.In) != len(n.In) || int(t.ID) >= r.m.norms {
		return same
	}
	return func(w *ir.Value) (all, whole rounded) {
		all, whole = x.whole, x.whole
		for i, v := range n.In {
			if v == w {
				all, whole = all|r.inImage(t, i), whole|r.wholeInImage(t, i)
			}
		}
		return all & x.t, whole & x.t
	}
}

func (of *value) note(kind reads, cast bool) {
	of.rounded |= kind
	if cast {
		of.cast |= kind
	}
}

// settle adds the reads of v through moves, after the forward nodes that these follow are known.
func (r *rounding) settle(v *ir.Value) {
	for _, x := range r.moved[v] {
		if r.led(x.by) {
			x.kind = readLow
		}
		r.val[v.ID].note(x.kind, x.cast)
	}
}

// together reports whether n may read v in a register of the same step: both are elementwise over
// one shape in one section, or v is a product.
func (r *rounding) together(v *ir.Value, n *ir.Node) bool {
	if v.Def == nil || n == nil || v.Next != nil || r.rules.Eager || n.Def().Elem == nil || n.Def().Is(ir.Writer) || len(n.Out) == 0 {
		return false
	}
	t := r.image(v.Def)
	if v.Def.Def().Elem == nil && (t == nil || r.rowClass(t) != ir.Low) {
		return false
	}
	return n.Out[0].Type.Shape == v.Type.Shape && r.sec[n.ID] == r.sec[v.Def.ID]
}

var readers = [...]string{"a product", "a row that computes in f32", "a promoting row", "a row of fixed dtypes", "the caller", "a product behind it", "a promoting row behind it", "a sum of f32"}

func (k reads) String() string {
	var names []string
	for i, name := range readers {
		if k&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}
