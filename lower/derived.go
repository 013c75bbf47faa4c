package lower

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"ampc/ir"
)

// Derived is a value that steps of prepare compute from variables alone. While none of these has
// been written since, a store may skip the steps.
type Derived struct {
	Key    string   // how it is computed from Vars: the same in every Program that computes it so
	Vars   []string // in the order of Key
	Buffer BufferID
	Steps  []int // in Parts[Prepare]; those of several values may overlap
}

// derivation is how a value of prepare is computed.
type derivation struct {
	of    *ir.Value
	key   string
	vars  []string
	nodes []*ir.Node
}

// keepDerived moves what prepare computes from variables alone into the state arena, where it
// outlives the step, if the target's stores keep such values (Caps.Keeps).
func (l *Lowerer) keepDerived() {
	if !l.p.Target.Caps().Keeps || len(l.p.Written) > 0 {
		return
	}
	made, copied := map[*ir.Value]*derivation{}, map[BufferID]bool{}
	for _, c := range l.p.WeightCopies {
		copied[c.Buffer] = true
	}
	for _, n := range l.g.Body[ir.Prepare] {
		if d := l.derive(n, made); d != nil {
			made[n.Out[0]] = d
		}
	}
	wanted := map[*ir.Value]bool{}
	for _, v := range l.g.Return {
		wanted[v] = true
	}
	for _, n := range l.g.Nodes {
		if len(n.Out) == 1 && made[n.Out[0]] != nil {
			continue
		}
		for _, v := range n.In {
			wanted[v] = true
		}
	}
	at := map[BufferID]int{}
	for i := range l.p.Parts[Prepare] {
		for _, id := range l.p.Parts[Prepare][i].Out {
			at[l.p.Buffers[id].Root] = i
		}
	}
	for _, n := range l.g.Body[ir.Prepare] {
		d := made[n.Out[0]]
		if d == nil || !wanted[d.of] || copied[l.buf[d.of.ID]] {
			continue
		}
		id := l.p.Buffers[l.buf[d.of.ID]].Root
		if l.p.Buffers[id].Arena != WorkArena {
			continue
		}
		var steps []int
		for _, m := range d.nodes {
			if i, ok := at[l.p.Buffers[l.buf[m.Out[0].ID]].Root]; ok && !copied[l.buf[m.Out[0].ID]] {
				steps = append(steps, i)
			}
		}
		slices.Sort(steps)
		l.p.Buffers[id].Arena = StateArena
		l.p.Derived = append(l.p.Derived, Derived{Key: d.key, Vars: d.vars, Buffer: id, Steps: slices.Compact(steps)})
	}
}

// derive says how n's only result is computed from variables of the store; nil where it is not.
func (l *Lowerer) derive(n *ir.Node, made map[*ir.Value]*derivation) *derivation {
	if len(n.Out) != 1 || n.Out[0].Next != nil || n.Def().Is(ir.Random) || n.Def().Is(ir.External) {
		return nil
	}
	d := &derivation{of: n.Out[0]}
	text := fmt.Appendf(nil, "%s %v %s", n.Def().Name, n.Attrs, n.Out[0].Type)
	for _, v := range n.In {
		switch from := made[v]; {
		case v == nil:
			text = append(text, " _"...)
		case from != nil:
			text = fmt.Appendf(text, " %s%v", from.key, l.numbers(d, from.vars))
			for _, m := range from.nodes {
				if !slices.Contains(d.nodes, m) {
					d.nodes = append(d.nodes, m)
				}
			}
		case v.IsVar() && (v.Kind == ir.Param || v.Kind == ir.State) && !v.IsCache():
			text = fmt.Appendf(text, " %v", l.numbers(d, []string{v.Name}))
		default:
			return nil
		}
	}
	d.nodes = append(d.nodes, n)
	d.key = fmt.Sprintf("%x", sha256.Sum256(text))
	return d
}

// numbers are the places of names among d's variables, which it appends to.
func (l *Lowerer) numbers(d *derivation, names []string) []int {
	var at []int
	for _, name := range names {
		i := slices.Index(d.vars, name)
		if i < 0 {
			i = len(d.vars)
			d.vars = append(d.vars, name)
		}
		at = append(at, i)
	}
	return at
}

// derives reports whether a step of prepare is one of those that compute a derived value.
func (p *Program) derives(step int) bool {
	return slices.ContainsFunc(p.Derived, func(d Derived) bool { return slices.Contains(d.Steps, step) })
}

// verifyDerived checks that the steps of a derived value write it, and read only its variables and
// what they or the weight copies of these make.
func (p *Program) verifyDerived(d *Derived, k *kept) error {
	if !p.has(d.Buffer) || len(d.Steps) == 0 {
		return fmt.Errorf("a derived value names buffer %d and %d steps", d.Buffer, len(d.Steps))
	}
	b := &p.Buffers[d.Buffer]
	if b.Arena != StateArena || b.Root != d.Buffer {
		return fmt.Errorf("derived %%%s lies in the %s arena", b.Name, b.Arena)
	}
	known := map[BufferID]bool{}
	for _, name := range d.Vars {
		if v := k.vars[name]; v != nil {
			known[v.Buffer] = true
		}
		for _, id := range k.copies[name] {
			known[id] = true
		}
	}
	for _, i := range d.Steps {
		if i < 0 || i >= len(p.Parts[Prepare]) {
			return fmt.Errorf("derived %%%s names step %d of prepare, which has %d", b.Name, i, len(p.Parts[Prepare]))
		}
		s := &p.Parts[Prepare][i]
		for _, id := range s.In {
			if id != None && !known[p.Buffers[id].Root] {
				return fmt.Errorf("derived %%%s: step %d reads %%%s, which is none of its variables", b.Name, i, p.Buffers[id].Name)
			}
		}
		for _, id := range s.Out {
			known[p.Buffers[id].Root] = true
		}
	}
	if !known[d.Buffer] {
		return fmt.Errorf("no step makes derived %%%s", b.Name)
	}
	return nil
}
