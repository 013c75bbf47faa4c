package passes

import (
	"fmt"

	"ampc/ir"
	"ampc/passes/plan"
)

// expands reports whether the target runs n as the expansion of its row, with operands of the
// dtypes that the policy prescribes, and 16-bit results where it prescribes none.
func (a *assigner) expands(n *ir.Node) bool { return a.expandsWith(n, a.low) }

// storesF32 reports whether n's kernel can store result 0 in f32 although its operands are low. It
// is false if n runs as its expansion then.
func (a *assigner) storesF32(n *ir.Node) bool {
	return a.c.Caps.StoresF32(n) && (!a.expandsWith(n, ir.F32) || a.expands(n))
}

// expandsWith is expands where a row of class low stores its results in d.
func (a *assigner) expandsWith(n *ir.Node, d ir.DType) bool {
	if a.c.Caps.Expander == nil || n.Def().Expand == nil {
		return false
	}
	m := &ir.Node{Op: n.Op, Custom: n.Custom, Attrs: n.Attrs, Pos: n.Pos, In: make([]*ir.Value, len(n.In))}
	for i, v := range n.In {
		if v == nil {
			continue
		}
		m.In[i] = &ir.Value{Name: v.Name, Type: v.Type}
		if d := a.requiredDType(n, i); d != ir.Invalid {
			m.In[i].Type = v.Type.With(d)
		}
	}
	for i, v := range n.Out {
		r := &ir.Value{Name: v.Name, Type: v.Type, Def: m, Idx: i}
		if a.assignable(v) && a.node[n.ID].class == ir.Low && n.ResultClass(i) != ir.Fixed {
			r.Type = v.Type.With(d)
		}
		m.Out = append(m.Out, r)
	}
	return a.c.Caps.Expander.Expands(m)
}

// expansion is a node that runs as its expansion, while its cluster is stated. The ports are its
// operands, each value once, then its results.
type expansion struct {
	node    *ir.Node
	section ir.Section
	port    []plan.Port
	form    []plan.Choice // by port: the choice that decides the dtype that is read or written
	of      []*ir.Value   // by port
	at      []int         // by operand: its port, or -1
	reads   int           // number of ports of operands
}

// expanded states the cluster of n, in section s, which runs as its expansion. It lowers the
// expansion with each choice low in turn, to find what its kernels move for each port. The sums
// must add up; otherwise it returns an error.
func (c *clusterer) expanded(s ir.Section, n *ir.Node) error {
	x := c.newExpansion(s, n)
	wide, err := c.traffic(x, nil)
	if err != nil {
		return err
	}
	var free []int
	sum, all := total(wide), map[int]bool{}
	for k := range x.port {
		m := plan.Moves{F32: wide.port[k], Low: wide.port[k]}
		if x.form[k].Free() {
			low, err := c.traffic(x, map[int]bool{k: true})
			if err != nil {
				return err
			}
			m.Low += total(low) - total(wide)
			sum += total(low) - total(wide)
			all[k] = true
			free = append(free, k)
		}
		x.port[k].Moves = &m
	}
	if len(free) > 1 {
		low, err := c.traffic(x, all)
		if err != nil {
			return err
		}
		if total(low) != sum {
			return fmt.Errorf("%s: its expansion moves %d bytes with all forms low, not %d", n.Def().Name, total(low), sum)
		}
	}
	for _, p := range x.port {
		c.port(c.cluster(n), p)
	}
	c.plan.Clusters[c.cluster(n)].Inner = wide.inner
	return nil
}

func (c *clusterer) newExpansion(s ir.Section, n *ir.Node) *expansion {
	x := &expansion{node: n, section: s}
	type key struct {
		part     *ir.Value
		takes    plan.Choice
		narrowed bool
	}
	known := map[key]int{}
	for i, v := range n.In {
		if v == nil {
			x.at = append(x.at, -1)
			continue
		}
		p := c.readPort(n, i, v)
		from := key{c.part[v.ID], p.Takes, p.Narrowed}
		k, ok := known[from]
		if !ok || x.of[k].Type.Shape != v.Type.Shape {
			k = len(x.port)
			known[from] = k
			form := p.Takes
			if form == plan.AsStored {
				form = c.v[c.base[v.ID].ID]
			}
			x.add(p, form, v)
		}
		x.at = append(x.at, k)
	}
	x.reads = len(x.port)
	for _, v := range n.Out {
		x.add(plan.Port{Tensor: c.tensor[v.ID], Write: true, Always: v.Next != nil}, c.v[v.ID], v)
	}
	return x
}

func (x *expansion) add(p plan.Port, form plan.Choice, v *ir.Value) {
	x.port, x.form, x.of = append(x.port, p), append(x.form, form), append(x.of, v)
}

// movedBytes is what an expansion moves under one assignment of dtypes.
type movedBytes struct {
	port  []int64
	inner int64
}

func total(m movedBytes) int64 {
	sum := m.inner
	for _, b := range m.port {
		sum += b
	}
	return sum
}

// traffic lowers the expansion with the given free ports low and all others f32.
func (c *clusterer) traffic(x *expansion, low map[int]bool) (movedBytes, error) {
	value := make([]*ir.Value, len(x.port))
	for k, v := range x.of {
		t := v.Type
		switch {
		case x.form[k].Free() && !low[k], x.form[k] == plan.F32:
			t = t.With(ir.F32)
		case x.form[k] != plan.AsStored:
			t = t.With(c.lowOf(x.form[k], v))
		}
		value[k] = &ir.Value{Name: v.Name, Type: t}
		if k < x.reads {
			value[k] = x.sameAs(k, value)
		}
	}
	n := &ir.Node{Op: x.node.Op, Custom: x.node.Custom, Attrs: x.node.Attrs, Pos: x.node.Pos, Out: value[x.reads:]}
	for _, k := range x.at {
		if k < 0 {
			n.In = append(n.In, nil)
		} else {
			n.In = append(n.In, value[k])
		}
	}
	read := make([]bool, len(n.Out))
	for i, v := range x.node.Out {
		read[i] = len(c.uses.Of(v)) > 0 || c.out[v.ID]
	}
	t, err := c.c.Caps.Expander.Traffic(n, x.section, read)
	if err != nil {
		return movedBytes{}, err
	}
	m := movedBytes{port: make([]int64, len(x.port)), inner: t.Inner}
	for i, k := range x.at {
		if k >= 0 {
			m.port[k] += t.In[i]
		}
	}
	copy(m.port[x.reads:], t.Out)
	return m, nil
}

// sameAs is the value that port k reads. It is the value of an earlier port, or a reshape of it, if
// both read the same elements in the same form.
func (x *expansion) sameAs(k int, value []*ir.Value) *ir.Value {
	p, v := &x.port[k], value[k]
	for i := range k {
		q, w := &x.port[i], value[i]
		if q.Tensor != p.Tensor || q.Part != p.Part || w.Type.DType != v.Type.DType || q.Narrowed != p.Narrowed && !v.Type.DType.Low() {
			continue
		}
		if w.Type == v.Type {
			return w
		}
		v.Def = &ir.Node{Op: ir.OpReshape, In: []*ir.Value{w}, Out: []*ir.Value{v}, Attrs: ir.A("shape", ir.Sizes(v.Type.Shape))}
		break
	}
	return v
}

// lowOf is the 16-bit dtype of v under choice x: the policy's, or another one that the tensor has
// in the source.
func (m *planner) lowOf(x plan.Choice, v *ir.Value) ir.DType {
	if x == plan.Other {
		return m.src[m.base[v.ID].ID]
	}
	return m.low
}
