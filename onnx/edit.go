package onnx

import (
	"cmp"
	"fmt"
	"io"
	"slices"
)

// Edit changes the main graph of a model as it is written. What it does not
// name keeps its bytes, fields that are not known here included, and its place.
type Edit struct {
	// Rename gives a node's operands (in) and results other names; nodes by index.
	Rename map[int]func(name string, in bool) string
	// Nodes are other forms of nodes, by index; Before are nodes before them.
	Nodes  map[int]NodeEdit
	Before map[int][]NewNode
	// Opset is another version of the standard operators; the version of the format
	// rises to one that has it. 0: the model's.
	Opset int64
	// First are nodes before all others, After those behind a node.
	First []NewNode
	After map[int][]NewNode
	// Tensors are new elements of initializers, by name; their shapes stay.
	Tensors map[string]NewTensor
	// Values are new elements of Constant nodes, by index. Inits are initializers to add.
	Values         map[int]NewTensor
	Inits          []NewInit
	withoutTensors bool // tensors are left out, which others have
	// DTypes are new types of the elements of values, where the graph says their types.
	DTypes map[string]DataType
	// Infos are types of values that are new, where the graph says those of others.
	Infos []NewInfo
	// Graphs are the changes of graphs in attributes of nodes, Functions those of the
	// model's own functions; the latter count in the edit of a model only.
	Graphs    map[*Graph]*Edit
	Functions map[*Function]*Edit
	// Data takes the elements of initializers of the main graph, which the model then finds
	// in the file DataFile beside it: those that are changed, that lie in other files, or
	// that are large. nil: what lies elsewhere stays there, all else stands in the model.
	Data     io.Writer
	DataFile string
	// Limit is the size from which a model without Data is refused (ErrTooLarge); 0: 2 GB.
	Limit    int64
	dataSize int64 // bytes in Data
}

// NewInfo says the type of a value: that of another one with other elements.
type NewInfo struct {
	Name, Like string
	DType      DataType
}

// NodeEdit is another form of a node; what is nil or "" stays.
type NodeEdit struct {
	Op      string
	In, Out []string
	Drop    []string // attributes
	Attrs   []NewAttr
}

// NewInit is an initializer; its shape is that of its elements.
type NewInit struct {
	Name string
	NewTensor
}

// NewNode is a node, of the standard domain where Domain is "".
type NewNode struct {
	Name, Op string
	Domain   string
	In, Out  []string
	Attrs    []NewAttr
}

// NewAttr is an attribute of a new node: an int64, float32, string, []int64,
// []float32, []string or NewTensor.
type NewAttr struct {
	Name  string
	Value any
}

// NewTensor is what an initializer holds: little-endian, row-major, dense.
type NewTensor struct {
	DType DataType
	Dims  []int64                 // of a tensor that is new; one that is changed keeps those that it has
	Size  int64                   // bytes
	Write func(w io.Writer) error // writes them, whenever the model is written
}

// Empty reports whether nothing is changed.
func (e *Edit) Empty() bool {
	return e == nil || len(e.Rename)+len(e.First)+len(e.After)+len(e.Tensors)+len(e.DTypes)+len(e.Values)+len(e.Inits)+len(e.Nodes)+len(e.Before)+len(e.Graphs)+len(e.Functions) == 0 && e.Opset == 0
}

// Write writes the model with the changes of e, nil for none: then the bytes
// are those that were read. Tensors that are not changed go from the mapped file to w.
func (m *Model) Write(w io.Writer, e *Edit) error {
	return m.guard(func() error {
		if e == nil {
			e = &Edit{}
		}
		if e.Empty() && m.lent == nil && e.Data == nil {
			_, err := w.Write(m.src.b)
			return err
		}
		out, err := m.edited(e)
		if err != nil {
			return err
		}
		if e.Data == nil && out.size > cmp.Or(e.Limit, maxMessage) && out.size > int64(len(m.src.b)) {
			return ErrTooLarge // one that was as large is what its reader takes
		}
		return out.writeTo(w)
	})
}

