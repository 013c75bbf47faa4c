package convert

import (
	"fmt"
	"slices"

	"ampc/ir"
	"ampc/onnx"
)

// unit is a list of nodes that is planned together: those of the main graph, of a
// graph in an attribute, or of a function.
type unit struct {
	m         *onnx.Model // whose main graph is the unit's
	x         *onnx.Imported
	up        *unit              // around it, nil for the main graph and functions
	path      string             // where it is, for reports; "" the main graph
	fn        *function          // whose nodes these are, nil for no function
	raw       []*onnx.Node       // the nodes as the file has them; in a function, attributes may refer to those of a call
	subgraphs map[int][]subgraph // by node

	calls map[int]*function // by node: the function that it calls
}

// subgraph is a graph in an attribute. Its unit is nil if the graph was not understood.
type subgraph struct {
	g    *onnx.Graph // as the file has it
	unit *unit
}

// of is the unit of a graph of node i, nil where it has none.
func (u *unit) of(i int, g *onnx.Graph) *unit {
	if u != nil {
		for _, k := range u.subgraphs[i] {
			if k.unit != nil && k.unit.m.Graph == g {
				return k.unit
			}
		}
	}
	return nil
}

// function is a function of the model's own.
type function struct {
	f     *onnx.Function
	unit  *unit
	types []ir.DType // of the operands of its calls
	why   string     // it stays as it is; "": it is converted
	low   bool       // it takes 16 bits and gives them, in every call
}

// units finds all graphs of a model, and what types their values have.
type units struct {
	all       []*unit // a unit stands after the units from which it reads
	functions map[*onnx.Function]*function
}

func findUnits(m *onnx.Model, x *onnx.Imported) *units {
	s := &units{functions: map[*onnx.Function]*function{}}
	s.add(&unit{m: m, x: x, raw: m.Graph.Nodes}, 0)
	return s
}

// maxUnits bounds how deep graphs and calls may stand in each other.
const maxUnits = 32

func (s *units) add(u *unit, depth int) {
	u.subgraphs, u.calls = map[int][]subgraph{}, map[int]*function{}
	s.all = append(s.all, u)
	for i, n := range u.m.Graph.Nodes {
		if f := u.m.Function(n); f != nil {
			if u.calls[i] = s.function(u, i, n, f, depth); u.calls[i] != nil {
				continue
			}
		}
		for _, a := range n.Attrs {
			if a.G == nil || depth > maxUnits {
				continue
			}
			raw := slices.IndexFunc(u.raw[i].Attrs, func(r *onnx.Attribute) bool { return r.Name == a.Name })
			k := subgraph{g: u.raw[i].Attrs[raw].G}
			if k.g == nil {
				continue // a reference to an attribute of the call
			}
			path := fmt.Sprintf("%snode %d (%s) %s: ", u.path, i, ir.Printable(n.Op), ir.Printable(a.Name))
			if k.unit = u.inner(n, a.G, path); k.unit != nil {
				k.unit.raw = k.g.Nodes
				s.add(k.unit, depth+1)
			}
			u.subgraphs[i] = append(u.subgraphs[i], k)
		}
	}
}

// function is what node i of u calls. All calls must give operands of the same types.
func (s *units) function(u *unit, i int, n *onnx.Node, f *onnx.Function, depth int) *function {
	types := make([]ir.DType, len(f.In)) // Invalid: left out
	for i, name := range n.In[:min(len(n.In), len(f.In))] {
		types[i] = u.x.Types[name].DType
	}
	if have := s.functions[f]; have != nil {
		if !slices.Equal(have.types, types) && have.why == "" {
			have.why = "is called with operands of several types"
		}
		return have
	}
	made := &function{f: f, types: types}
	s.functions[f] = made
	opsets := map[string]int64{}
	for d, v := range u.m.Opsets {
		opsets[d] = v
	}
	for d, v := range f.Opsets {
		opsets[d] = v
	}
	g := f.Called(n)
	at := map[string]int{}
	for k, name := range f.In {
		at[name] = k
	}
	given := func(name string) *onnx.Given {
		if k, ok := at[name]; ok && k < len(n.In) {
			return u.given(n.In[k], name)
		}
		return nil
	}
	body := u.m.Body(g, opsets)
	x, err := onnx.Import(body, onnx.Options{Foreign: true, Carry: true, Given: given})
	if err != nil || depth > maxUnits {
		made.why = "its types are not known"
		return made
	}
	made.unit = &unit{m: body, x: x, path: fmt.Sprintf("function %s: ", ir.Printable(f.Name)), fn: made, raw: f.Nodes}
	s.add(made.unit, depth+1)
	return made
}

