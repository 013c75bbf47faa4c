package lower

import (
	"errors"
	"fmt"
	"slices"

	"ampc/ir"
)

// verifyPorts checks that steps run the planned clusters, and that a step reads and writes exactly
// the ports of its clusters: these tensors and parts, in these dtypes. A cluster has one step.
func (p *Program) verifyPorts() error {
	switch {
	case p.Planned == nil:
		return nil
	case p.Scratch > 0:
		return p.verifyClusters()
	}
	steps := make([]*Step, len(p.Planned))
	for part := range NumParts {
		for i := range p.Parts[part] {
			s := &p.Parts[part][i]
			if err := p.runsClusters(s, part, steps); err != nil {
				return fmt.Errorf("%s step %d (%s %s): %w", part, i, s.Kind, s.Node.Name, err)
			}
		}
	}
	for k := range p.Planned {
		c, s := &p.Planned[k], steps[k]
		switch {
		case s == nil && !c.View && c.stores():
			return fmt.Errorf("no step runs the cluster of %s", c.Name)
		case s != nil && s.Runs[0] == int32(k): // once for all clusters of a step
			if err := p.verifyStepPorts(s); err != nil {
				return fmt.Errorf("%s %s: %w", s.Kind, s.Node.Name, err)
			}
			if err := p.verifyBody(s); err != nil {
				return fmt.Errorf("%s %s: %w", s.Kind, s.Node.Name, err)
			}
		}
	}
	return p.verifyFlow()
}

// stores reports whether a result of c is read: otherwise c may have no step.
func (c *PlannedCluster) stores() bool {
	return slices.ContainsFunc(c.Ports, func(x Port) bool { return x.Write && !x.Unread })
}

// runsClusters notes that s, a step of part, runs its clusters.
func (p *Program) runsClusters(s *Step, part Part, steps []*Step) error {
	if len(s.Runs) == 0 {
		return errors.New("runs no cluster of the plan")
	}
	for i, k := range s.Runs {
		if k < 0 || int(k) >= len(steps) || steps[k] != nil || slices.Contains(s.Runs[:i], k) {
			return fmt.Errorf("runs cluster %d of the plan, which is not there or has a step", k)
		}
		if p.Planned[k].Part != part {
			return fmt.Errorf("runs a cluster of %s", p.Planned[k].Part)
		}
		steps[k] = s
	}
	return nil
}

// verifyStepPorts compares a step with the ports of its clusters.
func (p *Program) verifyStepPorts(s *Step) error {
	var ports []Port
	for _, k := range s.Runs {
		ports = append(ports, p.Planned[k].Ports...)
	}
	named := p.named(s)
	for _, x := range named {
		unread := x
		unread.Unread = true
		if !slices.Contains(ports, x) && !slices.Contains(ports, unread) {
			return fmt.Errorf("%s, which is no port of its cluster", p.describePort(x))
		}
	}
	for _, x := range ports {
		if filled := s.Kind == KindFill && !x.Write; !filled && !x.Unread && !slices.Contains(named, x) && p.moves(x) { // a fill reads no operand if nothing of it remains in the result
			return fmt.Errorf("its cluster %s, and the step does not", p.describePort(x))
		}
	}
	return nil
}

// moves reports whether the tensor at a port has elements.
func (p *Program) moves(x Port) bool { return x.Root == None || p.Buffers[x.Root].Size > 0 }

func (p *Program) describePort(x Port) string {
	verb := "reads"
	if x.Write {
		verb = "writes"
	}
	if x.Root == None {
		return verb + " a tensor without memory"
	}
	return fmt.Sprintf("%s %s from byte %d on as %s", verb, p.BufferName(x.Root), x.At, x.DType)
}

// named lists what a step reads and writes: by the accesses of its clusters, and for tensors that
// no cluster accesses by its operands and results.
func (p *Program) named(s *Step) (ports []Port) {
	clusters := s.Clusters()
	if s.Epilogue != nil {
		clusters = append(clusters, s.Epilogue)
	}
	add := func(id BufferID, at int64, d ir.DType, write bool) {
		b := &p.Buffers[id]
		if x := (Port{Root: b.Root, At: b.At + at, DType: d, Write: write}); !slices.Contains(ports, x) {
			ports = append(ports, x)
		}
	}
	for _, c := range clusters {
		for _, a := range c.Loads {
			if a.Buffer != None {
				add(a.Buffer, a.Offset*a.DType.Size(), a.DType, false)
			}
		}
		for _, a := range c.Stores {
			add(a.Buffer, a.Offset*a.DType.Size(), a.DType, true)
		}
	}
	accessed := slices.Clone(ports)
	rest := func(list []BufferID, write bool) {
		for _, id := range list {
			if id != None && !slices.ContainsFunc(accessed, func(x Port) bool { return x.Root == p.Buffers[id].Root && x.Write == write }) {
				add(id, 0, p.Buffers[id].Type.DType, write)
			}
		}
	}
	rest(s.In, false)
	rest(s.Out, true)
	return ports
}