func (m *Model) edited(e *Edit) (*pieces, error) {
	out := &pieces{}
	functions := 0
	err := m.src.each(func(f field) error {
		switch {
		case f.num == 1 && e.Opset > 0:
			out.number(1, max(m.IR, irVersion(e.Opset)))
		case f.num == 8 && e.Opset > 0:
			return e.version(out, 8, f)
		case f.num == 7:
			g, err := m.graph(e, f.m, m.Graph.Nodes, true)
			if err == nil {
				out.message(7, g)
			}
			return err
		case f.num == 25:
			x := m.Functions[functions]
			functions++
			if e.Functions[x] == nil {
				out.add(f.raw)
				return nil
			}
			p, err := m.body(e.Functions[x], f.m, x)
			if err == nil {
				out.message(25, p)
			}
			return err
		default:
			out.add(f.raw)
		}
		return nil
	})
	return out, err
}

// version copies the version of an operator set.
func (e *Edit) version(out *pieces, num int, f field) error {
	sets := map[string]int64{}
	if err := opset(f, sets); err != nil {
		return err
	}
	if _, own := sets[""]; !own {
		out.add(f.raw)
		return nil
	}
	p := &pieces{}
	p.text(1, "")
	p.number(2, e.Opset)
	out.message(num, p)
	return nil
}

// graph copies the main graph of the model, or one in an attribute of a node.
func (m *Model) graph(e *Edit, src message, nodes []*Node, main bool) (*pieces, error) {
	out := &pieces{}
	i := 0
	infos := map[string]field{}
	err := src.each(func(f field) error {
		switch f.num {
		case 1:
			if i == 0 {
				e.add(out, 1, e.First)
			}
			err := m.node(e, out, 1, f, nodes[i], i)
			i++
			return err
		case 5:
			return m.tensor(e, out, f, main)
		case 11, 12, 13:
			return e.info(out, f, infos)
		}
		out.add(f.raw)
		return nil
	})
	for _, t := range e.Inits {
		out.message(5, tensorPieces(t.Name, t.Dims, t.NewTensor))
	}
	for _, x := range e.Infos {
		f, ok := infos[x.Like]
		if !ok || err != nil {
			continue
		}
		var p *pieces
		if p, err = f.typed(x.Name, x.DType); err == nil {
			out.message(13, p)
		}
	}
	return out, err
}

// body copies a function. It has no initializers: new ones are nodes of it.
func (m *Model) body(e *Edit, src message, fn *Function) (*pieces, error) {
	out := &pieces{}
	i := 0
	infos := map[string]field{}
	err := src.each(func(f field) error {
		switch {
		case f.num == 7:
			if i == 0 {
				for _, t := range e.Inits {
					n := NewNode{Name: t.Name, Op: "Constant", Out: []string{t.Name}, Attrs: []NewAttr{{"value", t.NewTensor}}}
					out.message(7, n.pieces())
				}
				e.add(out, 7, e.First)
			}
			err := m.node(e, out, 7, f, fn.Nodes[i], i)
			i++
			return err
		case f.num == 9 && e.Opset > 0:
			return e.version(out, 9, f)
		case f.num == 12:
			return e.info(out, f, infos)
		}
		out.add(f.raw)
		return nil
	})
	return out, err
}

// node copies node i of a graph, with what stands before it and behind it.
func (m *Model) node(e *Edit, out *pieces, num int, f field, n *Node, i int) error {
	e.add(out, num, e.Before[i])
	var p *pieces
	var err error
	form, formed := e.Nodes[i]
	value, valued := e.Values[i]
	rename := e.Rename[i]
	switch {
	case formed:
		p, err = form.form(f.m, rename)
	case valued:
		p, err = revalued(f.m, value)
	case rename != nil || e.within(n):
		p, err = m.renamed(e, f.m, n, rename)
	default:
		out.add(f.raw)
	}
	if err != nil {
		return err
	}
	if p != nil {
		out.message(num, p)
	}
	e.add(out, num, e.After[i])
	return nil
}

// within reports whether a graph in an attribute of n is changed.
func (e *Edit) within(n *Node) bool {
	return slices.ContainsFunc(n.Attrs, func(a *Attribute) bool { return a.G != nil && e.Graphs[a.G] != nil })
}

// revalued copies a Constant node with another value.
func revalued(node message, v NewTensor) (*pieces, error) {
	p := &pieces{}
	err := node.each(func(f field) error {
		if f.num != 5 {
			p.add(f.raw)
			return nil
		}
		a := Attribute{}
		if err := a.read(f, 0); err != nil {
			return err
		}
		if a.Name != "value" {
			p.add(f.raw)
			return nil
		}
		v.Dims = a.T.Dims
		p.message(5, (&NewAttr{"value", v}).pieces())
		return nil
	})
	return p, err
}

