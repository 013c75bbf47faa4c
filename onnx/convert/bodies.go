package convert

import (
	"cmp"

	"ampc/onnx"
	"ampc/passes"
)

// Bodies is a model with graphs in nodes, or with functions, whose nodes are all tried: a Trial
// knows those of the main graph alone. Assignments are tried as models.
type Bodies struct {
	// Names are the first results of the nodes that may compute in 16 bits. Nodes of several
	// graphs that have one name are decided together, as rules name them.
	Names []string

	units   *units
	kernels Kernels
	probe   map[*unit]*convertPlan // as the policy decides without data
	may     map[*unit]*convertPlan // with every node in 16 bits that may compute in them
	at      map[string]int         // by name
}

// HasBodies reports whether a model has nodes in other graphs than the main one that are converted.
func HasBodies(m *onnx.Model, x *onnx.Imported) bool { return len(findUnits(m, x).all) > 1 }

// NewBodies finds the nodes of m, imported as x, that may compute in 16 bits under a
// policy with a 16-bit dtype. What the policy's rules keep, or f32 outputs, stays f32.
func NewBodies(m *onnx.Model, x *onnx.Imported, policy passes.Policy, kernels Kernels) (*Bodies, error) {
	b := &Bodies{units: findUnits(m, x), kernels: kernels, probe: map[*unit]*convertPlan{}, may: map[*unit]*convertPlan{}, at: map[string]int{}}
	plans, err := b.units.decide(policy, Options{})
	if err != nil {
		return nil, err
	}
	b.units.assume()
	for _, p := range plans {
		if b.probe[p.u] = p; p.inactive {
			continue
		}
		c, err := p.candidates(policy)
		if err != nil {
			return nil, err
		}
		b.may[p.u] = c
		for i, n := range p.m.Graph.Nodes {
			y := n.Result()
			if _, have := b.at[y]; c.half[i] && y != "" && !have {
				b.at[y] = len(b.Names)
				b.Names = append(b.Names, y)
			}
		}
	}
	return b, nil
}

// Outside says which nodes leave the range of 16 bits on data with these largest
// magnitudes, and by what value. For what the data does not reach, such as a branch that is
// never taken, the policy decides.
func (b *Bodies) Outside(most map[string]float64) []string {
	why := make([]string, len(b.Names))
	b.each(func(p *convertPlan, i, k int) {
		if why[k] != "" {
			return
		}
		probe := b.probe[p.u]
		if _, seen := most[b.Names[k]]; !seen && !probe.half[i] && p.float(b.Names[k]) {
			why[k] = "no data reaches it: " + cmp.Or(probe.why[i], "the policy keeps it")
		} else {
			why[k] = p.outside(p.m.Graph.Nodes[i], most)
		}
	})
	return why
}

// each calls f for all nodes that may compute in 16 bits: node i of a plan is name k.
func (b *Bodies) each(f func(p *convertPlan, i, k int)) {
	for _, u := range b.units.all {
		p := b.may[u]
		if p == nil {
			continue
		}
		for i, n := range p.m.Graph.Nodes {
			if k, ok := b.at[n.Result()]; ok && p.half[i] {
				f(p, i, k)
			}
		}
	}
}

// plans are those of an assignment: of the nodes that are given to 16 bits, those whose casts cost
// more than they save stay f32, except for products.
func (b *Bodies) plans(policy passes.Policy, half []bool) ([]*convertPlan, error) {
	return b.units.settle(policy, Options{Kernels: b.kernels}, func(p *convertPlan) error {
		may := b.may[p.u]
		if p.inactive = may == nil; p.inactive {
			return nil
		}
		p.products = may.products
		p.place()
		for i, n := range p.m.Graph.Nodes {
			k, ok := b.at[n.Result()]
			p.half[i] = ok && may.half[i] && half[k]
			p.free[i] = p.half[i] && !p.products[i]
		}
		p.legal()
		return nil
	})
}

// Edit makes the model of an assignment.
func (b *Bodies) Edit(policy passes.Policy, half []bool) (*onnx.Edit, error) {
	plans, err := b.plans(policy, half)
	if err != nil {
		return nil, err
	}
	e, _, err := b.units.edit(plans)
	return e, err
}

// maxRounds bounds how often rules are added, as each of them may change what casts cost.
const maxRounds = 4

// Rules say an assignment as a policy's rules, in which only nodes stand that the
// policy itself may decide otherwise.
func (b *Bodies) Rules(policy passes.Policy, half []bool) (passes.Policy, error) {
	plans, err := b.plans(policy, half)
	if err != nil {
		return policy, err
	}
	final := map[*unit]*convertPlan{}
	for _, p := range plans {
		final[p.u] = p
	}
	wanted, named := map[string]bool{}, map[string]bool{}
	b.each(func(p *convertPlan, i, k int) {
		wanted[b.Names[k]] = wanted[b.Names[k]] || final[p.u].half[i]
	})
	out, decided := policy, b.probe
	for range maxRounds {
		more := false
		b.each(func(p *convertPlan, i, k int) {
			y := b.Names[k]
			if !named[y] && decided[p.u].against(i, wanted[y]) {
				named[y], more = true, true
			}
		})
		if !more {
			break
		}
		out = ruled(policy, wanted, named)
		if plans, err = b.units.decide(out, Options{}); err != nil {
			return policy, err
		}
		decided = map[*unit]*convertPlan{}
		for _, p := range plans {
			decided[p.u] = p
		}
	}
	return out, nil
}
