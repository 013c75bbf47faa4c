package prove_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"ampc/ir"
	"ampc/passes"
	"ampc/passes/prove"
)

// A mutator breaks a correct graph in one way at one place: it is called with
// k = 0, 1, 2, ... and a fresh copy each time, and returns what it broke, or
// "" when there is no k-th place.
type mutator struct {
	name string
	run  func(g *ir.Graph, k int) string
}

// insert puts n before the node at, in its section.
func insert(g *ir.Graph, at *ir.Node, n *ir.Node) {
	for s := range ir.NumSections {
		for i, m := range g.Body[s] {
			if m == at {
				g.Body[s] = append(g.Body[s][:i:i], append([]*ir.Node{n}, g.Body[s][i:]...)...)
				return
			}
		}
	}
}

// castBefore makes operand i of n read a cast of what it read.
func castBefore(g *ir.Graph, n *ir.Node, i int, d ir.DType, name string) *ir.Value {
	v := n.In[i]
	c := &ir.Node{Op: ir.OpCast, In: []*ir.Value{v}, Attrs: ir.A("to", d), Why: ir.Reason{Class: ir.Fixed, Cause: ir.ByContract, Marks: ir.MarkInserted}}
	out := &ir.Value{Name: name, Type: v.Type.With(d), Def: c}
	c.Out = []*ir.Value{out}
	insert(g, n, c)
	n.In[i] = out
	return out
}

// places calls f for every operand of every node and stops at the k-th place
// for which f holds; it returns that place.
func places(g *ir.Graph, k int, f func(s ir.Section, n *ir.Node, i int) bool) (*ir.Node, int) {
	for s, n := range g.Nodes {
		for i := range n.In {
			if n.In[i] != nil && f(s, n, i) {
				if k == 0 {
					return n, i
				}
				k--
			}
		}
	}
	return nil, 0
}

// nodes is places for whole nodes.
func nodes(g *ir.Graph, k int, f func(s ir.Section, n *ir.Node) bool) *ir.Node {
	for s, n := range g.Nodes {
		if f(s, n) {
			if k == 0 {
				return n
			}
			k--
		}
	}
	return nil
}

func retype(n *ir.Node) { _ = n.Retype() } // a mutant whose types no longer fit is one the checker must find

func class(n *ir.Node, i int) ir.Class {
	if c := n.OperandClass(i); c != n.Def().Class {
		return c
	}
	if n.Why.Class != ir.NoClass {
		return n.Why.Class
	}
	return n.Def().Class
}

// narrow casts the k-th f32 operand of a class to f16.
func narrow(g *ir.Graph, k int, c ir.Class) string {
	n, i := places(g, k, func(_ ir.Section, n *ir.Node, i int) bool {
		return class(n, i) == c && n.In[i].Type.DType == ir.F32
	})
	if n == nil {
		return ""
	}
	castBefore(g, n, i, ir.F16, "mutant")
	retype(n)
	return fmt.Sprint(n.Name(), " operand ", i)
}

