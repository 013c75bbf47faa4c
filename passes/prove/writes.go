package prove

import (
	"math"
	"slices"

	"ampc/ir"
)

// variables compares the declarations. F may lack a loss scale with its states, and constants
// without readers. It may have constants and 16-bit copies of parameters of its own.
func (p *proof) variables() {
	m := p.matched()
	there := make([]bool, len(p.t.Vars))
	for _, v := range p.g.Vars {
		p.judged++
		i, ok := m.f.vars[v.Name]
		switch {
		case ok && there[i]:
			p.blame(v.String(), "is declared twice")
		case ok:
			there[i] = true
			p.sameVariable(p.t.Vars[i], v)
		case v.Kind == ir.Const || m.copied(v) >= 0 && sameInit(v.Init, &ir.Init{Func: "zeros"}):
		case m.copied(v) >= 0:
			p.blame(v.String(), "is a copy of a parameter and does not start at zero")
		default:
			p.blame(v.String(), "is a %s that the source does not declare", v.Kind)
		}
	}
	for i, v := range p.t.Vars {
		if !there[i] && v.Kind != ir.Const && !m.removed.scale[v] && !m.removed.state[v] {
			p.blame(v.String(), "is a %s of the source that the step lacks", v.Kind)
		}
	}
}

func (p *proof) sameVariable(t, v *ir.Value) {
	d := v.Type.DType
	switch {
	case v.Kind != t.Kind:
		p.blame(v.String(), "is a %s, the source declares a %s", v.Kind, t.Kind)
	case v.Type.Shape != t.Type.Shape || d != t.Type.DType && !(p.rules.NoMasters && t.Kind == ir.Param && d == p.rules.Low && t.Type.DType == ir.F32 && !p.keptVar(t)):
		p.blame(v.String(), "is %s, the source declares %s", v.Type, t.Type)
	case v.Attr.Get("role") != t.Attr.Get("role") || v.Attr.Get("of") != t.Attr.Get("of"):
		p.blame(v.String(), "has the role %v, the source gives it %v", v.Attr.Get("role"), t.Attr.Get("role"))
	case v.Kind != ir.Const && !sameInit(v.Init, t.Init):
		p.blame(v.String(), "starts as something else than in the source")
	}
}

func (p *proof) keptVar(t *ir.Value) bool { return int(t.ID) < len(p.rules.Kept) && p.rules.Kept[t.ID] }

func sameInit(a, b *ir.Init) bool {
	if a == b || a == nil || b == nil {
		return a == b
	}
	same := func(x, y float64) bool { return math.Float64bits(x) == math.Float64bits(y) }
	return a.Func == b.Func && a.File == b.File && a.Offset == b.Offset && a.Size == b.Size && slices.EqualFunc(a.Args, b.Args, same)
}

// values finds the nodes that compute something that the source does not, among those that a write
// or a returned value depends on.
func (p *proof) values() {
	m := p.matched()
	live := p.live()
	p.unknown = make([]bool, len(p.sec))
	for _, n := range p.g.Nodes {
		if !live[n.ID] {
			continue
		}
		p.judged++
		known := !slices.ContainsFunc(n.In, func(v *ir.Value) bool { return v != nil && v.Def != nil && p.unknown[v.Def.ID] })
		e := m.f.entity[n.ID]
		p.unknown[n.ID] = !known || e >= 0 && m.image[e] == nil
		if !known || !p.unknown[n.ID] {
			continue
		}
		p.report(n, "%s computes what the source does not: no node of it has this op, these attributes and these operands", n.Def().Name)
	}
}

// live marks the nodes of F that a write or a returned value depends on.
func (p *proof) live() []bool {
	live := make([]bool, len(p.sec))
	mark := func(v *ir.Value) {
		if v != nil && v.Def != nil {
			live[v.Def.ID] = true
		}
	}
	for _, v := range p.g.Return {
		mark(v)
	}
	for s := int(ir.NumSections) - 1; s >= 0; s-- {
		body := p.g.Body[s]
		for i := len(body) - 1; i >= 0; i-- {
			n := body[i]
			if slices.ContainsFunc(n.Out, func(v *ir.Value) bool { return v.Next != nil }) {
				live[n.ID] = true
			}
			if live[n.ID] {
				for _, v := range n.In {
					mark(v)
				}
				for _, v := range n.Captured {
					mark(v)
				}
			}
		}
	}
	return live
}