func (e *Edit) add(out *pieces, num int, nodes []NewNode) {
	for _, n := range nodes {
		out.message(num, n.pieces())
	}
}

// renamed copies a node with other names for what it reads and makes, nil for none,
// and with the changes of graphs in its attributes.
func (m *Model) renamed(e *Edit, node message, n *Node, rename func(name string, in bool) string) (*pieces, error) {
	p := &pieces{}
	attrs := 0
	err := node.each(func(f field) error {
		switch name := string(f.m.b); {
		case f.num == 1 && name != "" && rename != nil:
			p.text(1, rename(name, true))
		case f.num == 2 && name != "" && rename != nil:
			p.text(2, rename(name, false))
		case f.num == 5:
			a := n.Attrs[attrs]
			attrs++
			if a.G == nil || e.Graphs[a.G] == nil {
				p.add(f.raw)
				return nil
			}
			inner := &pieces{}
			err := f.m.each(func(f field) error {
				if f.num != 6 {
					inner.add(f.raw)
					return nil
				}
				g, err := m.graph(e.Graphs[a.G], f.m, a.G.Nodes, false)
				if err == nil {
					inner.message(6, g)
				}
				return err
			})
			p.message(5, inner)
			return err
		default:
			p.add(f.raw)
		}
		return nil
	})
	return p, err
}

// tensor copies an initializer, or what takes its place.
func (m *Model) tensor(e *Edit, out *pieces, f field, main bool) error {
	var t Tensor
	if err := t.read(f); err != nil {
		return err
	}
	x, ok := e.Tensors[t.Name]
	if main && e.Data != nil && !ok {
		var err error
		if x, ok, err = m.moving(&t); err != nil {
			return err
		}
	}
	var lent *message
	if main {
		lent = m.lent[t.Name]
	}
	switch {
	case e.withoutTensors:
		out.message(5, bare(t.Name))
		return nil
	case !ok && lent != nil:
		out.message(5, &pieces{parts: []part{{b: lent.b}}, size: int64(len(lent.b))})
		return nil
	case !ok:
		out.add(f.raw)
		return nil
	case lent != nil:
		f.m = *lent
	}
	if main && e.Data != nil && x.Size >= minExternal {
		return e.apart(out, f.m, t.Name, t.Dims, x)
	}
	p := &pieces{}
	err := f.m.each(func(f field) error {
		switch f.num {
		case 2:
			p.number(2, int64(x.DType))
		case 4, 5, 6, 7, 9, 10, 11, 13, 14: // the elements, wherever they are
		default:
			p.add(f.raw)
		}
		return nil
	})
	p.data(9, x)
	out.message(5, p)
	return err
}

// info copies the type of a value, or says another for its elements; infos collects it.
func (e *Edit) info(out *pieces, f field, infos map[string]field) error {
	var list []*Info
	if err := info(f, &list); err != nil {
		return err
	}
	infos[list[0].Name] = f
	d, ok := e.DTypes[list[0].Name]
	if !ok {
		out.add(f.raw)
		return nil
	}
	if list[0].Kind != "" {
		return fmt.Errorf("value %q is a %s, want a tensor: only tensors have a dtype", list[0].Name, list[0].Kind)
	}
	p, err := f.typed(list[0].Name, d)
	if err == nil {
		out.message(f.num, p)
	}
	return err
}

// typed copies the type of a value for a name, with other elements.
func (f field) typed(name string, d DataType) (*pieces, error) {
	p := &pieces{}
	err := f.m.each(func(f field) error {
		switch f.num {
		case 1:
			p.text(1, name)
		case 2:
			t, err := replaced(f.m, []int{1, 1}, int64(d))
			if err == nil {
				p.message(2, t)
			}
			return err
		default:
			p.add(f.raw)
		}
		return nil
	})
	return p, err
}

// replaced copies a message with another number in the field that path leads to.
func replaced(src message, path []int, x int64) (*pieces, error) {
	p := &pieces{}
	err := src.each(func(f field) error {
		switch {
		case f.num != path[0]:
			p.add(f.raw)
		case len(path) == 1:
			p.number(f.num, x)
		default:
			inner, err := replaced(f.m, path[1:], x)
			if err != nil {
				return err
			}
			p.message(f.num, inner)
		}
		return nil
	})
	return p, err
}
