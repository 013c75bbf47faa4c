package passes

import (
	"slices"

	"ampc/ir"
)

// castKey identifies equal casts.
type castKey struct {
	v *ir.Value
	d ir.DType
}

// castcache leaves one cast for each value and dtype, placed before its first reader, or next to
// the elementwise node that computes the value if that can store it twice. Casts of parameters, and
// of all other values that do not change within a step, move to prepare with the casts that they
// depend on: one cast per step for all readers. Conversions that the plan has as nodes stay as they
// are.
func castcache(g *ir.Graph, c *Context) error {
	values, nodes := g.Number()
	sec := make([]ir.Section, nodes)
	written := writtenInMicro(g)
	var beside [ir.NumSections][]*ir.Node
	first := make([]*ir.Node, values) // by value ID: the first cast of the value
	others := map[castKey]*ir.Node{}  // those to further dtypes
	same, named := map[*ir.Value]*ir.Value{}, map[*ir.Value][]string{}
	var hoisted []*ir.Node
	g.Filter(func(s ir.Section, n *ir.Node) bool {
		sec[n.ID] = s
		if n.Op != ir.OpCast || n.Out[0].Next != nil {
			return true
		}
		if kept := same[n.In[0]]; kept != nil {
			n.In[0] = kept
		}
		if c.training.planned && c.Policy.converts(n) {
			return true // a cluster of the plan, even where the chosen dtypes make it equal to another one
		}
		v, out := n.In[0], n.Out[0]
		at, k := &first[v.ID], castKey{v, out.Type.DType}
		if *at == nil {
			*at = n
		}
		kept := *at
		if kept.Out[0].Type.DType != k.d {
			if kept = others[k]; kept == nil {
				others[k], kept = n, n
			}
		}
		if kept != n {
			named[kept.Out[0]] = append(named[kept.Out[0]], kept.Out[0].Name, out.Name)
			mergeCast(kept, n)
			same[out] = kept.Out[0]
			c.Count("casts_reused", 1)
			return false
		}
		if p := v.Def; p != nil && sec[p.ID] != s && !c.Policy.converts(n) && storesBeside(v, sec, c) {
			beside[sec[p.ID]] = append(beside[sec[p.ID]], n)
			sec[n.ID] = sec[p.ID]
			n.Of = nil
			c.Count("casts_moved", 1)
			return false
		}
		if s == ir.Prepare || !hoists(v, s, written) && !castIn(v, sec, ir.Prepare) {
			return true
		}
		sec[n.ID] = ir.Prepare
		n.Why.Marks |= ir.MarkCached | ir.MarkHoisted
		n.Why.Cluster, n.Why.Launch, n.Of = 0, 0, nil
		hoisted = append(hoisted, n)
		c.Count("casts_hoisted", 1)
		return false
	})
	g.Body[ir.Prepare] = append(g.Body[ir.Prepare], hoisted...)
	for s, casts := range beside {
		g.Body[s] = append(g.Body[s], casts...)
	}
	replace(g, same)
	nameCasts(g, named)
	return nil
}

// nameCasts names the casts of shared casts after these, whichever of the equal casts they read
// before. named has all names of a shared cast.
func nameCasts(g *ir.Graph, named map[*ir.Value][]string) {
	if len(named) == 0 {
		return
	}
	for _, n := range g.Select(func(_ ir.Section, n *ir.Node) bool { return n.Op == ir.OpCast }).Nodes {
		v, before := n.Out[0], named[n.In[0]]
		if !slices.ContainsFunc(before, func(of string) bool { return v.Name == of+"."+v.Type.DType.String() }) {
			continue
		}
		if name := castName(n.In[0], v.Type.DType); v.Name != name && g.Value(name) == nil {
			v.Name = name
		}
	}
}

// storesBeside reports whether a cast of v may be one more store of a step in the section where v
// is computed: of the step that computes v, or of the step that computes the operand of the cast v.
func storesBeside(v *ir.Value, sec []ir.Section, c *Context) bool {
	for v.Def.Op == ir.OpCast && !storesCasts(v, c) {
		from := v.Def.In[0]
		if from.Def == nil || sec[from.Def.ID] != sec[v.Def.ID] {
			return false
		}
		v = from
	}
	return storesCasts(v, c)
}

// replace makes every reader of a key of same read its value, and redirects links to the nodes.
func replace(g *ir.Graph, same map[*ir.Value]*ir.Value) {
	if len(same) == 0 {
		return
	}
	g.Replace(same)
	g.InParts(g.Parts(), func(_ int, p *ir.Part) {
		for _, n := range p.Nodes {
			if n.Of == nil || len(n.Of.Out) == 0 {
				continue
			}
			v, replaced := same[n.Of.Out[0]]
			for replaced {
				n.Of = v.Def
				v, replaced = same[v]
			}
		}
	})
}

// mergeCast replaces n by kept, which takes over its name and its reasons.
func mergeCast(kept, n *ir.Node) {
	takeName(kept.Out[0], n.Out[0])
	kept.Pin = min(kept.Pin, n.Pin) // a pin has no effect on a cast
	if kept.Of != n.Of {
		kept.Of = nil
	}
	if kept.Why.Cluster == 0 && n.Why.Cluster > 0 {
		kept.Why.Cluster, kept.Why.Launch = n.Why.Cluster, n.Why.Launch
	}
	kept.Why.Marks |= n.Why.Marks
	kept.Why.AddCasts(n.Why.Casts)
}

// takeName gives a the name of b, which it replaces, if that is shorter, which means without a
// suffix. So names do not depend on the order of the two.
func takeName(a, b *ir.Value) {
	if len(b.Name) < len(a.Name) || len(b.Name) == len(a.Name) && b.Name < a.Name {
		a.Name = b.Name
	}
}

// writtenInMicro finds the variables whose value may change between micro-batches.
func writtenInMicro(g *ir.Graph) map[*ir.Value]bool {
	w := map[*ir.Value]bool{}
	for _, n := range g.Select(func(s ir.Section, n *ir.Node) bool {
		return (s == ir.Forward || s == ir.Backward) && slices.ContainsFunc(n.Out, func(v *ir.Value) bool { return v.Next != nil })
	}).Nodes {
		for _, v := range n.Out {
			if v.Next != nil {
				w[v.Next] = true
			}
		}
	}
	return w
}