// write is the next value of a variable.
type write struct {
	v      *ir.Value
	update bool // once per step; false: once per micro-batch
}

// nexts lists the writes of g by the index of the variable in T. It calls other for variables that
// T lacks.
func (p *proof) nexts(g *ir.Graph, other func(write)) []write {
	ws := make([]write, len(p.t.Vars))
	for s, n := range g.Nodes {
		for _, v := range n.Out {
			if v.Next == nil {
				continue
			}
			w := write{v, s == ir.Update}
			if i, ok := p.m.f.vars[v.Next.Name]; ok {
				ws[i] = w
			} else {
				other(w)
			}
		}
	}
	return ws
}

// writes compares the next values of all variables.
func (p *proof) writes() {
	m := p.matched()
	var own []write
	got := p.nexts(p.g, func(w write) { own = append(own, w) })
	for i, want := range p.nexts(p.t, nil) {
		v, w := p.t.Vars[i], got[i]
		if m.removed.state[v] || m.removed.scale[v] {
			if w.v != nil {
				p.blame(v.String(), "is written and the scale that it belongs to is gone")
			}
			continue
		}
		if want.v == nil && w.v == nil {
			continue
		}
		p.judged++
		switch {
		case w.v == nil:
			p.blame(v.String(), "keeps its value, but the source gives it %s", want.v)
		case want.v == nil:
			p.report(w.v.Def, "writes %s, which the source leaves as it is", v)
		case want.update != w.update:
			p.report(w.v.Def, "writes %s at another time than the source: once a step or once a micro-batch", v)
		case p.unknown[w.v.Def.ID]: // a value that it depends on is reported
		case m.f.refs[w.v.ID] != m.t.refs[want.v.ID]:
			p.report(w.v.Def, "writes %s, and this is not the value that the source gives it", v)
		}
	}
	p.copies(own, got)
}

// copies requires that each 16-bit copy is written together with its parameter.
func (p *proof) copies(own, got []write) {
	m := p.m
	written := map[*ir.Value]bool{}
	for _, w := range own {
		p.judged++
		i := m.copied(w.v.Next)
		if i < 0 {
			continue // reported with the variables
		}
		written[w.v.Next] = true
		if of := got[i].v; of == nil || !w.update || m.f.refs[w.v.ID] != m.f.refs[of.ID] {
			p.report(w.v.Def, "writes %s, a copy of %s, and not with what that gets", w.v.Next, p.t.Vars[i])
		}
	}
	for _, v := range p.g.Vars {
		if i := m.copied(v); i >= 0 && m.f.vars[v.Name] == 0 && !written[v] && p.t.Var(v.Name) == nil && got[i].v != nil {
			p.blame(v.String(), "is a copy of %s and is not written with it", p.t.Vars[i])
		}
	}
}

// returns compares the returned values.
func (p *proof) returns() {
	m := p.matched()
	if len(p.g.Return) != len(p.t.Return) {
		p.blame("@"+p.g.Name, "returns %d values, the source %d", len(p.g.Return), len(p.t.Return))
		return
	}
	for i, v := range p.g.Return {
		p.judged++
		t := p.t.Return[i]
		switch d := v.Type.DType; {
		case v.Def != nil && p.unknown[v.Def.ID]:
		case m.read(m.f, ir.Update, v) != m.read(m.t, ir.Update, t):
			p.blame(v.String(), "is returned as result %d, and the source returns %s", i, t)
		case v.Type.Shape != t.Type.Shape:
			p.blame(v.String(), "is returned with another shape than %s of the source", t)
		case d != t.Type.DType && d != p.rules.Outputs && !(p.rules.NoMasters && d == p.rules.Low):
			p.blame(v.String(), "is returned as %s, the source's result is %s", d, t.Type.DType)
		}
	}
}
