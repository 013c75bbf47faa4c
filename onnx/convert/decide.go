package convert

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"ampc/ir"
	"ampc/ir/eval"
	"ampc/onnx"
	"ampc/passes"
)

// decide makes the plan of each unit as the policy says.
func (s *units) decide(policy passes.Policy, o Options) ([]*convertPlan, error) {
	effects := make([]effect, len(policy.Rules))
	plans, err := s.settle(policy, o, func(p *convertPlan) error {
		if err := p.decide(policy); err != nil {
			if p.u.up == nil && p.u.fn == nil {
				return err
			}
			p.inactive = true
			return nil
		}
		p.widenSums()
		p.widenOutputs()
		p.pinned(policy.Rules, effects)
		p.legal()
		if err := p.veto(); err != nil {
			return err
		}
		p.spread()
		return nil
	})
	if err != nil {
		return nil, err
	}
	return plans, checkEffects(policy.Rules, effects)
}

// settle makes the plan of each unit, in the order of s.all, of what assign says of its nodes. A
// function takes and returns 16 bits if every node in it may compute in them and every call of it
// does. Otherwise its inputs and outputs are f32, as are those of graphs in attributes.
func (s *units) settle(policy passes.Policy, o Options, assign func(p *convertPlan) error) ([]*convertPlan, error) {
	s.assume()
	for {
		plans, again, err := s.round(policy, o, assign)
		if err != nil || !again {
			return plans, err
		}
	}
}

// assume says of all functions that they take 16 bits, where nothing known is against it.
func (s *units) assume() {
	for _, f := range s.functions {
		f.low = f.why == "" && slices.Contains(f.types, ir.F32)
	}
}

// round makes plans from what is known about functions. again reports that a function has lost an
// assumption, so another round is needed.
func (s *units) round(policy passes.Policy, o Options, assign func(p *convertPlan) error) (plans []*convertPlan, again bool, err error) {
	at := map[*unit]*convertPlan{}
	wideOperands := map[*function]map[string]bool{}
	for _, u := range s.all {
		p := newPlan(u, policy)
		p.kernels = o.Kernels
		if u.fn != nil {
			p.wideOperands = wideOperands[u.fn]
		} else if up := at[u.up]; up != nil {
			p.up, up.inner = up, append(up.inner, p)
		}
		at[u] = p
		plans = append(plans, p)
		if u.fn != nil && u.fn.why != "" {
			p.inactive = true
			continue
		}
		p.index(o)
		if err := assign(p); err != nil {
			return nil, false, err
		}
		if p.inactive {
			continue
		}
		if u.fn != nil && u.fn.low && !p.whole() {
			u.fn.low, again = false, true
		}
		p.price()
		for i, f := range u.calls {
			if f.low && !p.half[i] {
				f.low, again = false, true
			}
			if wideOperands[f] == nil {
				wideOperands[f] = map[string]bool{}
			}
			for k, name := range u.m.Graph.Nodes[i].In {
				if k < len(f.f.In) && p.exceedsRange(name) {
					wideOperands[f][f.f.In[k]] = true
				}
			}
		}
	}
	return plans, again, nil
}

// whole makes every node of a function compute in 16 bits, where all may that compute
// with floats.
func (p *convertPlan) whole() bool {
	for i, n := range p.m.Graph.Nodes {
		if (p.floats(n) || slices.ContainsFunc(n.Out, p.float)) && !p.half[i] && !p.free[i] && n.Op != "Constant" && n.Op != "Shape" && n.Op != "Size" {
			return false
		}
	}
	for _, y := range p.m.Graph.Outputs {
		if i, made := p.from[y.Name]; p.float(y.Name) && !(made && (p.half[i] || p.free[i])) {
			return false
		}
	}
	for i, free := range p.free {
		p.half[i], p.free[i] = p.half[i] || free, false
	}
	return true
}

func (p *convertPlan) float(name string) bool { return p.x.Types[name].DType == ir.F32 }

