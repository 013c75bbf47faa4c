package doctor

import (
	"slices"
	"strings"

	"ampc/ir"
)

// keeping collects the forward values that a policy has to keep in f32 so that no value of
// the step overflows the 16 bits that it is stored in.
type keeping struct {
	*analysis
	top    float64            // largest magnitude that counts as held
	scale  map[string]float64 // by name of a loss scale: what it will be; missing: what it is
	kept   map[*ir.Value]bool // forward values to keep
	casts  ir.Reason          // casts of the source to leave out
	seen   map[*ir.Value]bool // values looked at
	reader map[*ir.Value][]*ir.Node
	grads  map[*ir.Node][]*ir.Node // gradient nodes by forward node
}

func (x *analysis) keeper(scale map[string]float64) *keeping {
	k := &keeping{analysis: x, top: margin * ir.F16.Max(), scale: scale, kept: map[*ir.Value]bool{}, seen: map[*ir.Value]bool{},
		reader: map[*ir.Value][]*ir.Node{}, grads: map[*ir.Node][]*ir.Node{}}
	for s, n := range x.g.Nodes {
		if s == ir.Update {
			continue
		}
		for _, v := range n.In {
			if v != nil {
				k.reader[v] = append(k.reader[v], n)
			}
		}
		if n.Of != nil {
			k.grads[n.Of] = append(k.grads[n.Of], n)
		}
	}
	return k
}

// margin is the share of a dtype's largest value that a magnitude may reach. It allows for the
// different rounding of f32, in which magnitudes are measured.
const margin = 0.995

// value keeps v and its readers in f32, and also their operands and results that overflow 16
// bits.
func (k *keeping) value(v *ir.Value) {
	if k.seen[v] {
		return
	}
	k.seen[v] = true
	if k.source(v); !k.chosen(v) {
		return
	}
	base := real(v)
	if base == v && v.Def != nil {
		k.node(v.Decider())
	}
	gradient := base.Def != nil && base.Def.Of != nil
	for _, n := range k.reader[v] {
		switch {
		case len(n.Out) == 0 || n.Def().Class == ir.Fixed && n.Op != ir.OpCast || writes(n):
		case inserted(n) || sourceCast(n):
			k.value(n.Out[0])
		case gradient && (base != v || n.Def().Class == ir.Low) && n.Of != nil && len(n.Of.Out) > 0:
			// n reads 16 bits until n.Of is kept, which need not be what v is the gradient of
			k.node(n.Of.Out[0])
		case gradient && v.GradOf != nil || n.Of != nil && !gradient: // goes with what is kept already
		default:
			k.node(n.Out[0].Decider())
		}
	}
}

// elsewhere keeps all other values that are too large for 16 bits in f32.
func (k *keeping) elsewhere() {
	for _, n := range k.g.Nodes {
		for _, w := range n.Out {
			if k.reference.peaks[w] > 0 && k.overflows(w) && (!k.actual.made(w) || k.actual.flaw(w) != onlyNegInf) {
				k.value(w)
			}
		}
	}
}

// node keeps a forward value: its node and all gradients of that run in f32. They are then no
// longer fused with 16-bit nodes, whose values may be stored and overflow.
func (k *keeping) node(v *ir.Value) {
	for v = real(v); v != nil && v.Def != nil && sourceCast(v.Def); v = real(v.Def.In[0]) {
		k.source(v)
	}
	if v == nil || v.Def == nil || k.kept[v] || constant(v) || k.section[v.Def] != ir.Forward {
		return
	}
	k.kept[v] = true
	for _, w := range v.Def.In {
		if k.register(w, v.Def) {
			k.value(w)
		}
	}
	for _, n := range append([]*ir.Node{v.Def}, k.grads[v.Def]...) {
		for _, vs := range [2][]*ir.Value{n.In, n.Out} {
			for _, w := range vs {
				if w != nil && (w.Type.DType.Low() || joined(w)) && k.overflows(w) {
					k.value(w)
				}
			}
		}
	}
}

// joined reports whether v is the result of a product that is fused with its readers, so that
// it is not stored. On its own it would be stored in 16 bits.
func joined(v *ir.Value) bool {
	return v.Def != nil && v.Def.Why.Cluster > 0 && v.Def.Def().Class == ir.Low
}

