package lower

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
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
	runs := make([]run, len(p.Planned))
	for part := range NumParts {
		for i := range p.Parts[part] {
			s := &p.Parts[part][i]
			if err := p.runsClusters(s, part, runs); err != nil {
				return fmt.Errorf("%s step %d (%s %s): %w", part, i, s.Kind, s.Node.Name, err)
			}
		}
	}
	if err := p.verifyRuns(runs); err != nil {
		return err
	}
	return p.verifyFlow()
}

// run says which step runs a cluster: nil, if none does. The cluster is number at of the step's.
type run struct {
	s  *Step
	at int
}

// manyClusters is the number of clusters from which on they are verified by several goroutines.
const manyClusters = 5000

// verifyRuns compares the steps with their clusters and returns the error of the first cluster that has
// one.
func (p *Program) verifyRuns(runs []run) error {
	parts := 1
	if len(runs) >= manyClusters {
		parts = 4 * runtime.GOMAXPROCS(0) // some take longer than others
	}
	errs, verify := make([]error, parts), make([]func(), parts)
	for part := range parts {
		verify[part] = func() {
			b := &body{p: p}
			for k := len(runs) * part / parts; k < len(runs)*(part+1)/parts && errs[part] == nil; k++ {
				errs[part] = b.verifyRun(&p.Planned[k], runs[k])
			}
		}
	}
	ir.Together(verify...)
	return cmp.Or(errs...)
}

// verifyRun compares cluster c with the step that runs it, which may run more.
func (b *body) verifyRun(c *PlannedCluster, r run) error {
	if r.s == nil {
		if !c.View && c.stores() {
			return fmt.Errorf("no step runs the cluster of %s", c.Name)
		}
		return nil
	}
	if err := b.compare(r.s, r.at); err != nil {
		return fmt.Errorf("%s %s: %w", r.s.Kind, r.s.Node.Name, err)
	}
	return nil
}

// compare compares a step with cluster number at of those that it runs; without More with all, when it
// is asked for the first one.
func (b *body) compare(s *Step, at int) error {
	switch {
	case len(s.More) > 0:
		if s.Cluster == nil || len(s.Runs) != 1+len(s.More) {
			return fmt.Errorf("runs %d clusters of the plan and has %d", len(s.Runs), 1+len(s.More))
		}
		if at == 0 {
			if err := s.namesAll(); err != nil {
				return err
			}
		}
		s = s.only(at)
	case at > 0:
		return nil
	}
	if err := b.p.verifyStepPorts(s); err != nil {
		return err
	}
	return b.verify(s)
}

// only is a step that runs cluster number at of s's.
func (s *Step) only(at int) *Step {
	c := s.Cluster
	if at > 0 {
		c = s.More[at-1]
	}
	one := &Step{Kind: s.Kind, In: loadsOf(c), Node: s.Node, Runs: s.Runs[at : at+1], Cluster: c}
	for i := range c.Stores {
		one.Out = append(one.Out, c.Stores[i].Buffer)
	}
	return one
}

// stores reports whether a result of c is read: otherwise c may have no step.
func (c *PlannedCluster) stores() bool {
	return slices.ContainsFunc(c.Ports, func(x Port) bool { return x.Write && !x.Unread })
}

// runsClusters notes that s, a step of part, runs its clusters.
func (p *Program) runsClusters(s *Step, part Part, runs []run) error {
	if len(s.Runs) == 0 {
		return errors.New("runs no cluster of the plan")
	}
	for at, k := range s.Runs {
		if k < 0 || int(k) >= len(runs) || runs[k].s != nil {
			return fmt.Errorf("runs cluster %d of the plan, which is not there or has a step", k)
		}
		if p.Planned[k].Part != part {
			return fmt.Errorf("runs a cluster of %s", p.Planned[k].Part)
		}
		runs[k] = run{s, at}
	}
	return nil
}

// verifyStepPorts compares a step with the ports of its clusters.
func (p *Program) verifyStepPorts(s *Step) error {
	list := p.Planned[s.Runs[0]].Ports
	for _, k := range s.Runs[1:] {
		list = slices.Concat(list, p.Planned[k].Ports)
	}
	ports, named := membersOf(list), p.named(s)
	for _, x := range named.list {
		unread := x
		unread.Unread = true
		if !ports.has(x) && !ports.has(unread) {
			return fmt.Errorf("%s, which is no port of its cluster", p.describePort(x))
		}
	}
	for _, x := range ports.list {
		if filled := s.Kind == KindFill && !x.Write; !filled && !x.Unread && !named.has(x) && p.moves(x) { // a fill reads no operand if nothing of it remains in the result
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
func (p *Program) named(s *Step) (ports members[Port]) {
	clusters := s.Clusters()
	if s.Epilogue != nil {
		clusters = append(clusters, s.Epilogue)
	}
	add := func(id BufferID, at int64, d ir.DType, write bool) {
		b := &p.Buffers[id]
		ports.add(Port{Root: b.Root, At: b.At + at, DType: d, Write: write})
	}
	type access struct {
		root  BufferID
		write bool
	}
	var accessed members[access]
	for _, c := range clusters {
		for i := range c.Loads {
			if a := &c.Loads[i]; a.Buffer != None {
				add(a.Buffer, a.Offset*a.DType.Size(), a.DType, false)
				accessed.add(access{p.Buffers[a.Buffer].Root, false})
			}
		}
		for i := range c.Stores {
			a := &c.Stores[i]
			add(a.Buffer, a.Offset*a.DType.Size(), a.DType, true)
			accessed.add(access{p.Buffers[a.Buffer].Root, true})
		}
	}
	rest := func(list []BufferID, write bool) {
		for _, id := range list {
			if id != None && !accessed.has(access{p.Buffers[id].Root, write}) {
				add(id, 0, p.Buffers[id].Type.DType, write)
			}
		}
	}
	rest(s.In, false)
	rest(s.Out, true)
	return ports
}
