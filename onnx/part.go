package onnx

import (
	"fmt"
	"path/filepath"

	"ampc/ir"
	"ampc/ir/eval"
)

// Given is a value that a part of a graph reads and does not compute.
type Given struct {
	Name   string  // in the part's graph; no two have the same
	Tensor *Tensor // an initializer; nil: a value that is fed
	Type   ir.Type // of what is fed
	Kind   string  // "" for a tensor, else what it is: nodes that read it are refused
	// Value holds the elements of what is fed, where shapes, axes and bounds may be
	// made from them: Partial.Guards then says for which elements the graph is right.
	Value *eval.Tensor
}

// Part is some nodes of a graph, in an order in which operands come first.
type Part struct {
	Nodes  []*Node
	Opsets map[string]int64
	Given  func(name string) *Given // nil for a name that nothing has
	Want   []string                 // which results are read elsewhere
	See    bool                     // Partial.Seen is wanted
	Folds  Folds                    // kept from one import to the next; nil: nothing is
}

// Partial is the graph of a part.
type Partial struct {
	Graph  *ir.Graph // returns what is wanted and computed, each value once
	Inputs []Port    // what is fed, by the names of Given
	Wanted []Wanted  // as Part.Want
	Guards []Guard
	Seen   map[string]Seen // every value that the nodes read or give, by name; nil without Part.See
	Single []int           // nodes of Part.Nodes that compute elements of f64 in f32
}

// Seen is what importing found out about a value.
type Seen struct {
	Type  ir.Type
	Known *eval.Tensor // nil where its elements are not known
}

// Wanted is a result of a part: exactly one of Value, Known, Given and Tensor is set.
type Wanted struct {
	Value  *ir.Value    // computed by the graph
	Known  *eval.Tensor // known while importing
	Given  string       // a value that was given, passed through
	Tensor *Tensor      // an initializer, passed through
}

// Guard is a value of integers or few floats that comes of inputs, and the elements
// that the graph was made for.
type Guard struct {
	Value *ir.Value
	Want  *eval.Tensor
}

// PartError is why a node of a part was not imported.
type PartError struct {
	Node int // in Part.Nodes
	Err  error
}

func (e *PartError) Error() string { return e.Err.Error() }
func (e *PartError) Unwrap() error { return e.Err }

// ImportPart makes a Source graph of some nodes. All types are static.
func (m *Model) ImportPart(p Part) (*Partial, error) {
	im := &importer{m: m, b: ir.NewBuilder("onnx"), rows: table(), inline: 1, folds: p.Folds, part: true}
	im.b.Locate(func() ir.Pos { return ir.Pos{File: filepath.Base(m.path), Line: im.at} })
	s := &scope{vals: map[string]*value{}, opsets: p.Opsets}
	given, tensors := map[*value]string{}, map[*Tensor]*value{}
	s.given = func(name string) *value {
		g := p.Given(name)
		if g == nil {
			return nil
		}
		v := tensors[g.Tensor]
		if v == nil {
			v = im.given(g)
		}
		if g.Tensor != nil { // several names may stand for one
			tensors[g.Tensor] = v
		}
		s.vals[name], given[v] = v, name
		return v
	}
	var out *Partial
	err := m.guard(func() error {
		for i, n := range p.Nodes {
			im.at = i
			err := im.node(n, s)
			if err == nil {
				err = im.b.Err()
			}
			if err != nil {
				return &PartError{i, plain(err)}
			}
		}
		var err error
		out, err = im.partial(p, s, given)
		return err
	})
	return out, err
}

// given is a value from elsewhere. One without elements is known: no graph reads it.
func (im *importer) given(g *Given) *value {
	switch {
	case g.Tensor != nil:
		return &value{name: g.Name, init: g.Tensor}
	case g.Kind != "":
		return &value{name: g.Name, kind: g.Kind}
	case g.Type.Shape.Elements() == 0:
		return &value{name: g.Name, typ: g.Type, k: eval.New(g.Type)}
	}
	name := im.nameOf(g.Name)
	v := &value{name: g.Name, typ: g.Type, v: im.b.Declare(ir.Input, name, g.Type, nil, nil)}
	im.out.Inputs = append(im.out.Inputs, Port{g.Name, v.v})
	if g.Value != nil && Knowable(g.Type) {
		v.k, v.from = g.Value, []string{g.Name}
	}
	return v
}

// partial gathers what the part's graph returns.
func (im *importer) partial(p Part, s *scope, given map[*value]string) (*Partial, error) {
	out := &Partial{Graph: im.b.Graph(), Inputs: im.out.Inputs, Single: im.out.Single}
	returned := map[*ir.Value]bool{}
	for _, name := range p.Want {
		v := s.vals[name]
		if v == nil {
			return nil, fmt.Errorf("%q is neither an input nor an initializer nor the result of a node", name)
		}
		w := Wanted{}
		from, through := given[v]
		switch {
		case through && v.init == nil:
			w.Given = from
		case v.init != nil && (v.v == nil || v.v.IsVar()):
			w.Tensor = v.init
		case v.k != nil && v.from == nil:
			w.Known = v.k
		default:
			w.Value = v.v
			if !returned[v.v] {
				returned[v.v] = true
				im.b.Return(v.v)
			}
		}
		out.Wanted = append(out.Wanted, w)
	}
	if p.See {
		out.Seen = make(map[string]Seen, len(s.vals))
		for name, v := range s.vals {
			out.Seen[name] = Seen{v.typ, v.k}
		}
	}
	for _, g := range im.guards {
		out.Guards = append(out.Guards, Guard{g.v.v, g.k})
	}
	return out, im.b.Err()
}

// Compute evaluates one node whose operands are all known, in the evaluator: what
// has no size before its operands' elements are known.
func (m *Model) Compute(n *Node, opsets map[string]int64, in []*eval.Tensor) (out []*eval.Tensor, err error) {
	im := &importer{m: m, b: ir.NewBuilder("onnx"), rows: table(), inline: 1}
	s := &scope{vals: map[string]*value{}, opsets: opsets}
	for i, name := range n.In {
		if name != "" {
			s.vals[name] = known(in[i])
			s.vals[name].name = name
		}
	}
	err = m.guard(func() error {
		if err := im.node(n, s); err != nil {
			return plain(err)
		}
		return im.evaluate(n, s, &out)
	})
	return out, err
}

// evaluate runs the graph that a node has become.
func (im *importer) evaluate(n *Node, s *scope, out *[]*eval.Tensor) error {
	values := make([]*ir.Value, len(n.Out))
	*out = make([]*eval.Tensor, len(n.Out))
	for i, name := range n.Out {
		if name == "" {
			continue
		}
		v := s.vals[name]
		if (*out)[i] = im.known(v); (*out)[i] == nil {
			values[i] = im.operand(v)
			im.b.Return(values[i])
		}
	}
	if err := im.b.Err(); err != nil {
		return plain(err)
	}
	r, err := eval.Run(im.b.Graph(), nil, eval.Options{})
	if err != nil {
		return err
	}
	for i, v := range values {
		if v != nil {
			(*out)[i] = r.Value(v)
		}
	}
	return nil
}
