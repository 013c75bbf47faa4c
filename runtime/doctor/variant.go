package doctor

import (
	"encoding/binary"
	"math"
	"slices"

	"ampc/ir"
	"ampc/lower"
	"ampc/runtime"
)

// variant is the step in another precision: node for node, with that dtype in place of every
// 16-bit one, without tf32 and with every loss scale at 1; or in several dtypes, see mixed.
type variant struct {
	*compiled
	dtype    ir.DType                // f32 or bf16; Invalid: mixed
	from     *ir.Graph               // the step
	to       map[*ir.Value]*ir.Value // where each value of the step went
	results  []*ir.Value             // of the step, as compared; their places are those of the program's outputs
	narrowed []*ir.Value             // mixed: values of the variant that are cast to 16 bits for those who read them
}

// kind tells variants of a step apart.
type kind struct {
	dtype      ir.DType
	how        form
	update     bool      // it has the update
	lossesOnly bool      // its results are the losses alone
	shown      *ir.Value // a value that variants for other faults do not show; nil: there is none
	kept       string    // mixed: what is kept
}

// form says which values of a variant can be scanned; see replay.
type form uint8

const (
	traced form = iota // chosen ones, when their steps have run
	full               // all values
)

// keptVariants is how many variants of a step stay compiled.
const keptVariants = 8

// variant compiles the step in another precision: the nodes that its results and the shown values
// are computed from. Shown are v, the value that is not finite, and in f32 all values that the
// step stores in 16 bits. v is nil if no value is asked for.
func (s *subject) variant(k kind, v *ir.Value, memory int64) (*variant, error) {
	d := k.dtype
	shown := s.low(k.update && !s.lowParams())
	switch {
	case d != ir.F32 && v == nil:
		shown = nil
	case d != ir.F32:
		k.shown, shown = v, []*ir.Value{v}
	case v != nil && !slices.Contains(shown, v) && !s.isVariable(v):
		k.shown, shown = v, append(shown, v)
	}
	if t := s.others[k]; t != nil {
		return t, nil
	}
	t := &variant{dtype: d, from: s.g}
	if t.results = s.results(); k.lossesOnly {
		t.results = slices.DeleteFunc(t.results, func(v *ir.Value) bool { return !isLoss(v) })
	}
	g, to := s.g.CloneMap()
	t.to = to
	for _, x := range g.Vars {
		t.declare(x)
	}
	for _, n := range g.Nodes {
		n.Attrs = restored(n.Attrs, d).Without("math")
		if err := n.Retype(); err != nil {
			return nil, err
		}
	}
	t.uncast(g)
	results := mapped(t.results, to)
	if !k.update {
		g.Body[ir.Update] = nil
	}
	ancestry(g, append(results[:len(results):len(results)], mapped(shown, to)...)...)
	g.Return = results
	l := lower.Replay{Spread: k.how == full, Update: true}
	for _, w := range shown {
		l.Show = append(l.Show, w.Name)
	}
	if k.how == traced {
		for _, w := range constants(g) {
			l.Show = append(l.Show, w.Name)
		}
	}
	var err error
	if t.compiled, err = compile(g, l, memory); err != nil {
		return nil, err
	}
	if k.shown != nil {
		k := k
		k.shown = nil
		if general := s.others[k]; general != nil {
			t.general = general.compiled
		}
	}
	s.add(k, t)
	return t, nil
}

// add keeps a variant for later diagnoses.
func (s *subject) add(k kind, t *variant) {
	if len(s.others) >= keptVariants {
		clear(s.others)
	}
	s.others[k] = t
}

// isVariable reports whether v is a variable's cast, which in f32 is the variable.
func (s *subject) isVariable(v *ir.Value) bool {
	return v.Def != nil && s.section[v.Def] != ir.Update && recast(v.Def) && v.Def.In[0].IsVar() && v.Def.In[0].Type.DType == ir.F32
}

// recast reports whether n casts a value that does not change within a step to another value.
func recast(n *ir.Node) bool {
	return n.Op == ir.OpCast && n.In[0].Kind != ir.State && n.Out[0].Next == nil
}