var mutators = []mutator{
	{"narrow a kept operand", func(g *ir.Graph, k int) string { return narrow(g, k, ir.Keep) }},
	{"narrow a promoting operand", func(g *ir.Graph, k int) string { return narrow(g, k, ir.PromoteC) }},
	{"store a promoting result low", func(g *ir.Graph, k int) string {
		n := nodes(g, k, func(_ ir.Section, n *ir.Node) bool {
			return class(n, 0) == ir.PromoteC && len(n.Out) == 1 && n.Out[0].Type.DType == ir.F32 && n.Out[0].Next == nil && reads32(n) && n.Op != ir.OpSumTo
		})
		if n == nil {
			return ""
		}
		n.Attrs = n.Attrs.With("out", ir.F16)
		retype(n)
		return n.Name()
	}},
	{"drop a cast", func(g *ir.Graph, k int) string {
		n, i := places(g, k, func(_ ir.Section, n *ir.Node, i int) bool {
			return n.In[i].Def != nil && n.In[i].Def.Op == ir.OpCast
		})
		if n == nil {
			return ""
		}
		n.In[i] = n.In[i].Def.In[0]
		retype(n)
		return fmt.Sprint(n.Name(), " operand ", i)
	}},
	{"cast twice", func(g *ir.Graph, k int) string {
		n, i := places(g, k, func(_ ir.Section, n *ir.Node, i int) bool {
			return n.In[i].Def != nil && n.In[i].Def.Op == ir.OpCast && n.In[i].Type.DType.Low()
		})
		if n == nil {
			return ""
		}
		castBefore(g, n, i, ir.F32, "there")
		castBefore(g, n, i, ir.F16, "back")
		return fmt.Sprint(n.Name(), " operand ", i)
	}},
	{"cast a weight again", func(g *ir.Graph, k int) string {
		n, i := places(g, k, func(s ir.Section, n *ir.Node, i int) bool {
			c := n.In[i].Def
			return s != ir.Prepare && c != nil && c.Op == ir.OpCast && c.In[0].Kind == ir.Param
		})
		if n == nil {
			return ""
		}
		d := n.In[i].Type.DType
		n.In[i] = n.In[i].Def.In[0]
		castBefore(g, n, i, d, "again")
		return fmt.Sprint(n.Name(), " operand ", i)
	}},
	{"read a weight of before the step", func(g *ir.Graph, k int) string {
		n, i := places(g, k, func(s ir.Section, n *ir.Node, i int) bool {
			return s == ir.Update && n.In[i].Next != nil && n.In[i].Next.Kind == ir.Param
		})
		if n == nil {
			return ""
		}
		n.In[i] = n.In[i].Next
		return fmt.Sprint(n.Name(), " operand ", i)
	}},
	{"leave a gradient out of the check", func(g *ir.Graph, k int) string {
		n, i := places(g, k, func(s ir.Section, n *ir.Node, i int) bool {
			return n.Op == ir.OpAnyNonfinite && strings.HasSuffix(n.Out[0].Name, "found_inf") && gradient(n.In[i]) && len(n.In) > 1
		})
		if n == nil {
			return ""
		}
		name := n.In[i].String()
		n.In = append(n.In[:i:i], n.In[i+1:]...)
		return n.Name() + " " + name
	}},
	{"forget the skip", func(g *ir.Graph, k int) string {
		n, i := places(g, k, func(s ir.Section, n *ir.Node, i int) bool {
			return s == ir.Update && n.OperandDef(i).Name == "skip" && n.OperandDef(i).Optional
		})
		if n == nil {
			return ""
		}
		n.In[i] = nil
		return n.Name()
	}},
	{"skip on something else", func(g *ir.Graph, k int) string {
		n, i := places(g, k, func(s ir.Section, n *ir.Node, i int) bool {
			return s == ir.Update && n.OperandDef(i).Name == "skip"
		})
		if n == nil {
			return ""
		}
		flag := &ir.Value{Name: "mutant", Type: ir.T(ir.Bool), Kind: ir.State}
		g.Vars = append(g.Vars, flag)
		n.In[i] = flag
		return n.Name()
	}},
	{"multiply instead of select", func(g *ir.Graph, k int) string {
		n := nodes(g, k, func(s ir.Section, n *ir.Node) bool {
			return s == ir.Update && len(n.Out) > 0 && n.Out[0].Next != nil && n.Out[0].Type.DType == ir.F32 && n.Operand("skip") != nil
		})
		if n == nil {
			return ""
		}
		w := n.Out[0]
		m := &ir.Node{Op: ir.OpMul, In: []*ir.Value{w.Next, w.Next}}
		n.Out[0] = &ir.Value{Name: "unused", Type: w.Type, Def: n}
		w.Def, w.Idx = m, 0
		m.Out = []*ir.Value{w}
		insert(g, n, m)
		return w.String()
	}},
	{"use a gradient scaled", func(g *ir.Graph, k int) string {
		n, i := places(g, k, func(s ir.Section, n *ir.Node, i int) bool { return n.OperandDef(i).Name == "mul" && n.In[i].Unit != "" })
		if n == nil {
			return ""
		}
		if n.OperandDef(i).Optional {
			n.In[i] = nil
			return n.Name()
		}
		one := &ir.Value{Name: "mutant", Type: ir.T(ir.F32), Kind: ir.Const, Init: &ir.Init{Args: []float64{1}}}
		g.Vars = append(g.Vars, one)
		n.In[i] = one
		return n.Name()
	}},
	{"take the wrong scale off", func(g *ir.Graph, k int) string {
		n, i := places(g, k, func(s ir.Section, n *ir.Node, i int) bool {
			return n.Op == ir.OpMultiplier && n.OperandDef(i).Name == "scale"
		})
		if n == nil {
			return ""
		}
		for _, v := range g.Vars {
			if v.Attr.Get("role") == ir.RoleScale && v != n.In[i] {
				n.In[i] = v
				return n.Name()
			}
		}
		return ""
	}},
	{"add values of different units", func(g *ir.Graph, k int) string {
		n, i := places(g, k, func(s ir.Section, n *ir.Node, i int) bool {
			return (n.Op == ir.OpAddN || n.Op == ir.OpAdd || n.Op == ir.OpAccum) && n.In[i].Unit != "" && i < 2
		})
		if n == nil {
			return ""
		}
		v := &ir.Value{Name: "mutant", Type: n.In[i].Type, Kind: ir.Input}
		g.Vars = append(g.Vars, v)
		n.In[i] = v
		return fmt.Sprint(n.Name(), " operand ", i)
	}},
	{"return 16 bits", func(g *ir.Graph, k int) string {
		if k >= len(g.Return) || g.Return[k].Type.DType != ir.F32 {
			return ""
		}
		c := &ir.Node{Op: ir.OpCast, In: []*ir.Value{g.Return[k]}, Attrs: ir.A("to", ir.F16), Why: ir.Reason{Class: ir.Fixed, Cause: ir.ByContract, Marks: ir.MarkInserted}}
		c.Out = []*ir.Value{{Name: "mutant", Type: g.Return[k].Type.With(ir.F16), Def: c}}
		g.Body[ir.Update] = append(g.Body[ir.Update], c)
		g.Return[k] = c.Out[0]
		return c.In[0].String()
	}},
	{"accumulate in 16 bits", func(g *ir.Graph, k int) string {
		n := nodes(g, k, func(_ ir.Section, n *ir.Node) bool { return n.Def().Class == ir.Low })
		if n == nil {
			return ""
		}
		n.Attrs = n.Attrs.With("acc", ir.F16)
		return n.Name()
	}},
	{"cast a weight in every micro-batch", func(g *ir.Graph, k int) string {
		n := nodes(g, k, func(s ir.Section, n *ir.Node) bool {
			return s == ir.Prepare && n.Op == ir.OpCast && n.In[0].Kind == ir.Param
		})
		if n == nil {
			return ""
		}
		g.Filter(func(_ ir.Section, m *ir.Node) bool { return m != n })
		g.Body[ir.Forward] = append([]*ir.Node{n}, g.Body[ir.Forward]...)
		return n.Name()
	}},
}