// register reports whether w, an operand of n, is an f32 register of n's cluster and too large
// for 16 bits. Once n is no longer in the cluster, w may be stored.
func (k *keeping) register(w *ir.Value, n *ir.Node) bool {
	if w == nil || w.Def == nil || w.Type.DType != ir.F32 || n.Why.Cluster == 0 || w.Def.Why.Cluster != n.Why.Cluster || !k.actual.made(w) {
		return false
	}
	if peak := k.reference.peaks[w]; peak > 0 { // of a product: seen in f32
		return peak*k.at(w) > k.top
	}
	return k.actual.rangeOf(w).AbsMax > k.top
}

// overflows reports whether v, as f32 has it, is too large for 16 bits at the future loss scales.
func (k *keeping) overflows(v *ir.Value) bool {
	if v == nil || v.IsVar() || k.reference.to[v] == nil || writes(v.Def) {
		return false
	}
	peak, known := k.reference.peaks[v]
	if !known {
		peak = k.reference.peak(k.reference.to[v])
		k.reference.peaks[v] = peak
	}
	top := k.top
	if v.Type.DType == ir.BF16 {
		top = margin * ir.BF16.Max()
	}
	return peak*k.at(v) > top && peak < inf
}

// at is the product of the loss scales that v carries, at their future values.
func (k *keeping) at(v *ir.Value) float64 { return k.carried(v, k.scale) }

// remedy is the collected values as patterns, nil if there are none.
func (k *keeping) remedy() *Remedy {
	var all []*ir.Value
	for v := range k.kept {
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b *ir.Value) int { return k.order[a] - k.order[b] })
	r := &Remedy{LeaveOut: placed(k.casts.Casts)}
	for _, v := range all {
		if v.Def.Pin == ir.PinLow {
			r.Unpin = append(r.Unpin, v.Name)
		}
		p := k.pattern(v.Name)
		if !slices.ContainsFunc(r.Keep, func(have string) bool { return within(have, v.Name) }) {
			r.Keep = slices.DeleteFunc(r.Keep, func(have string) bool { return within(p, have) })
			r.Keep = append(r.Keep, p)
		}
	}
	r.Keep = slices.DeleteFunc(r.Keep, k.always)
	if len(r.Keep)+len(r.LeaveOut) == 0 {
		return nil
	}
	return r
}

// always reports whether all that a pattern names is f32 in any case. The compiler refuses such a rule.
func (k *keeping) always(pattern string) bool {
	return !slices.ContainsFunc(k.g.Body[ir.Forward], func(n *ir.Node) bool {
		return !inserted(n) && !n.Why.Has(ir.MarkAlwaysF32) && slices.ContainsFunc(n.Out, func(v *ir.Value) bool { return within(pattern, v.Name) })
	})
}

// pattern is the scope of a value's layer. It is the value's name if there is no scope, or if
// the scope holds most of the model.
func (x *analysis) pattern(name string) string {
	i := strings.LastIndexByte(name, '.')
	if i <= 0 || x.most(name[:i]) {
		return name
	}
	return name[:i]
}

// most reports whether a scope holds more than half of the forward pass.
func (x *analysis) most(scope string) bool {
	if known, ok := x.large[scope]; ok {
		return known
	}
	in, all := 0, 0
	for _, n := range x.g.Body[ir.Forward] {
		if len(n.Out) == 0 || inserted(n) {
			continue
		}
		all++
		if within(scope, n.Out[0].Name) {
			in++
		}
	}
	x.large[scope] = 2*in > all
	return x.large[scope]
}

// within reports whether name is the pattern, or lies in the scope called so.
func within(pattern, name string) bool {
	rest, ok := strings.CutPrefix(name, pattern)
	return ok && (rest == "" || rest[0] == '.')
}

// inserted reports whether n is a cast that the compiler placed.
func inserted(n *ir.Node) bool {
	return n.Op == ir.OpCast && len(n.Out) == 1 && n.Out[0].Name != n.In[0].Name && within(n.In[0].Name, n.Out[0].Name)
}

// real is the value that the user wrote: v without the casts that the compiler inserted.
func real(v *ir.Value) *ir.Value {
	for v != nil && v.Def != nil && inserted(v.Def) {
		v = v.Def.In[0]
	}
	return v
}