// low are the values of forward and backward, and of update if asked for, that are read and stored
// in 16 bits, or would be if the product that computes them were not fused with its readers.
func (s *subject) low(update bool) []*ir.Value {
	var vs []*ir.Value
	read := map[*ir.Value]bool{}
	for _, n := range s.g.Nodes {
		for _, v := range n.In {
			read[v] = true
		}
	}
	for at, n := range s.g.Nodes {
		if at != ir.Forward && at != ir.Backward && !(update && at == ir.Update) {
			continue
		}
		for _, v := range n.Out {
			if (v.Type.DType.Low() || joined(v)) && read[v] {
				vs = append(vs, v)
			}
		}
	}
	return vs
}

// uncast removes casts from a dtype to itself, which would copy. Casts of states, which change
// within a step, stay, and so do those in update.
func (t *variant) uncast(g *ir.Graph) {
	instead := map[*ir.Value]*ir.Value{}
	for s, n := range g.Nodes {
		for i, v := range n.In {
			if w := instead[v]; w != nil {
				n.In[i] = w
			}
		}
		if s != ir.Update && recast(n) && n.In[0].Type == n.Out[0].Type {
			instead[n.Out[0]] = n.In[0]
		}
	}
	for v, w := range t.to {
		if is := instead[w]; is != nil {
			t.to[v] = is
		}
	}
}

// declare gives a variable its dtype in the variant. A 16-bit copy of another is
// cast from that one; in f32 it is that one.
func (t *variant) declare(v *ir.Value) {
	if v.Type.DType.Low() {
		v.Type = v.Type.With(t.dtype)
	}
	switch v.Attr.Get("role") {
	case ir.RoleCopy:
		if t.dtype == ir.F32 {
			v.Attr = nil
		}
	case ir.RoleScale:
		v.Init = &ir.Init{Args: []float64{1}}
	}
}

// state is what the variables of the step hold in the variant. What has another
// dtype there is written to the memory that converted has, or to new memory, which
// is added to it. Loss scales are what scales says, or 1.
func (t *variant) state(h *workers, of, converted map[string][]byte, scales map[string]float64) map[string][]byte {
	all := make(map[string][]byte, len(of))
	for _, v := range t.from.Vars {
		is := t.to[v].Type.DType
		data := of[v.Name]
		switch {
		case v.Kind != ir.Param && v.Kind != ir.State:
			continue
		case v.Attr.Get("role") == ir.RoleScale:
			data = scalar(1)
			if at, given := scales[v.Name]; given {
				data = scalar(at)
			}
		case v.Attr.Get("role") == ir.RoleCopy && is == ir.F32:
			of, _ := v.Attr.Get("of").(string)
			data = all[of]
		case v.Type.DType != is:
			data = h.convert(v.Type.DType, is, of[v.Name], converted[v.Name])
			converted[v.Name] = data
		}
		all[v.Name] = data
	}
	return all
}

// feeds are those of the step in the dtypes of the variant.
func (t *variant) feeds(h *workers, of []runtime.Feed) []runtime.Feed {
	var all []runtime.Feed
	for _, f := range of {
		fed := make(runtime.Feed, len(f))
		for name, x := range f {
			if x.Type.DType.Low() && t.dtype != ir.Invalid {
				x = runtime.Tensor{Type: x.Type.With(t.dtype), Data: h.convert(x.Type.DType, t.dtype, x.Data, nil)}
			}
			fed[name] = x
		}
		all = append(all, fed)
	}
	return all
}

// mapped are the images of values.
func mapped(vs []*ir.Value, to map[*ir.Value]*ir.Value) []*ir.Value {
	images := make([]*ir.Value, len(vs))
	for i, v := range vs {
		images[i] = to[v]
	}
	return images
}

// restored has d for every 16-bit dtype.
func restored(a ir.Attrs, d ir.DType) ir.Attrs {
	for _, x := range a {
		if low, ok := x.Value.(ir.DType); ok && low.Low() {
			a = a.With(x.Name, d)
		}
	}
	return a
}

func scalar(x float64) []byte {
	return binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(x)))
}
