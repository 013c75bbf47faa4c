package ir

import (
	"fmt"
	"slices"
)

// Stage is what must be true of a graph between passes.
type Stage uint8

const (
	Source   Stage = iota // forward only, without next values
	Training              // all sections; computed float values are f32 unless the user cast them
	Mixed                 // dtypes assigned: low rows have equal low operands, returns keep their source types
	Ready                 // Mixed, each section in its final order
)

var stageNames = [...]string{"source", "training", "mixed", "ready"}

func (s Stage) String() string { return stageNames[s] }

// Verify checks the whole graph: names, order of definition, operands, attributes, inferred types,
// next values, and the conditions of the stage. The error names the node and its position.
func Verify(g *Graph, s Stage) error {
	n := len(g.Vars) + g.NumNodes() // values, except for nodes with several results
	v := &verifier{g: g, stage: s, names: make(map[string]bool, n), defined: make(map[*Value]bool, n)}
	for _, x := range g.Vars {
		if err := v.decl(x); err != nil {
			return err
		}
	}
	v.next = map[*Value]*Value{}
	for sec, n := range g.Nodes {
		if err := v.node(sec, n); err != nil {
			return nodeError(n, err)
		}
	}
	for _, x := range g.Return {
		if !v.defined[x] {
			return &Error{Msg: fmt.Sprintf("return %s: no such value", x)}
		}
	}
	return nil
}

type verifier struct {
	g       *Graph
	stage   Stage
	names   map[string]bool
	defined map[*Value]bool
	next    map[*Value]*Value
}

func (v *verifier) decl(x *Value) error {
	if x.Kind == NotVar || x.Def != nil {
		return &Error{Pos: x.Pos, Msg: fmt.Sprintf("%s stands among the declarations and is not one", x)}
	}
	if v.names[x.Name] {
		return &Error{Pos: x.Pos, Msg: fmt.Sprintf("%s is declared twice", x)}
	}
	v.names[x.Name] = true
	v.defined[x] = true
	return nil
}

func (v *verifier) node(sec Section, n *Node) error {
	if v.stage == Source && sec != Forward {
		return fmt.Errorf("a source graph has only a forward section, this stands in %s", sec)
	}
	for _, x := range n.In {
		if x != nil && !v.defined[x] {
			return fmt.Errorf("%s is used before it is defined", x)
		}
	}
	types, err := n.check()
	if err != nil {
		return err
	}
	if n.Op == OpForeign {
		if err := n.checkCaptures(); err != nil {
			return err
		}
		types = nil
		for _, x := range n.Out {
			types = append(types, x.Type)
		}
	}
	if len(types) != len(n.Out) {
		return fmt.Errorf("has %d results, the node %d", len(types), len(n.Out))
	}
	for i, x := range n.Out {
		if err := v.result(sec, n, i, x, types[i]); err != nil {
			return err
		}
	}
	return v.atStage(n)
}

func (v *verifier) result(sec Section, n *Node, i int, x *Value, t Type) error {
	if x.Def != n || x.Idx != i {
		return fmt.Errorf("result %s is not linked to its node", x)
	}
	if x.Type != t {
		return fmt.Errorf("result %s is %s, recorded as %s", x, v.g.TypeString(t), v.g.TypeString(x.Type))
	}
	v.defined[x] = true
	if x.Next == nil {
		if v.names[x.Name] {
			return fmt.Errorf("%s is defined twice", x)
		}
		v.names[x.Name] = true
		return nil
	}
	switch variable := x.Next; {
	case sec == Prepare:
		return fmt.Errorf("%s: prepare writes no variables", x)
	case v.stage == Source && !n.Def().Is(Caches):
		return fmt.Errorf("%s: a source graph writes no variables", x)
	case !v.defined[variable] || variable.Kind != Param && variable.Kind != State:
		return fmt.Errorf("%s: only params and states have a next value", x)
	case variable.IsCache() && n.writesCache(variable) != nil:
		return n.writesCache(variable)
	case v.next[variable] != nil:
		return fmt.Errorf("%s is written twice: only the last write carries the prime", x)
	case x.Type != variable.Type:
		return fmt.Errorf("%s has type %s, which is not the type of %s", x, v.g.TypeString(x.Type), variable)
	default:
		v.next[variable] = x
	}
	return nil
}

func (v *verifier) atStage(n *Node) error {
	if v.stage < Mixed || n.Def().Class != Low {
		return nil
	}
	var first *Value
	for i, x := range n.In {
		if x == nil || !x.Type.DType.Float() || n.OperandClass(i) != Low {
			continue
		}
		if first != nil && first.Type.DType != x.Type.DType {
			return fmt.Errorf("operand dtypes differ: %s %s, %s %s", first, v.g.TypeString(first.Type), x, v.g.TypeString(x.Type))
		}
		first = x
	}
	return nil
}

// checkCaptures requires that every value that a nested graph reads from outside is listed, because
// passes see only listed ones.
func (n *Node) checkCaptures() error {
	for _, a := range n.Attrs {
		g, ok := a.Value.(*Graph)
		if !ok {
			continue
		}
		if v := g.unlisted(n.Captured); v != nil {
			return fmt.Errorf("graph @%s reads %s, which is not declared after |", bareOrQuoted(g.Name), v)
		}
	}
	return nil
}

// unlisted finds a value that g reads and that is neither its own nor listed. Graphs nested in g
// have their own lists.
func (g *Graph) unlisted(listed []*Value) *Value {
	known := map[*Value]bool{}
	for _, v := range g.Vars {
		known[v] = true
	}
	for _, n := range g.Nodes {
		for _, v := range slices.Concat(n.In, n.Captured) {
			if v != nil && !known[v] && !slices.Contains(listed, v) {
				return v
			}
		}
		for _, v := range n.Out {
			known[v] = true
		}
	}
	for _, v := range g.Return {
		if !known[v] && !slices.Contains(listed, v) {
			return v
		}
	}
	return nil
}