// inner is a graph in an attribute of n, nil where types of what it reads are not known.
func (u *unit) inner(n *onnx.Node, g *onnx.Graph, path string) *unit {
	at := map[string]*onnx.Given{}
	if !u.inputs(n, g, at) {
		return nil
	}
	body := u.m.Body(g, u.m.Opsets)
	x, err := onnx.Import(body, onnx.Options{Foreign: true, Carry: true, Given: func(name string) *onnx.Given {
		if at[name] != nil {
			return at[name]
		}
		return u.given(name, name)
	}})
	if err != nil {
		return nil
	}
	return &unit{m: body, x: x, up: u, path: path}
}

// given is a value of u as a graph in it reads it under a name; nil where its type is
// not known, or its sizes are not.
func (u *unit) given(name, as string) *onnx.Given {
	for _, t := range u.m.Graph.Initializers {
		if t.Name == name {
			return &onnx.Given{Name: as, Tensor: t}
		}
	}
	for _, n := range u.m.Graph.Nodes {
		if n.Op == "Constant" && n.Domain == "" && len(n.Out) == 1 && n.Out[0] == name {
			if a := n.Attr("value"); a != nil && a.T != nil {
				return &onnx.Given{Name: as, Tensor: a.T}
			}
		}
	}
	if t, ok := u.x.Types[name]; ok && t.DType != ir.Invalid && t.Shape.Static() {
		return &onnx.Given{Name: as, Type: t}
	}
	return nil
}

// inputs are the types of the inputs of a graph of n, by the operators that have such.
func (u *unit) inputs(n *onnx.Node, g *onnx.Graph, at map[string]*onnx.Given) bool {
	typed := func(k int, t ir.Type) { at[g.Inputs[k].Name] = &onnx.Given{Name: g.Inputs[k].Name, Type: t} }
	operand := func(i int) (ir.Type, bool) {
		if i >= len(n.In) {
			return ir.Type{}, false
		}
		x := u.given(n.In[i], n.In[i])
		if x == nil {
			return ir.Type{}, false
		}
		if x.Tensor == nil {
			return x.Type, true
		}
		t, err := x.Tensor.Type()
		return t, err == nil
	}
	switch n.Op {
	case "If":
		return len(g.Inputs) == 0
	case "Loop":
		for k := range g.Inputs {
			t := ir.T(ir.I64)
			switch {
			case k == 1:
				t = ir.T(ir.Bool)
			case k > 1:
				var ok bool
				if t, ok = operand(k); !ok {
					return false
				}
			}
			typed(k, t)
		}
		return true
	case "Scan":
		count := n.Attr("num_scan_inputs")
		if count == nil || u.m.Opsets[""] < 9 {
			return false
		}
		axes := n.Attr("scan_input_axes")
		for k := range g.Inputs {
			t, ok := operand(k)
			if scanned := k - (len(n.In) - int(count.I)); ok && scanned >= 0 {
				axis := int64(0)
				if axes != nil && scanned < len(axes.Ints) {
					axis = axes.Ints[scanned]
				}
				t, ok = without(t, axis)
			}
			if !ok {
				return false
			}
			typed(k, t)
		}
		return true
	}
	return false
}

// without is a type less one of its axes.
func without(t ir.Type, axis int64) (ir.Type, bool) {
	dims := slices.Clone(t.Shape.Dims())
	if axis < 0 {
		axis += int64(len(dims))
	}
	if axis < 0 || axis >= int64(len(dims)) {
		return t, false
	}
	t.Shape = ir.MakeShape(slices.Delete(dims, int(axis), int(axis)+1)...)
	return t, true
}