// gradient reports whether v comes out of a sweep: that found_inf of one sweep
// looks at another's loss too is not demanded.
func gradient(v *ir.Value) bool {
	return strings.HasPrefix(v.Name, "d.") || strings.Contains(v.Name, ".d.") || strings.Contains(v.Name, "amp.acc")
}

func reads32(n *ir.Node) bool {
	for _, v := range n.In {
		if v != nil && v.Type.DType == ir.F32 && v.Type.Shape.Elements() > 1 && (n.Why.Cluster == 0 || v.Def == nil || v.Def.Why.Cluster != n.Why.Cluster) {
			return true
		}
	}
	return false
}

// equivalent gives the reason why a mutant that was not caught breaks no rule,
// "" where there is none.
func equivalent(mutation string, clipped bool, g *ir.Graph, what string) string {
	switch {
	case mutation == "leave a gradient out of the check" && clipped:
		return "the norm of all gradients is checked, and is not finite where one of them is not"
	case mutation == "drop a cast" && readsAsForward(g, what):
		return "backward reads in f32 what forward reads in f32, and keeps more bytes for it"
	case len(prove.Notes(g)) > 0:
		return "a cast too many, which is noted"
	}
	return ""
}

// readsAsForward reports whether "NAME operand N" is an f32 value of forward that a node of forward reads too.
func readsAsForward(g *ir.Graph, what string) bool {
	var name string
	var i int
	if n, err := fmt.Sscanf(what, "%s operand %d", &name, &i); n != 2 || err != nil {
		return false
	}
	reader := g.Value(strings.TrimPrefix(name, "%")).Def
	v := reader.In[i]
	if !slices.Contains(g.Body[ir.Backward], reader) || v.Type.DType != ir.F32 || !slices.Contains(g.Body[ir.Forward], v.Def) {
		return false
	}
	return slices.ContainsFunc(g.Body[ir.Forward], func(n *ir.Node) bool { return n.Op != ir.OpCast && slices.Contains(n.In, v) })
}

func TestMutantsAreCaught(t *testing.T) {
	total, caught, same := 0, 0, map[string]int{}
	for _, c := range []struct {
		name    string
		clipped bool
		edit    func(*passes.Config)
	}{
		{"micro-batches, clipped", true, nil},
		{"one micro-batch", false, func(c *passes.Config) { c.Micro, c.Clip = 1, passes.Clip{} }},
	} {
		source, g, r := compiled(t, "mixed-f16", c.edit)
		for _, m := range mutators {
			n, alive := 0, 0
			for {
				broken := g.Clone()
				if err := ir.InferUnits(broken); err != nil {
					t.Fatal(err)
				}
				what := m.run(broken, n)
				if what == "" {
					break
				}
				n++
				if len(prove.Prove(source, broken, r)) > 0 {
					continue
				}
				if reason := equivalent(m.name, c.clipped, broken, what); reason != "" {
					same[m.name+": "+reason]++
					continue
				}
				alive++
				t.Logf("survivor (%s): %s: %s", c.name, m.name, what)
			}
			if n == 0 {
				t.Errorf("%s: no place to %s", c.name, m.name)
			}
			total, caught = total+n, caught+n-alive
		}
	}
	for reason, n := range same {
		t.Logf("%d mutants are equivalent: %s", n, reason)
	}
	t.Logf("%d of %d mutants caught or equivalent", caught, total)
	if total < 500 || caught*100 < total*99 {
		t.Errorf("%d of %d mutants caught, want 99%% of at least 500", caught, total)
	}
}
