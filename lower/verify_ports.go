package lower

import (
	"errors"
	"fmt"
	"slices"

	"ampc/ir"
)

// verifyPorts checks that steps run the planned clusters, and that a step reads and writes exactly
// the ports of its clusters: these tensors and parts, in these dtypes. A cluster has one step. A
// product whose epilogue no library runs has two (ir.Caps.Splits); only they use the tensor in
// between.
func (p *Program) verifyPorts() error {
	if p.Planned == nil {
		return nil
	}
	steps := make([][]*Step, len(p.Planned))
	for part := range NumParts {
		for i := range p.Parts[part] {
			s := &p.Parts[part][i]
			if err := p.runsClusters(s, part, steps); err != nil {
				return fmt.Errorf("%s step %d (%s %s): %w", part, i, s.Kind, s.Node.Name, err)
			}
		}
	}
	for k := range p.Planned {
		c, list := &p.Planned[k], steps[k]
		switch {
		case len(list) == 0 && !c.View && slices.ContainsFunc(c.Ports, func(x Port) bool { return x.Write && !x.Unread }):
			return fmt.Errorf("no step runs the cluster of %s", c.Name)
		case len(list) > 0 && list[0].Runs[0] == int32(k): // once for all clusters of a step
			if err := p.verifyStepPorts(list); err != nil {
				return fmt.Errorf("%s %s: %w", list[0].Kind, list[0].Node.Name, err)
			}
			if err := p.verifyBody(list); err != nil {
				return fmt.Errorf("%s %s: %w", list[0].Kind, list[0].Node.Name, err)
			}
		}
	}
	return p.verifyFlow()
}

// runsClusters appends s, a step of part, to the steps of each cluster that it runs.
func (p *Program) runsClusters(s *Step, part Part, steps [][]*Step) error {
	if len(s.Runs) == 0 {
		return errors.New("runs no cluster of the plan")
	}
	for i, k := range s.Runs {
		split := p.Target.Caps().Splits != nil && len(s.Runs) == 1
		if k < 0 || int(k) >= len(steps) || len(steps[k]) > 0 && !split || slices.Contains(s.Runs[:i], k) {
			return fmt.Errorf("runs cluster %d of the plan, which is not there or has a step", k)
		}
		if p.Planned[k].Part != part {
			return fmt.Errorf("runs a cluster of %s", p.Planned[k].Part)
		}
		steps[k] = append(steps[k], s)
	}
	return nil
}

// verifyStepPorts compares the step or steps of some clusters with their ports.
func (p *Program) verifyStepPorts(steps []*Step) error {
	var ports, named []Port
	for _, k := range steps[0].Runs {
		ports = append(ports, p.Planned[k].Ports...)
	}
	for _, s := range steps {
		for _, x := range p.named(s) {
			if x.Write && slices.Contains(named, x) {
				return fmt.Errorf("%s, which another step of its cluster writes", p.describePort(x))
			}
			named = append(named, x)
		}
	}
	for _, x := range named {
		unread, passed := x, x
		unread.Unread, passed.Write = true, !x.Write
		inner := len(steps) > 1 && slices.Contains(named, passed) && !slices.Contains(ports, passed)
		if !inner && !slices.Contains(ports, x) && !slices.Contains(ports, unread) {
			return fmt.Errorf("%s, which is no port of its cluster", p.describePort(x))
		}
	}
	for _, x := range ports {
		if filled := steps[0].Kind == KindFill && !x.Write; !filled && !x.Unread && !slices.Contains(named, x) && p.moves(x) { // a fill reads no operand if nothing of it remains in the result
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