// edit says what all plans change.
func (s *units) edit(plans []*convertPlan) (*onnx.Edit, *Report, error) {
	names := map[string]bool{}
	for _, p := range plans {
		maps.Copy(names, p.names)
	}
	at := map[*unit]*convertPlan{}
	sum := &Report{}
	for _, p := range plans {
		at[p.u], p.names = p, names
		if p.inactive {
			continue
		}
		p.summarize()
		if err := p.store(); err != nil {
			return nil, nil, err
		}
		p.rename()
		sum.Kept = append(sum.Kept, p.report.Kept...)
	}
	for _, p := range plans { // a plan may add casts for one after it
		if r := p.report; !p.inactive {
			sum.Nodes, sum.Low, sum.Casts, sum.Weights = sum.Nodes+r.Nodes, sum.Low+r.Low, sum.Casts+r.Casts, sum.Weights+r.Weights
		}
	}
	main := plans[0].edit
	for _, p := range slices.Backward(plans) { // nodes that belong to a unit are listed after it
		for _, subgraphs := range p.u.subgraphs {
			for _, k := range subgraphs {
				if k.unit != nil && !at[k.unit].inactive && !at[k.unit].edit.Empty() {
					p.edit.Graphs[k.g] = at[k.unit].edit
				}
			}
		}
		if f := p.u.fn; f != nil && !p.inactive && !p.edit.Empty() {
			main.Functions[f.f] = p.edit
		}
	}
	return main, sum, nil
}

// folded sets free the nodes that left none in the graph, as their operands are known:
// where their values are known, and 16 bits hold them; all their bits, where the result
// is no number.
func (p *convertPlan) folded() {
	for i, n := range p.m.Graph.Nodes {
		if p.seen[i] || !p.floats(n) {
			continue
		}
		exactly := !slices.ContainsFunc(n.Out, p.float)
		p.free[i] = n.Op != "Shape" && n.Op != "Size" && !slices.ContainsFunc(slices.Concat(n.In, n.Out), func(name string) bool {
			return p.float(name) && p.inits[name] == nil && !p.holds(name, exactly)
		})
	}
}

// place finds the nodes that left some in the graph.
func (p *convertPlan) place() {
	for _, x := range p.x.Graph.Nodes {
		if i := x.Pos.Line; x.Pos.File != "" && i >= 0 && i < len(p.seen) {
			p.seen[i] = true
		}
	}
	p.folded()
}

// holds reports whether the elements of a value are known and in the range of 16
// bits, or are numbers of 16 bits.
func (p *convertPlan) holds(name string, exactly bool) bool {
	k := p.x.Known[name]
	if k == nil {
		return false
	}
	for _, x := range k.F {
		low := eval.Round(x, p.low)
		if low != x && (exactly || !(math.Abs(low-x) <= math.Abs(x)/128)) {
			return false // it leaves the range, or has few bits there
		}
	}
	return true
}

// rounds are operators that may stand between a value and the integers made from it.
var rounds = map[string]bool{"Floor": true, "Ceil": true, "Round": true, "Mul": true, "Div": true, "Add": true, "Sub": true, "Reshape": true, "Squeeze": true, "Unsqueeze": true, "Concat": true}

// exact finds the nodes of which integers are made, or sizes by factors: rounding would change them.
func (p *convertPlan) exact() []bool {
	exact := make([]bool, len(p.m.Graph.Nodes))
	values := map[string]bool{}
	order, err := onnx.Sorted(p.m.Graph.Nodes)
	if err != nil {
		return exact // the importer has reported it
	}
	for _, i := range slices.Backward(order) {
		n := p.m.Graph.Nodes[i]
		if n.Op == "Cast" && len(n.In) == 1 && p.float(n.In[0]) && !p.x.Types[n.Out[0]].DType.Float() && p.x.Types[n.Out[0]].DType != ir.Bool {
			values[n.In[0]] = true
		}
		exact[i] = slices.ContainsFunc(n.Out, func(y string) bool { return values[y] }) && (!p.seen[i] || rounds[n.Op])
		for k, x := range n.In {
			if exact[i] || p.stays(n, k) && !p.seen[i] {
				values[x] = true
			}
		}
	}
	return exact
}

// widened reports that the model's own cast converted an operand of n to f32.
func (p *convertPlan) widened(n *onnx.Node) string {
	for _, name := range n.In {
		if x := p.before(name); x != "" && p.x.Types[x].DType.Low() {
			return fmt.Sprintf("the model casts its operand %q to f32", name)
		}
	}
	return ""
}

// before is the operand of the model's own cast to f32, "" if the value is not such a cast.
func (p *convertPlan) before(name string) string {
	i, made := p.from[name]
	if !made || !p.float(name) {
		return ""
	}
	if c := p.m.Graph.Nodes[i]; c.Op == "Cast" && c.Domain == "" && len(c.In) == 1 {
		return c.In[0]
	}
	return ""
}
