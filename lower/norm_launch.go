package lower

import (
	"slices"

	"ampc/ir"
)

// lowerNormLaunch lowers channel norms that run in one kernel (ir.NormFusion): either gradients
// with a common dy, with the elementwise nodes that compute it, or a norm and the norm that its
// epilogue adds. It reports false for other nodes.
func (l *Lowerer) lowerNormLaunch(nodes []*ir.Node) bool {
	caps := l.p.Target.Caps()
	var norms, rest []*ir.Node
	for _, n := range nodes {
		if c := caps.NormOf(n); c.Operand > 0 || c.Beside {
			norms = append(norms, n)
		} else {
			rest = append(rest, n)
		}
	}
	switch {
	case len(norms) == 0 || len(norms) > 2 || len(norms) == 2 && norms[0].Op != norms[1].Op:
		return false
	case caps.NormOf(norms[0]).Operand > 0:
		return l.lowerGradients(norms, rest)
	case len(norms) == 2:
		own, added := norms[0], norms[1]
		if own.Why.Cluster == 0 {
			own, added = added, own
		}
		return l.lowerNormEpilogue(own, added, rest)
	}
	return false
}

// lowerGradients lowers gradients of norms with a common dy, which the nodes before compute.
func (l *Lowerer) lowerGradients(norms, before []*ir.Node) bool {
	n, operand := norms[0], l.p.Target.Caps().NormOf(norms[0]).Operand
	made := n.In[operand]
	if !l.denseRows(before) || len(norms) > 1 && norms[1].In[operand] != made {
		return false
	}
	for _, m := range norms {
		for i, v := range m.In {
			if v != nil && v.Def != nil && contains(before, v.Def) != (i == operand && len(before) > 0) {
				return false
			}
		}
	}
	l.now = slices.Concat(norms, before)
	s := l.rowStep(n)
	for _, v := range n.Out {
		s.Out = append(s.Out, l.result(v))
	}
	if len(norms) > 1 {
		s.Kernel.Fusion.Beside = l.besideGradient(&s, norms[1], operand, len(before) > 0)
	}
	if len(before) > 0 {
		j := l.join(nil, before)
		reg := j.read(made) // rounded, as a store would round it
		out := l.storesFor(j, before, l.now)
		j.cluster.Code = j.code.Ins
		s.Kernel.Fusion.Prologue, s.Kernel.Fusion.Made = &j.cluster, reg
		s.In[operand] = None
		s.In, s.Out = append(s.In, loadsOf(&j.cluster)...), append(s.Out, out...)
		l.addUnloaded(&s, before)
	}
	l.emit(s)
	return true
}

// addUnloaded marks the loads of nodes before a gradient that its kernel computes again, and adds the
// scales and biases that this takes to the operands of s. It marks loads of which the kernel reads
// only the signs, and adds these.
func (l *Lowerer) addUnloaded(s *Step, before []*ir.Node) {
	loads := s.Kernel.Fusion.Prologue.Loads
	for _, m := range before {
		for i, v := range m.In {
			at := slices.IndexFunc(loads, func(a Access) bool { return a.Buffer == l.in(v) })
			if at < 0 || loads[at].Again || loads[at].Signs > 0 {
				continue
			}
			if bits, ok := l.signsOf(m, i, l.now); ok {
				loads[at].Signs = s.operand(bits)
			}
			norm := l.again(m, v, l.now)
			if norm == nil {
				continue
			}
			loads[at].Again = true
			for _, x := range norm.In[1:3] {
				if x != nil && !slices.Contains(s.In, l.in(x)) {
					s.In = append(s.In, l.in(x))
				}
			}
		}
	}
}

// besideGradient adds gradient n to step s. Its dy is the given operand or, if made, the prologue's
// result.
func (l *Lowerer) besideGradient(s *Step, n *ir.Node, operand int, made bool) *KernelPart {
	b := &KernelPart{Node: detached(n)}
	for i, v := range n.In {
		switch {
		case v == nil || i == operand && made:
			b.In = append(b.In, -1)
		case i == operand:
			b.In = append(b.In, operand)
		default:
			b.In = append(b.In, len(s.In))
			s.In = append(s.In, l.in(v))
		}
	}
	for _, v := range n.Out {
		b.Out = append(b.Out, len(s.Out))
		s.Out = append(s.Out, l.result(v))
	}
	return b
}
